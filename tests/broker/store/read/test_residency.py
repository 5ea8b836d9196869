"""Residency: results of the kernel, cached for a moment, across the edges of windows."""

import os
import posix
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.read import residency
from skylarkmq.broker.store.read.residency import RESIDENCY_TTL_S, WINDOW_BYTES, Residency

SIZE = 3 * WINDOW_BYTES


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[MappedFile]:
    path, disk = str(tmp_path / f"{0:020d}"), Disk()
    segment = MappedFile(path, 0, SIZE, disk.create(path, SIZE), disk)
    segment.write(b"x" * SIZE, 0)
    yield segment
    segment.close()


class Kernel:
    """A fake of the kernel's query. `asked`: the queried ranges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cold: set[int] = set()  # bytes
        self.asked: list[tuple[int, int]] = []
        self.now_s = 100.0
        monkeypatch.setattr(residency, "in_memory", self._in_memory)

    def _in_memory(self, _file: MappedFile, position: int, size: int) -> bool:
        self.asked.append((position, size))
        return not any(position <= byte < position + size for byte in self.cold)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


def test_residency_according_to_the_kernel(segment: MappedFile) -> None:
    """Written bytes are resident; bytes dropped from the page cache are not."""
    segment.sync()
    posix.fsync(segment.fd)  # os.fsync does nothing in a quick run
    assert residency.in_memory(segment, 5_000, 300_000)
    os.posix_fadvise(segment.fd, 0, SIZE, os.POSIX_FADV_DONTNEED)
    assert not residency.in_memory(segment, 5_000, 300_000)


def test_a_window_is_queried_once(segment: MappedFile, kernel: Kernel) -> None:
    """Many runs in a window cost one query, until its result expires."""
    asked = Residency(lambda: kernel.now_s)
    assert all(asked.is_resident(segment, position, 40_000) for position in range(0, 900_000, 40_000))
    assert kernel.asked == [(0, WINDOW_BYTES)]
    kernel.now_s += RESIDENCY_TTL_S * 1.1
    assert asked.is_resident(segment, 0, 40_000)
    assert asked.statistics() == residency.ResidencyStatistics(24, 2)


def test_runs_of_a_partly_resident_window_are_queried(segment: MappedFile, kernel: Kernel) -> None:
    """Its resident runs can be sent, the others cannot."""
    kernel.cold = {500_000}
    asked = Residency(lambda: kernel.now_s)
    assert asked.is_resident(segment, 0, 40_000)
    assert not asked.is_resident(segment, 490_000, 40_000)
    assert kernel.asked[1::2] == [(0, 40_000), (490_000, 40_000)]


def test_a_run_may_span_windows(segment: MappedFile, kernel: Kernel) -> None:
    """All of its windows must be resident."""
    asked = Residency(lambda: kernel.now_s)
    assert asked.is_resident(segment, WINDOW_BYTES - 10, WINDOW_BYTES + 20)
    assert [position for position, _ in kernel.asked] == [0, WINDOW_BYTES, 2 * WINDOW_BYTES]
    kernel.cold = {2 * WINDOW_BYTES + 5}
    kernel.now_s += 1.0
    assert not asked.is_resident(segment, WINDOW_BYTES - 10, WINDOW_BYTES + 20)
    assert kernel.asked[-1] == (2 * WINDOW_BYTES, 10)
