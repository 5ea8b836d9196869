"""One consume queue (topic, queue id): its next queue offset, and its chain of 20-byte units on disk.

A queue has three positions. `next_offset` is the queue offset of the next appended record (the topic-queue table's
entry). `end` is one past the last visible unit. `written` is one past the last unit in a file. The records between
`end` and `next_offset` are appended and not yet dispatched. The units between `written` and `end` are visible and only
in memory, in `pending`; readers get units from memory and files alike.

The queue offset of its record, never the order of arrival, decides the position of a unit. So dispatching a record
twice writes the same bytes to the same position. Live dispatch always continues at the end. Recovery either overlaps
existing units (`_reconcile`) or starts a queue at a later offset (`_fill_gap_to`, which fills the gap with filler
units). If a write fails, `pending` stays complete for the next attempt.

The unit at `offset` is in the segment that starts at byte offset * 20, rounded down to the segment size. Segments are
consecutive, so the start of the first one and `end` determine all file names. `QueueFiles` opens the files.

Source: docs/reference/disk.md, "ConsumeQueue".
"""

import logging
import os
from functools import partial
from typing import Final

import msgspec
import numpy as np

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.mapped_file_queue import gaps, segment_starts
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.tail import QueueTail
from skylarkmq.broker.store.queue.topic_traffic import SIZE_BOUNDS, note_units
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, FILLER_UNIT, UNIT, UNIT_SIZE, offset_file_name
from skylarkmq.protocol.unit_search import UNIT_DTYPE, first_at_or_after

log = logging.getLogger(__name__)

_FIRST_SCAN_BYTES: Final = 4_000


class ConsumeQueueStatistics(msgspec.Struct, frozen=True):
    """Offsets, in units."""

    min_offset: int
    max_offset: int


