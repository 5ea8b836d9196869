"""Retention in a store: what is deleted, what clients can read meanwhile, and a disk that fills up and empties."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.read.queue_reads import GetStatus
from skylarkmq.broker.store.retention.rules import HOUR_MS
from skylarkmq.protocol.disk import offset_file_name
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import SEGMENT_BYTES, Clock, Opened, TestDisk, message

ALL_DAY = tuple(range(24))
BODY = b"x" * 9_000  # seven per segment
SEGMENTS = 6


def filled(root: Path, segments: int = SEGMENTS, **settings: Any) -> Opened:
    """Return a store with that many segments, last modified now, in one queue of 20 units per file."""
    flush_at_once = {"flush_interval_commit_log": 1, "flush_commit_log_least_pages": 0}
    defaults: dict[str, Any] = {"delete_when": ALL_DAY, **flush_at_once}
    it = Opened(root, **defaults | settings)
    for _ in range(7 * segments):
        it.put(message(BODY))
    for start in starts(root):
        set_modified(root, start, it.clock.now_ms)
    settle(it)
    return it


def settle(it: Opened) -> None:
    """Wait for the flushers; the clock does not advance."""
    while it.store._durability.deletable_offset < it.store.max_physical_offset:
        it.store._durability._next_queue_flush_ms = it.store._durability._next_thorough_ms = 0
        it.store._durability.step(it.clock.now_ms)
        time.sleep(0.001)


def set_modified(root: Path, start: int, at_ms: int) -> None:
    os.utime(root / "commitlog" / offset_file_name(start), ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def starts(root: Path, directory: str = "commitlog") -> list[int]:
    return sorted(int(name) for name in os.listdir(root / directory) if not name.endswith(".tmp"))


def readable_segments(it: Opened) -> list[int]:
    """Return the segments of the log that readers can find."""
    return [segment.start // SEGMENT_BYTES for segment in it.store._log.files.segments]


def step(it: Opened, elapsed_ms: int) -> None:
    """Run one step, and the calls that it gave to the helper."""
    it.clock.now_ms += elapsed_ms
    it.store.step(it.clock.now_ms)
    wait_for_helper(it)


def wait_for_helper(it: Opened) -> None:
    """Wait until the helper has completed its calls."""
    it.store._parts._helper.submit(lambda: None).result(WAIT_LIMIT_S)


def run(it: Opened, rounds: int = 1) -> None:
    """Run rounds at their interval, with a hundred steps each."""
    for _ in range(rounds):
        for _ in range(100):
            step(it, 100)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Opened]:
    """Return six segments, the first four of which are due an hour after the first step."""
    it = filled(tmp_path)
    for number in range(4):
        set_modified(tmp_path, number * SEGMENT_BYTES, it.clock.now_ms - 72 * HOUR_MS)
    it.store.step(it.clock.now_ms)
    yield it
    it.store.close()


def test_due_segments_are_deleted_and_others_stay(old: Opened, tmp_path: Path) -> None:
    """From the oldest to the first that is not due: file, log segment, and the queue segments below."""
    run(old, 8)
    assert readable_segments(old) == [4, 5]
    assert [start // SEGMENT_BYTES for start in starts(tmp_path)][:2] == [4, 5]
    assert old.store.min_physical_offset == 4 * SEGMENT_BYTES
    assert old.store.min_offset("T", 0) == 28
    assert starts(tmp_path, "consumequeue/T/0") == [400, 800]
    assert len(old.bodies()) == 14
    assert old.store.get("T", 0, 0, 32).next_begin_offset == 28
    assert old.store.statistics().cleaner.deleted == 4


def test_nothing_is_deleted_in_the_first_minute(old: Opened) -> None:
    """After a start with a wrong clock or setting there is time to stop the broker."""
    for elapsed_ms, left in ((59_999, SEGMENTS), (1, SEGMENTS), (9_999, 5)):
        step(old, elapsed_ms)
        assert len(readable_segments(old)) == left


@pytest.mark.parametrize("hours", [1, 87_660])
def test_a_clock_that_is_set_forward_expires_nothing(tmp_path: Path, hours: int) -> None:
    """The age counts by the time that has passed since the first step, also after the clock is corrected."""
    it = filled(tmp_path, file_reserved_time=2)
    steady = Clock(5_000)

    def pass_ms(elapsed_ms: int) -> None:
        it.clock.now_ms += elapsed_ms
        steady.now_ms += elapsed_ms
        for _ in range(100):
            it.store.step(steady.now_ms)
            wait_for_helper(it)
            it.clock.now_ms += 100
            steady.now_ms += 100

    it.store.step(steady.now_ms)
    it.clock.now_ms += hours * HOUR_MS
    pass_ms(HOUR_MS // 2)
    assert readable_segments(it) == list(range(SEGMENTS))
    it.clock.now_ms -= hours * HOUR_MS
    pass_ms(HOUR_MS // 2)
    assert readable_segments(it) == list(range(SEGMENTS))
    pass_ms(2 * HOUR_MS)
    pass_ms(HOUR_MS)
    assert len(readable_segments(it)) < SEGMENTS
    it.store.close()


def test_a_clock_that_is_set_back_keeps_segments_for_longer(tmp_path: Path) -> None:
    """They are deleted when they are due by the clock; a crowded disk does not wait for that."""
    it = filled(tmp_path, file_reserved_time=2)
    it.store.step(it.clock.now_ms)
    it.clock.now_ms += 3 * HOUR_MS
    it.store._parts.cleaner._unix_ms = lambda: it.clock.now_ms - 10 * HOUR_MS
    run(it, 2)
    assert readable_segments(it) == list(range(SEGMENTS))
    it.disk.used = lambda _path: 90
    run(it, 2)
    assert len(readable_segments(it)) < SEGMENTS
    it.store.close()


def test_segments_are_deleted_one_at_a_time(old: Opened) -> None:
    """They are `deleteCommitLogFilesInterval` apart, so that the disk does not get all deletions at once."""
    step(old, 60_000)
    lengths = []
    for _ in range(5):
        lengths.append(len(readable_segments(old)))
        step(old, 50)
        lengths.append(len(readable_segments(old)))
        step(old, 50)
    assert lengths == [5, 5, 4, 4, 3, 3, 2, 2, 2, 2]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_round_deletes_at_most_a_batch(tmp_path: Path, batch: int) -> None:
    """`deleteFileBatchMax` segments are deleted per round, the others in the next rounds."""
    it = filled(tmp_path, delete_file_batch_max=batch, file_reserved_time=0)
    step(it, 0)
    sizes = []
    for _ in range(3):
        step(it, 60_000)
        for _ in range(20):
            step(it, 100)
        sizes.append(len(readable_segments(it)))
    it.store.close()
    assert sizes == [max(SEGMENTS - batch * (number + 1), 1) for number in range(3)]


def test_the_last_segment_is_never_deleted(tmp_path: Path) -> None:
    """Regardless of its age and of the disk: it contains the end of the log."""
    disk = TestDisk()
    disk.used = lambda path: 89
    it = filled(tmp_path, disk=disk, file_reserved_time=0)
    step(it, 0)
    run(it, 9)
    assert readable_segments(it) == [SEGMENTS - 1]
    (append,) = it.put(message(b"next"))
    assert append.status is PutStatus.PUT_OK
    assert it.bodies()[-1] == b"next"
    it.store.close()
    with_more = Opened(tmp_path)
    assert len(with_more.bodies()) == 8
    with_more.store.close()


@pytest.mark.parametrize(("used", "left"), [(75, SEGMENTS), (76, SEGMENTS), (85, SEGMENTS), (86, 1)])
def test_a_crowded_disk_deletes_segments(tmp_path: Path, used: int, left: int) -> None:
    """A crowded disk deletes due segments at any hour; a very crowded one deletes others, too."""
    disk = TestDisk()
    disk.used = lambda path: used
    it = filled(tmp_path, disk=disk, delete_when=())
    step(it, 0)
    run(it, 9)
    assert len(readable_segments(it)) == left
    it.store.close()


def test_unflushed_segments_are_not_deleted(tmp_path: Path) -> None:
    """A segment with unsynced messages is kept, and so are all later ones."""
    disk = TestDisk()
    it = filled(tmp_path, disk=disk, segments=2, file_reserved_time=0, sync=True)
    disk.syncs.clear()
    for _ in range(14):
        it.put(message(BODY))
    step(it, 0)
    run(it, 8)
    assert readable_segments(it) == [1, 2, 3]  # the end of segment 1 is not flushed
    disk.syncs.set()
    settle(it)
    for start in starts(tmp_path):
        set_modified(tmp_path, start, it.clock.now_ms)
    run(it, 2)
    assert readable_segments(it) == [3]
    it.store.close()


def test_a_full_disk_rejects_messages_until_it_has_space(tmp_path: Path) -> None:
    """Above the warning ratio puts are rejected and reads continue; below it all works again, without a restart."""
    disk = TestDisk()
    it = filled(tmp_path, segments=2, disk=disk, clean_file_forcibly_enable=False)
    disk.used = lambda path: 91
    step(it, 10_000)
    (append,) = it.put(message())
    assert append.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert it.store.flags.reasons() == "the disk is too full (91 percent used, 90 are allowed)"
    assert len(it.bodies()) == 14
    disk.used = lambda path: 90
    step(it, 9_999)
    assert it.store.flags.reasons()
    step(it, 1)
    (append,) = it.put(message())
    assert append.status is PutStatus.PUT_OK
    assert it.store.is_writable
    it.store.close()
    assert not (tmp_path / "abort").exists()


def test_a_failed_measurement_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last known usage is kept."""
    disk = TestDisk()
    it = filled(tmp_path, segments=1, disk=disk)
    step(it, 0)

    def fail(path: str) -> int:
        raise OSError(errno.EIO, "no")

    disk.used = fail
    step(it, 10_000)
    assert "disk not measured" in caplog.text
    usage = it.store.statistics().cleaner.usage
    assert usage is not None
    assert usage.fullest == 50
    it.store.close()


