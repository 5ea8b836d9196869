"""The timer log: a unit of 52 bytes for each message that was put on the timer wheel, in files of equal size.

A unit names the one before it in its slot, so that the wheel needs to know only the last; positions count through all
files, and what is at the end of a file and too short for a unit is skipped. Units are written by one pwrite for each
batch and read by `preadv(RWF_NOWAIT)`, a window of them at once: neighbours in a chain are often neighbours in the log.
A file has its full size from the start, and no blocks before they are written.

The log can be made again from the timer topic, so nothing here is synced at once: `take_unsynced` tells the flusher
what is to be, and which old files may go: to free 100 MiB takes its time. Source: docs/formats.md, "Timer files".
"""

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Final

from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.flush.flusher import Syncable
from skylarkmq.broker.store.log.mapped_file_queue import segment_starts
from skylarkmq.broker.store.queue.files import DirtyDirectory, DirtyFile
from skylarkmq.broker.store.read.cold_reads import ColdReads
from skylarkmq.protocol.disk import offset_file_name
from skylarkmq.protocol.timers import LOG_BLANK_SIZE, UNIT_SIZE, TimerUnit, log_blank

WINDOW_BYTES: Final = 128 * UNIT_SIZE
SCANNED_BYTES: Final = 1024 * UNIT_SIZE

log = logging.getLogger(__name__)


class OldFiles:
    """Files that nobody reads any more, on their way out."""

    def __init__(self, paths: Sequence[str], disk: Disk) -> None:
        self._paths = paths
        self._disk = disk

    def sync(self) -> None:
        """Unlink them, the oldest first. Called by the flusher's thread; the next start finds again what is left."""
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
        self._old: list[str] = []  # paths of files that may go
        self._window_at = 0
        self._window = b""
        self.is_changed = False
        """Whether anything was written since `take_unsynced`."""
        self.end = 0
        """Where the next unit goes, unless its file is full."""

    def __repr__(self) -> str:
        return f"<TimerLog {self.begin}-{self.end}>"

    @property
    def begin(self) -> int:
        """The position of the first unit that still exists."""
        return self._starts[0] if self._starts else self.end

    # ------------------------------------------------------------------------------------------------ opening

    def load(self) -> None:
        """Find the files. StoreError: one has another length. Where the log ends is still to be said (`cut`)."""
        self._starts = segment_starts(self.directory, self._file_size, self._disk, is_rebuilt=True)
        self.end = self._starts[-1] + self._file_size if self._starts else 0
        self._unsynced.update(self._starts[-2:])  # by a process that was killed before it could
        self._has_new_file = bool(self._starts)

    def cut(self, end: int) -> None:
        """Nothing is left at or behind position `end`. OSError."""
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

    def next_position(self, behind: int) -> int:
        """Where a unit goes that follows what ends at position `behind`."""
        room = -behind % self._file_size
        return behind + room if room and room < UNIT_SIZE + LOG_BLANK_SIZE else behind

    def append(self, units: Sequence[bytes], positions: Sequence[int]) -> None:
        """Write units, at positions as `next_position` gives them. OSError: none of them counts."""
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

    def take_back(self, end: int) -> None:
        """What was written behind position `end` does not count."""
        self.end = end

    def _close_file(self, position: int) -> None:
        room = -position % self._file_size
        if room:
            self._write(position - position % self._file_size, log_blank(room)[:room], position)

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
        """What is to be synced for everything to last that was written so far."""
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
        """The unit at a position; None if there is none. ColdRead."""
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
        """Have the unit at a position, and some before it, in memory."""
        start = position // self._file_size * self._file_size
        begin = max(position + UNIT_SIZE - WINDOW_BYTES, start)
        size = min(position + UNIT_SIZE, start + self._file_size) - begin
        data = self._reads.read(self._fd(start), self._path(start), begin - start, size)
        self._window, self._window_at = bytes(data).ljust(UNIT_SIZE, b"\0"), begin

    def scan(self, position: int) -> Iterator[tuple[int, TimerUnit]]:
        """The units from a position on, each with its own, up to the first that is none. OSError."""
        position = max(position, self.begin)
        while (start := position // self._file_size * self._file_size) in self._starts:
            for found in self._scan_file(start, position - start):
                if found is None:
                    return
                yield found
            position = start + self._file_size

    def _scan_file(self, start: int, at: int) -> Iterator[tuple[int, TimerUnit] | None]:
        """The units of a file from its byte `at` on; None for what is none."""
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
        """Give up the oldest files as long as none of their messages is at or behind a byte of the commit log; the
        next round of the flusher removes them.

        Returns how many go. ColdRead, OSError.
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
            log.info("timer log file goes path=%s", self._path(start))
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
        """Give up descriptors."""
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
