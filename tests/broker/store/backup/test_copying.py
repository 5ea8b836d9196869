"""Copies of byte ranges: by sharing, in the kernel, by reads and writes; below a rate; equal to the source."""

import errno
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from skylarkmq.broker.store.backup.copying import PIECE_BYTES, Copier, Pace, checksum
from skylarkmq.broker.store.files.disk import Disk

SIZE = 100_000


class OldDisk(Disk):
    """A disk whose file system refuses some calls."""

    def __init__(self, **errors: int) -> None:
        self._errors = errors
        self.calls: list[str] = []

    def _refuse(self, call: str) -> None:
        self.calls.append(call)
        if call in self._errors:
            raise OSError(self._errors[call], os.strerror(self._errors[call]))

    def clone(self, source: int, fd: int) -> None:
        self._refuse("clone")
        os.pwrite(fd, os.pread(source, SIZE, 0), 0)

    def copy_range(self, source: int, fd: int, count: int, at: int) -> int:
        self._refuse("copy_range")
        return super().copy_range(source, fd, count, at)


@pytest.fixture
def data() -> bytes:
    return Random(5).randbytes(SIZE)


@pytest.fixture
def files(tmp_path: Path, data: bytes) -> Iterator[tuple[int, int]]:
    (tmp_path / "source").write_bytes(data)
    fds = os.open(tmp_path / "source", os.O_RDONLY), os.open(tmp_path / "copy", os.O_RDWR | os.O_CREAT)
    yield fds
    for fd in fds:
        os.close(fd)


def test_a_range_is_copied_to_the_same_place(files: tuple[int, int], data: bytes) -> None:
    """Bytes outside of it are not written; the result is the checksum of the source."""
    source, fd = files
    assert Copier(OldDisk(), 0).copy(source, fd, 10, 70_000) == zlib.crc32(data[10:70_000])
    assert os.pread(fd, SIZE, 0) == bytes(10) + data[10:70_000]
    assert checksum(fd, 10, 70_000) == zlib.crc32(data[10:70_000])


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_reads_and_writes_copy_if_the_kernel_cannot(files: tuple[int, int], data: bytes, error: int) -> None:
    """The kernel is asked once, not for each piece."""
    source, fd = files
    disk = OldDisk(copy_range=error)
    copier = Copier(disk, 0)
    copier.copy(source, fd, 0, 50_000)
    copier.copy(source, fd, 50_000, SIZE)
    assert os.pread(fd, SIZE, 0) == data
    assert (disk.calls, copier.copied) == (["copy_range"], SIZE)


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EXDEV, errno.ENOTTY, errno.EINVAL])
def test_a_refused_reflink_is_tried_once(files: tuple[int, int], error: int) -> None:
    source, fd = files
    disk = OldDisk(clone=error)
    copier = Copier(disk, 0)
    assert not copier.share(source, fd, SIZE)
    assert not copier.share(source, fd, SIZE)
    assert disk.calls == ["clone"]


def test_shared_bytes_are_counted(files: tuple[int, int], data: bytes) -> None:
    source, fd = files
    shown: list[int] = []
    copier = Copier(OldDisk(), 0, shown.append)
    assert copier.share(source, fd, SIZE)
    assert (os.pread(fd, SIZE, 0), copier.shared, copier.copied, shown) == (data, SIZE, 0, [SIZE])


@pytest.mark.parametrize("call", ["clone", "copy_range"])
def test_a_full_disk_is_an_error(files: tuple[int, int], call: str) -> None:
    """It is not taken for a file system that cannot share or copy."""
    source, fd = files
    copier = Copier(OldDisk(**{call: errno.ENOSPC}), 0)
    with pytest.raises(OSError, match="No space left"):
        copier.share(source, fd, SIZE) and copier.copy(source, fd, 0, SIZE)


def test_a_source_that_is_too_short_is_an_error(files: tuple[int, int]) -> None:
    source, fd = files
    with pytest.raises(OSError, match="ends at byte 100000"):
        Copier(Disk(), 0).copy(source, fd, 0, SIZE + 1)


def test_pieces_stay_below_the_rate() -> None:
    """Time without work is not saved up for later."""
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(PIECE_BYTES, lambda: now[0], sleep)
    for _ in range(3):
        pace.spend(PIECE_BYTES)
    assert now[0] == pytest.approx(103.0)
    now[0] += 50
    pace.spend(PIECE_BYTES)
    assert slept == pytest.approx([1.0] * 4)


def test_no_limit_never_sleeps() -> None:
    pace = Pace(0, lambda: 0.0, lambda _seconds: pytest.fail("slept"))
    pace.spend(1 << 40)
