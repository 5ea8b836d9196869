"""Retention in a store: what goes and what stays, what clients read meanwhile, and a disk that fills and empties."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.log.append import PutStatus
from skylarkmq.broker.store.log.mapped_file import MappedFile
from skylarkmq.broker.store.read.queue_reads import GetStatus
from skylarkmq.broker.store.retention.rules import HOUR_MS
from skylarkmq.protocol.disk import offset_file_name
from tests.harness.stores import SEGMENT_BYTES, Clock, Opened, TestDisk, message

ALL_DAY = tuple(range(24))
BODY = b"x" * 9_000  # seven to a segment
SEGMENTS = 6


def filled(root: Path, segments: int = SEGMENTS, **settings: Any) -> Opened:
    """A store of that many segments, last changed now, in one queue of 20 units a file."""
    defaults: dict[str, Any] = {"delete_when": ALL_DAY, "flush_interval_commit_log": 1}
    it = Opened(root, **defaults | settings)
    for _ in range(7 * segments):
        it.put(message(BODY))
    for start in starts(root):
        modify(root, start, it.clock.now_ms)
    settle(it)
    return it


def settle(it: Opened) -> None:
    """Let the flushers catch up; time does not pass."""
    while it.store._durability.deletable_offset < it.store.max_physical_offset:
        it.store._durability._next_queue_flush_ms = it.store._durability._next_thorough_ms = 0
        it.store._durability.step(it.clock.now_ms)


def modify(root: Path, start: int, at_ms: int) -> None:
    os.utime(root / "commitlog" / offset_file_name(start), ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def starts(root: Path, directory: str = "commitlog") -> list[int]:
    return sorted(int(name) for name in os.listdir(root / directory) if not name.endswith(".tmp"))


def served(it: Opened) -> list[int]:
    """Segments of the log that readers find."""
    return [segment.start // SEGMENT_BYTES for segment in it.store._log.files.segments]


def step(it: Opened, elapsed_ms: int) -> None:
    """One step, and what it gave the helper to do."""
    it.clock.now_ms += elapsed_ms
    it.store.step(it.clock.now_ms)
    rest(it)


def rest(it: Opened) -> None:
    """Wait until the helper has made the calls that it was given."""
    it.store._helper.submit(lambda: None).result(10)


def run(it: Opened, rounds: int = 1) -> None:
    """Looks at their interval, with a hundred steps each for what they decided."""
    for _ in range(rounds):
        for _ in range(100):
            step(it, 100)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Opened]:
    """Six segments of which the first four have been kept long enough in an hour from the first step."""
    it = filled(tmp_path)
    for number in range(4):
        modify(tmp_path, number * SEGMENT_BYTES, it.clock.now_ms - 72 * HOUR_MS)
    it.store.step(it.clock.now_ms)
    yield it
    it.store.close()


def test_what_is_due_goes_and_the_rest_stays(old: Opened, tmp_path: Path) -> None:
    """From the oldest to the first that is not due; its file, its place in the log, and the queue's segments below."""
    run(old, 8)
    assert served(old) == [4, 5]
    assert [start // SEGMENT_BYTES for start in starts(tmp_path)][:2] == [4, 5]
    assert old.store.min_physical_offset == 4 * SEGMENT_BYTES
    assert old.store.min_offset("T", 0) == 28
    assert starts(tmp_path, "consumequeue/T/0") == [400, 800]
    assert len(old.bodies()) == 14
    assert old.store.get("T", 0, 0, 32).next_begin_offset == 28
    assert old.store.statistics().cleaner.deleted == 4


def test_nothing_goes_in_the_first_minute(old: Opened) -> None:
    """A start under a wrong clock or setting leaves time to stop it."""
    for elapsed_ms, left in ((59_999, SEGMENTS), (1, SEGMENTS), (9_999, 5)):
        step(old, elapsed_ms)
        assert len(served(old)) == left


@pytest.mark.parametrize("hours", [1, 87_660])
def test_a_clock_that_is_set_forward_expires_nothing(tmp_path: Path, hours: int) -> None:
    """Age counts by the time that has passed since the first step; so it does when the clock is right again."""
    it = filled(tmp_path, file_reserved_time=2)
    steady = Clock(5_000)

    def pass_ms(elapsed_ms: int) -> None:
        it.clock.now_ms += elapsed_ms
        steady.now_ms += elapsed_ms
        for _ in range(100):
            it.store.step(steady.now_ms)
            rest(it)
            it.clock.now_ms += 100
            steady.now_ms += 100

    it.store.step(steady.now_ms)
    it.clock.now_ms += hours * HOUR_MS
    pass_ms(HOUR_MS // 2)
    assert served(it) == list(range(SEGMENTS))
    it.clock.now_ms -= hours * HOUR_MS
    pass_ms(HOUR_MS // 2)
    assert served(it) == list(range(SEGMENTS))
    pass_ms(2 * HOUR_MS)
    pass_ms(HOUR_MS)
    assert len(served(it)) < SEGMENTS
    it.store.close()


def test_a_clock_that_is_set_back_keeps_segments_for_longer(tmp_path: Path) -> None:
    """They go when the clock says so again; a crowded disk does not wait for that."""
    it = filled(tmp_path, file_reserved_time=2)
    it.store.step(it.clock.now_ms)
    it.clock.now_ms += 3 * HOUR_MS
    it.store._cleaner._unix_ms = lambda: it.clock.now_ms - 10 * HOUR_MS
    run(it, 2)
    assert served(it) == list(range(SEGMENTS))
    it.disk.used = lambda _path: 90
    run(it, 2)
    assert len(served(it)) < SEGMENTS
    it.store.close()


def test_one_segment_at_a_time(old: Opened) -> None:
    """They leave `deleteCommitLogFilesInterval` apart, so that a disk is not asked for everything at once."""
    step(old, 60_000)
    lengths = []
    for _ in range(5):
        lengths.append(len(served(old)))
        step(old, 50)
        lengths.append(len(served(old)))
        step(old, 50)
    assert lengths == [5, 5, 4, 4, 3, 3, 2, 2, 2, 2]


@pytest.mark.parametrize("batch", [1, 2])
def test_a_round_takes_no_more_than_a_batch(tmp_path: Path, batch: int) -> None:
    """`deleteFileBatchMax` segments go per look, the rest with the next ones."""
    it = filled(tmp_path, delete_file_batch_max=batch, file_reserved_time=0)
    step(it, 0)
    sizes = []
    for _ in range(3):
        step(it, 60_000)
        for _ in range(20):
            step(it, 100)
        sizes.append(len(served(it)))
    it.store.close()
    assert sizes == [max(SEGMENTS - batch * (number + 1), 1) for number in range(3)]


def test_the_last_segment_stays(tmp_path: Path) -> None:
    """However old it is and however full the disk: the log's end is in it."""
    disk = TestDisk()
    disk.used = lambda path: 89
    it = filled(tmp_path, disk=disk, file_reserved_time=0)
    step(it, 0)
    run(it, 9)
    assert served(it) == [SEGMENTS - 1]
    (append,) = it.put(message(b"next"))
    assert append.status is PutStatus.PUT_OK
    assert it.bodies()[-1] == b"next"
    it.store.close()
    with_more = Opened(tmp_path)
    assert len(with_more.bodies()) == 8
    with_more.store.close()


@pytest.mark.parametrize(("used", "left"), [(75, SEGMENTS), (76, SEGMENTS), (85, SEGMENTS), (86, 1)])
def test_space(tmp_path: Path, used: int, left: int) -> None:
    """A crowded disk takes what is due at any hour; a very crowded one what is not due, too."""
    disk = TestDisk()
    disk.used = lambda path: used
    it = filled(tmp_path, disk=disk, delete_when=())
    step(it, 0)
    run(it, 9)
    assert len(served(it)) == left
    it.store.close()


def test_nothing_goes_that_is_not_flushed(tmp_path: Path) -> None:
    """A segment whose messages were not synced yet is kept, and those behind it."""
    disk = TestDisk()
    it = filled(tmp_path, disk=disk, segments=2, file_reserved_time=0, sync=True)
    disk.syncs.clear()
    for _ in range(14):
        it.put(message(BODY))
    step(it, 0)
    run(it, 8)
    assert served(it) == [1, 2, 3]  # the end of segment 1 is not flushed
    disk.syncs.set()
    settle(it)
    for start in starts(tmp_path):
        modify(tmp_path, start, it.clock.now_ms)
    run(it, 2)
    assert served(it) == [3]
    it.store.close()


def test_a_full_disk_refuses_messages_and_comes_back(tmp_path: Path) -> None:
    """Above the warning ratio puts are refused, reads go on; below it everything is as before, without a restart."""
    disk = TestDisk()
    it = filled(tmp_path, segments=2, disk=disk, clean_file_forcibly_enable=False)
    disk.used = lambda path: 91
    step(it, 10_000)
    (append,) = it.put(message())
    assert append.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert it.store.refusal_reasons() == "the disk is too full (91 percent used, 90 are allowed)"
    assert len(it.bodies()) == 14
    disk.used = lambda path: 90
    step(it, 9_999)
    assert it.store.refusal_reasons()
    step(it, 1)
    (append,) = it.put(message())
    assert append.status is PutStatus.PUT_OK
    assert it.store.is_writable
    it.store.close()
    assert not (tmp_path / "abort").exists()


def test_a_disk_that_cannot_be_measured(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is a warning, and what was known is kept."""
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
    """A slow client's."""

    def __init__(self, segment: MappedFile) -> None:
        self.segment = segment
        self.is_cut = False
        segment.hold(self)

    def abort_transfer(self) -> None:
        self.is_cut = True
        self.segment.release(self)


def test_a_transfer_outlives_the_deletion(old: Opened, tmp_path: Path) -> None:
    """The file is gone from the directory at once; its bytes go on until the transfer is over, or takes too long."""
    first, second = old.store._log.files.segments[:2]
    slow, slower = Transfer(first), Transfer(second)
    run(old, 8)
    assert served(old) == [4, 5]
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


def test_a_file_that_cannot_be_unlinked(old: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again after `redeleteHangedFileInterval`, and no other goes meanwhile: no gap can come of it."""

    def refuse(call: str, path: str) -> None:
        if call == "unlink":
            raise OSError(errno.EBUSY, "busy")

    old.disk.refuse = refuse
    run(old, 8)
    assert served(old) == [1, 2, 3, 4, 5]
    assert [start // SEGMENT_BYTES for start in starts(tmp_path)][:2] == [0, 1]
    assert "segment not unlinked" in caplog.text
    old.disk.refuse = lambda call, path: None
    run(old, 9)
    assert served(old) == [1, 2, 3, 4, 5]
    run(old, 5)
    assert served(old) == [4, 5]
    assert starts(tmp_path)[0] == 4 * SEGMENT_BYTES


def test_queue_segments_are_unlinked_again(old: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What of a queue cannot be unlinked is tried again as well, and read by nobody."""

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


def test_the_next_start_finishes_what_was_left(tmp_path: Path) -> None:
    """Queue segments of an earlier process go with the first walk of the next one."""
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


def test_a_queue_without_messages_is_numbered(tmp_path: Path) -> None:
    """A queue whose messages have all gone goes on counting where it was."""
    it = Opened(tmp_path, delete_when=ALL_DAY, flush_interval_commit_log=1)
    it.put(*(message(b"quiet", queue_id=1) for _ in range(5)))
    for _ in range(7 * 3):
        it.put(message(BODY))
    modify(tmp_path, 0, it.clock.now_ms - 72 * HOUR_MS)
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


def test_what_the_parts_say(old: Opened) -> None:
    """One line each, for a log or a debugger."""
    store = old.store
    for part in (store._cleaner, store._removal, *store._cleaner._followers, store._log.flags):
        assert repr(part).startswith(f"<{type(part).__name__}")
        assert "\n" not in repr(part)


def test_an_operator_may_have_due_segments_go_at_any_hour(tmp_path: Path) -> None:
    """For some looks, and only what is due."""
    it = filled(tmp_path, delete_when=(), file_reserved_time=1)
    step(it, 61_000)
    step(it, HOUR_MS)
    assert served(it) == list(range(SEGMENTS))
    it.store.manual_cleanup.delete_due_segments()
    for _ in range(2 * SEGMENTS):
        step(it, 10_000)
    assert served(it) == [SEGMENTS - 1]
    it.store.close()
