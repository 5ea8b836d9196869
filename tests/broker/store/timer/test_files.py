"""Wheel, log and check file of timers: their bytes, the order of their writes, and their recovery."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import LoadStopped
from skylarkmq.broker.store.timer.files import (
    NOT_SYNCED,
    NOT_WRITTEN,
    RETRY_MS,
    STOP_CHECK_ITEMS,
    TimerFiles,
    TimerFilesConfig,
    slot_with_unit,
)
from skylarkmq.broker.store.timer.flush_round import WriteRefused
from skylarkmq.broker.store.timer.wheel import EMPTY, Slot, TimerWheel
from skylarkmq.protocol.timers import CHECK_FILE, NORMAL, SLOT, TimerCheck, TimerUnit
from tests.harness.stores import TestDisk
from tests.harness.timed import LOG_BYTES, WHEEL_SLOTS

W = 1_700_000_000_000
UNITS_OF_A_FILE = 20


class Log:
    """A commit log with a number of bytes, all of them on disk unless a test changes this."""

    def __init__(self) -> None:
        self.min_physical_offset = 0
        self.max_physical_offset = self.flushed_offset = 1_000_000


class Opened:
    """Timer files in a directory."""

    def __init__(self, root: Path, disk: Disk | None = None, log_bytes: int = LOG_BYTES) -> None:
        self.root = root
        self.log = Log()
        self.config = TimerFilesConfig(root=root, log_file_size=log_bytes, slots=WHEEL_SLOTS)
        self.files = TimerFiles(self.config, self.log, disk or Disk())
        self.check = self.files.load(W, lambda offset: offset // 100)

    def put(self, slot_ms: int, offset: int) -> int:
        """Put a unit for the message at a byte of the log; return its position."""
        slot = self.files.wheel.slot(slot_ms)
        position = self.files.log.next_position(self.files.log.end)
        unit = TimerUnit(slot.last, NORMAL, W, slot_ms - W, offset, 100, 7)
        self.files.append([unit.encode()], [position])
        self.files.wheel.put(slot_ms, slot_with_unit(slot, position, NORMAL))
        return position

    def round(self, now_ms: int) -> None:
        """Run one complete round."""
        for _ in range(2):
            self.files.step(now_ms, TimerCheck(read_ms=W))
            if self.files._flusher is not None:
                self.files._flusher.wait_idle()

    def finish(self, read_ms: int = W, queue_offset: int = 0) -> None:
        self.files.finish(W, TimerCheck(read_ms=read_ms, queue_offset=queue_offset, timestamp=W))


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    yield opened
    opened.files.close()


def test_files_have_rocketmqs_bytes(it: Opened) -> None:
    """Slots at the positions of their numbers, consecutive units, a blank at the end of a file, and the check file."""
    positions = [it.put(W + 10_000, n * 100) for n in range(UNITS_OF_A_FILE + 1)]
    it.finish(queue_offset=21)
    assert positions == [*(52 * n for n in range(20)), LOG_BYTES]
    first = (it.root / "timerlog" / f"{0:020d}").read_bytes()
    assert len(first) == LOG_BYTES
    assert TimerUnit.decode(first, 52) == TimerUnit(0, NORMAL, W, 10_000, 100, 100, 7)
    assert first[20 * 52 :].hex() == "000000100000000000000000cbd43194"
    time = (W + 10_000) // 1000
    slot = (it.root / "timerwheel").read_bytes()[time % WHEEL_SLOTS * 32 :][:32]
    assert SLOT.unpack(slot) == (time, 0, positions[-1], 21, 0)
    assert (it.root / "timerwheel").stat().st_size == WHEEL_SLOTS * 32
    check = (it.root / "config" / "timercheck").read_bytes()
    assert TimerCheck.decode(check) == TimerCheck(W, LOG_BYTES + 52, 21, 21, 0, W, 1)


@pytest.mark.parametrize("size", [68, 69, 119, 120, 1_056, 1_057, 4_095])
def test_log_files_of_every_size_are_written_and_opened(tmp_path: Path, size: int) -> None:
    """A unit goes to the next file if fewer than 68 bytes are left, as in RocketMQ; a restart finds every unit."""
    it = Opened(tmp_path, log_bytes=size)
    units_of_a_file = (size - 16) // 52
    positions = [it.put(W + 1_000, n * 100) for n in range(units_of_a_file * 2 + 1)]
    it.finish(queue_offset=len(positions))
    assert positions == [n // units_of_a_file * size + n % units_of_a_file * 52 for n in range(len(positions))]
    again = Opened(tmp_path, log_bytes=size)
    assert again.check.queue_offset == len(positions)
    assert [again.files.log.unit(position) is not None for position in positions] == [True] * len(positions)
    assert [position for position, _ in again.files.log.scan(0)] == positions
    again.log.min_physical_offset = 1_000_000
    again.files.remove_old(W)
    assert again.files.log.begin == 2 * size
    again.files.close()
    it.files.close()


def test_nothing_is_written_before_the_commit_log_is_on_disk(it: Opened) -> None:
    """A round waits for the flush of the messages that it refers to; the check file is written last."""
    it.put(W + 10_000, 0)
    it.log.flushed_offset = 0
    it.files.step(W, TimerCheck(read_ms=W))
    assert not any((it.root / "timerwheel").read_bytes())
    it.log.flushed_offset = it.log.max_physical_offset
    it.finish()
    assert any((it.root / "timerwheel").read_bytes())
    assert (it.root / "config" / "timercheck").exists()


def test_pending_timers_are_loaded_again(it: Opened) -> None:
    """After a clean stop: every chain, the end of the log, and the next offset."""
    for n in range(UNITS_OF_A_FILE * 2):
        it.put(W + 1_000 * (n % 3), n * 100)
    slots = dict(it.files.wheel.slots())
    it.finish(W + 1_000, UNITS_OF_A_FILE * 2)
    again = Opened(it.root)
    assert dict(again.files.wheel.slots()) == {time: slot for time, slot in slots.items() if time > W}
    assert again.files.log.end == it.files.log.end
    assert (again.check.read_ms, again.check.queue_offset) == (W + 1_000, UNITS_OF_A_FILE * 2)
    chain, position = [], slots[W + 2_000].last
    while position >= 0:
        unit = again.files.log.unit(position)
        assert unit is not None
        chain.append(unit.physical_offset)
        position = unit.previous
    assert chain == [n * 100 for n in reversed(range(2, UNITS_OF_A_FILE * 2, 3))]
    again.files.close()


def test_units_after_the_check_are_counted_once(it: Opened) -> None:
    """Units without a slot on disk are cut, and their messages are read again from the timer topic; others stay."""
    it.put(W + 1_000, 0)
    it.finish(queue_offset=1)
    opened = Opened(it.root)
    opened.put(W + 1_000, 100)
    opened.files.close()  # killed: the wheel was not written
    again = Opened(it.root)
    assert (again.files.wheel.slot(W + 1_000), again.check.queue_offset) == (Slot(0, 0, 1), 1)
    assert again.files.log.end == 52
    again.put(W + 1_000, 100)
    again.files.wheel.take_changed().sync()
    again.files.close()  # killed: the wheel was written, the check was not
    last = Opened(it.root)
    assert (last.files.wheel.slot(W + 1_000), last.check.queue_offset) == (Slot(0, 52, 2), 2)
    last.files.close()


@pytest.mark.parametrize("read_ms", [2**62, W + 10 * 365 * 86_400_000])
def test_a_check_with_a_future_time_does_not_stop_timers(tmp_path: Path, read_ms: int) -> None:
    """After damage, or with a clock that was ten years ahead: pending messages are kept."""
    it = Opened(tmp_path)
    it.put(W + 10_000, 0)
    it.finish(read_ms=read_ms, queue_offset=1)
    again = Opened(tmp_path)
    assert again.check.read_ms < W
    assert again.files.wheel.first_ms() == W + 10_000
    again.files.close()


def test_an_inconsistent_wheel_is_rebuilt(it: Opened) -> None:
    """From the whole log; delivered slots stay delivered."""
    for n in range(5):
        it.put(W + 1_000 * n, n * 100)
    it.finish(W + 2_000, 5)
    data = bytearray((it.root / "timerwheel").read_bytes())
    time = (W + 3_000) // 1000
    SLOT.pack_into(data, time % WHEEL_SLOTS * 32, time, 0, 17, 1, 0)
    (it.root / "timerwheel").write_bytes(data)
    again = Opened(it.root)
    found = {at - W: slot.last for at, slot in again.files.wheel.slots()}
    assert found == {2_000: 104, 3_000: 156, 4_000: 208}
    again.files.close()


def test_old_log_files_are_removed_with_their_messages(it: Opened) -> None:
    """As soon as the commit log begins after the last of them, except for the file being written."""
    for n in range(UNITS_OF_A_FILE * 3):
        it.put(W + 1_000, n * 100)
    it.log.min_physical_offset = 19 * 100
    it.files.remove_old(W)
    assert it.files.log.begin == 0
    it.log.min_physical_offset = 19 * 100 + 1
    it.files.remove_old(W + 29_999)
    assert it.files.log.begin == 0
    it.files.remove_old(W + 30_000)
    assert it.files.log.begin == LOG_BYTES
    it.log.min_physical_offset = 1_000_000
    it.files.remove_old(W + 60_000)
    assert it.files.log.begin == 2 * LOG_BYTES
    assert it.files.log.unit(52) is None
    directory = it.root / "timerlog"
    assert len(list(directory.iterdir())) == 3
    it.round(W + 60_000)  # the thread unlinks them
    assert [path.name for path in directory.iterdir()] == [f"{2 * LOG_BYTES:020d}"]


def test_a_failed_removal_is_repeated_after_a_restart(tmp_path: Path) -> None:
    """An old file that remains stops nothing, and leaves no gap after it."""
    disk = TestDisk()
    it = Opened(tmp_path, disk)
    for n in range(UNITS_OF_A_FILE * 3):
        it.put(W + 1_000, n * 100)
    it.log.min_physical_offset = 1_000_000
    it.files.remove_old(W)
    disk.refuse = full("unlink", f"{0:020d}", errno.EBUSY)
    it.round(W)
    it.round(W + RETRY_MS)
    assert (it.files.problem, len(list((tmp_path / "timerlog").iterdir()))) == ("", 3)
    it.files.close()
    again = Opened(tmp_path)
    assert again.files.log.begin == 0
    again.files.close()


def test_a_slot_of_another_revolution_is_ignored(tmp_path: Path) -> None:
    """A slot of a past time in the file does not count, and is overwritten."""
    wheel = TimerWheel(str(tmp_path / "timerwheel"), 1_000, Disk(), WHEEL_SLOTS)
    wheel.make_file()
    wheel.put(W, Slot(0, 0, 1))
    wheel.take_changed().sync()
    later = W + WHEEL_SLOTS * 1_000
    assert wheel.slot(later) is EMPTY
    again = TimerWheel(wheel.path, 1_000, Disk(), WHEEL_SLOTS)
    again.load(W + 1_000)
    assert (again.first_ms(), again.waiting) == (None, 0)
    again.put(later, Slot(52, 52, 1))
    assert (again.slot(later), again.first_ms(), again.waiting) == (Slot(52, 52, 1), later, 1)
    again.remove_first(later)
    assert (again.first_ms(), again.waiting) == (None, 0)


def full(call: str, name: str, problem: int = errno.ENOSPC) -> Callable[[str, str], None]:
    """Return a disk that refuses one kind of call on files of one kind."""

    def refuse(made: str, path: str) -> None:
        if made == call and name in path:
            raise OSError(problem, os.strerror(problem), path)

    return refuse


@pytest.mark.parametrize("name", ["timerwheel", "timercheck"])
def test_a_round_refused_by_a_full_disk_is_repeated(tmp_path: Path, name: str) -> None:
    """Whatever it refuses, the check file stays old; the problem is reported, and nothing is missing afterwards."""
    disk = TestDisk()
    it = Opened(tmp_path, disk)
    it.put(W + 1_000, 0)
    it.round(W)
    it.put(W + 2_000, 100)
    disk.refuse = full("pwrite", name)
    for n in range(1, 4):
        it.round(W + n * RETRY_MS)
        assert NOT_WRITTEN in it.files.problem
    assert (it.files.statistics().refusals, it.files.statistics().checked.log_position) == (3, 52)
    disk.refuse = full("nothing", "")
    it.round(W + 4 * RETRY_MS)
    it.round(W + 5 * RETRY_MS)
    assert (it.files.problem, it.files.statistics().checked.log_position) == ("", 104)
    slots = dict(it.files.wheel.slots())
    it.files.close()
    again = Opened(tmp_path)
    assert dict(again.files.wheel.slots()) == slots
    again.files.close()


@pytest.mark.parametrize(("call", "name"), [("create_sparse", "timerwheel"), ("pwrite", "timerlog")])
def test_units_refused_by_a_full_disk_do_not_count(tmp_path: Path, call: str, name: str) -> None:
    """They have no position in the log; the next ones get it once there is space, and the problem ends."""
    disk = TestDisk()
    it = Opened(tmp_path, disk)
    disk.refuse = full(call, name)
    with pytest.raises(WriteRefused):
        it.put(W + 1_000, 0)
    assert (it.files.log.end, NOT_WRITTEN in it.files.problem, it.files.wheel.waiting) == (0, True, 0)
    disk.refuse = full("nothing", "")
    assert (it.put(W + 1_000, 0), it.files.problem) == (0, "")
    it.finish(queue_offset=1)
    again = Opened(tmp_path)
    assert (again.files.wheel.waiting, again.check.queue_offset) == (1, 1)
    again.files.close()


@pytest.mark.parametrize("name", ["timerlog", "timerwheel"])
def test_a_failed_sync_is_reported_until_a_restart(tmp_path: Path, name: str) -> None:
    """The state of the disk is unknown: the check file stays unchanged, whatever the disk accepts later."""
    disk = TestDisk()
    it = Opened(tmp_path, disk)
    it.put(W + 1_000, 0)
    it.round(W)
    it.put(W + 2_000, 100)
    disk.refuse = full("fdatasync", name, errno.EIO)
    it.round(W + RETRY_MS)
    disk.refuse = full("nothing", "")
    it.put(W + 3_000, 200)
    it.round(W + 2 * RETRY_MS)
    assert NOT_SYNCED in it.files.problem
    assert (it.files.statistics().failed, it.files.statistics().checked.log_position) == (True, 52)
    it.files.close()
    again = Opened(tmp_path)
    assert again.files.problem == ""
    assert again.files.wheel.waiting >= 1
    again.files.close()


def test_pages_being_written_do_not_change(tmp_path: Path) -> None:
    """The pages as taken are written, whatever happens to the wheel meanwhile; taking them costs no copies."""
    wheel = TimerWheel(str(tmp_path / "timerwheel"), 1_000, Disk(), WHEEL_SLOTS)
    wheel.make_file()
    wheel.put(W, Slot(0, 0, 1))
    write = wheel.take_changed()
    wheel.put(W, Slot(0, 52, 2))
    wheel.put(W + 1_000, Slot(104, 104, 1))
    write.sync()
    again = TimerWheel(str(tmp_path / "timerwheel"), 1_000, Disk(), WHEEL_SLOTS)
    again.load(W)
    assert dict(again.slots()) == {W: Slot(0, 0, 1)}
    wheel.take_changed().sync()
    again.load(W)
    assert dict(again.slots()) == {W: Slot(0, 52, 2), W + 1_000: Slot(104, 104, 1)}


@pytest.mark.parametrize("is_check_kept", [True, False])
def test_a_load_can_be_stopped(tmp_path: Path, *, is_check_kept: bool) -> None:
    """At any point, in the wheel or in the replay of a log; the next load finds everything."""
    it = Opened(tmp_path)
    for number in range(2 * STOP_CHECK_ITEMS):
        it.put(W + 1_000 * (number % (WHEEL_SLOTS // 2 - 1)), number * 100)
    it.finish()
    if not is_check_kept:
        (tmp_path / "config" / CHECK_FILE).unlink()
    left = 0

    def check_stop() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise LoadStopped

    checks = 0
    while True:
        left = checks
        files = TimerFiles(it.config, it.log, Disk())
        try:
            files.load(W, lambda offset: offset // 100, check_stop)
        except LoadStopped:
            checks += 1
        else:
            break
        finally:
            files.close()
    assert checks == (1 if is_check_kept else 5)
    assert files.wheel.waiting == 2 * STOP_CHECK_ITEMS
