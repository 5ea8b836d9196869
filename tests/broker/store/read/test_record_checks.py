"""Damage on disk is detected before delivery, and affects no other record.

Every test fills a store, stops it, changes bytes, and opens it again. A clean start examines only the last record.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.read.queue_reads import GetStatus
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from tests.harness.stores import Opened, message, opened, records_of

COUNT = 12
DAMAGED = 4  # queue offset of the record or unit that is changed

Change = Callable[[bytearray, bytearray, int, int], None]
"""`(log, queue, begin of the record, size of the record)`"""


@contextmanager
def damaged(root: Path, **settings: Any) -> Iterator[Opened]:
    """Open a store that stays damaged."""
    with opened(root, **settings) as it:
        it.must_be_consistent = False
        yield it


def filled(root: Path) -> None:
    with opened(root) as it:
        it.put(*(message(b"%0100d" % number) for number in range(COUNT)), *(message(topic="U") for _ in range(3)))
        it.put(message(b"last"))


def change(root: Path, do: Change) -> None:
    log_path, queue_path = root / "commitlog" / f"{0:020d}", root / "consumequeue" / "T" / "0" / f"{0:020d}"
    log, queue = bytearray(log_path.read_bytes()), bytearray(queue_path.read_bytes())
    physical_offset, size, _ = UNIT.unpack_from(queue, DAMAGED * UNIT_SIZE)
    do(log, queue, physical_offset, size)
    log_path.write_bytes(log)
    queue_path.write_bytes(queue)


def flip(in_record: int, bit: int = 1) -> Change:
    def do(log: bytearray, _queue: bytearray, at: int, _size: int) -> None:
        log[at + in_record] ^= bit

    return do


def unit(physical_offset: int = 0, size: int = 0) -> Change:
    """Add these numbers to the fields of the unit."""

    def do(_log: bytearray, queue: bytearray, at: int, old_size: int) -> None:
        UNIT.pack_into(queue, DAMAGED * UNIT_SIZE, at + physical_offset, old_size + size, 0)

    return do


def unit_of_other_topic(_log: bytearray, queue: bytearray, at: int, size: int) -> None:
    UNIT.pack_into(queue, DAMAGED * UNIT_SIZE, at + 8 * size, 97, 0)  # the first record of topic U


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        (flip(120), "body CRC"),
        (flip(8), "body CRC"),
        (flip(0), "size 16777408 with 192 bytes left"),
        (flip(4), "magic dba320a7"),
        (flip(15), "it belongs to 'T' queue 1"),
        (flip(27), "it carries the queue offset 5"),
        (flip(34), "it carries the offset 512"),
        (flip(39, 16), "in a record of 192 bytes"),
        (flip(87), "in a record of 192 bytes"),
        (flip(189), "it belongs to 'U' queue 0"),
        (unit(physical_offset=1), "magic"),
        (unit(physical_offset=192), "it carries the queue offset 5"),
        (unit(size=5), "it has 192 bytes, its queue unit states 197"),
        (unit(size=-150), "its queue unit states 42 bytes"),
        (unit(size=60_000), "beyond the log's end"),
        (unit_of_other_topic, "it belongs to 'U' queue 0"),
    ],
)
def test_damage_is_not_delivered(tmp_path: Path, caplog: pytest.LogCaptureFixture, do: Change, reason: str) -> None:
    """One damaged record is skipped, the others are delivered, and the damage is logged once with its location."""
    filled(tmp_path)
    change(tmp_path, do)
    expected = [b"%0100d" % number for number in range(COUNT) if number != DAMAGED] + [b"last"]
    with caplog.at_level(logging.ERROR), damaged(tmp_path) as it:
        assert it.bodies() == expected
        assert it.bodies() == expected
        alone = it.store.get("T", 0, DAMAGED, 1, max_total_bytes=1)
        assert alone.next_begin_offset > DAMAGED
        assert it.store.statistics().reader.checks.damaged == 1
    logged = [line for line in caplog.messages if "damaged record is not delivered" in line]
    assert len(logged) == 1
    assert f"commitlog/{0:020d}" in logged[0]
    assert f"topic=T queue_id=0 queue_offset={DAMAGED}" in logged[0]
    assert reason in logged[0]


def test_a_get_that_finds_only_damage(tmp_path: Path) -> None:
    """Its status is that of missing records, and the next offset is after them."""
    filled(tmp_path)

    def zero(log: bytearray, _queue: bytearray, at: int, size: int) -> None:
        log[at : at + 3 * size] = bytes(3 * size)

    change(tmp_path, zero)
    with damaged(tmp_path, max_filter_message_size=60) as it:
        result = it.store.get("T", 0, DAMAGED, 3)
        assert (result.status, result.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, DAMAGED + 3)
        assert (result.message_count, result.total_bytes, result.regions) == (0, 0, [])
        result = it.store.get("T", 0, DAMAGED - 1, 3)
        assert (result.status, result.message_count, result.total_bytes) == (GetStatus.FOUND, 1, 192)


def test_records_are_checked_once(tmp_path: Path) -> None:
    """Records are verified by their first read; records appended since the start need no check."""
    filled(tmp_path)
    with opened(tmp_path) as it:
        checks = it.store.statistics().reader.checks
        assert (checks.checked, checks.verified.ranges) == (0, 0)
        assert len(it.bodies()) == COUNT + 1
        verified = it.store.statistics().reader.checks.verified
        assert verified.ranges == 1
        assert verified.bytes == COUNT * 192
        it.put(*(message() for _ in range(5)))
        before = it.store.statistics().reader.checks.checked
        assert it.store.get("T", 0, COUNT + 1, 32).message_count == 5
        assert it.store.statistics().reader.checks.checked == before


def test_checked_records_are_sent_as_one_region(tmp_path: Path) -> None:
    """After its first read, a queue's records are sent together, even if the records between them are unchecked."""
    with opened(tmp_path) as it:
        it.put(*(message(b"%d" % number, topic="TU"[number % 2]) for number in range(2 * COUNT)))
    with opened(tmp_path) as it:
        first, second = (it.store.get("T", 0, 0, COUNT - 1) for _ in range(2))
        assert it.store.statistics().reader.checks.verified.ranges == COUNT - 1
        assert len(second.regions) == 1 < len(first.regions)
        assert [bytes(record.body) for record in records_of(second)] == [b"%d" % (2 * n) for n in range(COUNT - 1)]


