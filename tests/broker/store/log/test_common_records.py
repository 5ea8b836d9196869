"""Runs of records: the same records as those of the parser, up to the first one that needs it."""

import struct
from random import Random
from typing import Final

import pytest

from skylarkmq.broker.store.log.common_records import QueueRun, read_run, record_checksum_matches, run_at
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import index_keys
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.record import Record, encode, parse
from skylarkmq.protocol.record_checksum import fill_checksum, with_checksum_space

START: Final = 65_536
V4, V6 = encode_host("10.0.0.1", 10911), encode_host("::1", 10911)
PROPERTIES: Final = (
    b"",
    b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01AB\x02",
    b"KEYS\x01k\x02TAGS\x01long tag\x02",
    b"UNIQ_KEY\x01first\x02UNIQ_KEY\x01second\x02KEYS\x01  \x02",
    b"KEYS\x01k\x02KEYS\x01\x02TAGS\x01\x02",
    b"TAGS\x01t\x02a\x01TAGS\x01no\x02KEYS\x01 x  y ",
    b"UNIQ_KEY\x017F000001000000000000000000000000000012345678\x02",
    b"TAGSX\x01t\x02XKEYS\x01k\x02UNIQ_KEY\x01\x02",
)

pytestmark = pytest.mark.skipif(compiled.load("columns") is None, reason="runs need the compiled modules")


def record(
    at: int,
    *,
    properties: bytes = b"",
    body: bytes = b"body",
    topic: str = "T",
    born_host: bytes = V4,
    sys_flag: int = 0,
) -> bytes:
    return encode(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=at % 5,
        queue_offset=at,
        physical_offset=START + at,
        born_timestamp=-at,
        born_host=born_host,
        store_timestamp=at,
        store_host=V4,
        flag=7,
        sys_flag=sys_flag,
        reconsume_times=3,
        prepared_transaction_offset=at + 9,
    )


def test_a_run_has_the_records_of_the_parser() -> None:
    """With the keys and the tags code that their properties have."""
    rng = Random(5)
    data = b""
    for _ in range(300):
        body = rng.randbytes(rng.choice((0, 1, 300)))
        sys_flag = rng.choice((0, 1, 4, 8))
        data += record(len(data), properties=rng.choice(PROPERTIES), body=body, sys_flag=sys_flag)
    view = memoryview(data + bytes(200))
    at = 0
    for found in read_run(view, 0, START):
        parsed = parse(view, at)
        assert isinstance(parsed, Record)
        assert all(getattr(found, name) == getattr(parsed, name) for name in Record.__struct_fields__)
        assert found.tags_code == parsed.tags_code
        assert found.keys == index_keys(parsed.properties)
        at += parsed.size
    assert at == len(data)


@pytest.mark.parametrize(
    "other",
    [
        {"topic": "T" * 128},
        {"topic": "Tä"},
        {"born_host": V6},
        {"properties": "KEYS\x01ä\x02".encode()},
    ],
)
def test_a_run_ends_before_another_layout(other: dict[str, object]) -> None:
    """A run with such a record is empty or ends before it."""
    data = record(0) + record(len(record(0)))
    data += record(len(data), **other)  # type: ignore[arg-type]
    assert len(read_run(memoryview(data), 0, START)) in {0, 2}
    assert read_run(memoryview(data), 2 * len(record(0)), START) == []


def test_a_damaged_byte_ends_a_run() -> None:
    """A run never has a record that the parser refuses or that states another offset."""
    first = record(0, properties=PROPERTIES[1])
    data = first + record(len(first), properties=PROPERTIES[2])
    for position in range(len(data)):
        harmed = bytearray(data + bytes(100))
        harmed[position] ^= 0x55
        view = memoryview(harmed)
        at = 0
        for found in read_run(view, 0, START):
            parsed = parse(view, at)
            assert isinstance(parsed, Record)
            assert parsed.physical_offset == START + at
            assert (found.position, found.size, found.keys) == (at, parsed.size, index_keys(parsed.properties))
            at += found.size
    assert read_run(memoryview(data), 0, START + 1) == []


