"""Avro bodies as columns, decoded by fastavro. Each body is one datum of one schema, without a header.

    null boolean int long float double bytes string     the Spark type of the same name or meaning
    enum, uuid, fixed                                    string, string, binary
    record, array, map, [null, T]                        struct, array, map, T
    date, timestamp-millis, timestamp-micros, decimal    date, timestamp, decimal
    local-timestamp-millis, -micros                      timestamp without a zone

Other schemas (unions of several types, times of day, durations, recursive records) are rejected when the pipeline
starts. Spark's own Avro decoder is a separate jar; this decoder is installed by the extra `avro`.
"""

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import fastavro
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_PRIMITIVES: Final[Mapping[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: Final[Mapping[str, DataType]] = {
    "date": DateType(),
    "uuid": StringType(),
    "timestamp-millis": TimestampType(),
    "timestamp-micros": TimestampType(),
    "local-timestamp-millis": TimestampNTZType(),
    "local-timestamp-micros": TimestampNTZType(),
}

_BOTH: Final = "__decoded__"
_BEYOND: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError)

MALFORMED: Final = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, ArithmeticError)
"""Errors that fastavro raises for bytes that are not a datum of the schema."""


def spark_type(schema: Any) -> DataType:
    """Return the Spark type of an Avro schema. Raises ValueError if Spark has no counterpart."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {schema} has no counterpart in Spark: only [null, T] has")
        return spark_type(others[0])
    if isinstance(schema, str):
        schema = {"type": schema}
    kind, logical = schema["type"], schema.get("logicalType")
    if isinstance(kind, dict | list):
        return spark_type(kind)
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical is not None:
        if logical not in _LOGICAL:
            raise ValueError(f"Avro's {logical} has no counterpart in Spark")
        return _LOGICAL[logical]
    if kind in _NESTED:
        return _NESTED[kind](schema)
    if kind not in _PRIMITIVES:
        raise ValueError(f"{kind} is not an Avro type, or refers to a named record: write the record out, or remove it")
    return _PRIMITIVES[kind]


def _record(schema: Mapping[str, Any]) -> DataType:
    return StructType([StructField(field["name"], spark_type(field["type"])) for field in schema["fields"]])


def _array(schema: Mapping[str, Any]) -> DataType:
    return ArrayType(spark_type(schema["items"]))


def _map(schema: Mapping[str, Any]) -> DataType:
    return MapType(StringType(), spark_type(schema["values"]))


_NESTED: Final[Mapping[str, Callable[[Mapping[str, Any]], DataType]]] = {
    "record": _record,
    "array": _array,
    "map": _map,
}


def decoded(messages: DataFrame, schema_text: str, value: str, reason: str) -> DataFrame:
    """Add the columns `value` and `reason`, of which one is null. Raises ValueError for an unsupported schema."""
    schema = json.loads(schema_text)
    kind = spark_type(schema)
    if not isinstance(kind, StructType):
        raise ValueError(f"an Avro schema of bodies must be a record, not {kind.simpleString()}")
    fastavro.parse_schema(schema)
    pair = StructType([StructField(value, kind), StructField(reason, StringType())])
    decoder = Decoder(schema_text, to_arrow_type(kind, timezone="UTC"), (value, reason))

    def decode(bodies: pa.Array) -> pa.Array:
        return decoder.decode(bodies)

    # Nondeterministic: the optimizer must not decode once for the filter and again for the columns.
    # The annotations above determine the kind of the UDF; PySpark warns about an explicit kind, its stubs require one.
    both = arrow_udf(decode, pair).asNondeterministic()("body")  # type: ignore[call-overload]
    rows = messages.withColumn(_BOTH, both)
    return rows.withColumn(value, f.col(_BOTH)[value]).withColumn(reason, f.col(_BOTH)[reason]).drop(_BOTH)


class Decoder:
    """Decodes bodies into structs with the two fields `names`: value and reason.

    Created on the driver, used on executors.
    """

    def __init__(self, schema_text: str, kind: pa.DataType, names: tuple[str, str]) -> None:
        self._schema_text = schema_text
        self._kind = kind
        self._names = names
        self._schema: Any = None

    def __repr__(self) -> str:
        return f"<Decoder {self._kind}>"

    def decode(self, bodies: pa.Array) -> pa.StructArray:
        """Return one struct for each body; one of its two fields is null."""
        if self._schema is None:
            self._schema = fastavro.parse_schema(json.loads(self._schema_text))
        read = [_read(self._schema, body) for body in bodies.to_pylist()]
        values, reasons = self._columns([value for value, _ in read], [reason for _, reason in read])
        return pa.StructArray.from_arrays([values, reasons], list(self._names))

    def _columns(self, values: list[Any], reasons: list[str | None]) -> tuple[pa.Array, pa.Array]:
        try:
            column = pa.array(values, self._kind)
        except _BEYOND:
            column = self._one_by_one(values, reasons)
        return column, pa.array(reasons, pa.string())

    def _one_by_one(self, values: list[Any], reasons: list[str | None]) -> pa.Array:
        """Convert values one by one: a value that Arrow cannot represent (such as a too long decimal) gets a reason."""
        for at, value in enumerate(values):
            try:
                pa.array([value], self._kind)
            except _BEYOND as error:
                values[at], reasons[at] = None, f"the Avro datum has no counterpart in Spark: {error}"
        return pa.array(values, self._kind)


def _read(schema: Any, body: bytes | None) -> tuple[Any, str | None]:
    if body is None:
        return None, "the body cannot be decompressed"
    stream = io.BytesIO(body)
    try:
        value = fastavro.schemaless_reader(stream, schema, None)
    except MALFORMED as error:
        return None, f"the body is not an Avro datum of the schema: {type(error).__name__} {error}".rstrip()
    if rest := len(body) - stream.tell():
        return None, f"the body is not an Avro datum of the schema: {rest} bytes remain"
    return value, None
