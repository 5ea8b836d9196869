"""Opening what a stop or a crash left: where the log ends, and queues that agree with it.

    clean stop      begin at the record of the newest queue unit; if it is sound, only what lies behind is scanned
    anything else   begin at the last segment whose first message is older, by 3 s, than what the checkpoint vouches for

From there every record is checked (magic, lengths, CRC of the body, and that it stands where it says it stands)
until something is not one; that is the log's end. What lies behind is cleared, not just forgotten: stale records
could come back to life behind a later append. Queues lose their units at or behind the end, and get those of every
record scanned; a record that is dispatched twice writes the same unit to the same place, so a recovery may itself
be cut and run again. If a record's queue turns out to end before it, units from before the scan are missing: the
scan starts over one segment earlier.

A log that did not end cleanly is read from the disk and not from the page cache, which after a failed sync shows what
never got there.

Source: docs/formats.md, "Recovery".
"""

import logging
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

import msgspec

from broker.store.append import Append
from broker.store.commit_log import CommitLog
from broker.store.consume_queue import ConsumeQueue
from broker.store.deleted_topics import DeletedTopics
from broker.store.errors import StoreError
from broker.store.mapped_file import MappedFile
from broker.store.queue_paths import is_queue
from broker.store.queue_table import QueueTable
from broker.store.reput import Reput, has_unit
from protocol.disk import FILLER_RECORD_SIZE, Checkpoint
from protocol.record import BLANK, MAGIC_BLANK, Blank, Damaged, Parsed, Record, parse
from protocol.record_checksum import is_sealed

log = logging.getLogger(__name__)

CHECKPOINT_MARGIN_MS: Final = 3_000
_DISPATCH_AT_ONCE: Final = 4_096  # records gathered before their units are written
_NO_TOPICS: Final = {"", ".", ".."}  # these would not make a directory of queues
_LOOK_BEHIND_CLEAN_END: Final = 16 << 20  # stale records behind the end show within the length of the longest record
_PROGRESS_BYTES: Final = 1 << 28  # a line for an operator every 256 MiB
_PROGRESS_S: Final = 5.0  # or after that many seconds
_LOOK_UP_EVERY: Final = 2_048  # records between two looks at the clock and two calls of `check_stop`


class Recovered(msgspec.Struct, frozen=True):
    """What a recovery found. Offsets in bytes of the log."""

    scanned_from: int
    end: int
    records: int
    last_record: int
    last_store_timestamp: int
    cleared_bytes: int
    removed_units: int
    reason: str


class _Scanned(msgspec.Struct, gc=False):
    """The queue offsets of one queue's scanned records: [first, end); `first_unit`: where the unit of `first`, as the
    scan found it, said that its record is."""

    first: int
    end: int
    first_unit: int


class _BeginsTooLate(Exception):
    """A scanned record's queue lacks units of records before the scan, or there is no record to begin with."""


