"""Bodies decoded in Python workers: each Arrow batch of messages gets the columns `value` and `deadLetterReason`.

    DataFrame --mapInArrow--> RecordBatch --BodyDecoder--> RecordBatch with two more columns

Spark runs this step once for each row and never moves it, so the filters that follow decode nothing again.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame
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

BODY: Final = "body"
VALUE: Final = "value"
REASON: Final = "deadLetterReason"
DAMAGED: Final = "the body cannot be decompressed"
"""The reason of a body that is null."""

BEYOND_ARROW: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError)
"""Errors of Arrow for a value that its type cannot hold."""

_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    NullType: pa.null(),
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    BinaryType: pa.binary(),
    StringType: pa.string(),
    DateType: pa.date32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
    TimestampNTZType: pa.timestamp("us"),
}

T = TypeVar("T")


class BodyDecoder(Protocol):
    """Decodes the bodies of a batch. Created on the driver, pickled, used in the executors."""

    @property
    def kind(self) -> StructType:
        """The type of the values."""

    def decode(self, bodies: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the values and the reasons, as long as `bodies`; one of the two is null in each row."""


def with_values(messages: DataFrame, decoder: BodyDecoder) -> DataFrame:
    """Return the messages with the columns value and deadLetterReason."""
    added = StructType([StructField(VALUE, decoder.kind), StructField(REASON, StringType())])

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [*batch.columns, *decoder.decode(batch.column(BODY))]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, *added.fieldNames()])

    return messages.mapInArrow(decode, StructType([*messages.schema.fields, *added.fields]))


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type that Spark exchanges for a type; fields, elements and values are nullable."""
    if isinstance(kind, StructType):
        return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", arrow_type(kind.elementType)))
    if isinstance(kind, MapType):
        key = pa.field("key", arrow_type(kind.keyType), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(kind.valueType)))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _ARROW[type(kind)]


def column_of(
    values: list[T | None], reasons: list[str | None], build: Callable[[list[T | None]], pa.Array], what: str
) -> pa.Array:
    """Return `build(values)`; a value that the type cannot hold (a too long decimal) becomes null and gets a reason."""
    try:
        return build(values)
    except BEYOND_ARROW:
        for at, error in _refused(values, build, 0, len(values)):
            values[at], reasons[at] = None, f"the {what} has a value beyond the column's type: {error}"
    return build(values)


def _refused(
    values: list[T | None], build: Callable[[list[T | None]], pa.Array], begin: int, end: int
) -> Iterator[tuple[int, Exception]]:
    """Yield the values among [begin, end) for which `build` fails, found by halving: most are good."""
    try:
        build(values[begin:end])
    except BEYOND_ARROW as error:
        if end - begin == 1:
            yield begin, error
        else:
            middle = (begin + end) // 2
            yield from _refused(values, build, begin, middle)
            yield from _refused(values, build, middle, end)
