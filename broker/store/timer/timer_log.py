"""The timer log: a unit of 52 bytes for each message on the timer wheel, in files of equal size.

A unit refers to the previous one in its slot, so the wheel stores only the last unit of a slot. Positions count through
all files. The end of a file is skipped if a unit does not fit there. One pwrite writes the units of a batch, and
`preadv(RWF_NOWAIT)` reads a window of units at once, because neighbors in a chain are often neighbors in the log. A
file has its full size from the start; its blocks are allocated when they are written.

The timer topic contains everything that is needed to rebuild the log, so nothing here is synced at once.
`take_unsynced` returns the files that the flusher must sync, and the old files that it deletes, because freeing 100 MiB
takes long. Source: docs/reference/disk.md, "Timer files".
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Final

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.mapped_file_queue import segment_starts
from skylarkmq.broker.store.flush.flusher import Syncable
from skylarkmq.broker.store.queue.files import DirtyDirectory, DirtyFile
from skylarkmq.protocol.disk import offset_file_name
from skylarkmq.protocol.timers import LOG_BLANK_SIZE, UNIT_SIZE, TimerUnit, log_blank

WINDOW_BYTES: Final = 128 * UNIT_SIZE
SCANNED_BYTES: Final = 1024 * UNIT_SIZE

log = logging.getLogger(__name__)


class OldFiles:
    """Files to delete; no reads use them any more."""

    def __init__(self, paths: Sequence[str], disk: Disk) -> None:
        self._paths = paths
        self._disk = disk

    def sync(self) -> None:
        """Unlink them, oldest first. The flusher's thread calls this; the next start finds files that remain."""
        for path in self._paths:
            try:
                self._disk.unlink(path)
            except OSError as problem:
                log.warning("timer log files not removed from=%s error=%s", path, problem)
                return


