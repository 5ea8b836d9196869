"""Properties, hashes, names, bodies and batches of messages."""

import zlib
from collections.abc import Mapping
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.codes import ResponseCode, SysFlag
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import (
    BatchRecord,
    Message,
    MessageExt,
    check_group_name,
    check_topic_name,
    decode_batch,
    decode_properties,
    encode_batch,
    encode_properties,
    is_storable_topic,
    java_hash,
    property_value,
    tags_code,
)
from tests.harness.golden import bodies

NAMES = st.sampled_from(["KEYS", "TAGS", "TAG", "AGS", "a", "é", " "])
HOSTILE_ENTRIES = st.lists(st.sampled_from(["KEYS", "TAGS", "a", "\x01", "\x02", "x", "订单", " "]), max_size=30)


# --- properties ------------------------------------------------------------------------------------


def test_properties_of_the_worked_example() -> None:
    """The property string of the worked example has its bytes, and is read with and without the last 0x02."""
    properties = {"KEYS": "k1", "UNIQ_KEY": "C0A8010A0001000000000001", "TAGS": "TagA"}
    text = encode_properties(properties)
    assert text.encode().hex() == (
        "4b455953016b3102554e49515f4b4559014330413830313041303030313030303030303030303030310254414753015461674102"
    )
    assert decode_properties(text) == decode_properties(text[:-1]) == properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\x02\x02", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01\x02b\x012\x02", {"b": "2"}),
        ("\x01b\x02c\x013", {"c": "3"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
        ("a\x011\x02a\x01\x02", {"a": "1"}),
        ("lonely\x02a\x011", {"a": "1"}),
    ],
)
def test_property_reading_rules(text: str, expected: Mapping[str, str]) -> None:
    """Entries without a name or a value do not count, the last duplicate wins, the first 0x01 separates."""
    assert decode_properties(text) == expected
    assert {name: property_value(text, name) for name in expected} == expected


@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), max_size=8))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    """Properties that can be written are read back; the others raise ValueError."""
    try:
        text = encode_properties(properties)
    except ValueError:
        assert any("\x02" in name + value or "\x01" in name for name, value in properties.items())
        return
    assert decode_properties(text) == properties


@given(HOSTILE_ENTRIES.map("".join) | st.text())
def test_decoded_properties_can_be_encoded(text: str) -> None:
    """Any string decodes, and the result encodes to the same properties."""
    properties = decode_properties(text)
    assert decode_properties(encode_properties(properties)) == properties


@given(HOSTILE_ENTRIES.map("".join) | st.text(), NAMES)
def test_property_value_agrees_with_the_dict(text: str, name: str) -> None:
    """For any string `property_value` returns the value in the dict of all properties."""
    assert property_value(text, name) == decode_properties(text).get(name)


def test_null_properties_are_left_out() -> None:
    """A None value is left out."""
    assert encode_properties({"a": None, "b": "1"}) == "b\x011\x02"


# --- hashes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("*", 42),
        ("TagA", 2_598_919),
        ("TagB", 2_598_920),
        ("TagZZZZZZ", -367_331_910),
        ("TopicTest", -1_902_610_879),
        ("TopicTest-0", 1_247_014_820),
        ("TopicTest#k1", 2_746_024),
        ("TopicTest#C0A8010A0001000000000001", 50_988_410),
        ("订单", 1_129_459),
        ("\U0001f600", 1_772_899),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_java_hashes(text: str, expected: int) -> None:
    """The hashes of the worked examples."""
    assert java_hash(text) == expected
    assert tags_code(text) == expected


@given(st.text(st.characters()) | st.integers(0, 2000).map(lambda n: "é~" * n))
def test_java_hash_follows_the_definition(text: str) -> None:
    """A text of any length has the hash of the definition, over UTF-16 units."""
    raw = text.encode("utf-16-be", "surrogatepass")
    expected = 0
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        expected = (31 * expected + high * 256 + low) % 2**32
    assert java_hash(text) % 2**32 == expected
    assert -(2**31) <= java_hash(text) < 2**31


def test_absent_tags_have_code_0() -> None:
    """Absent and empty tags have the code 0."""
    assert tags_code(None) == tags_code("") == 0


