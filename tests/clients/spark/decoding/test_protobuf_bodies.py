"""Protobuf bodies: every type, presence, well-known types, and bodies that are no message."""

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, text_format
from pyspark.sql.types import IntegerType, StringType, StructType

from skylarkmq.clients.spark.decoding.encodings import ProtobufBodies
from skylarkmq.clients.spark.decoding.protobuf_bodies import ProtobufDecoder, message_class

SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip


def field(name: str, number: int, kind: str, label: str = "OPTIONAL", more: str = "") -> str:
    """A field in the text format; a kind with a dot is a message."""
    typed = f'type_name: "{kind}"' if kind.startswith(".") else f"type: TYPE_{kind.upper()}"
    return f'field {{ name: "{name}" number: {number} label: LABEL_{label} {typed} {more} }}'


def entry(name: str, key: str, value: str) -> str:
    """The message of a map's entries."""
    fields = field("key", 1, key) + field("value", 2, value)
    return f'nested_type {{ name: "{name}" {fields} options {{ map_entry: true }} }}'


def well_known(name: str) -> str:
    return f".google.protobuf.{name}"


WRAPPERS = {
    "BoolValue": True,
    "Int32Value": -1,
    "Int64Value": -2,
    "UInt32Value": 2**32 - 1,
    "UInt64Value": 2**64 - 1,
    "FloatValue": 0.5,
    "DoubleValue": 0.25,
    "StringValue": "ü",
    "BytesValue": b"\xff",
}
ORDER = " ".join((
    *(field(name, number, name) for number, name in enumerate(SCALARS, 1)),
    *(field(f"many_{name}", number, name, "REPEATED") for number, name in enumerate(SCALARS, 21)),
    *(field(name, number, well_known(name)) for number, name in enumerate(WRAPPERS, 41)),
    field("kind", 60, "enum", more='type_name: ".shop.Kind"'),
    field("line", 61, ".shop.Line"),
    field("lines", 62, ".shop.Line", "REPEATED"),
    field("counts", 63, ".shop.Order.CountsEntry", "REPEATED"),
    field("by_number", 64, ".shop.Order.ByNumberEntry", "REPEATED"),
    field("card", 65, "string", more="oneof_index: 0"),
    field("cash", 66, ".google.protobuf.Empty", more="oneof_index: 0"),
    field("maybe", 67, "int32", more="oneof_index: 1 proto3_optional: true"),
    field("at", 68, well_known("Timestamp")),
    field("took", 69, well_known("Duration")),
    field("extra", 70, well_known("Struct")),
    entry("CountsEntry", "string", "int64"),
    entry("ByNumberEntry", "int32", ".shop.Line"),
    'oneof_decl { name: "payment" } oneof_decl { name: "_maybe" }',
))  # fmt: skip
IMPORTS = "".join(
    f'dependency: "google/protobuf/{name}.proto"' for name in ("timestamp", "duration", "wrappers", "struct", "empty")
)
FILES = f"""
file {{
  name: "shop.proto" package: "shop" syntax: "proto3" {IMPORTS} dependency: "line.proto"
  message_type {{ name: "Order" {ORDER} }}
  message_type {{ name: "Tree" {field("children", 1, ".shop.Tree", "REPEATED")} }}
  message_type {{ name: "Nothing" }}
  enum_type {{ name: "Kind" value {{ name: "NONE" number: 0 }} value {{ name: "GIFT" number: 1 }} }}
}}
file {{
  name: "line.proto" package: "shop" syntax: "proto2"
  message_type {{ name: "Line" {field("item", 1, "string", "REQUIRED")} {field("n", 2, "int32")} }}
}}
"""


def descriptors(text: str = FILES) -> bytes:
    return bytes(text_format.Parse(text, descriptor_pb2.FileDescriptorSet()).SerializeToString())


def bodies_of(message: str, text: str = FILES) -> ProtobufBodies:
    return ProtobufBodies(descriptor_set=descriptors(text), message=message)


def decode(bodies: list[bytes | None], message: str = "shop.Order") -> tuple[list[Any], list[Any]]:
    """The values and the reasons, from a decoder that was pickled as Spark does."""
    decoder: ProtobufDecoder = pickle.loads(pickle.dumps(ProtobufDecoder(bodies_of(message))))
    values, reasons = decoder.decode(pa.array(bodies, pa.binary()))
    return values.to_pylist(), reasons.to_pylist()


VALUES: dict[str, Any] = {
    "double": 0.1, "float": 0.5, "int32": -(2**31), "int64": -(2**63), "uint32": 2**32 - 1, "uint64": 2**64 - 1,
    "sint32": -5, "sint64": -6, "fixed32": 2**32 - 2, "fixed64": 2**64 - 2, "sfixed32": -7, "sfixed64": -8,
    "bool": True, "string": "größer", "bytes": b"\0\xff",
}  # fmt: skip


