"""The transient store pool: appends go to locked memory first, and a thread writes them to the file.

    put ─▶ buffer ─▶ committer: pwrite ─▶ file, mapping ─▶ dispatch, flusher

This keeps the file system out of the append. The costs: a message is invisible until the committer has written it, and
under ASYNC_FLUSH an acknowledged message that is still in a buffer is lost if the process dies.

A segment gets a buffer when it is created, and returns it once it is full and completely written. While no buffer is
free, new segments have none and are written directly. The path differs only at its two ends: `write` puts the bytes
into the buffer, and the committer's `done` is the end of the visible log.

Source: docs/reference/disk.md, "Flush".
"""

import logging
import mmap
from collections import deque
from typing import Self

import msgspec

from skylarkmq.broker.store.files import locked_memory
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Data, Disk
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.flush.flusher import Flusher, Pace

log = logging.getLogger(__name__)


class TransientPoolStatistics(msgspec.Struct, frozen=True):
    """Current buffers; `unbuffered_segments`: segments created without a buffer since the start."""

    buffers: int
    free: int
    unbuffered_segments: int


class TransientPool:
    """`count` buffers of `size` bytes, and the segments that use one, oldest first."""

    def __init__(self, count: int, size: int) -> None:
        self._count = count
        self._size = size
        self._free: list[memoryview] = []
        self._lent: deque[PooledFile] = deque()
        self._unbuffered_segments = 0

    @classmethod
    def of(cls, config: StoreConfig) -> Self | None:
        """Return the pool of a store; None if it is disabled."""
        if not config.transient_store_pool_enable:
            return None
        return cls(config.transient_store_pool_size, config.mapped_file_size_commit_log)

    def start(self) -> None:
        """Allocate the buffers. Raises OSError if there is not enough memory."""
        for number in range(self._count):
            buffer = memoryview(mmap.mmap(-1, self._size))
            locked_memory.lock(buffer, f"transient store pool buffer {number}")
            self._free.append(buffer)
        log.info("transient store pool ready buffers=%d bytes_each=%d", self._count, self._size)

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """Create a segment, with a buffer if one is free."""
        if not self._free:
            self._unbuffered_segments += 1
            log.warning("segment without a buffer, all buffers wait for the disk path=%s", path)
            return MappedFile(path, start, size, fd, disk)
        segment = PooledFile(path, start, size, fd, disk, self._free.pop())
        self._lent.append(segment)
        return segment

    def close(self) -> None:
        """Release the memory."""
        self._free.clear()
        self._lent.clear()

    def return_buffers(self, committed: int) -> None:
        """Take back the buffers of full segments that end at or below byte `committed`, the end of the written log."""
        while self._lent and self._lent[0].end <= committed:
            self._free.append(self._lent.popleft().detach_buffer())

    def uncommitted(self, end: int) -> list["BufferedRange"]:
        """Return the ranges that the committer must write, so that the files contain the log up to byte `end`."""
        return [BufferedRange(segment, end) for segment in self._lent if segment.start < end]

    @property
    def is_deficient(self) -> bool:
        """Whether no buffer is free for the next segment, and one will be once the disk has caught up."""
        return not self._free and len(self._lent) > 1

    def statistics(self) -> TransientPoolStatistics:
        """Return a snapshot."""
        return TransientPoolStatistics(self._count, len(self._free), self._unbuffered_segments)

    def __repr__(self) -> str:
        return f"<TransientPool free={len(self._free)} lent={len(self._lent)}>"


class PooledFile(MappedFile):
    """A segment whose appends go to a buffer; bytes [0, `committed`) of it are in the file."""

    __slots__ = ("_buffer", "_wrote", "committed")

    def __init__(self, path: str, start: int, size: int, fd: int, disk: Disk, buffer: memoryview) -> None:
        super().__init__(path, start, size, fd, disk)
        self._buffer: memoryview | None = buffer
        self._wrote = 0
        self.committed = 0

    def write(self, data: Data, at: int) -> None:
        """Write to the buffer, at byte `at`."""
        if self._buffer is None:
            super().write(data, at)
        else:
            self._wrote = at + len(data)
            self._buffer[at : self._wrote] = data

    def zero(self, begin: int, end: int | None = None) -> int:
        """Undo the writes to [begin, end), where `end` is the end of the written bytes."""
        self._wrote = min(self._wrote, begin)
        return super().zero(begin, end)

    def commit(self, end: int) -> None:
        """Write the buffer up to byte `end` of the segment to the file. Raises OSError. The committer's thread calls
        this."""
        end = min(end, self._wrote)
        if self._buffer is not None and end > self.committed:
            self._disk.pwrite(self.fd, self._buffer[self.committed : end], self.committed)
            self.committed = end

    def detach_buffer(self) -> memoryview:
        """Take the buffer away from a segment that no longer needs it."""
        buffer, self._buffer = self._buffer, None
        assert buffer is not None  # detached only once
        return buffer


class BufferedRange:
    """The part of a segment's buffer below byte `end` of the log, to be written to the file."""

    __slots__ = ("_end", "_segment")

    def __init__(self, segment: PooledFile, end: int) -> None:
        self._segment = segment
        self._end = end

    def sync(self) -> None:
        """Write the range to the file. It is not yet durable."""
        self._segment.commit(self._end - self._segment.start)


def committer_of(config: StoreConfig, written: int) -> Flusher:
    """Return the thread that writes buffers to files: a flusher whose `done` is the end of the visible log."""
    return Flusher("log-committer", written, commit_pace_of(config))


def commit_pace_of(config: StoreConfig) -> Pace:
    """Return the committer's intervals."""
    return Pace(
        config.commit_interval_commit_log,
        config.commit_commit_log_least_pages,
        config.commit_commit_log_thorough_interval,
        is_woken=config.wake_commit_when_put_message,
    )
