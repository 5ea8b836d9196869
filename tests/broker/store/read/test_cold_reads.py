"""Reads that do not wait: what is in memory comes at once, what is not is fetched by a thread, and nothing hangs."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.store.read.cold_reads import ColdRead, ColdReads
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


async def test_what_is_in_memory_comes_at_once(file: File) -> None:
    """A read of something in memory is a plain call without a thread."""
    reads = ColdReads(1)
    reads.start(asyncio.get_running_loop())
    assert file.read(reads) == bytes((3, 4, 5, 6))
    assert reads.statistics().cold == 0
    assert repr(reads) == "<ColdReads under_way=0 fetched=0>"
    reads.close()


async def test_cold_then_fetched(file: File, cold: ColdFiles) -> None:
    """A cold range raises; once a thread has read it, it is there. Two that want it cost one fetch."""
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


async def test_what_does_not_stay_in_memory_is_waited_for(file: File, cold: ColdFiles) -> None:
    """A range that is cold again right after it was fetched is read at any price: no request goes round for ever."""
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
    """Before the start, and after the stop, there is nobody to be held up."""
    cold.freeze(file.path)
    assert file.read(ColdReads(1)) == bytes((3, 4, 5, 6))


async def test_file_system_that_cannot_tell(
    file: File, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without RWF_NOWAIT reads wait, and the log says so once."""
    real = os.preadv

    def preadv(fd: int, buffers: list[bytearray], offset: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "told to")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    reads = ColdReads(1)
    reads.start(asyncio.get_running_loop())
    assert [file.read(reads), file.read(reads)] == [bytes((3, 4, 5, 6))] * 2
    assert caplog.text.count("file system does not support RWF_NOWAIT") == 1


async def test_what_is_not_there_at_all(file: File, cold: ColdFiles) -> None:
    """Bytes behind the end are an error, not something to fetch for ever; a file that is gone ends its fetch."""
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
