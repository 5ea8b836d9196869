"""Columns of Protobuf messages: the Spark type of a message, and the Arrow arrays of many messages.

    bool, int32 sint32 sfixed32, int64 sint64 sfixed64    boolean, int, bigint
    uint32 fixed32, uint64 fixed64                        bigint, decimal(20,0): no value changes its sign
    float, double, string, bytes                          float, double, string, binary
    enum                                                  string: the name, or the number of an unknown value
    message, repeated, map                                struct, array, map
    google.protobuf.Timestamp                             timestamp, cut to microseconds
    google.protobuf.Duration                              bigint: microseconds, cut
    google.protobuf.Int32Value and the other wrappers     the wrapped type, nullable
    google.protobuf.Struct, Value, ListValue              string: JSON
    a message without fields, such as Empty               boolean: true if present; files have no empty structs

A field with presence (`optional`, a message, a member of a oneof, any field of proto2) is null if it is absent. Another
field has its default value then: the encoding cannot express the difference. Members of a oneof are separate columns.
Extensions and unknown fields are ignored. A message that contains itself is rejected.

Arrays are built by column: each field is read from all messages at once, and the elements of repeated fields are
flattened into one list.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from skylarkmq.clients.spark.decoding.columns import arrow_type

Build = Callable[[list[Any]], pa.Array]
"""Returns the array of some values; a value that is None becomes null."""

_REPEATED: Final = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_SECONDS: Final = (-62_135_596_800, 253_402_300_799)  # 0001-01-01 to 9999-12-31, the range of the type
_DURATION_S: Final = 315_576_000_000  # 10,000 years, the range of the type


class Column(NamedTuple):
    """A Spark type, and the function that builds its arrays.

    Builders raise OverflowError, UnicodeError or an error of Arrow for a value that the type cannot hold.
    """

    type: DataType
    build: Build


def message_column(descriptor: Descriptor, within: tuple[str, ...] = ()) -> Column:
    """Return the column of a message type; `within` has the types around it. Raises ValueError for a recursive type."""
    name = descriptor.full_name
    if name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if name in within:
        raise ValueError(f"the message {name} contains itself, which has no counterpart in Spark")
    if not descriptor.fields:
        return _converted(BooleanType(), lambda _: True)
    labels = _labels(descriptor)
    fields = [
        (field.name, _getter(field, labels[field.name]), _field_column(field, labels[field.name], (*within, name)))
        for field in descriptor.fields
    ]
    kind = StructType([StructField(field, column.type) for field, _, column in fields])
    arrow_fields = list(arrow_type(kind))

    def build(messages: list[Any]) -> pa.Array:
        arrays = [column.build(get(messages)) for _, get, column in fields]
        missing = pa.array([message is None for message in messages], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=arrow_fields, mask=missing)

    return Column(kind, build)


def _labels(descriptor: Descriptor) -> Mapping[str, int]:
    """Return the label of each field; a field's own attribute is deprecated in new versions, its successor is new."""
    proto = descriptor_pb2.DescriptorProto()
    descriptor.CopyToProto(proto)
    return {field.name: field.label for field in proto.field}


def _getter(field: FieldDescriptor, label: int) -> Build:
    """Return a function from messages to the field's values; absent ones are None."""
    name = field.name
    if label == _REPEATED or not field.has_presence:
        return lambda messages: [None if message is None else getattr(message, name) for message in messages]
    return lambda messages: [
        getattr(message, name) if message is not None and message.HasField(name) else None for message in messages
    ]


def _field_column(field: FieldDescriptor, label: int, within: tuple[str, ...]) -> Column:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (_value_column(inner, within) for inner in field.message_type.fields)
        return _map_column(key, value)
    column = _value_column(field, within)
    return _list_column(column) if label == _REPEATED else column


def _value_column(field: FieldDescriptor, within: tuple[str, ...]) -> Column:
    if field.message_type is not None:
        return message_column(field.message_type, within)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}  # of aliases, the first
        return _converted(StringType(), lambda number: names.get(number, str(number)))
    return _SCALARS[field.type]


def _list_column(element: Column) -> Column:
    kind = ArrayType(element.type)
    list_type = arrow_type(kind)

    def build(values: list[Any]) -> pa.Array:
        elements = [item for value in values if value is not None for item in value]
        return pa.ListArray.from_arrays(_offsets(values), element.build(elements), type=list_type)

    return Column(kind, build)


def _map_column(key: Column, value: Column) -> Column:
    def build(maps: list[Any]) -> pa.Array:
        entries = [entry for each in maps if each is not None for entry in each.items()]
        keys = key.build([name for name, _ in entries])
        return pa.MapArray.from_arrays(_offsets(maps), keys, value.build([item for _, item in entries]))

    return Column(MapType(key.type, value.type), build)


