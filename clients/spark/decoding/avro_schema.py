"""The Spark type of an Avro schema.

    null boolean int long float double bytes string     the Spark type of the same name or meaning
    enum, uuid, fixed                                    string, string, binary
    record, array, map, [null, T]                        struct, array, map, T
    a union of int and long, of float and double         long, double
    other unions of several types                        struct with the nullable fields member0, member1, ...
    date, timestamp-millis, timestamp-micros, decimal    date, timestamp, decimal
    local-timestamp-millis, -micros                      timestamp without a zone

The members of a union are its types but null, in their order; avro_values.py finds the member of a value. Other schemas
(times of day, durations, recursive records) are rejected when the pipeline starts. They may still be schemas of
writers, if Avro can resolve them to the columns.

fastavro's compiled reader does not limit its recursion: a body of some thousand nested records, of a writer with a
recursive schema, would overflow the stack and end the process. Such writers are read by fastavro's reader in Python,
which raises RecursionError. Other bodies are as deep as their schema.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import fastavro
from fastavro import _read_py
from fastavro.schema import SchemaParseException, UnknownType, fingerprint, to_parsing_canonical_form
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

from skylarkmq.clients.spark.decoding import avro_values
from skylarkmq.clients.spark.decoding.avro_values import Conversion, branches, inner, is_one_column
from skylarkmq.clients.spark.decoding.registry import Texts

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

_WIDTHS: Final = (IntegerType(), LongType(), FloatType(), DoubleType())

SINGLE_OBJECT: Final = b"\xc3\x01"


def parsed(texts: Texts) -> Any:
    """Return fastavro's form of a schema. Raises ValueError if it is not an Avro schema."""
    return _parsed(texts)[0]


class Writer(NamedTuple):
    """A writer's schema, and the function of fastavro that reads its data."""

    schema: Any
    read: Callable[..., Any]


def writer_of(texts: Texts) -> Writer:
    """Return the writer of a schema. Raises ValueError."""
    schema, named = _parsed(texts)
    is_recursive = any(_refers_to(name, part) for name, record in named.items() for part in inner(record))
    return Writer(schema, _read_py.schemaless_reader if is_recursive else fastavro.schemaless_reader)


def conversion(texts: Texts) -> Conversion:
    """Return the conversion of fastavro's values to the columns' values."""
    return avro_values.conversion(*_parsed(texts))


def columns(texts: Texts) -> StructType:
    """Return the columns of a schema's data. Raises ValueError if the schema has no counterpart in Spark."""
    schema, named = _parsed(texts)
    kind = _spark_type(schema, named)
    if not isinstance(kind, StructType):
        raise ValueError(f"an Avro schema of bodies must be a record, not {kind.simpleString()}")
    return kind


def marker(schema: Any) -> bytes:
    """Return the header of single-object encoding: two bytes, and the CRC-64-AVRO of the schema's canonical form."""
    return SINGLE_OBJECT + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))


def _parsed(texts: Texts) -> tuple[Any, dict[str, Any]]:
    """Return the last schema and all named ones."""
    named: dict[str, Any] = {}
    schema: Any = None
    for text in texts:
        try:
            schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
        except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"not an Avro schema: {type(error).__name__} {error}") from error
    return schema, named


def _refers_to(name: str, schema: Any) -> bool:
    """Return whether a schema in fastavro's form has a reference to a named type, at any depth."""
    if isinstance(schema, str):
        return schema == name
    return any(_refers_to(name, one) for one in (schema if isinstance(schema, list) else inner(schema)))


def _spark_type(schema: Any, named: Mapping[str, Any], within: frozenset[str] = frozenset()) -> DataType:
    """Return the type of a schema in fastavro's form; `within` has the names of the records around it."""
    if isinstance(schema, list):
        return _union_type(schema, named, within)
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema in within:
            raise ValueError(f"the record {schema} contains itself, which has no counterpart in Spark")
        return _spark_type(named[schema], named, within)
    if (logical := schema.get("logicalType")) is not None:
        return _logical_type(schema, logical)
    kind = schema["type"]
    if kind == "array":
        return ArrayType(_spark_type(schema["items"], named, within))
    if kind == "map":
        return MapType(StringType(), _spark_type(schema["values"], named, within))
    if kind in {"record", "error"}:
        inner = within | {schema["name"]}
        return StructType(
            [StructField(field["name"], _spark_type(field["type"], named, inner)) for field in schema["fields"]]
        )
    return _spark_type(kind, named, within) if isinstance(kind, dict | list) else _PRIMITIVES[kind]


def _union_type(union: list[Any], named: Mapping[str, Any], within: frozenset[str]) -> DataType:
    types = [_spark_type(branch, named, within) for branch in branches(union)]
    if not types:
        raise ValueError("a union without a type but null has no counterpart in Spark")
    if not is_one_column(union):
        return StructType([StructField(f"member{number}", kind) for number, kind in enumerate(types)])
    return max(types, key=_WIDTHS.index) if len(types) > 1 else types[0]


def _logical_type(schema: Mapping[str, Any], logical: str) -> DataType:
    if logical == "decimal":
        return DecimalType(schema["precision"], schema.get("scale", 0))
    if logical not in _LOGICAL:
        raise ValueError(f"Avro's {logical} has no counterpart in Spark")
    return _LOGICAL[logical]
