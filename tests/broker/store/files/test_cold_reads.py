"""Reads that do not wait: resident bytes are returned at once, a thread fetches cold ones, and no read hangs."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.files.cold_reads import ColdRead, ColdReads
from tests.harness.cold_files import ColdFiles


@pytest.fixture
def cold() -> Iterator[ColdFiles]:
    with ColdFiles() as files:
        yield files


class File:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(range(256)) * 64)
        self.fd = os.open(path, os.O_RDONLY)

    def read(self, reads: ColdReads, at: int = 3, size: int = 4) -> bytes:
        return bytes(reads.read(self.fd, str(self.path), at, size))


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    it = File(tmp_path / "file")
    yield it
    os.close(it.fd)


async def test_resident_bytes_are_returned_at_once(file: File) -> None:
    """The read of resident bytes is a plain call without a thread."""
    reads = ColdReads(1)
    reads.start(asyncio.get_running_loop())
    assert file.read(reads) == bytes((3, 4, 5, 6))
    assert reads.statistics().cold == 0
    assert repr(reads) == "<ColdReads under_way=0 fetched=0>"
    reads.close()


async def test_a_cold_range_is_fetched_once(file: File, cold: ColdFiles) -> None:
    """A cold range raises ColdRead and is resident after the fetch. Two requests for it share one fetch."""
    reads = ColdReads(2)
    reads.start(asyncio.get_running_loop())
    cold.freeze(file.path)
    with pytest.raises(ColdRead, match=r"4 bytes of .* from 3 are not in memory") as missed:
        file.read(reads)
    first, second = reads.fetch(missed.value), reads.fetch(missed.value)
    assert first is second
    assert reads.statistics().under_way == 1
    await first
    assert file.read(reads) == bytes((3, 4, 5, 6))
    assert cold.waits == [(str(file.path), False)]
    statistics = reads.statistics()
    assert (statistics.under_way, statistics.cold, statistics.fetched, statistics.waited) == (0, 1, 1, 0)
    reads.close()


async def test_a_range_that_is_cold_again_is_read_in_the_loop(file: File, cold: ColdFiles) -> None:
    """A range that is cold right after its fetch is read with a wait, so that no request repeats forever."""
    reads = ColdReads(1)
    reads.start(asyncio.get_running_loop())
    cold.never_warm = True
    cold.freeze(file.path)
    with pytest.raises(ColdRead) as missed:
        file.read(reads)
    await reads.fetch(missed.value)
    assert file.read(reads) == bytes((3, 4, 5, 6))
    assert cold.waits == [(str(file.path), False), (str(file.path), True)]
    assert reads.statistics().waited == 1
    reads.close()


def test_without_a_loop_reads_wait(file: File, cold: ColdFiles) -> None:
    """Before the start and after the stop there is no loop to block."""
    cold.freeze(file.path)
    assert file.read(ColdReads(1)) == bytes((3, 4, 5, 6))


async def test_a_file_system_without_nowait_reads(
    file: File, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without RWF_NOWAIT reads wait, and a warning is logged once."""
    real = os.preadv

    def preadv(fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "injected")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    reads = ColdReads(1)
    reads.start(asyncio.get_running_loop())
    assert [file.read(reads), file.read(reads)] == [bytes((3, 4, 5, 6))] * 2
    assert caplog.text.count("file system does not support RWF_NOWAIT") == 1


async def test_bytes_that_do_not_exist(file: File, cold: ColdFiles) -> None:
    """Bytes after the end raise an error instead of endless fetches; the fetch of a deleted file ends."""
    reads = ColdReads(1)
    reads.start(asyncio.get_running_loop())
    with pytest.raises(ColdRead) as missed:
        file.read(reads, 256 * 64 - 2, 4)
    await reads.fetch(missed.value)
    with pytest.raises(OSError, match="bytes from 16384 on are lost") as problem:
        file.read(reads, 256 * 64 - 2, 4)
    assert problem.value.errno == errno.EIO
    cold.freeze(file.path)
    with pytest.raises(ColdRead) as missed:
        file.read(reads)
    file.path.unlink()
    await reads.fetch(missed.value)
    assert reads.statistics().fetched == 2
    reads.close()