def _offsets(values: list[Any]) -> pa.Array:
    """Return the offset of each list or map in the flattened entries, and their number; null: the list is null."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else len(value)
    return pa.array([*offsets, end], pa.int32())


# --- values ---------------------------------------------------------------------------------------


def _converted(kind: DataType, convert: Callable[[Any], Any]) -> Column:
    to = arrow_type(kind)
    return Column(kind, lambda values: pa.array([None if value is None else convert(value) for value in values], to))


def _direct(kind: DataType) -> Column:
    to = arrow_type(kind)
    return Column(kind, lambda values: pa.array(values, to))


def _wrapped(column: Column) -> Column:
    build = column.build
    return Column(column.type, lambda values: build([None if value is None else value.value for value in values]))


def _timestamp_us(value: Any) -> int:
    if not _SECONDS[0] <= value.seconds <= _SECONDS[1] or not 0 <= value.nanos < 1_000_000_000:
        raise OverflowError(f"timestamp of {value.seconds} s and {value.nanos} ns")
    return int(value.seconds) * 1_000_000 + int(value.nanos) // 1000


def _duration_us(value: Any) -> int:
    if abs(value.seconds) > _DURATION_S or abs(value.nanos) >= 1_000_000_000 or value.seconds * value.nanos < 0:
        raise OverflowError(f"duration of {value.seconds} s and {value.nanos} ns")
    return int(value.seconds) * 1_000_000 + int(value.nanos / 1000)


def _json(value: Any) -> str:
    try:
        return str(json_format.MessageToJson(value, indent=None, sort_keys=True, ensure_ascii=False))
    except (json_format.Error, ValueError) as error:
        raise OverflowError(f"JSON cannot express it: {error}") from error


_INT: Final = _direct(IntegerType())
_LONG: Final = _direct(LongType())
_UNSIGNED_LONG: Final = _converted(DecimalType(20, 0), Decimal)

_SCALARS: Final[Mapping[int, Column]] = {
    FieldDescriptor.TYPE_BOOL: _direct(BooleanType()),
    FieldDescriptor.TYPE_INT32: _INT,
    FieldDescriptor.TYPE_SINT32: _INT,
    FieldDescriptor.TYPE_SFIXED32: _INT,
    FieldDescriptor.TYPE_INT64: _LONG,
    FieldDescriptor.TYPE_SINT64: _LONG,
    FieldDescriptor.TYPE_SFIXED64: _LONG,
    FieldDescriptor.TYPE_UINT32: _LONG,
    FieldDescriptor.TYPE_FIXED32: _LONG,
    FieldDescriptor.TYPE_UINT64: _UNSIGNED_LONG,
    FieldDescriptor.TYPE_FIXED64: _UNSIGNED_LONG,
    FieldDescriptor.TYPE_FLOAT: _direct(FloatType()),
    FieldDescriptor.TYPE_DOUBLE: _direct(DoubleType()),
    FieldDescriptor.TYPE_STRING: _direct(StringType()),
    FieldDescriptor.TYPE_BYTES: _direct(BinaryType()),
}
_WELL_KNOWN: Final[Mapping[str, Column]] = {
    "google.protobuf.Timestamp": _converted(TimestampType(), _timestamp_us),
    "google.protobuf.Duration": _converted(LongType(), _duration_us),
    "google.protobuf.BoolValue": _wrapped(_SCALARS[FieldDescriptor.TYPE_BOOL]),
    "google.protobuf.Int32Value": _wrapped(_INT),
    "google.protobuf.Int64Value": _wrapped(_LONG),
    "google.protobuf.UInt32Value": _wrapped(_LONG),
    "google.protobuf.UInt64Value": _wrapped(_UNSIGNED_LONG),
    "google.protobuf.FloatValue": _wrapped(_SCALARS[FieldDescriptor.TYPE_FLOAT]),
    "google.protobuf.DoubleValue": _wrapped(_SCALARS[FieldDescriptor.TYPE_DOUBLE]),
    "google.protobuf.StringValue": _wrapped(_SCALARS[FieldDescriptor.TYPE_STRING]),
    "google.protobuf.BytesValue": _wrapped(_SCALARS[FieldDescriptor.TYPE_BYTES]),
    "google.protobuf.Struct": _converted(StringType(), _json),
    "google.protobuf.Value": _converted(StringType(), _json),
    "google.protobuf.ListValue": _converted(StringType(), _json),
}
