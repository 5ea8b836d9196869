"""The transient store pool: appends go to locked memory first, and a thread writes them into the file.

    put ─▶ buffer ─▶ committer: pwrite ─▶ file, mapping ─▶ dispatch, flusher

It takes the file system out of the way of the append. What it costs: nobody sees a message before the committer has
written it, and under ASYNC_FLUSH an acknowledged message that still stands in a buffer is lost with the process.

A segment gets a buffer when the log turns to it, and gives it back once it is full and written to its end. While none
is left, segments do without: they are written as always. Only the two ends of the way differ from that: where `write`
puts the bytes, and up to where they may be seen, which is the committer's `done`.

Source: docs/formats.md, "Flush".
"""

import logging
import mmap
from collections import deque
from typing import Self

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.disk import Data, Disk
from skylarkmq.broker.store.flush.flusher import Flusher, Pace
from skylarkmq.broker.store.log import locked_memory
from skylarkmq.broker.store.log.mapped_file import MappedFile

log = logging.getLogger(__name__)


class TransientPoolStatistics(msgspec.Struct, frozen=True):
    """Buffers now; `bare_segments`: how many had to do without one since the start."""

    buffers: int
    free: int
    bare_segments: int


class TransientPool:
    """`count` buffers of `size` bytes, and the segments that have one, oldest first."""

    def __init__(self, count: int, size: int) -> None:
        self._count = count
        self._size = size
        self._free: list[memoryview] = []
        self._lent: deque[PooledFile] = deque()
        self._bare_segments = 0

    @classmethod
    def of(cls, config: StoreConfig) -> Self | None:
        """The pool of a store; None when it has none."""
        if not config.transient_store_pool_enable:
            return None
        return cls(config.transient_store_pool_size, config.mapped_file_size_commit_log)

    def start(self) -> None:
        """Have the buffers. OSError: there is not that much memory."""
        for number in range(self._count):
            buffer = memoryview(mmap.mmap(-1, self._size))
            locked_memory.lock(buffer, f"transient store pool buffer {number}")
            self._free.append(buffer)
        log.info("transient store pool ready buffers=%d bytes_each=%d", self._count, self._size)

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """A new segment, with a buffer if one is free."""
        if not self._free:
            self._bare_segments += 1
            log.warning("segment without a buffer, all of them wait for the disk path=%s", path)
            return MappedFile(path, start, size, fd, disk)
        segment = PooledFile(path, start, size, fd, disk, self._free.pop())
        self._lent.append(segment)
        return segment

    def close(self) -> None:
        """Give the memory up."""
        self._free.clear()
        self._lent.clear()

    def give_back(self, committed: int) -> None:
        """The log is written up to byte `committed`: full segments below need their buffers no longer."""
        while self._lent and self._lent[0].end <= committed:
            self._free.append(self._lent.popleft().without_buffer())

    def uncommitted(self, end: int) -> list["BufferedRange"]:
        """What the committer has to write for the log to stand in its files up to byte `end`."""
        return [BufferedRange(segment, end) for segment in self._lent if segment.start < end]

    @property
    def is_deficient(self) -> bool:
        """No buffer is free for the next segment, and one will be once the disk has caught up."""
        return not self._free and len(self._lent) > 1

    def statistics(self) -> TransientPoolStatistics:
        """A snapshot."""
        return TransientPoolStatistics(self._count, len(self._free), self._bare_segments)

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
        """Into the buffer, at byte `at`."""
        if self._buffer is None:
            super().write(data, at)
        else:
            self._wrote = at + len(data)
            self._buffer[at : self._wrote] = data

    def zero(self, begin: int, end: int | None = None) -> int:
        """As if [begin, end), the end of what was written, had not been."""
        self._wrote = min(self._wrote, begin)
        return super().zero(begin, end)

    def commit(self, end: int) -> None:
        """Write what the buffer holds below byte `end` of the segment. OSError. Called by the committer's thread."""
        end = min(end, self._wrote)
        if self._buffer is not None and end > self.committed:
            self._disk.pwrite(self.fd, self._buffer[self.committed : end], self.committed)
            self.committed = end

    def without_buffer(self) -> memoryview:
        """Its buffer, which it needs no longer."""
        buffer, self._buffer = self._buffer, None
        assert buffer is not None  # given back once
        return buffer


class BufferedRange:
    """What a segment's buffer holds below byte `end` of the log, on its way into the file."""

    __slots__ = ("_end", "_segment")

    def __init__(self, segment: PooledFile, end: int) -> None:
        self._segment = segment
        self._end = end

    def sync(self) -> None:
        """It is in the file afterwards (and not yet on disk)."""
        self._segment.commit(self._end - self._segment.start)


def committer_of(config: StoreConfig, written: int) -> Flusher:
    """The thread that writes buffers into files: a flusher of another kind, whose `done` is what may be seen."""
    return Flusher("log-committer", written, commit_pace_of(config))


def commit_pace_of(config: StoreConfig) -> Pace:
    """Its rhythm."""
    return Pace(
        config.commit_interval_commit_log,
        config.commit_commit_log_least_pages,
        config.commit_commit_log_thorough_interval,
        is_woken=config.wake_commit_when_put_message,
    )
