"""fastjson's dialect: texts that are read, values that are written, texts that are rejected."""

import json
from enum import IntEnum, StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.javajson import JavaJsonError, ObjectKey, dumps, loads, quote_numeric_keys
from tests.harness.golden import GoldenFrame, transcripts

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = TEXTS | st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
OBJECT_KEYS = st.dictionaries(TEXTS, SCALARS, max_size=3).map(ObjectKey)
KEYS = TEXTS | st.integers() | OBJECT_KEYS
TREES = st.recursive(
    SCALARS,
    lambda values: st.lists(values, max_size=4) | st.dictionaries(KEYS, values, max_size=4),
    max_leaves=20,
).filter(lambda tree: "$ref" not in repr(tree))
JSON_BODIES = [frame for frame in transcripts() if frame.body[:1] == b"{"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", {}),
        ("[ ]\n", []),
        (' {"a" : 1 , "b":[ 1,2.5,-3e2]}\r\n', {"a": 1, "b": [1, 2.5, -300.0]}),
        ("{a:1,$b_c:'x',d.e-f:null}", {"a": 1, "$b_c": "x", "d.e-f": None}),
        ("{'a':'it\\'s \"so\"'}", {"a": 'it\'s "so"'}),
        ('{0:"a",-1:"b","2":"c"}', {0: "a", -1: "b", "2": "c"}),
        ("[true,false,null,.5,5L,1.5D]", [True, False, None, 0.5, 5, 1.5]),
        ("{,a:1,,b:[1,,2,],}", {"a": 1, "b": [1, 2]}),
        ('{{"q":0,"t":"T"}:5}', {ObjectKey({"t": "T", "q": 0}): 5}),
        (r'"\"\\\/\b\f\n\r\t\v\0\x41\u00e9\ud83d\ude00"', '"\\/\b\f\n\r\t\v\0A\u00e9\U0001f600'),
        (r'"\ud83d!"', "\ufffd!"),
        ('{"a":{"x":[1]},"b":{"$ref":"$.a"},"c":[{"$ref":"$.a.x"}]}', {"a": {"x": [1]}, "b": {"x": [1]}, "c": [[1]]}),
        ('"$ref"', "$ref"),
    ],
)
def test_deviations_that_fastjson_accepts_are_read(text: str, expected: object) -> None:
    """Every deviation that fastjson accepts is read, as text and as bytes."""
    assert loads(text) == loads(text.encode()) == loads(memoryview(text.encode())) == expected


def test_invalid_utf8_is_replaced() -> None:
    """Invalid UTF-8 loses the character, not the document."""
    assert loads(b'{"a":"\xff"}') == {"a": "\ufffd"}


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "}", "[1", '"', "'a\"", '{"a"}', '{"a":}', '{"a" 1}', '{"a":1 "b":2}', "[1 2]", "{1:2}3", "word",
        '{"a":"\\q"}', '{"a":"\\u12"}', "{[1]:2}", '{{"a":[1]}:2}', '{{"a":{}}:2}', "[" * 65 + "]" * 65,
        "{a:" * 65 + "1" + "}" * 65, "{" * 65, "9" * 5000, "-", "\ufeff{}", "١", '{"a":{"$ref":"$"}}', "[[],[1}}",
        '{"a":{"$ref":"$.b"}}', '{"a":{"$ref":".."}}', '{"a":{"$ref":"$.a"}}', '{"a":[],"b":{"$ref":"$.a[0]"}}',
    ],
)  # fmt: skip
def test_invalid_texts_are_rejected(text: str) -> None:
    """A text that is not JSON even to fastjson, or that is nested too deep, raises JavaJsonError."""
    with pytest.raises(JavaJsonError):
        loads(text)


def test_a_text_beyond_the_limit_is_rejected() -> None:
    """A text beyond the limit is rejected before it is read."""
    assert loads("[1]", max_bytes=3) == [1]
    with pytest.raises(JavaJsonError, match="too many"):
        loads("[1]", max_bytes=2)
    with pytest.raises(JavaJsonError, match="too many"):
        loads(b" " * (javajson.MAX_BYTES + 1))


def test_references_do_not_multiply_a_document() -> None:
    """References to objects that contain references could double the document each time; they raise an error."""
    doubling = ",".join(f'"a{n + 1}":[{{"$ref":"$.a{n}"}},{{"$ref":"$.a{n}"}}]' for n in range(40))
    with pytest.raises(JavaJsonError, match="multiply"):
        loads('{"a0":[0],' + doubling + "}")


