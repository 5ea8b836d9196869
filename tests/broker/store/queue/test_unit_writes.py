"""Units in memory: visible at once, written in batches, and rebuilt after a crash."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.unit_writes import FULL_UNITS
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE, Checkpoint
from tests.harness.stores import Opened, TestDisk, message, opened

MANY = 1 << 19
MINUTE_MS = 60_000


def units_of(root: Path, queue_id: int = 0, topic: str = "T") -> int:
    """Return the number of units in the files of a queue."""
    paths = (root / "consumequeue" / topic / str(queue_id)).glob("*")
    return sum(UNIT.unpack_from(path.read_bytes(), at)[1] > 0 for path in paths for at in range(0, 400, UNIT_SIZE))


def run_round(it: Opened, milliseconds: int = MINUTE_MS) -> None:
    """Run a complete write round."""
    it.clock.now_ms += milliseconds
    it.store.step(it.clock.now_ms)
    flusher = it.store._durability._queue_flusher
    assert flusher is not None
    flusher.wait_idle()


def test_units_are_read_from_memory_until_a_round_writes_them(tmp_path: Path) -> None:
    """Readers see no difference, across segment boundaries, before, during and after a write."""
    with opened(tmp_path, queue_units_in_memory=MANY) as it:
        run_round(it)
        sent = [b"%d" % number for number in range(70)]
        it.put(*map(message, sent[:50]))
        assert (units_of(tmp_path), it.bodies()) == (0, sent[:50])
        assert it.arrivals == [("T", 0, 50, (0,) * 50)]
        run_round(it)
        assert units_of(tmp_path) == 50
        it.put(*map(message, sent[50:]))
        assert (units_of(tmp_path), it.bodies()) == (50, sent)
        assert it.store.store_time_at("T", 0, 69) == it.clock.now_ms
    with opened(tmp_path) as it:
        assert (units_of(tmp_path), it.bodies()) == (70, sent)


def test_a_full_queue_is_written_at_once(tmp_path: Path) -> None:
    """It is written as soon as it has FULL_UNITS units."""
    with opened(tmp_path, queue_units_in_memory=MANY, mapped_file_size_consume_queue=20_000) as it:
        it.put(*(message(b"") for _ in range(FULL_UNITS - 1)))
        assert not (tmp_path / "consumequeue").exists()
        it.put(message(b""))
        assert it.store.queues.by_key["T", 0].written == FULL_UNITS
        assert it.store._dispatch.writes.units == 0


def test_the_queue_that_waits_longest_is_written_first(tmp_path: Path) -> None:
    """No more units wait than the limit permits."""
    with opened(tmp_path, queue_units_in_memory=3) as it:
        for queue_id in (0, 1, 0, 2):
            it.put(message(queue_id=queue_id))
        assert [units_of(tmp_path, queue_id) for queue_id in range(3)] == [2, 0, 0]
        assert it.store._dispatch.writes.units == 2


def test_recovery_rebuilds_units_that_a_crash_took(tmp_path: Path) -> None:
    """The log has the records of all units that were in memory."""
    it = Opened(tmp_path, queue_units_in_memory=MANY)
    it.put(*(message(b"%d" % number, queue_id=number % 3) for number in range(90)))
    it.crash()
    assert not (tmp_path / "consumequeue").exists()
    with opened(tmp_path) as it:
        assert it.bodies(queue_id=1) == [b"%d" % number for number in range(1, 90, 3)]


def test_a_round_is_written_in_slices_and_covers_only_units_before_its_start(tmp_path: Path) -> None:
    """With any number of waiting queues no step takes long; the next round covers units that arrive in between."""
    with opened(tmp_path, queue_units_in_memory=MANY) as it:
        run_round(it)
        it.put(*(message(queue_id=queue_id) for queue_id in range(200)))
        began_ms = it.clock.now_ms
        left: list[int] = []
        for _ in range(4):
            run_round(it, MINUTE_MS if not left else 100)
            it.put(message(topic="Late"))
            left.append(sum(queue.topic == "T" for queue in it.store._dispatch.writes.waiting))
        assert left == [136, 72, 8, 0]
        run_round(it, 0)
        checkpoint = Checkpoint.decode((tmp_path / "checkpoint").read_bytes())
        assert checkpoint.logics_timestamp == began_ms
        assert units_of(tmp_path, topic="Late") == 0


def test_an_unwritable_queue_is_readable_and_written_later(tmp_path: Path) -> None:
    """New messages are rejected in the meantime; waiting units are neither lost nor hidden."""
    disk = TestDisk()
    with opened(tmp_path, disk=disk, queue_units_in_memory=MANY) as it:
        run_round(it)
        it.put(message(b"first"))
        is_full = True

        def refuse(call: str, path: str) -> None:
            if is_full and call == "create_new":
                raise OSError(errno.ENOSPC, "injected")

        disk.refuse = refuse
        run_round(it)
        it.store.step(it.clock.now_ms)
        (refused,) = it.put(message(b"refused"))
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert it.bodies() == [b"first"]
        is_full = False
        it.store.step(it.clock.now_ms)
        (again,) = it.put(message(b"again"))
        assert again.status is PutStatus.PUT_OK
        assert it.bodies() == [b"first", b"again"]


async def test_units_of_a_deleted_topic_are_dropped(tmp_path: Path) -> None:
    """They are not written, and the topic, created again, begins at 0."""
    with opened(tmp_path, queue_units_in_memory=MANY) as it:
        it.put(message(b"old"), message(b"old"))
        assert await it.store.delete_topic("T") == 1
        it.put(message(b"new"))
        run_round(it)
        assert it.bodies() == [b"new"]
        assert it.store._dispatch.writes.units == 0


def test_a_queue_without_files_corrects_its_first_offset(tmp_path: Path) -> None:
    """When the start of the log moves past waiting units, these no longer count."""
    with opened(tmp_path, queue_units_in_memory=MANY) as it:
        it.put(*(message(b"x") for _ in range(5)))
        queue: Any = it.store.queues.by_key["T", 0]
        third, size = 2, UNIT.unpack_from(queue.pending, 2 * UNIT_SIZE)[0]
        queue.correct_min_offset(size)
        assert (queue.min_offset, queue.first_start) == (third, -1)
        queue.min_offset = 0


@pytest.mark.parametrize("problem", [ValueError("embedded null byte"), OSError(errno.ENAMETOOLONG, "too long")])
def test_an_unwritable_queue_does_not_affect_others(tmp_path: Path, problem: Exception) -> None:
    """Whatever its write raises: the others are written, the store closes, and the next start has all messages."""

    def broken() -> None:
        raise problem

    it = Opened(tmp_path, queue_units_in_memory=MANY)
    it.put(*(message(b"%d" % queue_id, queue_id=queue_id) for queue_id in range(5)))
    queue = it.store.queues.by_key["T", 2]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(queue), "write_pending", _only_for(queue, broken, type(queue).write_pending))
        run_round(it)
        assert [units_of(tmp_path, queue_id) for queue_id in range(5)] == [1, 1, 0, 1, 1]
        it.store.close()
    with opened(tmp_path) as it:
        assert [it.bodies(queue_id=queue_id) for queue_id in range(5)] == [[b"%d" % n] for n in range(5)]


def _only_for(queue: ConsumeQueue, broken: Callable[[], None], usual: Callable[[ConsumeQueue], None]) -> Any:
    return lambda each: broken() if each is queue else usual(each)