def test_old_and_new_units_in_one_get(tmp_path: Path) -> None:
    """A get across the boundary between old and new units returns both, in order."""
    filled(tmp_path)
    with opened(tmp_path) as it:
        it.put(message(b"new"))
        result = it.store.get("T", 0, COUNT - 1, 32)
        assert [bytes(record.body) for record in records_of(result)] == [b"%0100d" % (COUNT - 1), b"last", b"new"]


def test_a_shifted_queue_is_served(tmp_path: Path) -> None:
    """A queue of RocketMQ whose units lie at other queue offsets than their records state is served as it is."""
    filled(tmp_path)

    def shift(_log: bytearray, queue: bytearray, _at: int, _size: int) -> None:
        units = queue[: (COUNT + 1) * UNIT_SIZE]
        queue[: len(units)] = units[:UNIT_SIZE] + units[2 * UNIT_SIZE :] + bytes(UNIT_SIZE)

    change(tmp_path, shift)
    with damaged(tmp_path) as it:
        assert it.bodies()[:-1] == [b"%0100d" % number for number in range(COUNT) if number != 1]
        assert it.store.statistics().reader.checks.damaged == 0


def test_record_at_returns_valid_records_only(tmp_path: Path) -> None:
    """The lookup by physical offset returns valid records, and None where none begins."""
    filled(tmp_path)
    change(tmp_path, flip(120))
    with damaged(tmp_path) as it:
        found = [offset for offset in range(0, COUNT * 192, 4) if it.store.record_at(offset) is not None]
        assert found == [number * 192 for number in range(COUNT) if number != DAMAGED]
        assert it.store.record_at(1 << 40) is None