class Recovery:
    """One run over one store, before it serves anybody."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        reput: Reput,
        deleted: DeletedTopics,
        *,
        check_body: bool = True,
        check_seal: bool = False,
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_stop` is called every few thousand records and raises what ends the run early."""
        self._log = commit_log
        self._deleted = deleted
        self._queues = queues
        self._reput = reput
        self._check_body = check_body and not check_seal
        self._check_seal = check_seal
        self._check_stop = check_stop
        self._progress_at = 0
        self._progress_s = monotonic()
        self.percent = 0
        """How much of the log to be scanned was scanned, for other threads."""
        self._records = 0
        self._last: Record | None = None
        self._reason = ""
        self._start = 0
        self._scanned: dict[tuple[str, int], _Scanned] = {}
        self._may_jump: set[tuple[str, int]] = set()  # queues whose next records may lie in a gap that was passed
        self._has_passed_gap = False

    def run(self, checkpoint: Checkpoint, *, clean: bool) -> Recovered:
        """Bring log and queues into agreement. StoreError when the disk refuses."""
        segments = self._log.files.segments
        dispatched_to = max((queue.physical_end for queue in self._queues.truncatable()), default=0)
        if clean:
            start, dispatch_from = self._clean_start(dispatched_to), dispatched_to
        else:
            start, dispatch_from = self._crash_start(checkpoint), 0
        try:
            end, start = self._scan_back_from(start, dispatch_from) if segments else (0, 0)
            removed = self._truncate_queues(end) if clean else self._cut_queues(end)
            cleared = self._log.files.truncate(end, _LOOK_BEHIND_CLEAN_END if clean else None)
            if clean:
                self._log.files.sync_names()  # a start that was killed may have made the segment that is next
            else:
                self._log.files.sync_from(start)
        except OSError as problem:
            raise StoreError(f"recovery cannot write: {problem}") from problem
        if self._reput.failed:
            raise StoreError("recovery cannot write queue units")
        last = self._last
        self._log.set_end(end, last.physical_offset if last else 0, last.store_timestamp if last else 0)
        self._reput.offset = end
        self._finish_queues()
        found = Recovered(
            start,
            end,
            self._records,
            last.physical_offset if last else 0,
            last.store_timestamp if last else 0,
            cleared,
            removed,
            self._reason,
        )
        log.info(
            "recovered clean=%s from=%d end=%d records=%d cleared_bytes=%d removed_units=%d reason=%s",
            clean,
            *(found.scanned_from, found.end, found.records, found.cleared_bytes, found.removed_units, found.reason),
        )
        return found

    # where to begin

    def _clean_start(self, dispatched_to: int) -> int:
        """The newest record that a queue knows, if it is sound; else the segment it ought to be in."""
        newest = max(self._queues.truncatable(), key=lambda queue: queue.physical_end, default=None)
        unit = newest.unit(newest.end - 1) if newest is not None and newest.physical_end else None
        if unit is not None and (segment := self._log.files.find(unit[0])) is not None:
            found = self._parse(segment, unit[0] - segment.start)
            if isinstance(found, Record) and found.physical_offset == unit[0] and found.size == unit[1]:
                return unit[0]
        if dispatched_to:
            log.warning("newest queue unit has no record, scanning its segment offset=%d", dispatched_to)
        segment = self._log.files.find(dispatched_to)
        return segment.start if segment is not None else self._log.files.min_offset

    def _crash_start(self, checkpoint: Checkpoint) -> int:
        """The last segment whose first record is older than everything the checkpoint vouches for."""
        limit = min(checkpoint.physic_timestamp, checkpoint.logics_timestamp) - CHECKPOINT_MARGIN_MS
        for segment in reversed(self._log.files.segments):
            self._check_stop()
            segment.distrust_cache()
            first = parse(segment.view, 0, check_body=False)
            if isinstance(first, Record) and 0 < first.store_timestamp <= limit:
                return segment.start
        return self._log.files.min_offset

    def _scan_back_from(self, start: int, dispatch_from: int) -> tuple[int, int]:
        while True:
            try:
                end = self._scan(start, dispatch_from)
                if self._records or start <= self._log.files.min_offset:
                    return end, start
                raise _BeginsTooLate(f"no record at {start}")
            except _BeginsTooLate as gap:
                self._check_stop()
                previous = self._log.files.before(start)
                if previous is not None:
                    previous.distrust_cache()
                start = previous.start if previous is not None else self._log.files.min_offset
                dispatch_from = 0
                log.warning("%s, scanning one segment more from=%d", gap, start)

    # the scan

    def _scan(self, start: int, dispatch_from: int) -> int:
        """Check every record from `start`, dispatch those from `dispatch_from`; returns the last good one's end."""
        self._records = 0
        self._last = None
        self._scanned.clear()
        self._start = start
        end = self._progress_at = start
        self._scan_began_s = monotonic()
        may_go_back = start > self._log.files.min_offset
        gaps = [gap for gap in self._log.files.gaps if gap[0] >= start]
        self._may_jump.clear()
        self._has_passed_gap = False
        pending: list[Append] = []
        for record in self._records_from(start):
            while gaps and record.physical_offset >= gaps[0][1]:
                gaps.pop(0)
                self._may_jump.update(self._scanned)
                self._has_passed_gap = True
                may_go_back = False
            if self._gets_unit(record) and not self._follows(record):
                break
            end = record.physical_offset + record.size
            self._records += 1
            self._last = record
            if record.physical_offset >= dispatch_from:
                pending.append(self._append_of(record, may_go_back))
                if len(pending) >= _DISPATCH_AT_ONCE:
                    self._reput.dispatch(pending)
                    pending.clear()
            if self._records % _LOOK_UP_EVERY == 0:
                self._look_up(end)
        self._reput.dispatch(pending)
        return end

    def _look_up(self, at: int) -> None:
        """Log how far the scan is, by bytes and by time, and end it when the start was called off."""
        self._check_stop()
        now_s = monotonic()
        log_end = self._log.files.segments[-1].end
        self.percent = 100 * (at - self._start) // (log_end - self._start)
        if at - self._progress_at >= _PROGRESS_BYTES or now_s - self._progress_s >= _PROGRESS_S:
            self._progress_at, self._progress_s = at, now_s
            rate = (at - self._start) / max(now_s - self._scan_began_s, 0.001)
            log.info(
                "recovering offset=%d records=%d percent=%d mb_per_s=%.0f at_most_s=%.0f",
                *(at, self._records, self.percent, rate / 1e6, (log_end - at) / rate),
            )

    def _gets_unit(self, record: Record) -> bool:
        is_ours = has_unit(record.sys_flag) and record.topic not in self._queues.batch_topics
        is_ours = is_ours and is_queue(record.topic, record.queue_id)
        return is_ours and not self._deleted.covers(record.topic, record.physical_offset)

    def _follows(self, record: Record) -> bool:
        """Whether a record's queue offset is the next of its queue: a head that a cut tore has no checksum to tell."""
        offset = record.queue_offset
        key = record.topic, record.queue_id
        scanned = self._scanned.get(key)
        if scanned is not None and (offset == scanned.end or (offset > scanned.end and key in self._may_jump)):
            scanned.end = offset + 1
            self._may_jump.discard(key)
        elif scanned is None and self._may_be_first(record):
            queue = self._queues.get(*key)
            unit = queue.unit(offset) if queue is not None else None
            self._scanned[key] = _Scanned(offset, offset + 1, unit[0] if unit is not None else -1)
        elif offset == 0 and self._begins_again(record, scanned):
            self._scanned[key] = _Scanned(0, 1, record.physical_offset)
        else:
            self._reason = f"queue offset {offset} is not the next of {record.topic}/{record.queue_id}"
            return False
        return True

    def _may_be_first(self, record: Record) -> bool:
        """Whether nothing speaks against the queue's first scanned record: no older one has its offset, or should."""
        queue = self._queues.get(record.topic, record.queue_id)
        if self._start == 0 and record.queue_offset > 0 and not self._has_passed_gap:
            return False
        unit = queue.unit(record.queue_offset) if queue is not None else None
        if unit is None or not unit[1] or not self._log.files.min_offset <= unit[0] < record.physical_offset:
            return True
        segment = self._log.files.find(unit[0])
        found = parse(segment.view, unit[0] - segment.start, check_body=False) if segment is not None else None
        return not isinstance(found, Record) or _place(found) != _place(record) or not self._gets_unit(found)

    def _begins_again(self, record: Record, scanned: _Scanned | None) -> bool:
        """Whether the topic was deleted and made again: then its unit was there already, or a next record follows. A
        record #1 may as well follow the #0 before; then this one is a torn head, and that one may be acknowledged."""
        if scanned is not None and scanned.first == 0 and scanned.first_unit >= record.physical_offset:
            return True
        if scanned is not None and scanned.end == 1:
            return False
        for later in self._records_from(record.physical_offset + record.size):
            if _place(later)[:2] == _place(record)[:2] and has_unit(later.sys_flag):
                return later.queue_offset == 1
        return False

    def _append_of(self, record: Record, may_go_back: bool) -> Append:
        queue = self._queues.make(record.topic, record.queue_id) if self._gets_unit(record) else None
        if queue is not None:
            if may_go_back and record.queue_offset > queue.next_offset:
                raise _BeginsTooLate(f"queue {record.topic}/{record.queue_id} ends at {queue.next_offset}")
            queue.next_offset = max(queue.next_offset, record.queue_offset + 1)
        return self._reput.append_of(record, queue)

    def _records_from(self, start: int) -> Iterator[Record]:
        """Records in order, each at its own physical offset; `_reason` tells why they ended."""
        segment = self._log.files.find(start)
        at = start - segment.start if segment is not None else 0
        while segment is not None:
            for record in self._records_of(segment, at):
                yield record
                at = record.position + record.size
            blank = parse(segment.view, at)
            if not isinstance(blank, Blank):
                return
            if blank.size != segment.size - at:  # torn; its magic is all that a reader goes by
                log.warning("blank mended path=%s position=%d size=%d", segment.path, at, blank.size)
                segment.write(BLANK.pack(segment.size - at, MAGIC_BLANK), at)
            segment, at = self._log.files.at_or_behind(segment.end), 0
        self._reason = "last segment is closed"

    def _records_of(self, segment: MappedFile, at: int) -> Iterator[Record]:
        while True:
            found = self._parse(segment, at)
            if not isinstance(found, Record):
                self._reason = found.reason if isinstance(found, Damaged) else "nothing more written"
                return
            if found.physical_offset != segment.start + at:
                self._reason = f"record of offset {found.physical_offset} stands at {segment.start + at}"
                return
            if "/" in found.topic or "\0" in found.topic or found.topic in _NO_TOPICS:
                self._reason = f"topic {found.topic!r}"
                return
            at += found.size
            yield found

    def _parse(self, segment: MappedFile, at: int) -> Parsed:
        found = parse(segment.view, at, check_body=self._check_body)
        if self._check_seal and isinstance(found, Record) and not is_sealed(found):
            return Damaged("record checksum")
        return found

    # afterwards

    def _truncate_queues(self, end: int) -> int:
        return sum(queue.truncate(end) for queue in self._queues.truncatable())

    def _cut_queues(self, end: int) -> int:
        """After a crash any unit that was not synced may be missing, stale or torn, so positions alone say nothing:
        a queue ends behind the last of its scanned records, or, if there is none, with a unit that has its record."""
        removed = 0
        for queue in self._queues.truncatable():
            self._check_stop()
            scanned = self._scanned.get((queue.topic, queue.queue_id))
            removed += queue.cut(self._end_by_records(queue, end) if scanned is None else scanned.end)
            queue.clear_tail()
            queue.distrust(queue.end if scanned is None else scanned.first)
        return removed

    def _end_by_records(self, queue: ConsumeQueue, log_end: int) -> int:
        kept = queue.end
        while kept > queue.min_offset and not self._has_record(queue, kept - 1, log_end):
            kept -= 1
        return kept

    def _has_record(self, queue: ConsumeQueue, offset: int, log_end: int) -> bool:
        """Whether a unit is that of a record in the log, or older than the log."""
        unit = queue.unit(offset)
        if unit is None or unit[1] == FILLER_RECORD_SIZE:
            return unit is not None
        if unit[0] < self._log.files.min_offset:
            before = queue.unit(offset - 1) if offset else None
            return unit[1] > 0 and (before is None or before[1] == FILLER_RECORD_SIZE or sum(before[:2]) <= unit[0])
        if self._log.files.is_missing(unit[0]):
            return True  # its offset was given away
        if unit[0] + unit[1] > log_end:
            return False
        segment = self._log.files.find(unit[0])
        found = parse(segment.view, unit[0] - segment.start, check_body=False) if segment is not None else None
        place = queue.topic, queue.queue_id, unit[1]
        return isinstance(found, Record) and (found.topic, found.queue_id, found.size) == place

    def _finish_queues(self) -> None:
        for queue in self._queues.by_key.values():
            queue.next_offset = queue.end
            queue.correct_min_offset(self._log.files.min_offset)


def _place(record: Record) -> tuple[str, int, int]:
    return record.topic, record.queue_id, record.queue_offset