def test_a_wrong_record_checksum_ends_a_run() -> None:
    """Digits at the end of other properties are none."""
    properties = with_checksum_space(b"TAGS\x01a\x02")
    content = record(0, properties=properties)
    data = fill_checksum([content])
    assert len(read_run(memoryview(data), 0, START)) == 1
    for position in range(len(data) - 20, len(data)):
        harmed = bytearray(data)
        harmed[position] = harmed[position] + 1
        is_intact = record_checksum_matches(memoryview(harmed), 0, len(data))
        assert len(read_run(memoryview(harmed), 0, START)) == is_intact
    assert read_run(memoryview(data[:-1] + b"\x03"), 0, START) == []
    damaged_size = struct.pack(">i", len(data) + 1) + data[4:]
    assert read_run(memoryview(damaged_size), 0, START) == []


def queue_record(at: int, topic: str, queue_id: int, offset: int, sys_flag: int = 0) -> bytes:
    content = bytearray(record(at, topic=topic, sys_flag=sys_flag))
    struct.pack_into(">i", content, 12, queue_id)
    struct.pack_into(">q", content, 20, offset)
    return bytes(content)


def log_of(places: list[tuple[str, int, int]]) -> bytes:
    data = b""
    for place in places:
        data += queue_record(len(data), *place)
    return data


def test_a_run_has_the_queues_of_its_records() -> None:
    """With the offsets that they continue, in any mixture."""
    rng = Random(9)
    for _ in range(50):
        keys = [(topic, queue_id) for topic in ("A", "B", "AB") for queue_id in (0, 1, 2**31 - 1, -1)]
        first = {key: rng.choice((0, 5, 2**40)) for key in keys}
        next_of = dict(first)
        places = []
        for key in rng.choices(keys, k=rng.randrange(1, 60)):
            places.append((*key, next_of[key]))
            next_of[key] += 1
        run = run_at(memoryview(log_of(places)), 0, START)
        grown = run.queues()
        assert grown is not None
        numbers, parts = grown
        assert [(parts[n].topic, parts[n].queue_id) for n in numbers] == [place[:2] for place in places]
        ends = {(found.topic, found.queue_id): found.physical_offset + found.size for found in run.records()}
        expected = {QueueRun(*key, first[key], next_of[key], ends[key]) for key in ends}
        assert set(parts) == expected
        assert len(parts) == len(expected)


@pytest.mark.parametrize(
    "places",
    [
        [("A", 0, 5), ("A", 0, 7)],
        [("A", 0, 5), ("B", 0, 1), ("A", 0, 5)],
        [("A", 0, 5), ("A", 0, 4)],
        [("A", 0, -(2**63)), ("A", 0, 2**63 - 1)],
        [("A", 0, 2**63 - 1), ("A", 0, -(2**63))],
        [(f"topic-{number}", 0, 0) for number in range(129)],
    ],
    ids=["gap", "repeated", "backward", "extreme", "beyond the largest", "too many topics"],
)
def test_another_order_gives_no_queues(places: list[tuple[str, int, int]]) -> None:
    """Each record is judged by itself then."""
    run = run_at(memoryview(log_of(places)), 0, START)
    assert run.queues() is None
    assert [(found.topic, found.queue_id, found.queue_offset) for found in run.records()] == places


@pytest.mark.parametrize("sys_flag", [4, 8, 12, 0x80])
def test_a_record_that_is_no_plain_message_gives_no_queues(sys_flag: int) -> None:
    """Parts of transactions, and batches."""
    data = log_of([("A", 0, 5)])
    data += queue_record(len(data), "A", 0, 6, sys_flag)
    assert run_at(memoryview(data), 0, START).queues() is None


def test_an_empty_run_has_no_records_and_no_queues() -> None:
    """No bytes, or others."""
    for data in (b"", bytes(1000)):
        run = run_at(memoryview(data), 0, START)
        assert (len(run), run.records(), run.queues()) == (0, [], None)
