"""The commit log record: the worked example of docs/reference/disk.md, and every record that RocketMQ wrote."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol import record
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import (
    BLANK,
    END,
    MAGIC_V1,
    MAGIC_V2,
    Blank,
    Damaged,
    Record,
    body_crc,
    decode,
    decoder_of,
    encode,
    iterate,
    parse,
    to_message,
)
from tests.harness.golden_stores import GOLDEN_STORES, described
from tests.harness.rounds import rounds
from tests.harness.stores import golden_manifest, unpack_golden

EXAMPLE = bytes.fromhex(
    "000000a6daa320a769c865ed000000020000000000000000000000050000000000001000000000000000018bcfe56800"
    "c0a8010a000087070000018bcfe5687b0a00000100002a9f0000000000000000000000000000000e"
    "48656c6c6f20526f636b65744d5109546f706963546573740034"
    "4b455953016b3102554e49515f4b4559014330413830313041303030313030303030303030303030310254414753015461674102"
)
PROPERTIES = b"KEYS\x01k1\x02UNIQ_KEY\x01C0A8010A0001000000000001\x02TAGS\x01TagA\x02"


def example(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "topic": "TopicTest",
        "body": b"Hello RocketMQ",
        "properties": PROPERTIES,
        "queue_id": 2,
        "queue_offset": 5,
        "physical_offset": 4096,
        "born_timestamp": 1700000000000,
        "born_host": encode_host("192.168.1.10", 34567),
        "store_timestamp": 1700000000123,
        "store_host": encode_host("10.0.0.1", 10911),
    } | changes
    return encode(**fields)


def parse_one(data: bytes) -> Record:
    found = parse(memoryview(data))
    assert isinstance(found, Record), found
    return found


def test_worked_example_encodes() -> None:
    """The worked example's fields encode to its 166 bytes."""
    assert example() == EXAMPLE


def test_worked_example_decodes() -> None:
    """The worked example's bytes decode to its fields."""
    (message,) = decode(EXAMPLE)
    assert message.topic == "TopicTest"
    assert (message.queue_id, message.queue_offset, message.physical_offset) == (2, 5, 4096)
    assert message.body == b"Hello RocketMQ"
    assert message.properties == {"KEYS": "k1", "UNIQ_KEY": "C0A8010A0001000000000001", "TAGS": "TagA"}
    assert message.born_host == ("192.168.1.10", 34567)
    assert message.store_host == ("10.0.0.1", 10911)
    assert (message.born_timestamp, message.store_timestamp) == (1700000000000, 1700000000123)
    assert (message.body_crc, message.size) == (1774740973, 166)


@pytest.mark.parametrize(("data", "crc"), [(b"hello", 907060870), (b"a", 1756872259), (b"", 0)])
def test_crc_has_31_bits(data: bytes, crc: int) -> None:
    """The body CRC is CRC-32 without its top bit."""
    assert body_crc(data) == crc


@pytest.mark.parametrize("born", ["1.2.3.4", "::1"])
@pytest.mark.parametrize("store", ["1.2.3.4", "::1"])
def test_host_families(born: str, store: str) -> None:
    """Each IPv6 host takes twelve bytes more and sets its own bit, whatever bits were passed."""
    data = example(born_host=encode_host(born, 1), store_host=encode_host(store, 2), sys_flag=0x30 | 4)
    found = parse_one(data)
    assert len(data) == 166 + 12 * (born == "::1") + 12 * (store == "::1")
    assert found.sys_flag == 4 | 0x10 * (born == "::1") | 0x20 * (store == "::1")
    assert to_message(found).born_host == (born, 1)
    assert to_message(found).store_host == (store, 2)


@pytest.mark.parametrize(("length", "magic"), [(127, "daa320a7"), (128, "daa320ab"), (255, "daa320ab")])
def test_version_by_topic_length(length: int, magic: str) -> None:
    """Topics of more than 127 bytes need a V2 record; both versions read back."""
    data = example(topic="t" * length)
    assert data[4:8].hex() == magic
    assert parse_one(data).topic == "t" * length


@given(st.binary(max_size=200), st.text(max_size=40), st.binary(max_size=200), st.booleans())
def test_round_trip(body: bytes, topic: str, properties: bytes, v6: bool) -> None:
    """`parse` returns what was encoded."""
    host = encode_host("::1" if v6 else "1.2.3.4", 9)
    found = parse_one(example(topic=topic, body=body, properties=properties, born_host=host))
    assert (found.topic, bytes(found.body), found.properties, found.born_host) == (topic, body, properties, host)


def test_end_and_blank() -> None:
    """Zeros, and too few bytes, are the end of data; the blank's magic ends a segment."""
    assert parse(memoryview(bytes(100))) is END
    assert parse(memoryview(b"\0\0\0\1")) is END
    assert parse(memoryview(bytes.fromhex("000001e3cbd43194"))) == Blank(483)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\1" + bytes(96), "magic 00000000"),
        (EXAMPLE[:100], "size 166 with 100 bytes left"),
        (b"\0\0\0\x10" + EXAMPLE[4:], "size 16 is less than a record's head"),
        (b"\0\0\0\x50" + EXAMPLE[4:], "size 80 is less than a record's head"),
        (EXAMPLE[:84] + b"\x7f\0\0\0" + EXAMPLE[88:], "body length 2130706432 in a record of 166 bytes"),
        (EXAMPLE[:84] + b"\xff\0\0\0" + EXAMPLE[88:], "body length -16777216 in a record of 166 bytes"),
        (EXAMPLE[:102] + b"\x7f" + EXAMPLE[103:], "topic length 127 in a record of 166 bytes"),
        (EXAMPLE[:102] + b"\xff" + EXAMPLE[103:], "topic length -1 in a record of 166 bytes"),
        (EXAMPLE[:112] + b"\0\x33" + EXAMPLE[114:], "fields end at 165, size is 166"),
        (EXAMPLE[:90] + b"?" + EXAMPLE[91:], "body CRC"),
        (EXAMPLE[:105] + b"\xff" + EXAMPLE[106:], "topic is not UTF-8"),
    ],
)
def test_damage_has_a_reason(data: bytes, reason: str) -> None:
    """Each type of damage has its reason."""
    found = parse(memoryview(data))
    assert isinstance(found, Damaged)
    assert found.reason == reason