def test_every_type_of_protobuf_has_a_column() -> None:
    """Scalars, lists, maps, nested messages, enums, members of a oneof, and well-known types."""
    order = message_class(bodies_of("shop.Order"))(**VALUES)
    for name, value in VALUES.items():
        getattr(order, f"many_{name}").extend([value, value])
    for name, value in WRAPPERS.items():
        getattr(order, name).value = value
    order.kind, order.card, order.maybe = 1, "visa", 0
    order.line.item, order.line.n = "tea", 3
    order.lines.add(item="a")
    order.lines.add(item="b", n=1)
    order.counts["x"] = 5
    order.by_number[7].item = "seven"
    order.at.FromNanoseconds(1_700_000_000_123_456_789)
    order.took.FromNanoseconds(-1_500_000_001)
    order.extra.update({"b": [1, None], "a": "ü"})
    (value,), (reason,) = decode([order.SerializeToString()])
    assert reason is None
    expected = VALUES | {"uint64": Decimal(2**64 - 1), "fixed64": Decimal(2**64 - 2)}
    assert {name: value[name] for name in VALUES} == expected
    assert {name: value[f"many_{name}"] for name in VALUES} == {name: [item, item] for name, item in expected.items()}
    assert {name: value[name] for name in WRAPPERS} == WRAPPERS | {"UInt64Value": Decimal(2**64 - 1)}
    assert {name: value[name] for name in ("kind", "card", "cash", "maybe")} == {
        "kind": "GIFT", "card": "visa", "cash": None, "maybe": 0,
    }  # fmt: skip
    assert (value["line"], value["lines"]) == (
        {"item": "tea", "n": 3},
        [{"item": "a", "n": None}, {"item": "b", "n": 1}],
    )
    assert (value["counts"], value["by_number"]) == ([("x", 5)], [(7, {"item": "seven", "n": None})])
    assert value["at"] == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)
    assert (value["took"], value["extra"]) == (-1_500_000, '{"a": "ü", "b": [1.0, null]}')


def test_absent_fields_are_null_if_they_have_presence() -> None:
    """Others have their defaults; enum values that the type lacks are numbers; an empty message is true."""
    order = message_class(bodies_of("shop.Order"))(kind=9)
    order.cash.SetInParent()
    (empty, other), reasons = decode([b"", order.SerializeToString()])
    assert reasons == [None, None]
    defaults = {"string": "", "bytes": b"", "bool": False, "double": 0.0, "float": 0.0}
    assert {name: empty[name] for name in SCALARS} == {name: defaults.get(name, 0) for name in SCALARS}
    assert [empty[name] for name in (*WRAPPERS, "line", "card", "cash", "maybe", "at", "took", "extra")] == [None] * 16
    assert (empty["kind"], empty["lines"], empty["counts"]) == ("NONE", [], [])
    assert (other["kind"], other["cash"]) == ("9", True)


def test_an_invalid_body_has_a_reason_and_no_value() -> None:
    """Truncated, not UTF-8, without a required field, beyond the range, null: the other bodies are decoded."""
    message = message_class(bodies_of("shop.Order"))
    good = message(string="good").SerializeToString()
    late, odd = message(), message()
    late.at.seconds = 10**12
    odd.extra.fields["nan"].number_value = float("nan")
    bodies: list[bytes | None] = [
        good,
        good[:-1],
        b"\x72\x01\xff",
        b"\xea\x03\x00",
        late.SerializeToString(),
        odd.SerializeToString(),
        None,
    ]
    values, reasons = decode([*bodies, good])
    assert [value and value["string"] for value in values] == ["good", *[None] * 6, "good"]
    expected = [
        "",
        *["not a Protobuf message"] * 2,
        "lacks required fields",
        "timestamp of 1000000000000",
    ]
    expected += ["JSON cannot express it", "cannot be decompressed", ""]
    assert [part in (reason or "") for part, reason in zip(expected, reasons, strict=True)] == [True] * 8
    assert [reason is None for reason in reasons] == [True, *[False] * 6, True]


def test_texts_of_proto2_that_are_not_utf_8_have_a_reason() -> None:
    """The decoder of proto2 may accept them."""
    values, reasons = decode([b"\x0a\x01\xff", b"\x0a\x01x"], "shop.Line")
    assert values == [None, {"item": "x", "n": None}]
    assert (reasons[0] is None, reasons[1]) == (False, None)


