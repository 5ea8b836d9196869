"""One (topic, queue id): its next offset in the log, and its chain of 20-byte units on disk.

Three positions: `next_offset` is what the next appended record of this queue gets (the topic-queue table's entry);
`end` is behind the last unit that may be seen, `written` behind the last that is in a file. The first two differ by
what is appended and not yet dispatched, the last two by what of `pending` was published and still is in memory only:
readers get units from there as from the files.

Where a unit goes is told by its record's queue offset, never by arrival, so that dispatching a record twice writes the
same bytes to the same place: live dispatch always continues at the end; recovery overlaps what is there (`_reconcile`)
or finds a queue that begins later (`_skip_to`, which fills the hole with units of nobody). A failed write keeps
`pending` whole, for another try.

The unit at `offset` lies in the segment that starts at byte offset·20 rounded down to the segment size; segments are
consecutive, so the first one's start and `end` tell every name. Files are opened by `QueueFiles`.

Source: docs/formats.md, "ConsumeQueue".
"""

import logging
import os
from functools import partial
from typing import Final

import msgspec
import numpy as np

from skylarkmq.broker.histogram import Buckets
from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.errors import StoreError
from skylarkmq.broker.store.log.mapped_file_queue import gaps, segment_starts
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.tail import QueueTail
from skylarkmq.broker.store.read.cold_reads import ColdReads
from skylarkmq.broker.store.topic_traffic import SIZE_BOUNDS, note_units
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, FILLER_UNIT, UNIT, UNIT_SIZE, offset_file_name
from skylarkmq.protocol.unit_search import UNIT_DTYPE, first_at_or_behind

log = logging.getLogger(__name__)

_FIRST_SCAN_BYTES: Final = 4_000


class ConsumeQueueStatistics(msgspec.Struct, frozen=True):
    """Offsets in units."""

    min_offset: int
    max_offset: int