# --- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b-c_9", "L" * 127])
def test_valid_topics(topic: str) -> None:
    """Letters, digits and `%|_-`, up to 127 characters."""
    check_topic_name(topic)


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (None, "The specified topic is blank."),
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("订单", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("T\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("é" * 128, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("L" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_invalid_topics(topic: str | None, remark: str) -> None:
    """Each rule has RocketMQ's remark, in its order."""
    with pytest.raises(RequestError) as refused:
        check_topic_name(topic)
    assert (refused.value.code, refused.value.remark) == (ResponseCode.INVALID_PARAMETER, remark)


@pytest.mark.parametrize(
    ("topic", "is_storable"),
    [
        ("Orders", True),
        ("%RETRY%" + "g" * 248, True),
        ("%RETRY%" + "g" * 249, False),
        ("", False),
        (".", False),
        ("..", False),
        ("a.b", False),
        ("../x", False),
        ("a/b", False),
        ("a\0b", False),
        ("a\n", False),
        ("é", False),
        ("٣", False),
    ],
)
def test_storable_topics(topic: str, is_storable: bool) -> None:
    """A path is built only from valid characters, at most 255."""
    assert is_storable_topic(topic) is is_storable


def test_group_names() -> None:
    """A group name has the characters of a topic name, up to 255."""
    check_group_name("g" * 255)
    for group in ("g" * 256, "a.b", "", None):
        with pytest.raises(RequestError):
            check_group_name(group)


# --- messages --------------------------------------------------------------------------------------


def stored(properties: dict[str, str]) -> MessageExt:
    return MessageExt(
        topic="TopicTest",
        queue_id=2,
        queue_offset=5,
        physical_offset=4096,
        body=zlib.compress(b"Hello RocketMQ"),
        properties=properties,
        flag=0,
        sys_flag=SysFlag.COMPRESSED,
        born_timestamp=1_700_000_000_000,
        born_host=("192.168.1.10", 34567),
        store_timestamp=1_700_000_000_123,
        store_host=("10.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body_crc=0,
        size=166,
    )


def test_attributes_of_a_stored_message() -> None:
    """Tags, keys and unique id come from the properties, the offset id from the record's position."""
    full = stored({"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "C0"})
    assert (full.tags, full.keys, full.uniq_key, full.msg_id) == ("TagA", ["k1", "k2"], "C0", "C0")
    assert full.offset_msg_id == "0A00000100002A9F0000000000001000"
    assert full.payload() == b"Hello RocketMQ"
    bare = stored({})
    assert (bare.tags, bare.keys, bare.uniq_key, bare.msg_id) == ("", [], "", bare.offset_msg_id)


def test_all_properties_include_keys_and_tags() -> None:
    """KEYS and TAGS are added to the other properties if they are set; the message itself does not change."""
    message_to_send = Message("T", b"", tags="TagA", keys="k1 k2", properties={"region": "华东"})
    assert message_to_send.all_properties() == {"region": "华东", "KEYS": "k1 k2", "TAGS": "TagA"}
    assert message_to_send.properties == {"region": "华东"}
    assert Message("T", b"").all_properties() == {}


# --- batches ---------------------------------------------------------------------------------------


def test_golden_batches() -> None:
    """The batches that Java sent decode, and encode to the same bytes."""
    for body in bodies("SEND_BATCH_MESSAGE", "request"):
        records = decode_batch(body)
        assert len(records) > 1
        assert all("UNIQ_KEY" in decode_properties(str(record.properties, "utf-8")) for record in records)
        assert encode_batch(records) == body


@given(st.lists(st.builds(BatchRecord, st.integers(-(2**31), 2**31 - 1), st.binary(), st.binary()), max_size=5))
def test_batches_round_trip(records: list[BatchRecord]) -> None:
    """Any records are decoded from their batch, as views of it."""
    decoded = decode_batch(memoryview(encode_batch(records)))
    assert [(r.flag, bytes(r.body), bytes(r.properties)) for r in decoded] == [
        (r.flag, r.body, r.properties) for r in records
    ]


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: b"\0" * 12 + b"\xff" * 8 + tail))
def test_hostile_batches_raise_only_request_error(body: bytes) -> None:
    """Bytes that are not a batch raise RequestError and nothing else."""
    with suppress(RequestError):
        assert sum(len(record.body) for record in decode_batch(body)) < len(body) or not body


def test_a_cut_batch_is_refused_wherever_it_is_cut() -> None:
    """No prefix of a record decodes as a record."""
    body = encode_batch([BatchRecord(1, b"body", b"a\x01b\x02")])
    for length in range(1, len(body)):
        with pytest.raises(RequestError) as refused:
            decode_batch(body[:length])
        assert refused.value.code == ResponseCode.SYSTEM_ERROR