class Transfer:
    """A transfer to a slow client."""

    def __init__(self, segment: MappedFile) -> None:
        self.segment = segment
        self.is_cut = False
        segment.hold(self)

    def abort_transfer(self) -> None:
        self.is_cut = True
        self.segment.release(self)


def test_a_transfer_outlives_the_deletion(old: Opened, tmp_path: Path) -> None:
    """The file is unlinked at once; its bytes are sent until the transfer completes or takes too long."""
    first, second = old.store._log.files.segments[:2]
    slow, slower = Transfer(first), Transfer(second)
    run(old, 8)
    assert readable_segments(old) == [4, 5]
    assert starts(tmp_path)[0] == 4 * SEGMENT_BYTES
    assert int.from_bytes(first.view[:4], "big") > len(BODY)  # its first record
    assert old.store.statistics().cleaner.removal.held == 2
    first.release(slow)
    step(old, 100)
    step(old, 100)
    assert (first.fd, second.fd >= 0) == (-1, True)
    run(old, 9)
    assert [slow.is_cut, slower.is_cut] == [False, False]
    run(old, 3)
    assert [slow.is_cut, slower.is_cut] == [False, True]
    assert second.fd == -1
    assert old.store.statistics().cleaner.removal.held == 0


def test_a_failed_unlink_is_repeated_before_others(
    old: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is repeated after `redeleteHangedFileInterval`; no other file is deleted meanwhile, so there is no gap."""

    def refuse(call: str, path: str) -> None:
        if call == "unlink":
            raise OSError(errno.EBUSY, "busy")

    old.disk.refuse = refuse
    run(old, 8)
    assert readable_segments(old) == [1, 2, 3, 4, 5]
    assert [start // SEGMENT_BYTES for start in starts(tmp_path)][:2] == [0, 1]
    assert "segment not unlinked" in caplog.text
    old.disk.refuse = lambda call, path: None
    run(old, 9)
    assert readable_segments(old) == [1, 2, 3, 4, 5]
    run(old, 5)
    assert readable_segments(old) == [4, 5]
    assert starts(tmp_path)[0] == 4 * SEGMENT_BYTES


def test_a_failed_unlink_of_queue_segments_is_repeated(
    old: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then they are not readable."""

    def refuse(call: str, path: str) -> None:
        if call == "unlink" and "consumequeue" in path:
            raise OSError(errno.EBUSY, "busy")

    old.disk.refuse = refuse
    run(old, 8)
    assert starts(tmp_path, "consumequeue/T/0") == [0, 400, 800]
    assert "queue segments not unlinked" in caplog.text
    assert old.store.min_offset("T", 0) == 28
    old.disk.refuse = lambda call, path: None
    run(old, 13)
    assert starts(tmp_path, "consumequeue/T/0") == [400, 800]


def test_the_next_start_deletes_remaining_queue_segments(tmp_path: Path) -> None:
    """Queue segments that an earlier process left are deleted by the first pass of the next one."""
    it = filled(tmp_path, file_reserved_time=0)
    it.store.close()
    for number in range(4):
        os.unlink(tmp_path / "commitlog" / offset_file_name(number * SEGMENT_BYTES))
    again = Opened(tmp_path)
    assert again.store.min_offset("T", 0) == 28
    assert starts(tmp_path, "consumequeue/T/0") == [0, 400, 800]
    for _ in range(5):
        step(again, 100)
    assert starts(tmp_path, "consumequeue/T/0") == [400, 800]
    assert len(again.bodies()) == 14
    again.store.close()


def test_an_empty_queue_keeps_its_offsets(tmp_path: Path) -> None:
    """A queue whose messages are all deleted continues with its next offset."""
    it = Opened(tmp_path, delete_when=ALL_DAY, flush_interval_commit_log=1, flush_commit_log_least_pages=0)
    it.put(*(message(b"quiet", queue_id=1) for _ in range(5)))
    for _ in range(7 * 3):
        it.put(message(BODY))
    set_modified(tmp_path, 0, it.clock.now_ms - 72 * HOUR_MS)
    settle(it)
    step(it, 0)
    run(it, 8)
    assert it.store.min_physical_offset == SEGMENT_BYTES
    assert (it.store.min_offset("T", 1), it.store.max_offset("T", 1)) == (5, 5)
    result = it.store.get("T", 1, 0, 32)
    assert (result.status, result.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, 5)
    (append,) = it.put(message(b"loud", queue_id=1))
    assert append.queue_offset == 5
    it.store.close()
    again = Opened(tmp_path)
    assert (again.store.min_offset("T", 1), again.bodies(queue_id=1)) == (5, [b"loud"])
    again.store.close()


def test_reprs(old: Opened) -> None:
    """They have one line each, for a log or a debugger."""
    store = old.store
    for part in (store._parts.cleaner, store._parts._removal, *store._parts.cleaner._followers, store._log.flags):
        assert repr(part).startswith(f"<{type(part).__name__}")
        assert "\n" not in repr(part)


def test_an_operator_may_delete_due_segments_at_any_hour(tmp_path: Path) -> None:
    """For a limited number of rounds, and only due segments."""
    it = filled(tmp_path, delete_when=(), file_reserved_time=1)
    step(it, 61_000)
    step(it, HOUR_MS)
    assert readable_segments(it) == list(range(SEGMENTS))
    it.store.manual_cleanup.delete_due_segments()
    for _ in range(2 * SEGMENTS):
        step(it, 10_000)
    assert readable_segments(it) == [SEGMENTS - 1]
    it.store.close()