class ConsumeQueue(QueueTail):
    """Positions and offsets are counted in units; `physical_end` in bytes of the log."""

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
        "sound_from",
        "written",
    )

    def __init__(self, topic: str, queue_id: int, directory: str, files: QueueFiles) -> None:
        super().__init__(topic, queue_id)
        self.min_offset = 0
        self.written = 0
        self.physical_end = 0  # end of the last unit's record
        self.sound_from = 0  # units from here on were written or compared since the start; older ones may be damaged
        self.traffic = Buckets(SIZE_BOUNDS)  # all sizes of records of its topic since the start
        self.first_start = self.last_start = -1  # bytes where the first and last segment begin; -1: no files
        self._corrected_for = -1  # the log's start that `min_offset` belongs to
        self._directory = directory
        self._files = files
        self._path = ""
        self._path_start = -1  # the segment that `_path` names

    @property
    def max_offset(self) -> int:
        """One past the last unit."""
        return self.end

    # writing

    def write_pending(self) -> None:
        """Write what is pending, in one write within a segment, and let it be seen. OSError keeps it."""
        if self.is_removed:
            self.drop_pending()
        units = bytes(self.pending)
        if not units:
            return
        last = self.pending_next
        first = last - len(units) // UNIT_SIZE
        if first * UNIT_SIZE < self.first_start:
            self._begin_anew()
        if first < self.written:
            self._reconcile(first, units)
            self.sound_from = min(self.sound_from, first)
        else:
            if first > self.written:
                self._skip_to(first)
            self._write(first, units)
        if last >= self.written:
            self.written = last
            self.end = max(self.end, last)
            physical_offset, size, _ = UNIT.unpack_from(units, len(units) - UNIT_SIZE)
            self.physical_end = physical_offset + size
        note_units(self)
        self.drop_pending()

    def _begin_anew(self) -> None:
        """Units come for before the first segment (only in recovery): what is there is from before the deletion of the
        topic, brought back by a cut."""
        log.warning("queue has files of its topic's former life topic=%s queue_id=%d", self.topic, self.queue_id)
        next_offset = self.next_offset
        self.cut(0)
        self.min_offset = 0
        self.next_offset = next_offset

    def _write(self, offset: int, units: bytes | memoryview) -> None:
        at = offset * UNIT_SIZE
        size = self._files.file_size
        in_file = at % size
        room = size - in_file
        if len(units) > room:
            view = memoryview(units)
            self._write(offset, view[:room])
            self._write(offset + room // UNIT_SIZE, view[room:])
            return
        start = at - in_file
        if start != self._path_start:
            self._turn_to(start)
        self._files.write(self._path, units, in_file)

    def _turn_to(self, start: int) -> None:
        path = self._segment(start)
        if start > self.last_start:
            self._files.create(path)
            self.last_start = start
            if self.first_start < 0:
                self.first_start = start
        self._path, self._path_start = path, start

    def _skip_to(self, offset: int) -> None:
        """The queue goes on at a later `offset` than its end: units of nobody fill the hole (or its last segment)."""
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

    def leave_hole(self, begin: int, end: int) -> None:
        """The offsets [begin, end) have no records: units of nobody take the place of what stands there. What lies
        behind the last unit is filled when the next one comes (`_skip_to`)."""
        begin, end = max(begin, self.first_start // UNIT_SIZE), min(end, self.written)
        while self.first_start >= 0 and begin < end:
            count = min(end - begin, self._files.file_size // UNIT_SIZE)
            self._reconcile(begin, FILLER_UNIT * count)
            self.sound_from = min(self.sound_from, begin)
            begin += count

    def _reconcile(self, first: int, units: bytes) -> None:
        """Units from before `end` arrive again: keep those that agree, replace the others."""
        there = self._read_through(first, len(units) // UNIT_SIZE)
        if there == units:
            return
        for at in range(0, len(units), UNIT_SIZE):
            unit = units[at : at + UNIT_SIZE]
            if there[at : at + UNIT_SIZE] != unit:
                self._write(first + at // UNIT_SIZE, unit)

    def _read_through(self, offset: int, count: int) -> bytes:
        """As `read`, over the ends of segments."""
        parts = []
        while count > 0 and (units := self.read(offset, count)):
            parts.append(units)
            offset += len(units) // UNIT_SIZE
            count -= len(units) // UNIT_SIZE
        return b"".join(parts)

    # reading

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` units from `offset`, not beyond its segment nor the end; b"" when there is no segment."""
        count = self._readable(offset, count)
        filed = min(count, self.written - offset)
        if filed <= 0:
            return self._in_memory(offset, count)
        path, in_file = self._place(offset)
        units = self._files.read(path, in_file, filed * UNIT_SIZE)
        return units if filed == count else units + self._in_memory(self.written, count - filed)

    def read_nowait(self, offset: int, count: int, reads: ColdReads) -> bytes | bytearray:
        """As `read`; ColdRead when the units are not in memory."""
        count = self._readable(offset, count)
        filed = min(count, self.written - offset)
        if filed <= 0:
            return self._in_memory(offset, count)
        path, in_file = self._place(offset)
        units = self._files.read_nowait(path, in_file, filed * UNIT_SIZE, reads)
        return units if filed == count else units + self._in_memory(self.written, count - filed)

    def _readable(self, offset: int, count: int) -> int:
        per_file = self._files.file_size // UNIT_SIZE
        return min(count, per_file - offset % per_file, self.end - offset)

    def _place(self, offset: int) -> tuple[str, int]:
        """The path of a unit's segment, and the byte in it."""
        at = offset * UNIT_SIZE
        in_file = at % self._files.file_size
        start = at - in_file
        return self._path if start == self._path_start else self._segment(start), in_file

    def _in_memory(self, offset: int, count: int) -> bytes:
        """Units that are published and in no file yet."""
        begin = (offset - self.written) * UNIT_SIZE
        return bytes(self.pending[begin : begin + count * UNIT_SIZE]) if count > 0 else b""

    def unit(self, offset: int) -> tuple[int, int, int] | None:
        """`(physical offset, size, tags code)` of one unit."""
        data = self.read(offset, 1)
        return UNIT.unpack(data) if len(data) == UNIT_SIZE else None

    def unit_nowait(self, offset: int, reads: ColdReads) -> tuple[int, int, int] | None:
        """As `unit`; ColdRead when it is not in memory."""
        data = self.read_nowait(offset, 1, reads)
        return UNIT.unpack(data) if len(data) == UNIT_SIZE else None

    def next_segment_offset(self, offset: int) -> int:
        """The first offset of the segment behind the one that `offset` falls into."""
        per_file = self._files.file_size // UNIT_SIZE
        return offset - offset % per_file + per_file

    # load, truncation, removal

    def load(self, disk: Disk) -> None:
        """Find the segments and the end of the units. StoreError: a file of another length, or one missing."""
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
        self.next_offset = self.sound_from = self.written = self.end

    def _count_units(self, start: int) -> int:
        """Valid units at the beginning of a segment; looks at four times as much while all of it is valid."""
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

    def distrust(self, offset: int) -> None:
        """Units from `offset` on, and files gone, may be another process's work, and not synced: the next flush covers
        them."""
        size = self._files.file_size
        self._files.distrust_directory(self._directory)
        if self.first_start >= 0:
            begin = offset * UNIT_SIZE // size * size
            for start in range(max(begin, self.first_start), self.last_start + 1, size):
                self._files.distrust(self._segment(start))

    def truncate(self, log_end: int) -> int:
        """Take back units of records at or behind byte `log_end`, clearing what they occupied. Returns how many."""
        return 0 if self.physical_end <= log_end else self.cut(self.first_at_or_behind(log_end))

    def cut(self, kept: int) -> int:
        """Take back the units at `kept` and behind it, clearing what they occupied. Returns how many."""
        taken = self.end - kept
        if taken <= 0:
            return 0
        self.end = self.written = self.next_offset = kept
        self.sound_from = min(self.sound_from, kept)
        self._drop_empty_segments()
        self.clear_tail()
        self._find_physical_end()
        return taken

    def clear_tail(self) -> None:
        """Nothing stands behind the last unit: what a crash left there would read as units after the next write."""
        at = self.end * UNIT_SIZE
        for start in range(self.first_start, self.last_start + 1, self._files.file_size):
            if start + self._files.file_size > at and self.first_start >= 0:
                cleared = self._files.clear(self._segment(start), max(0, at - start))
                if cleared:
                    log.info("queue tail cleared topic=%s queue_id=%d bytes=%d", self.topic, self.queue_id, cleared)

    def _drop_empty_segments(self) -> None:
        """An empty last segment would read as one unit to RocketMQ (docs/formats.md, "Traps")."""
        while self.first_start >= 0 and self.last_start >= self.end * UNIT_SIZE:
            self._files.remove(self._segment(self.last_start))
            self._path_start = -1
            self.last_start -= self._files.file_size
            if self.last_start < self.first_start:
                self.first_start = self.last_start = -1

    def first_at_or_behind(self, physical_offset: int) -> int:
        """The first unit whose record begins at or behind that byte of the log; `end` if none does."""
        return first_at_or_behind(self.read, max(self.first_start, 0) // UNIT_SIZE, self.end, physical_offset)

    def correct_min_offset(self, log_start: int, reads: ColdReads | None = None) -> None:
        """Units of records that the log no longer has do not count; a queue without any other is empty but numbered.

        A look at one number unless the log's start has moved. With `reads`: ColdRead, and nothing is changed.
        """
        if log_start == self._corrected_for:
            return
        if self.first_start >= 0 or self.end > self.written:
            first = max(self.first_start // UNIT_SIZE, min(self.min_offset, self.end))
            read = self.read if reads is None else partial(self.read_nowait, reads=reads)
            self.min_offset = first_at_or_behind(read, first, self.end, log_start)
        self._corrected_for = log_start

    # the end

    @property
    def has_several_segments(self) -> bool:
        """Whether it has a segment that it could give up."""
        return 0 <= self.first_start < self.last_start

    def take_expired(self) -> list[str]:
        """Give up the leading segments that hold nothing from `min_offset` on. Their paths.

        The segment that follows must hold a unit of an expired record as well: that one is on disk. A cut could take
        all others with their records, and the queue would be numbered anew.
        """
        taken = []
        size = self._files.file_size
        while self.has_several_segments and self.first_start + size < self.min_offset * UNIT_SIZE:
            taken.append(self._segment(self.first_start))
            self.first_start += size
        return taken

    def remove(self) -> None:
        """Unlink the segments and the directory, which a cut may have left without any."""
        self.is_removed = True
        self._files.finish_expiry()
        if os.path.isdir(self._directory):
            self._files.remove_all(self._directory)
        self.first_start = self.last_start = self._path_start = -1

    def statistics(self) -> ConsumeQueueStatistics:
        """The numbered range."""
        return ConsumeQueueStatistics(self.min_offset, self.end)

    def _segment(self, start: int) -> str:
        return f"{self._directory}/{offset_file_name(start)}"

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} [{self.min_offset}, {self.end})>"