class TimerLog:
    """The log of one store, in files of `file_size` bytes."""

    def __init__(self, directory: str, file_size: int, disk: Disk, reads: ColdReads) -> None:
        self.directory = directory
        self._file_size = file_size
        self._disk = disk
        self._reads = reads
        self._starts: list[int] = []
        self._fds: dict[int, int] = {}
        self._unsynced: set[int] = set()  # starts of files that were written
        self._has_new_file = False
        self._old: list[str] = []  # paths of files to delete
        self._window_at = 0
        self._window = b""
        self.is_changed = False
        """Whether anything was written since `take_unsynced`."""
        self.end = 0
        """The position of the next unit, unless its file is full."""

    def __repr__(self) -> str:
        return f"<TimerLog {self.begin}-{self.end}>"

    @property
    def begin(self) -> int:
        """Return the position of the first unit that still exists."""
        return self._starts[0] if self._starts else self.end

    # ------------------------------------------------------------------------------------------------ opening

    def load(self) -> None:
        """Find the files. Raises StoreError if one has another length. `cut` sets the end of the log afterwards."""
        self._starts = segment_starts(self.directory, self._file_size, self._disk, is_rebuilt=True)
        self.end = self._starts[-1] + self._file_size if self._starts else 0
        self._unsynced.update(self._starts[-2:])  # an earlier process may have been killed before its sync
        self._has_new_file = bool(self._starts)

    def cut(self, end: int) -> None:
        """Remove everything from position `end` on. Raises OSError."""
        while self._starts and self._starts[-1] >= max(end, 1):
            self._remove(self._starts.pop())
            self._has_new_file = True
        if self._starts:
            start = self._starts[-1]
            if self._disk.clear(self._fd(start), max(end - start, 0), self._file_size):
                self._unsynced.add(start)
                self.is_changed = True
        self._window = b""
        self.end = end

    # ------------------------------------------------------------------------------------------------ writing

    def next_position(self, end: int) -> int:
        """Return the position of the next unit if the previous one ends at position `end`."""
        remaining = -end % self._file_size
        return end + remaining if remaining and remaining < UNIT_SIZE + LOG_BLANK_SIZE else end

    def append(self, units: Sequence[bytes], positions: Sequence[int]) -> None:
        """Write units at positions from `next_position`. After an OSError the caller rolls back all of them."""
        at = 0
        while at < len(units):
            start = positions[at] // self._file_size * self._file_size
            count = at
            while count < len(units) and positions[count] < start + self._file_size:
                count += 1
            if positions[at] != self.end:
                self._close_file(self.end)
            self._write(start, b"".join(units[at:count]), positions[at])
            self.end = positions[count - 1] + UNIT_SIZE
            at = count

    def roll_back(self, end: int) -> None:
        """Set the end to position `end`; what was written after it does not count."""
        self.end = end

    def _close_file(self, position: int) -> None:
        remaining = -position % self._file_size
        if remaining:
            self._write(position - position % self._file_size, log_blank(remaining)[:remaining], position)

    def _write(self, start: int, data: bytes, position: int) -> None:
        if start not in self._fds and start not in self._starts:
            self._make(start)
        self._disk.pwrite(self._fd(start), data, position - start)
        self._unsynced.add(start)
        self.is_changed = True
        if position < self._window_at + len(self._window):
            self._window = b""

    def _make(self, start: int) -> None:
        self._disk.make_directory_unsynced(self.directory)
        self._fds[start] = self._disk.create_sparse(self._path(start), self._file_size)
        self._starts.append(start)
        self._has_new_file = True

    def take_unsynced(self) -> list[Syncable]:
        """Return the files and directories to sync so that everything written so far is durable."""
        found: list[Syncable] = [DirtyFile(self._path(start), self._disk) for start in sorted(self._unsynced)]
        if self._has_new_file:
            found += (
                DirtyDirectory(self.directory, self._disk),
                DirtyDirectory(os.path.dirname(self.directory), self._disk),
            )
        if self._old:
            found.append(OldFiles(self._old, self._disk))
            self._old = []
        self._unsynced.clear()
        self._has_new_file = self.is_changed = False
        return found

    # ------------------------------------------------------------------------------------------------ reading

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at a position, or None. Raises ColdRead."""
        in_file = position % self._file_size
        if position < self.begin or position + UNIT_SIZE > self.end or in_file % UNIT_SIZE:
            return None
        if in_file + UNIT_SIZE > self._file_size:
            return None
        at = position - self._window_at
        if at < 0 or at + UNIT_SIZE > len(self._window):
            self._read_window(position)
            at = position - self._window_at
        return TimerUnit.decode(self._window, at)

    def _read_window(self, position: int) -> None:
        """Read the unit at a position and some units before it into memory."""
        start = position // self._file_size * self._file_size
        begin = max(position + UNIT_SIZE - WINDOW_BYTES, start)
        size = min(position + UNIT_SIZE, start + self._file_size) - begin
        data = self._reads.read(self._fd(start), self._path(start), begin - start, size)
        self._window, self._window_at = bytes(data).ljust(UNIT_SIZE, b"\0"), begin

    def scan(self, position: int) -> Iterator[tuple[int, TimerUnit]]:
        """Yield units from a position on with their positions, up to the first invalid unit. Raises OSError."""
        position = max(position, self.begin)
        while (start := position // self._file_size * self._file_size) in self._starts:
            for found in self._scan_file(start, position - start):
                if found is None:
                    return
                yield found
            position = start + self._file_size

    def _scan_file(self, start: int, at: int) -> Iterator[tuple[int, TimerUnit] | None]:
        """Yield the units of a file from its byte `at` on; None for an invalid unit."""
        last = self._file_size - UNIT_SIZE - LOG_BLANK_SIZE
        while at <= last:
            data = os.pread(self._fd(start), SCANNED_BYTES, at)
            for in_data in range(0, min(len(data) - UNIT_SIZE, last - at) + 1, UNIT_SIZE):
                unit = TimerUnit.decode(data, in_data)
                position = start + at + in_data
                if unit is None or unit.previous >= position:
                    yield None
                    return
                yield position, unit
            at += SCANNED_BYTES

    # ------------------------------------------------------------------------------------------------ the end

    def remove_before(self, physical_offset: int) -> int:
        """Drop the oldest files whose messages all lie before byte `physical_offset` of the commit log.

        The next flush round deletes them. Returns their number. Raises ColdRead, OSError.
        """
        removed = 0
        while len(self._starts) > 1:
            start = self._starts[0]
            last = self.unit(start + (self._file_size - UNIT_SIZE - LOG_BLANK_SIZE) // UNIT_SIZE * UNIT_SIZE)
            if last is None or last.physical_offset >= physical_offset:
                break
            self._starts.pop(0)
            self._forget(start)
            self._old.append(self._path(start))
            self.is_changed = True
            removed += 1
            log.info("timer log file dropped path=%s", self._path(start))
        return removed

    def _remove(self, start: int) -> None:
        self._forget(start)
        self._disk.unlink(self._path(start))

    def _forget(self, start: int) -> None:
        fd = self._fds.pop(start, -1)
        if fd >= 0:
            os.close(fd)
        self._unsynced.discard(start)

    def close(self) -> None:
        """Close all descriptors."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def _fd(self, start: int) -> int:
        fd = self._fds.get(start)
        if fd is None:
            fd = self._fds[start] = self._disk.open(self._path(start))
        return fd

    def _path(self, start: int) -> str:
        return f"{self.directory}/{offset_file_name(start)}"
