"""The walk over records: it finds the end of whole records at any byte, and takes what the parser takes."""

from random import Random

import pytest

from skylarkmq.broker.store.backup.records import is_blank, walk
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import BLANK, MAGIC_BLANK, Blank, Damaged, Record, encode, iterate, parse

START = 65_536
V4, V6 = encode_host("10.0.0.1", 10911), encode_host("::1", 10911)


def records(count: int) -> tuple[bytes, list[int]]:
    """Return records of all layouts, and where each of them ends."""
    rng = Random(3)
    data, ends = b"", list[int]()
    for number in range(count):
        data += encode(
            topic="%RETRY%" + "g" * 130 if number % 5 == 4 else "T",
            body=rng.randbytes(rng.choice((0, 1, 300))),
            properties=b"KEYS\x01k\x02" if number % 2 else b"",
            queue_id=number,
            queue_offset=number,
            physical_offset=START + len(data),
            born_timestamp=1,
            born_host=V6 if number % 3 == 1 else V4,
            store_timestamp=1_000 + number,
            store_host=V6 if number % 4 == 2 else V4,
        )
        ends.append(len(data))
    return data, ends


def test_whole_records_end_where_a_cut_begins() -> None:
    """At whatever byte the data is cut, with zeros after it."""
    data, ends = records(8)
    for cut in range(len(data) + 1):
        view = memoryview(data[:cut] + bytes(200))
        walked = walk(view, 0, START)
        assert walked.end == sum(record.size for record in iterate(view) if isinstance(record, Record))
        assert walked.store_time == (1_000 + ends.index(walked.end) if walked.end else 0)


def test_a_flipped_byte_ends_the_walk_exactly_if_the_parser_refuses_the_record() -> None:
    """In the fields that the walk reads itself: size, magic, CRC, offset, body."""
    data, ends = records(1)
    for at in (*range(12), *range(28, 36), *range(84, ends[0] - 60)):
        harmed = bytearray(data)
        harmed[at] ^= 0x55
        view = memoryview(bytes(harmed) + bytes(100))
        found = parse(view, 0)
        assert isinstance(walk(view, 0, START).following, Damaged) == (not hasattr(found, "topic") or 28 <= at < 36)


def test_a_record_from_elsewhere_is_damage() -> None:
    data, _ = records(2)
    walked = walk(memoryview(data + bytes(100)), 0, START + 1)
    assert (walked.end, walked.following) == (0, Damaged(f"a record that states the offset {START}"))


def test_a_walk_may_begin_at_any_record() -> None:
    data, ends = records(6)
    walked = walk(memoryview(data), ends[2], START)
    assert (walked.end, walked.store_time) == (len(data), 1_005)


@pytest.mark.parametrize(("remaining", "is_valid"), [(508, True), (507, False)])
def test_a_blank_closes_a_segment(remaining: int, is_valid: bool) -> None:
    data, _ = records(3)
    walked = walk(memoryview(data + BLANK.pack(508, MAGIC_BLANK) + bytes(500)), 0, START)
    assert (walked.end, walked.following) == (len(data), Blank(508))
    assert is_blank(walked.following, remaining) == is_valid
