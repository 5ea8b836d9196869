"""The checksum over a whole record: RocketMQ's bytes, and detection of every changed bit."""

import pytest

from skylarkmq.protocol import record
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import Record, parse
from skylarkmq.protocol.record_checksum import (
    SIZE,
    fill_checksum,
    has_valid_checksum,
    has_wrong_checksum,
    with_checksum_space,
)

PLAIN = b"KEYS\x01k1\x02UNIQ_KEY\x01C0A8010A0001000000000001\x02TAGS\x01TagA\x02"


def encoded(properties: bytes) -> bytearray:
    return bytearray(
        record.encode(
            topic="TopicTest",
            body=b"Hello RocketMQ",
            properties=properties,
            queue_id=2,
            queue_offset=5,
            physical_offset=4096,
            born_timestamp=1_700_000_000_000,
            born_host=encode_host("192.168.1.10", 34567),
            store_timestamp=1_700_000_000_123,
            store_host=encode_host("10.0.0.1", 10911),
        )
    )


def with_checksum() -> bytearray:
    whole = encoded(with_checksum_space(PLAIN))
    return bytearray(fill_checksum([whole]))


def parsed(data: bytearray) -> Record:
    found = parse(memoryview(data))
    assert isinstance(found, Record)
    return found


def test_worked_example() -> None:
    """docs/reference/disk.md, "Whole-record checksum": 20 bytes, digits from the lowest to the highest."""
    whole = with_checksum()
    assert len(whole) == 0xBA
    assert whole[-SIZE:] == b"__CRC32#\x011058941261\x02"
    assert has_valid_checksum(parsed(whole))
    assert not has_wrong_checksum(parsed(whole))


def test_the_checksum_does_not_depend_on_the_parts() -> None:
    """The checksum does not depend on how a record is split into parts."""
    whole = bytes(encoded(with_checksum_space(PLAIN)))
    assert fill_checksum([whole[:7], memoryview(whole)[7:100], whole[100:]]) == bytes(with_checksum())[100:]


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        (b"", b""),
        (b"A\x01b", b"A\x01b\x02"),
        (b"A\x01b\x02", b"A\x01b\x02"),
        (b"__CRC32#\x01mine\x02A\x01b", b"A\x01b\x02"),
        (b"A\x01b\x02__CRC32#\x010000000000\x02", b"A\x01b\x02"),
        (b"A\x01__CRC32#\x02", b"A\x01__CRC32#\x02"),
    ],
)
def test_space_for_a_checksum_is_added_once(given: bytes, prepared: bytes) -> None:
    """A client's own checksum is removed, a missing separator is added, and the function is idempotent."""
    assert with_checksum_space(given)[:-SIZE] == prepared
    assert with_checksum_space(with_checksum_space(given)) == with_checksum_space(given)


def test_every_flipped_bit_is_detected() -> None:
    """After a flip of any bit the record does not parse, or its checksum is wrong."""
    whole = with_checksum()
    for at in range(len(whole)):
        for bit in range(8):
            whole[at] ^= 1 << bit
            found = parse(memoryview(whole))
            assert not isinstance(found, Record) or not has_valid_checksum(found), (at, bit)
            whole[at] ^= 1 << bit


def test_a_record_without_a_checksum_is_not_wrong() -> None:
    """A store may contain records with and without a checksum."""
    found = parsed(encoded(PLAIN))
    assert not has_valid_checksum(found)
    assert not has_wrong_checksum(found)
    assert not has_valid_checksum(parsed(encoded(b"")))
    flipped = with_checksum()
    flipped[105] ^= 1  # in the topic
    assert has_wrong_checksum(parsed(flipped))