def test_the_crc_check_is_optional() -> None:
    """Without the body check a record with a flipped body byte parses."""
    data = EXAMPLE[:90] + b"?" + EXAMPLE[91:]
    assert isinstance(parse(memoryview(data), check_body=False), Record)


@given(st.integers(0, 165), st.integers(0, 255))
def test_a_changed_byte_never_raises(at: int, value: int) -> None:
    """One changed byte gives a result, never an exception."""
    data = bytearray(EXAMPLE + EXAMPLE)
    data[at] = value
    list(iterate(data))


@given(st.binary(max_size=300))
def test_garbage_never_raises(data: bytes) -> None:
    """No bytes make `parse` raise."""
    list(iterate(data))
    list(iterate(EXAMPLE[:8] + data))


@pytest.mark.parametrize("tail", [b"\0" * 8, EXAMPLE[:50], b"x"])
def test_a_pull_body_is_whole_records(tail: bytes) -> None:
    """Other bytes after or between the records of a pull response raise ProtocolError."""
    with pytest.raises(ProtocolError, match="no record at byte 166 of"):
        decode(EXAMPLE + tail)


@pytest.mark.parametrize(("version", "name"), GOLDEN_STORES)
def test_golden_records(version: str, name: str, tmp_path: Path) -> None:
    """Every record and blank that RocketMQ wrote parses as its manifest says, and encodes to the same bytes."""
    manifest = golden_manifest(version, name)
    root = unpack_golden(version, tmp_path, name)
    records = []
    blanks = []
    for segment in sorted((root / "commitlog").iterdir()):
        data = segment.read_bytes()
        for found in iterate(data):
            if isinstance(found, Record):
                records.append(described(found, manifest["commitLog"]["records"][0]))
                assert reencoded(found) == data[found.position : found.position + found.size]
            elif isinstance(found, Blank):
                blanks.append(found)
    assert records == manifest["commitLog"]["records"]
    assert blanks == [Blank(blank["size"]) for blank in manifest["commitLog"]["blanks"]]


def reencoded(found: Record) -> bytes:
    return encode(
        topic=found.topic,
        body=found.body,
        properties=found.properties,
        queue_id=found.queue_id,
        queue_offset=found.queue_offset,
        physical_offset=found.physical_offset,
        born_timestamp=found.born_timestamp,
        born_host=found.born_host,
        store_timestamp=found.store_timestamp,
        store_host=found.store_host,
        flag=found.flag,
        sys_flag=found.sys_flag,
        reconsume_times=found.reconsume_times,
        prepared_transaction_offset=found.prepared_transaction_offset,
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"topic": "T" * 127, "properties": b""},
        {"topic": "T" * 128},
        {"body": b"", "properties": b"\xff\x01\xfe\x02"},
        {"born_host": encode_host("fe80::1", 1)},
        {"store_host": encode_host("fe80::1", 1), "sys_flag": 9, "flag": -3, "reconsume_times": 4},
        {"properties": b"K\x01" + b"v" * 32765, "prepared_transaction_offset": 7},
    ],
)
def test_both_ways_decode_the_same_messages(changes: dict[str, Any]) -> None:
    """In any layout, and with a damaged byte anywhere, both ways give the same message or the same error."""
    data = example(**changes)
    assert decode(data * 2) == [to_message(parse_one(data))] * 2
    for at in range(0, len(data), 1 + len(data) // 400):
        damaged = data[:at] + bytes([data[at] ^ 0x81]) + data[at + 1 :]
        found = parse(memoryview(damaged))
        if isinstance(found, Record) and found.size == len(damaged):
            assert decode(damaged) == [to_message(found)]
        else:
            with pytest.raises(ProtocolError, match="no record at byte"):
                decode(damaged)


def test_the_fast_path_parses_as_the_general_parser() -> None:
    """The fast path for the common layout returns the same as the general parser, for damaged bytes too."""
    rng = random.Random(7)
    whole = example(body=bytes(range(200)))
    for _ in range(rounds(5_000)):
        data = bytearray(whole)
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        view = memoryview(data)
        plain = record._parse_common_layout(view, 0, len(view), True)
        size, magic = BLANK.unpack_from(view)
        is_candidate = magic in {MAGIC_V1, MAGIC_V2} and size <= len(view)
        general = record._parse_fields(view, 0, size, True) if is_candidate else None
        if plain is not None or (isinstance(general, Record) and magic == MAGIC_V1 and len(general.born_host) == 8):
            assert plain == general or len(getattr(general, "store_host", b"")) != 8


class Tagged(MessageExt):
    """A subclass of MessageExt with a field of its own."""

    mark: str = "none"


def test_a_decoder_makes_instances_of_a_subclass() -> None:
    """Records in the common layout and in any other; further fields have their defaults."""
    common, other = example(), example(born_host=encode_host("::1", 1))
    data = common + other + common
    found = decoder_of(Tagged)(data)
    assert [type(message) for message in found] == [Tagged] * 3
    assert {message.mark for message in found} == {"none"}
    plain = decode(data)
    assert [[getattr(m, name) for name in MessageExt.__struct_fields__] for m in found] == [
        [getattr(m, name) for name in MessageExt.__struct_fields__] for m in plain
    ]
