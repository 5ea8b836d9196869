"""Avro bodies: every type, the three headers, resolution of schemas, and bodies that are no datum."""

import io
import json
import pickle
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, LongType, StringType, StructType

from skylarkmq.clients.spark.decoding.avro_bodies import AvroDecoder
from skylarkmq.clients.spark.decoding.avro_schema import columns, marker, parsed
from skylarkmq.clients.spark.decoding.encodings import AvroBodies
from skylarkmq.clients.spark.decoding.registry import SchemaFiles

SCHEMA = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "number", "type": ["null", "int"]},
        {"name": "ratio", "type": "double"},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": {"type": "fixed", "name": "four", "size": 4}},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "line", "fields": [{"name": "n", "type": "float"}]},
            },
        },
    ],
}
DATUM = {
    "flag": True,
    "number": None,
    "ratio": 0.5,
    "id": UUID("9f9b5a5e-3a1c-4b6e-8a55-0d6a1c9b7e21"),
    "raw": b"1234",
    "kind": "B",
    "day": date(2024, 5, 1),
    "at": datetime(2024, 5, 1, 13, tzinfo=UTC),
    "local": datetime(2024, 5, 1, 13),  # noqa: DTZ001 - it has no zone
    "price": Decimal("12.34"),
    "counts": {"a": 1},
    "lines": [{"n": 1.5}, {"n": 2.0}],
}


def encoded(schema: Any, datum: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), datum)
    return stream.getvalue()


def decode(bodies: list[bytes | None], **how: Any) -> tuple[list[Any], list[Any]]:
    """The values and the reasons, from a decoder that was pickled as Spark does."""
    decoder: AvroDecoder = pickle.loads(pickle.dumps(AvroDecoder(AvroBodies(**how))))
    values, reasons = decoder.decode(pa.array(bodies, pa.binary()))
    return values.to_pylist(), reasons.to_pylist()


def text(schema: Any) -> tuple[str]:
    return (json.dumps(schema),)


def test_every_type_of_avro_has_a_column() -> None:
    """Values are decoded as they were encoded."""
    (value,), (reason,) = decode([encoded(SCHEMA, DATUM)], schema=text(SCHEMA))
    assert reason is None
    assert value == DATUM | {"counts": [("a", 1)], "id": str(DATUM["id"])}


def test_an_invalid_datum_has_a_reason_and_no_value() -> None:
    """Truncated, with trailing bytes, invalid, null: the other bodies of the batch are decoded."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}]}
    good = encoded(schema, {"s": "hello"})
    values, reasons = decode([good, good[:-1], good + b"x", b"", b"\x02\xff", b"\x7f", None], schema=text(schema))
    assert values == [{"s": "hello"}] + [None] * 6
    assert [reason is None for reason in reasons] == [True] + [False] * 6
    assert "1 bytes remain" in reasons[2]


def test_a_value_without_an_arrow_counterpart_has_a_reason() -> None:
    """A decimal with more digits than the schema allows does not fail its batch."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}}],
    }
    wide = b"\x08\x7f\xff\xff\xff"
    values, reasons = decode([encoded(schema, {"d": Decimal(7)}), wide], schema=text(schema))
    assert values == [{"d": Decimal(7)}, None]
    assert "beyond the column's type" in reasons[1]


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null"]}]}, "a union without a type"),
        (
            {
                "type": "record",
                "name": "r",
                "fields": [{"name": "a", "type": ["int", {"type": "array", "items": "r"}]}],
            },
            "contains itself",
        ),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis has no counterpart"),
        ("int", "must be a record"),
        ({"type": "record", "name": "r", "fields": [{"name": "self", "type": ["null", "r"]}]}, "contains itself"),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "nonsense"}]}, "not an Avro schema"),
        ({"type": "record"}, "not an Avro schema"),
    ],
)
def test_schemas_without_a_counterpart_are_rejected(schema: Any, error: str) -> None:
    """The pipeline rejects them when it starts, not at the first message."""
    with pytest.raises(ValueError, match=error):
        AvroDecoder(AvroBodies(schema=text(schema)))