def test_nulls_can_be_dropped() -> None:
    """With nulls=False members with null are absent; null elements of lists stay."""
    assert loads('{"a":null,"b":[null],"c":{"d":null}}', nulls=False) == {"b": [None], "c": {}}


def test_hook_and_object_key_get_objects() -> None:
    """The hook gets every object, the innermost first; `object_key` makes the keys that are objects."""
    seen: list[dict[Any, Any]] = []
    text = '{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}'
    assert loads(text, object_key=MessageQueue.of, object_hook=seen.append) == {
        "offsetTable": {MessageQueue("T", "b", 1): 5}
    }
    assert [sorted(map(str, members)) for members in seen] == [
        ["brokerName", "queueId", "topic"],
        ["T@b:1"],
        ["offsetTable"],
    ]


class Color(IntEnum):
    RED = 1


class Shape(StrEnum):
    ROUND = "ROUND"


class Inner(msgspec.Struct, rename="camel"):
    z_last: int = 1
    a_first: str | None = None


class Outer(msgspec.Struct):
    inner: Inner
    table: dict[int, Inner]
    absent: int | None = None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Outer(Inner(a_first="x"), {2: Inner(), 1: Inner(3)}),
         '{"inner":{"aFirst":"x","zLast":1},"table":{2:{"zLast":1},1:{"zLast":3}}}'),
        ({"z": 1, "a": None, "m": [None, (), {}]}, '{"z":1,"m":[null,[],{}]}'),
        ({MessageQueue("T", "b", 1): 5}, '{{"brokerName":"b","queueId":1,"topic":"T"}:5}'),
        ([True, False, 0.0, 1.5, float("nan"), Color.RED, Shape.ROUND], '[true,false,0.0,1.5,null,"RED","ROUND"]'),
        ('é"\\\n\x01/', '"é\\"\\\\\\n\\u0001/"'),
        ("\ud800", '"?"'),
        ({Shape.ROUND: 1}, '{"ROUND":1}'),
        (Inner(0), '{"zLast":0}'),
        ({}, "{}"),
    ],
)  # fmt: skip
def test_values_are_written_as_fastjson_does(value: object, expected: str) -> None:
    """Struct members in alphabetical order and without nulls, maps in their own order, numbers and objects as bare
    keys."""
    assert dumps(value) == expected.encode()


def test_standard_json_is_written_on_request() -> None:
    """With both options the text is strict JSON in ASCII."""
    text = dumps({0: "华东", -1: {5: ["\U0001f600"]}}, quote_numeric_keys=True, ascii_only=True)
    assert text.isascii()
    assert json.loads(text) == {"0": "华东", "-1": {"5": ["\U0001f600"]}}


def test_a_value_without_json_form_raises_type_error() -> None:
    """A value of another type raises TypeError: no peer can cause that."""
    with pytest.raises(TypeError, match="bytes"):
        dumps(b"x")


@pytest.mark.parametrize("frame", JSON_BODIES, ids=lambda frame: frame.id)
def test_golden_bodies_keep_their_bytes(frame: GoldenFrame) -> None:
    """Every JSON body that RocketMQ wrote is read, and written as the same bytes."""
    assert dumps(loads(frame.body)) == frame.body


@given(TREES)
def test_trees_round_trip(tree: object) -> None:
    """Any tree of values is read back from its text."""
    assert loads(dumps(tree)) == tree


@given(TREES)
def test_trees_round_trip_in_ascii(tree: object) -> None:
    """Escaped text is read back as the same value."""
    assert loads(dumps(tree, ascii_only=True)) == tree


@given(st.binary() | st.text("{}[]:,\"'\\ u0aenl$ref.-1\n").map(str.encode))
@example(b'{"a":{"$ref":"$.a[0]"}}')
@example(b"{{}:1}")
def test_hostile_bytes_raise_only_java_json_error(data: bytes) -> None:
    """Any bytes are read or raise JavaJsonError."""
    try:
        value = loads(data)
    except JavaJsonError:
        return
    dumps(value)


@given(st.recursive(TEXTS | st.integers(), lambda v: st.dictionaries(TEXTS | st.integers(), v, max_size=3)))
def test_quoted_keys_give_the_same_value_or_invalid_json(tree: object) -> None:
    """For a text with quoted keys a strict decoder returns what the tolerant reader returns for the original, or
    fails."""
    try:
        strict = json.loads(quote_numeric_keys(dumps(tree)))
    except json.JSONDecodeError:
        return
    assert strict == json.loads(dumps(tree, quote_numeric_keys=True))
