"""The allocator: segments are complete before they are needed, and are removed if they are never used."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.files import allocation
from skylarkmq.broker.store.files.allocation import Allocator
from skylarkmq.broker.store.files.disk import Data
from skylarkmq.broker.store.files.errors import SegmentNotReadyError
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.stores import SEGMENT_BYTES, TestDisk, message, opened

MIB = 1 << 20


def is_written(path: Path) -> bool:
    """Return whether a file has data from end to end; unwritten blocks are holes."""
    with path.open("rb") as file:
        try:
            begin = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        except OSError:  # only holes
            return False
        return begin == 0 and os.lseek(file.fileno(), 0, os.SEEK_HOLE) == path.stat().st_size


def made(allocator: Allocator, path: str) -> None:
    """Wait until the thread has created a file."""
    allocator._requests[path].made.result(timeout=WAIT_LIMIT_S)


class GatedDisk(TestDisk):
    """Sets `started` at a write, which then waits for `go`; counts the syncs of data."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.go = threading.Event()
        self.data_syncs = 0

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        self.started.set()
        assert self.go.wait(WAIT_LIMIT_S)
        super().pwrite(fd, data, at)

    def fdatasync(self, fd: int) -> None:
        self.data_syncs += 1
        super().fdatasync(fd)


@pytest.mark.parametrize(
    ("settings", "beforehand"),
    [({}, False), ({"sync": True}, True), ({"warm_maped_file_enable": True}, True)],
)
def test_the_next_two_segments_are_created_ahead(tmp_path: Path, settings: Any, beforehand: bool) -> None:
    """The next two segments are created while the current one is written; under SYNC_FLUSH they are zero-filled."""
    log = tmp_path / "commitlog"
    with opened(tmp_path, **settings) as it:
        allocator = it.store._parts._allocator
        for start in (0, SEGMENT_BYTES):
            made(allocator, f"{log}/{start:020d}")
        it.put(message(b"x" * (SEGMENT_BYTES // 2)))
        made(allocator, f"{log}/{2 * SEGMENT_BYTES:020d}")
        files = sorted(log.iterdir())
        assert [(file.name, file.stat().st_size) for file in files] == [
            (f"{start:020d}", SEGMENT_BYTES) for start in (0, SEGMENT_BYTES, 2 * SEGMENT_BYTES)
        ]
        assert [is_written(file) for file in files[1:]] == [beforehand] * 2
        assert all(file.read_bytes() == bytes(SEGMENT_BYTES) for file in files[1:])
    assert [file.name for file in log.iterdir()] == ["0" * 20]


def test_a_segment_that_is_not_made_in_time_is_taken_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file and the time, and the file of the same request is there once the disk has made it."""
    monkeypatch.setattr(allocation, "WAIT_S", 0.01)
    disk, path = GatedDisk(), f"{tmp_path}/commitlog/{0:020d}"
    allocator = Allocator(disk, piece_bytes=MIB)
    allocator.request(path, SEGMENT_BYTES)
    assert disk.started.wait(10)
    with pytest.raises(SegmentNotReadyError, match=r"the file was not created within 0\.01 s: .*commitlog/0+"):
        allocator.take(path, SEGMENT_BYTES)
    disk.go.set()
    made(allocator, path)
    os.close(allocator.take(path, SEGMENT_BYTES))
    allocator.close()


def test_pieces_are_synced_one_by_one(tmp_path: Path) -> None:
    """The zero fill never makes another sync wait for more than one piece."""
    disk = GatedDisk()
    disk.go.set()
    allocator = Allocator(disk, piece_bytes=MIB)
    path = str(tmp_path / "log" / "0")
    allocator.request(path, 4 * MIB)
    made(allocator, path)
    assert disk.data_syncs == 3  # the last piece is part of the file's own sync
    assert is_written(Path(path))
    os.close(allocator.take(path, 4 * MIB))
    allocator.close()


def test_a_segment_can_be_taken_before_its_zero_fill_ends(tmp_path: Path) -> None:
    """A segment that is needed before its zero fill ends is handed out as it is, at its full size."""
    disk = GatedDisk()
    allocator = Allocator(disk, piece_bytes=MIB)
    path = str(tmp_path / "log" / "0")
    allocator.request(path, 4 * MIB)
    assert disk.started.wait(WAIT_LIMIT_S)
    wanted = allocator._requests[path].wanted

    def release_when_wanted() -> None:
        assert wanted.wait(WAIT_LIMIT_S)
        disk.go.set()

    threading.Thread(target=release_when_wanted).start()
    fd = allocator.take(path, 4 * MIB)
    assert len(disk.writes) == 1
    assert not is_written(Path(path))
    assert os.fstat(fd).st_size == 4 * MIB
    assert os.pread(fd, 4 * MIB, 0) == bytes(4 * MIB)
    os.close(fd)
    allocator.close()


def test_the_zero_fill_pauses_while_the_log_is_busy(tmp_path: Path) -> None:
    """No zeros are written while the log grows fast; the fill continues once it rests."""
    disk = GatedDisk()
    disk.go.set()
    looks = threading.Semaphore(0)
    end = 0

    def appended() -> int:
        nonlocal end
        looks.release()
        end += growth
        return end

    growth = MIB
    allocator = Allocator(disk, piece_bytes=256 << 10, appended=appended)
    path = str(tmp_path / "log" / "0")
    allocator.request(path, MIB)
    for _ in range(5):
        assert looks.acquire(timeout=WAIT_LIMIT_S)
    assert len(disk.writes) == 1
    growth = 0
    made(allocator, path)
    assert len(disk.writes) == 4
    allocator.close()
    assert not os.path.exists(path)


def test_the_zero_fill_can_pause_for_any_growth(tmp_path: Path) -> None:
    """With `busy_bytes=1` a log that grows by one byte counts as busy."""
    disk = GatedDisk()
    disk.go.set()
    looks = threading.Semaphore(0)
    ends = iter((0, 1, 2, 3, 3))

    def appended() -> int:
        looks.release()
        return next(ends, 3)

    allocator = Allocator(disk, piece_bytes=256 << 10, appended=appended, busy_bytes=1)
    path = str(tmp_path / "log" / "0")
    allocator.request(path, 512 << 10)
    made(allocator, path)
    assert len(disk.writes) == 2
    assert [looks.acquire(blocking=False) for _ in range(6)] == [True] * 5 + [False]
    allocator.close()


def test_a_failed_creation_is_requested_again(tmp_path: Path) -> None:
    """`is_made` returns False after a failure and sends the request again."""
    disk = TestDisk()
    path = str(tmp_path / "log" / "0")

    def refuse(call: str, at: str) -> None:
        if call == "create":
            raise OSError(errno.ENOSPC, "injected")

    disk.refuse = refuse
    allocator = Allocator(disk)
    assert not allocator.is_made(path, MIB)
    with pytest.raises(OSError, match="injected"):
        made(allocator, path)
    disk.refuse = lambda call, at: None
    assert not allocator.is_made(path, MIB)
    made(allocator, path)
    assert allocator.is_made(path, MIB)
    segment = allocator.segment(path, 0, MIB)
    assert segment.size == MIB
    segment.close()
    assert repr(allocator) == "<Allocator ready=0>"
    allocator.close()