def test_a_named_record_may_be_used_twice() -> None:
    """By its name, within a schema and in a schema that refers to another one."""
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    order = {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "net", "type": "Money"}, {"name": "gross", "type": ["null", "shop.Money"]}],
    }
    kind = StructType().add("cents", LongType())
    assert columns((json.dumps(money), json.dumps(order))) == StructType().add("net", kind).add("gross", kind)


# --- headers and writer schemas -------------------------------------------------------------------

OLD = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}],
}
NEW = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "none"}],
}
INCOMPATIBLE = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
OLD_DATUM, NEW_DATUM = encoded(OLD, {"id": 1, "gone": "x"}), encoded(NEW, {"id": 2, "item": "tea"})
ROWS = [{"id": 1, "item": "none"}, {"id": 2, "item": "tea"}]


def registered(schema_id: int, datum: bytes) -> bytes:
    return struct.pack(">BI", 0, schema_id) + datum


def test_plain_bodies_may_have_another_writer_schema() -> None:
    """Its data are resolved: a number is promoted, a field gets its default, a field is skipped."""
    values, reasons = decode([OLD_DATUM], schema=text(NEW), writer_schemas=(text(OLD),))
    assert (values, reasons) == (ROWS[:1], [None])


def test_single_object_encoding_names_the_writer_schema() -> None:
    """By its fingerprint, which is that of the specification; unknown fingerprints are reasons."""
    assert marker(parsed(('"null"',))).hex() == "c3018a8f25cce724dd63"
    old, new, other = (marker(parsed(text(schema))) for schema in (OLD, NEW, INCOMPATIBLE))
    bodies = [old + OLD_DATUM, new + NEW_DATUM, other + b"\0", NEW_DATUM, old[:5], b"", None]
    values, reasons = decode(bodies, schema=text(NEW), writer_schemas=(text(OLD),), is_single_object=True)
    assert values == [*ROWS, *[None] * 5]
    assert reasons[:2] == [None, None]
    assert f"fingerprint {other[2:].hex()}" in reasons[2]
    assert ["no marker" in reason for reason in reasons[3:]] == [True, False, True, False]


def test_a_registry_header_names_the_writer_schema() -> None:
    """By its id; unknown ids, schemas that do not resolve, and bodies without a header are reasons."""
    files = SchemaFiles({7: json.dumps(OLD), 8: json.dumps(NEW), 9: json.dumps(INCOMPATIBLE), 10: "{"})
    bodies: list[bytes | None] = [
        registered(7, OLD_DATUM),
        registered(8, NEW_DATUM),
        registered(9, encoded(INCOMPATIBLE, {"id": "x"})),
        registered(10, b""),
        registered(11, b""),
        b"\x01" + registered(8, NEW_DATUM)[1:],
        b"\0\0\0\0",
        b"",
        registered(8, b""),
        None,
    ]
    values, reasons = decode(bodies, schema=text(NEW), registry=files)
    assert values == [*ROWS, *[None] * 8]
    expected = ["not an Avro datum", "schema 10: not an Avro schema", "no file 11.avsc", *["no header"] * 3]
    expected += ["not an Avro datum", "cannot be decompressed"]
    assert [part in reason for part, reason in zip(expected, reasons[2:], strict=True)] == [True] * 8


def test_several_writer_schemas_need_a_header() -> None:
    """Nothing in a plain body shows which of them wrote it."""
    with pytest.raises(ValueError, match="several need single-object encoding"):
        AvroDecoder(AvroBodies(schema=text(NEW), writer_schemas=(text(OLD), text(NEW))))


def test_columns_are_those_of_the_reader_schema() -> None:
    """Types with parameters keep them."""
    kind = columns(text(SCHEMA))
    assert (kind["price"].dataType, kind["kind"].dataType) == (DecimalType(9, 2), StringType())


