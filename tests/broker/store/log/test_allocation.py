"""The allocator: segments that are there before they are needed, whole, and gone if nobody needed them."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.disk import Data
from skylarkmq.broker.store.log.allocation import Allocator
from tests.harness.stores import SEGMENT_BYTES, TestDisk, message, opened

MIB = 1 << 20


def is_written(path: Path) -> bool:
    """Whether a file holds data from end to end; reserved blocks that nobody wrote to are holes."""
    with path.open("rb") as file:
        try:
            begin = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        except OSError:  # nothing but holes
            return False
        return begin == 0 and os.lseek(file.fileno(), 0, os.SEEK_HOLE) == path.stat().st_size


def made(allocator: Allocator, path: str) -> None:
    """Until the thread has made a file."""
    allocator._requests[path].made.result(timeout=10)


class GatedDisk(TestDisk):
    """Writes wait for `go` once `started` is set; counts the syncs of data."""

    def __init__(self) -> None:
        super().__init__()
        self.started = threading.Event()
        self.go = threading.Event()
        self.data_syncs = 0

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        self.started.set()
        assert self.go.wait(10)
        super().pwrite(fd, data, at)

    def fdatasync(self, fd: int) -> None:
        self.data_syncs += 1
        super().fdatasync(fd)


@pytest.mark.parametrize(
    ("settings", "beforehand"),
    [({}, False), ({"sync": True}, True), ({"warm_maped_file_enable": True}, True)],
)
def test_two_segments_ahead(tmp_path: Path, settings: Any, beforehand: bool) -> None:
    """The next one and the next but one are made while this one is written; under SYNC_FLUSH full of zeros."""
    log = tmp_path / "commitlog"
    with opened(tmp_path, **settings) as it:
        allocator = it.store._allocator
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


def test_pieces_are_synced_one_by_one(tmp_path: Path) -> None:
    """What is written beforehand never makes another sync wait for more than a piece."""
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


def test_needed_sooner(tmp_path: Path) -> None:
    """A segment that is needed before it is written to its end is handed out as it is, at its full size."""
    disk = GatedDisk()
    allocator = Allocator(disk, piece_bytes=MIB)
    path = str(tmp_path / "log" / "0")
    allocator.request(path, 4 * MIB)
    assert disk.started.wait(10)
    wanted = allocator._requests[path].wanted

    def go_on_when_wanted() -> None:
        assert wanted.wait(10)
        disk.go.set()

    threading.Thread(target=go_on_when_wanted).start()
    fd = allocator.take(path, 4 * MIB)
    assert len(disk.writes) == 1
    assert not is_written(Path(path))
    assert os.fstat(fd).st_size == 4 * MIB
    assert os.pread(fd, 4 * MIB, 0) == bytes(4 * MIB)
    os.close(fd)
    allocator.close()


def test_gives_way_to_a_log_in_a_hurry(tmp_path: Path) -> None:
    """While the log grows fast nothing is written beforehand; when it rests, or needs the file, it goes on."""
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
        assert looks.acquire(timeout=10)
    assert len(disk.writes) == 1
    growth = 0
    made(allocator, path)
    assert len(disk.writes) == 4
    allocator.close()
    assert not os.path.exists(path)


def test_gives_way_to_any_log_that_moves_if_told_to(tmp_path: Path) -> None:
    """The least that may count as a hurry is a byte."""
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


def test_what_could_not_be_made_is_asked_for_again(tmp_path: Path) -> None:
    """A failure is told to whoever looks, and the next look asks again."""
    disk = TestDisk()
    path = str(tmp_path / "log" / "0")

    def refuse(call: str, at: str) -> None:
        if call == "create":
            raise OSError(errno.ENOSPC, "told to")

    disk.refuse = refuse
    allocator = Allocator(disk)
    assert not allocator.is_made(path, MIB)
    with pytest.raises(OSError, match="told to"):
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
