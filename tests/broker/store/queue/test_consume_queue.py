"""Queues on disk: their units, many queues with few descriptors, and write errors."""

import asyncio
import errno
from pathlib import Path

import pytest

from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.protocol.disk import UNIT
from tests.harness.stores import Opened, TestDisk, message, opened


def test_a_unit_has_the_documented_bytes(tmp_path: Path) -> None:
    """A unit contains the start of the record, its size, and the hash of its tag, sign-extended."""
    with opened(tmp_path) as it:
        it.put(message(b"before", queue_id=9))
        (append,) = it.put(message(tag="TagZZZZZZ"))
        data = (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").read_bytes()
        assert len(data) == 400
        assert data[:20] == UNIT.pack(append.physical_offset, append.size, -367331910)
        assert not any(data[20:])


def test_the_schedule_topic_stores_due_times_as_tags_codes(tmp_path: Path) -> None:
    """In the schedule topic the tags code is the due time of the message, live and after a rebuild."""
    with opened(tmp_path) as it:
        for level, delay in (("1", 1_000), ("3", 10_000), ("18", 7_200_000), ("99", 7_200_000)):
            properties = f"DELAY\x01{level}\x02TAGS\x01a\x02".encode()
            (append,) = it.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=properties))
            assert append.tags_code == it.clock.now_ms + delay
        it.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=b"TAGS\x01a\x02", tags_code=97))
        live = (tmp_path / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0" / f"{0:020d}").read_bytes()
        assert UNIT.unpack_from(live, 80)[2] == 97


@pytest.mark.parametrize("level", ["9" * 5_000, "٣", "2147483648", "-1", "0", "x"])
def test_an_invalid_level_does_not_stop_dispatch(tmp_path: Path, level: str) -> None:
    """A message of the schedule topic without a valid level keeps the hash of its tag, live and after a crash."""
    properties = f"DELAY\x01{level}\x02TAGS\x01a\x02".encode()
    it = Opened(tmp_path)
    it.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=properties, tags_code=97), message(b"behind"))
    assert it.store.units("SCHEDULE_TOPIC_XXXX", 0, 0, 1)[0][2] == 97
    it.crash()
    with opened(tmp_path) as it:
        assert it.store.units("SCHEDULE_TOPIC_XXXX", 0, 0, 1)[0][2] == 97
        assert it.bodies() == [b"behind"]


def test_each_queue_is_notified_once_per_write(tmp_path: Path) -> None:
    """Each queue of a write is notified once, with its new max offset and the tags codes of the new messages."""
    with opened(tmp_path) as it:
        it.put(message(tag="a"), message(queue_id=1), message(tag="b"), message(b"half", sys_flag=4))
        assert it.arrivals == [("T", 0, 2, (97, 98)), ("T", 1, 1, (0,))]


def test_many_queues_few_descriptors(tmp_path: Path) -> None:
    """With any number of queues, the number of open files is limited; all queues are written, read and synced."""
    with opened(tmp_path, open_queue_files=10) as it:
        for turn in range(3):
            it.put(*(message(b"%d" % turn, queue_id=number) for number in range(200)))
        assert it.store._parts._queue_files.statistics().open_files == 10
        assert it.store._parts._queue_files.statistics().dirty_files == 200
        for number in range(200):
            assert it.bodies(queue_id=number) == [b"0", b"1", b"2"]
        assert it.store.statistics().queues == 200
    with opened(tmp_path, open_queue_files=10) as it:
        assert it.bodies(queue_id=199) == [b"0", b"1", b"2"]


def test_an_unwritable_queue_stops_puts_until_it_is_written(tmp_path: Path) -> None:
    """A queue that cannot be written loses nothing: puts are rejected until its units are on disk."""
    disk = TestDisk()
    with opened(tmp_path, disk=disk) as it:
        it.put(message(b"first"), message(b"other", queue_id=1))
        is_full = True

        def refuse(call: str, path: str) -> None:
            if is_full and call == "pwrite" and "/T/0/" in path:
                raise OSError(errno.ENOSPC, "injected")

        disk.refuse = refuse
        (stored, other) = it.put(message(b"stored"), message(b"other", queue_id=1))
        assert {stored.status, other.status} == {PutStatus.PUT_OK}
        (refused,) = it.put(message(b"refused"))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert it.bodies() == [b"first"]
        assert it.bodies(queue_id=1) == [b"other", b"other"]
        it.store.step(it.clock.now_ms)
        assert not it.store.is_writable
        is_full = False
        it.store.step(it.clock.now_ms)
        (again,) = it.put(message(b"again"))
        assert again.status is PutStatus.PUT_OK
        assert it.bodies() == [b"first", b"stored", b"again"]
        assert it.arrivals[-2:] == [("T", 0, 2, (0,)), ("T", 0, 3, (0,))]


def test_a_deleted_topic_has_no_queues_and_restarts_at_0(tmp_path: Path) -> None:
    """A deleted topic has neither queues nor files; created again, it begins at 0; other topics stay."""
    with opened(tmp_path) as it:
        it.put(*(message(queue_id=number % 3) for number in range(100)), message(topic="Other"))
        assert asyncio.run(it.store.delete_topic("T")) == 3
        assert asyncio.run(it.store.delete_topic("T")) == 0
        assert it.store.max_offset("T", 0) is None
        assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["Other"]
        (append,) = it.put(message(b"new"))
        assert append.queue_offset == 0
        assert it.bodies() == [b"new"]
        assert it.bodies("Other") == [b"hello"]


def test_store_times_lead_to_offsets(tmp_path: Path) -> None:
    """The store time of each message leads back to its offset."""
    with opened(tmp_path) as it:
        start = it.clock.now_ms
        for number in range(45):
            it.clock.now_ms = start + 10 * number
            it.put(message())
        assert it.store.earliest_store_time("T", 0) == start
        assert it.store.store_time_at("T", 0, 44) == start + 440
        assert it.store.store_time_at("T", 0, 45) is None
        assert it.store.offset_by_time("T", 0, start + 200) == 20
        assert it.store.offset_by_time("T", 0, start + 201) == 21
        assert it.store.offset_by_time("T", 0, start + 9999) == 45
        assert it.store.offset_by_time("nobody", 0, start) == 0