# --- unions of several types ----------------------------------------------------------------------


def record(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": kind} for one, kind in fields]} | more


CARD = record("shop.Card", ("number", "string"), ("limit", ["null", "int"]))
CASH = record("shop.Cash", ("number", "string"), ("limit", ["null", "int"]))
KIND = {"type": "enum", "name": "shop.Kind", "symbols": ["A", "B"]}
FOUR = {"type": "fixed", "name": "shop.Four", "size": 4}
PRICE = {"type": "fixed", "name": "shop.Price", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2}
DAY = {"type": "int", "logicalType": "date"}
AT = {"type": "long", "logicalType": "timestamp-millis"}
ID = {"type": "string", "logicalType": "uuid"}
UNION = [
    "null", CARD, CASH, KIND, FOUR, PRICE, ID, AT, DAY, "boolean", "bytes", "double",
    {"type": "array", "items": ["string", "int"]}, {"type": "map", "values": "shop.Card"},
]  # fmt: skip
MEMBERS: list[tuple[Any, Any]] = [
    (("shop.Card", {"number": "1", "limit": 5}), {"number": "1", "limit": 5}),
    (("shop.Cash", {"number": "2", "limit": None}), {"number": "2", "limit": None}),
    (("shop.Kind", "B"), "B"),
    (("shop.Four", b"1234"), b"1234"),
    (("shop.Price", Decimal("12.34")), Decimal("12.34")),
    (DATUM["id"], str(DATUM["id"])),
    (DATUM["at"], DATUM["at"]),
    (DATUM["day"], DATUM["day"]),
    (True, True),
    (b"\xff", b"\xff"),
    (0.5, 0.5),
    (["a", 1], [{"member0": "a", "member1": None}, {"member0": None, "member1": 1}]),
    ({"k": {"number": "3", "limit": None}}, [("k", {"number": "3", "limit": None})]),
]


def one_of(kind: Any) -> Any:
    return record("shop.Event", ("what", kind), ("card", ["null", "shop.Card"]), ("id", ID))


def test_a_union_of_several_types_is_a_struct_with_a_field_for_each() -> None:
    """At every depth; null is no field, and one field has the value. Other fields are decoded as without the union."""
    schema = one_of(UNION)
    card = {"number": "9", "limit": 1}
    data = [{"what": member, "card": card, "id": DATUM["id"]} for member, _ in [*MEMBERS, (None, None)]]
    values, reasons = decode([encoded(schema, datum) for datum in data], schema=text(schema))
    assert reasons == [None] * len(data)
    empty = dict.fromkeys(f"member{number}" for number in range(len(MEMBERS)))
    expected = [empty | {f"member{number}": value} for number, (_, value) in enumerate(MEMBERS)]
    assert [value["what"] for value in values] == [*expected, None]
    assert {(value["card"]["number"], value["id"]) for value in values} == {("9", str(DATUM["id"]))}
    kind = columns(text(schema))["what"].dataType
    assert isinstance(kind, StructType)
    assert kind.fieldNames() == list(empty)


def test_numbers_of_two_widths_are_one_column() -> None:
    """As for Spark's own reader; with other types, numbers are in the member of the wider type."""
    schema = record(
        "r", ("whole", ["int", "null", "long"]), ("part", ["double", "float"]), ("all", ["int", "long", "string"])
    )
    values, _ = decode(
        [encoded(schema, {"whole": 1, "part": 0.5, "all": n}) for n in (1, 2**40, "x")], schema=text(schema)
    )
    assert columns(text(schema)).simpleString() == (
        "struct<whole:bigint,part:double,all:struct<member0:int,member1:bigint,member2:string>>"
    )
    assert [value["all"] for value in values] == [
        {"member0": None, "member1": 1, "member2": None},
        {"member0": None, "member1": 2**40, "member2": None},
        {"member0": None, "member1": None, "member2": "x"},
    ]
    assert [(value["whole"], value["part"]) for value in values] == [(1, 0.5)] * 3


def test_bodies_may_be_of_several_records() -> None:
    """A schema that is a union itself, as registries have it for topics with several types of events."""
    schema = [CARD, CASH]
    values, reasons = decode([encoded(schema, member) for member, _ in MEMBERS[:2]], schema=text(schema))
    assert reasons == [None, None]
    assert values == [
        {"member0": MEMBERS[0][1], "member1": None},
        {"member0": None, "member1": MEMBERS[1][1]},
    ]


@pytest.mark.parametrize(
    ("written", "datum", "read", "expected"),
    [
        ("int", 1, ["null", "string", "double"], {"member0": None, "member1": 1.0}),
        (["string", "int"], 1, ["null", "long", "boolean"], {"member0": 1, "member1": None}),
        (["null", "string"], None, ["null", "string", "int"], None),
        (CARD, MEMBERS[0][1], [CASH, CARD], {"member0": MEMBERS[0][1], "member1": None}),
        (["null", CARD], MEMBERS[0][1], CARD, MEMBERS[0][1]),
        (
            ["null", record("shop.Old", ("number", "string"))],
            ("shop.Old", {"number": "7"}),
            [
                record("shop.New", ("number", "string"), aliases=["shop.Old"]),
                {"type": "map", "values": "string"},
            ],
            {"member0": {"number": "7"}, "member1": None},
        ),
        (
            {"type": "map", "values": "int"},
            {"a": 1},
            [CARD, {"type": "map", "values": "int"}],
            {"member0": None, "member1": [("a", 1)]},
        ),
    ],
)  # fmt: skip
def test_data_of_another_schema_are_resolved_to_a_member(written: Any, datum: Any, read: Any, expected: Any) -> None:
    """By Avro's rules: promotions and aliases. Of records with the same fields, the first one is the member."""
    other = {"name": "other", "type": ["null", "string", "int"], "default": None}
    reader = record("r", ("u", read)) | {"fields": [{"name": "u", "type": read}, other]}
    (value,), (reason,) = decode(
        [encoded(record("r", ("u", written)), {"u": datum})],
        schema=text(reader),
        writer_schemas=(text(record("r", ("u", written))),),
    )
    assert (reason, value) == (None, {"u": expected, "other": None})


def test_a_datum_without_a_member_has_a_reason() -> None:
    """The other bodies of the batch are decoded."""
    schema = record("r", ("u", ["int", "string"]))
    values, reasons = decode([encoded(schema, {"u": "x"}), b"\x08\x02", b"\x02"], schema=text(schema))
    assert values == [{"u": {"member0": None, "member1": "x"}}, None, None]
    assert [reason is None for reason in reasons] == [True, False, False]


NODE = record("Node", ("next", ["null", "Node"]))
TREES = record("Trees", ("nodes", {"type": "array", "items": NODE}), ("id", "int"))
TREES_BY_NAME = record("Trees", ("nodes", {"type": "array", "items": "Node"}), ("id", "int"))


@pytest.mark.parametrize("writer", [text(TREES), text(NODE) + text(TREES_BY_NAME)])
def test_a_body_that_nests_too_deep_has_a_reason(writer: tuple[str, ...]) -> None:
    """A record that contains itself may be that of a writer; a hostile body of it must not end the process."""
    good = encoded(TREES, {"nodes": [{"next": {"next": None}}], "id": 3})
    values, reasons = decode(
        [good, b"\x02" * 1_000_000 + b"\x00\x00\x06"],
        schema=text(record("Trees", ("id", "int"))),
        writer_schemas=(writer,),
    )
    assert values == [{"id": 3}, None]
    assert reasons[0] is None
    assert "RecursionError" in reasons[1]


def test_a_schema_that_nests_too_deep_is_rejected() -> None:
    with pytest.raises(ValueError, match="not an Avro schema: RecursionError"):
        columns(('{"type":"array","items":' * 100_000,))