class ConsumeQueue(QueueTail):
    """One queue. Positions and offsets count units; `physical_end` is a byte offset in the log."""

    __slots__ = (
        "_corrected_for",
        "_directory",
        "_files",
        "_path",
        "_path_start",
        "first_start",
        "last_start",
        "min_offset",
        "physical_end",
        "verified_from",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, directory: str, files: QueueFiles) -> None:
        super().__init__(topic, queue_id)
        self.min_offset = 0
        self.written = 0
        self.physical_end = 0  # end of the last unit's record
        self.verified_from = 0  # older units were neither written nor compared since the start: they may be damaged
        self.traffic = Histogram(SIZE_BOUNDS)  # sizes of all records of the topic since the start
        self.first_start = self.last_start = -1  # byte offsets where the first and last segment begin; -1: no files
        self._corrected_for = -1  # the log start for which `min_offset` was computed
        self._directory = directory
        self._files = files
        self._path = ""
        self._path_start = -1  # start of the segment at `_path`

    @property
    def max_offset(self) -> int:
        """Return the offset one past the last unit."""
        return self.end

    # writing

    def write_pending(self) -> None:
        """Write the pending units, with one write per segment, and make them visible. On OSError they stay pending."""
        if self.is_removed:
            self.drop_pending()
        units = bytes(self.pending)
        if not units:
            return
        self.write_units(self.pending_next - len(units) // UNIT_SIZE, units)
        note_units(self)
        self.drop_pending()

    def write_units(self, first: int, units: bytes) -> None:
        """Write units from offset `first` on, and make them visible. An earlier unit there is replaced."""
        last = first + len(units) // UNIT_SIZE
        if first * UNIT_SIZE < self.first_start:
            self._discard_stale_files()
        if first < self.written:
            self._reconcile(first, units)
            self.verified_from = min(self.verified_from, first)
        else:
            if first > self.written:
                self._fill_gap_to(first)
            self._write(first, units)
        if last >= self.written:
            self.written = last
            self.end = max(self.end, last)
            physical_offset, size, _ = UNIT.unpack_from(units, len(units) - UNIT_SIZE)
            self.physical_end = physical_offset + size

    def _discard_stale_files(self) -> None:
        """Remove existing units: the new ones belong before the first segment (only in recovery), so the files date
        from before a deletion of the topic and came back after a power cut."""
        log.warning("queue files are older than their topic's deletion topic=%s queue_id=%d", self.topic, self.queue_id)
        next_offset = self.next_offset
        self.cut(0)
        self.min_offset = 0
        self.next_offset = next_offset

    def _write(self, offset: int, units: bytes | memoryview) -> None:
        at = offset * UNIT_SIZE
        size = self._files.file_size
        in_file = at % size
        remaining = size - in_file
        if len(units) > remaining:
            view = memoryview(units)
            self._write(offset, view[:remaining])
            self._write(offset + remaining // UNIT_SIZE, view[remaining:])
            return
        start = at - in_file
        if start != self._path_start:
            self._select_segment(start)
        self._files.write(self._path, units, in_file)

    def _select_segment(self, start: int) -> None:
        """Make the segment that begins at byte `start` the one to write to; create it if it is a new last segment."""
        path = self._segment(start)
        if start > self.last_start:
            self._files.create(path)
            self.last_start = start
            if self.first_start < 0:
                self.first_start = start
        self._path, self._path_start = path, start

    def _fill_gap_to(self, offset: int) -> None:
        """Continue the queue at an `offset` after its end: fill the gap, or its part in the last segment, with filler
        units."""
        size = self._files.file_size
        begin = self.end if self.first_start >= 0 else offset * UNIT_SIZE // size * size // UNIT_SIZE
        log.info(
            "queue continues later topic=%s queue_id=%d end=%d offset=%d", self.topic, self.queue_id, self.end, offset
        )
        if self.first_start < 0:
            self.min_offset = offset
            self.written = self.end = begin
        while begin < offset:
            count = min(offset - begin, size // UNIT_SIZE)
            self._write(begin, FILLER_UNIT * count)
            begin += count
            self.written = self.end = begin

    def continue_at(self, offset: int) -> None:
        """Make `offset` the next one of a queue without pending units: remove later units, or fill the gap before it.

        Only the dispatch of a follower does this while the queue is read."""
        if offset < self.end:
            self.cut(offset if offset * UNIT_SIZE > self.first_start else 0)
            self.min_offset = min(self.min_offset, self.end)
        if offset > self.end:
            self._fill_gap_to(offset)

    def fill_gap(self, begin: int, end: int) -> None:
        """Overwrite the units at [begin, end), which have no records, with filler units.

        The part after the last unit is filled when the next unit is written (`_fill_gap_to`)."""
        begin, end = max(begin, self.first_start // UNIT_SIZE), min(end, self.written)
        while self.first_start >= 0 and begin < end:
            count = min(end - begin, self._files.file_size // UNIT_SIZE)
            self._reconcile(begin, FILLER_UNIT * count)
            self.verified_from = min(self.verified_from, begin)
            begin += count

    def _reconcile(self, first: int, units: bytes) -> None:
        """Compare units that precede `end` with the existing ones, and write those that differ."""
        there = self._read_through(first, len(units) // UNIT_SIZE)
        if there == units:
            return
        for at in range(0, len(units), UNIT_SIZE):
            unit = units[at : at + UNIT_SIZE]
            if there[at : at + UNIT_SIZE] != unit:
                self._write(first + at // UNIT_SIZE, unit)

    def _read_through(self, offset: int, count: int) -> bytes:
        """Return units as `read` does, across segment boundaries."""
        parts = []
        while count > 0 and (units := self.read(offset, count)):
            parts.append(units)
            offset += len(units) // UNIT_SIZE
            count -= len(units) // UNIT_SIZE
        return b"".join(parts)

    # reading

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` units from `offset`, within its segment and before the end; b"" without a segment."""
        count = self._readable(offset, count)
        filed = min(count, self.written - offset)
        if filed <= 0:
            return self._in_memory(offset, count)
        path, in_file = self._locate(offset)
        units = self._files.read(path, in_file, filed * UNIT_SIZE)
        return units if filed == count else units + self._in_memory(self.written, count - filed)

    def read_nowait(self, offset: int, count: int, reads: ColdReads) -> bytes | bytearray:
        """Return units as `read` does. Raises ColdRead if they are not in the page cache."""
        count = self._readable(offset, count)
        filed = min(count, self.written - offset)
        if filed <= 0:
            return self._in_memory(offset, count)
        path, in_file = self._locate(offset)
        units = self._files.read_nowait(path, in_file, filed * UNIT_SIZE, reads)
        return units if filed == count else units + self._in_memory(self.written, count - filed)

    def written_segments(self) -> list[tuple[str, int]]:
        """Return the path of each segment, and how many of its bytes contain units."""
        size, end = self._files.file_size, self.written * UNIT_SIZE
        if self.first_start < 0:
            return []
        starts = range(self.first_start, self.last_start + 1, size)
        return [(self._segment(start), min(end - start, size)) for start in starts if start < end]

    def unwritten_units(self) -> bytes:
        """Return all units that are visible and not yet in a file."""
        return self._in_memory(self.written, self.end - self.written)

    def _readable(self, offset: int, count: int) -> int:
        per_file = self._files.file_size // UNIT_SIZE
        return min(count, per_file - offset % per_file, self.end - offset)

    def _locate(self, offset: int) -> tuple[str, int]:
        """Return the path of the unit's segment, and the unit's byte offset in it."""
        at = offset * UNIT_SIZE
        in_file = at % self._files.file_size
        start = at - in_file
        return self._path if start == self._path_start else self._segment(start), in_file

    def _in_memory(self, offset: int, count: int) -> bytes:
        """Return units that are visible and not yet in a file."""
        begin = (offset - self.written) * UNIT_SIZE
        return bytes(self.pending[begin : begin + count * UNIT_SIZE]) if count > 0 else b""

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """Return `(physical offset, size, tags code)` of one unit, None if there is no such unit."""
        data = self.read(offset, 1)
        return UNIT.unpack(data) if len(data) == UNIT_SIZE else None

    def unit_nowait(self, offset: int, reads: ColdReads) -> tuple[int, int, int] | None:
        """Return the same as `unit`. Raises ColdRead if the unit is not in the page cache."""
        data = self.read_nowait(offset, 1, reads)
        return UNIT.unpack(data) if len(data) == UNIT_SIZE else None

    def next_segment_offset(self, offset: int) -> int:
        """Return the first offset of the segment after the one that contains `offset`."""
        per_file = self._files.file_size // UNIT_SIZE
        return offset - offset % per_file + per_file

    # load, truncation, removal

    def load(self, disk: Disk) -> None:
        """Find the segments and the last unit. Raises StoreError if a file has another length or is missing."""
        starts = segment_starts(self._directory, self._files.file_size, disk, is_rebuilt=True)
        if not starts:
            return
        for begin, _ in gaps(starts, self._files.file_size):
            raise StoreError(f"{self._segment(begin)} is missing; mqbroker store repair rebuilds the queue")
        self.first_start, self.last_start = starts[0], starts[-1]
        self.min_offset = starts[0] // UNIT_SIZE
        for start in reversed(starts):
            count = self._count_units(start)
            self.end = self.written = start // UNIT_SIZE + count
            if count:
                break
        self._find_physical_end()
        self.next_offset = self.verified_from = self.written = self.end

    def _count_units(self, start: int) -> int:
        """Return the number of valid units at the start of a segment. Each scan reads four times as much."""
        size = self._files.file_size
        span = min(_FIRST_SCAN_BYTES, size)
        while True:
            data = self._files.read(self._segment(start), 0, span)
            units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
            bad = np.flatnonzero((units["size"] <= 0) | (units["physical_offset"] < 0))
            if len(bad):
                return int(bad[0])
            if span == size:
                return len(units)
            span = min(span * 4, size)

    def _find_physical_end(self) -> None:
        self.physical_end = 0
        unit = self.unit(self.end - 1) if self.end > self.min_offset else None
        if unit is not None and unit[1] != FILLER_RECORD_SIZE:
            self.physical_end = unit[0] + unit[1]

    def mark_unsynced(self, offset: int) -> None:
        """Have the next flush sync the segments from `offset` on and the directory: another process may have written
        units or removed files without a sync."""
        size = self._files.file_size
        self._files.mark_directory_unsynced(self._directory)
        if self.first_start >= 0:
            begin = offset * UNIT_SIZE // size * size
            for start in range(max(begin, self.first_start), self.last_start + 1, size):
                self._files.mark_unsynced(self._segment(start))

    def truncate(self, log_end: int) -> int:
        """Remove the units of records at or after byte `log_end` and zero their bytes. Returns the number of units."""
        return 0 if self.physical_end <= log_end else self.cut(self.first_at_or_after(log_end))

    def cut(self, kept: int) -> int:
        """Remove the units from offset `kept` on and zero their bytes. Returns the number of units."""
        taken = self.end - kept
        if taken <= 0:
            return 0
        self.end = self.written = self.next_offset = kept
        self.verified_from = min(self.verified_from, kept)
        self._drop_empty_segments()
        self.clear_tail()
        self._find_physical_end()
        return taken

    def clear_tail(self) -> None:
        """Zero the bytes after the last unit: remains of a crash would read as units after the next write."""
        at = self.end * UNIT_SIZE
        for start in range(self.first_start, self.last_start + 1, self._files.file_size):
            if start + self._files.file_size > at and self.first_start >= 0:
                cleared = self._files.clear(self._segment(start), max(0, at - start))
                if cleared:
                    log.info("queue tail cleared topic=%s queue_id=%d bytes=%d", self.topic, self.queue_id, cleared)

    def _drop_empty_segments(self) -> None:
        """Remove empty last segments: RocketMQ reads one as a single unit (docs/reference/disk.md, "Traps")."""
        while self.first_start >= 0 and self.last_start >= self.end * UNIT_SIZE:
            self._files.remove(self._segment(self.last_start))
            self._path_start = -1
            self.last_start -= self._files.file_size
            if self.last_start < self.first_start:
                self.first_start = self.last_start = -1

    def first_at_or_after(self, physical_offset: int) -> int:
        """Return the offset of the first unit whose record begins at or after byte `physical_offset` of the log;
        `end` if there is none."""
        return first_at_or_after(self.read, max(self.first_start, 0) // UNIT_SIZE, self.end, physical_offset)

    def correct_min_offset(self, log_start: int, reads: ColdReads | None = None) -> None:
        """Move `min_offset` past the units of records that the log no longer has; if none remains, it is `end`.

        The method compares one number unless the start of the log has moved. With `reads` it may raise ColdRead, and
        changes nothing then.
        """
        if log_start == self._corrected_for:
            return
        if self.first_start >= 0 or self.end > self.written:
            first = max(self.first_start // UNIT_SIZE, min(self.min_offset, self.end))
            read = self.read if reads is None else partial(self.read_nowait, reads=reads)
            self.min_offset = first_at_or_after(read, first, self.end, log_start)
        self._corrected_for = log_start

    # expiry and removal

    @property
    def has_several_segments(self) -> bool:
        """Return whether there is a segment that may expire."""
        return 0 <= self.first_start < self.last_start

    def take_expired(self) -> list[str]:
        """Drop the leading segments that have no unit from `min_offset` on. Returns their paths.

        The segment that follows must contain a unit of an expired record as well, since such a unit is on disk. A power
        cut could take all other units with their records, and the queue offsets would restart at 0.
        """
        taken = []
        size = self._files.file_size
        while self.has_several_segments and self.first_start + size < self.min_offset * UNIT_SIZE:
            taken.append(self._segment(self.first_start))
            self.first_start += size
        return taken

    def remove(self) -> None:
        """Unlink the segments and the directory; after a power cut the directory may have no segments."""
        self.is_removed = True
        self._files.finish_expiry()
        if os.path.isdir(self._directory):
            self._files.remove_all(self._directory)
        self.first_start = self.last_start = self._path_start = -1

    def statistics(self) -> ConsumeQueueStatistics:
        """Return the range of offsets."""
        return ConsumeQueueStatistics(self.min_offset, self.end)

    def _segment(self, start: int) -> str:
        return f"{self._directory}/{offset_file_name(start)}"

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} [{self.min_offset}, {self.end})>"