@pytest.mark.parametrize(
    ("bodies", "error"),
    [
        (bodies_of("shop.Tree"), "shop.Tree contains itself"),
        (bodies_of("shop.Nothing"), "no fields of its own"),
        (bodies_of("shop.Oder"), "did you mean shop.Order?"),
        (ProtobufBodies(descriptor_set=b"\xff", message="x"), "not a FileDescriptorSet"),
        (ProtobufBodies(descriptor_set=b"", message="x"), "it contains no message"),
        (bodies_of("a", 'file { name: "a" dependency: "b" }'), "lacks the import b"),
        (bodies_of("a", f'file {{ name: "a" message_type {{ name: "a" {field("x", 1, ".gone")} }} }}'), "is invalid"),
    ],
)
def test_descriptors_that_cannot_be_used_are_rejected(bodies: ProtobufBodies, error: str) -> None:
    """When the pipeline starts, with what to do."""
    with pytest.raises(ValueError, match=error):
        ProtobufDecoder(bodies)


def test_the_columns_do_not_change_by_pickling() -> None:
    """The executors build the arrays that the driver declared."""
    decoder = ProtobufDecoder(bodies_of("shop.Line"))
    copy: ProtobufDecoder = pickle.loads(pickle.dumps(decoder))
    assert copy.kind == decoder.kind == StructType().add("item", StringType()).add("n", IntegerType())


# --- the header of a schema registry --------------------------------------------------------------

NESTED = f"""
file {{
  name: "nested.proto" package: "n" syntax: "proto3"
  message_type {{ name: "First" {field("a", 1, "int32")} }}
  message_type {{
    name: "Outer" {field("m", 1, ".n.Outer.MEntry", "REPEATED")}
    {entry("MEntry", "string", "int64")}
    nested_type {{ name: "One" {field("a", 1, "int32")} }}
    nested_type {{ name: "Two" {field("a", 1, "int32")} }}
  }}
}}
"""


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        ("n.First", [b"\0", b"\x02\0"]),
        ("n.Outer", [b"\x02\x02"]),
        ("n.Outer.One", [b"\x04\x02\0"]),
        ("n.Outer.Two", [b"\x04\x02\x02"]),
    ],
)
def test_a_header_names_the_message(message: str, headers: list[bytes]) -> None:
    """By its place in its file, without the messages of map entries; [0] has a short form."""
    bodies = ProtobufBodies(descriptor_set=descriptors(NESTED), message=message, has_header=True)
    decoder: ProtobufDecoder = pickle.loads(pickle.dumps(ProtobufDecoder(bodies)))
    content = message_class(bodies)().SerializeToString() if message == "n.Outer" else b"\x08\x07"
    values, reasons = decoder.decode(
        pa.array([b"\0\0\0\x01\x02" + header + content for header in headers], pa.binary())
    )
    assert reasons.to_pylist() == [None] * len(headers)
    assert {str(value) for value in values.to_pylist()} == {"{'m': []}" if message == "n.Outer" else "{'a': 7}"}


def test_a_body_without_its_header_has_a_reason() -> None:
    """Also one of another message: its bytes would parse. The other bodies are decoded."""
    bodies = ProtobufBodies(descriptor_set=descriptors(NESTED), message="n.First", has_header=True)
    prefix = b"\0\0\0\0\x07"
    good = prefix + b"\0\x08\x07"
    data: list[bytes | None] = [
        good,
        b"\x08\x07",
        b"",
        prefix,
        b"\x01" + good[1:],
        None,
        prefix + b"\x02\x02\x08\x07",
        prefix + b"\x02",
        prefix + b"\x80" * 9,
        prefix + b"\x01",
        prefix + b"\xfe\xff\x0f",
        prefix + b"\0\xff",
    ]
    values, reasons = ProtobufDecoder(bodies).decode(pa.array(data, pa.binary()))
    assert values.to_pylist() == [{"a": 7}, *[None] * 11]
    expected = ["no header", "no header", "no header", "no header", "cannot be decompressed"]
    expected += ["names message [1] of its schema, and the expected one is [0]", "is cut off", "is cut off"]
    expected += ["has -1 message indexes", "message indexes", "not a Protobuf message"]
    assert [part in reason for part, reason in zip(expected, reasons.to_pylist()[1:], strict=True)] == [True] * 11


def test_a_header_without_a_message_is_an_empty_message() -> None:
    """All fields have their defaults."""
    bodies = ProtobufBodies(descriptor_set=descriptors(NESTED), message="n.First", has_header=True)
    values, reasons = ProtobufDecoder(bodies).decode(pa.array([b"\0\0\0\0\x07\0"], pa.binary()))
    assert (values.to_pylist(), reasons.to_pylist()) == ([{"a": 0}], [None])
