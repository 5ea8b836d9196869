"""Opening what a stop or a crash left: where the log ends, and queues that agree with it.

    clean stop      begin at the record of the newest queue unit; if it is sound, only what lies behind is scanned
    anything else   begin at the last segment whose first message is older, by 3 s, than what the checkpoint vouches for

From there every record is checked: it is whole if its magic is known, its parts add up to its size, it stands where it
says it stands, and its body has the CRC that it was stored with (with `forceVerifyPropCRC`, the record as well). The
log ends at the first bytes that are not a whole record. What lies behind is cleared, not just forgotten: stale records
could come back to life behind a later append. A whole record is never cleared. One that cannot be its queue's next
(broker.store.recovery.queue_order) is skipped: it stays in the log and gets no unit.

Queues lose their units at or behind the log's end, and get those of every record scanned that is not skipped; a record
that is dispatched twice writes the same unit to the same place, so a recovery may itself be cut and run again. If a
queue turns out to end before its first scanned record, units from before the scan are missing: the scan starts over
one segment earlier, then two, four and so on.

A log that did not end cleanly is read from the disk and not from the page cache, which after a failed sync shows what
never got there.

Source: docs/formats.md, "Recovery".
"""

import logging
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.store.errors import StoreError
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.mapped_file import MappedFile
from skylarkmq.broker.store.log.record_rules import has_unit
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.recovery.queue_evidence import QueueEvidence
from skylarkmq.broker.store.recovery.queue_order import BeginsTooLateError, Key, QueueOrder
from skylarkmq.broker.store.reput import Reput
from skylarkmq.broker.store.retention.deleted_topics import DeletedTopics
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT_SIZE, Checkpoint
from skylarkmq.protocol.record import BLANK, MAGIC_BLANK, Blank, Damaged, Parsed, Record, UnreadableTopic, parse
from skylarkmq.protocol.record_checksum import has_valid_checksum

log = logging.getLogger(__name__)

CHECKPOINT_MARGIN_MS: Final = 3_000
_DISPATCH_AT_ONCE: Final = 4_096  # records gathered before their units are written
_LOOK_BEHIND_CLEAN_END: Final = 16 << 20  # stale records behind the end show within the length of the longest record
_PROGRESS_BYTES: Final = 1 << 28  # a line for an operator every 256 MiB
_PROGRESS_S: Final = 5.0  # or after that many seconds
_NAMED_SKIPPED: Final = 20  # records that are named in the log one by one
_LOOK_UP_EVERY: Final = 2_048  # records between two looks at the clock and two calls of `check_stop`


class Recovered(msgspec.Struct, frozen=True):
    """What a recovery found. Offsets in bytes of the log. `skipped`: whole records that get no unit in the queue that
    they name."""

    scanned_from: int
    end: int
    records: int
    last_record: int
    last_store_timestamp: int
    cleared_bytes: int
    removed_units: int
    reason: str
    skipped: int


class _OpenUnits:
    """The units of a queue that is open, for QueueEvidence."""

    __slots__ = ("_queue", "read")

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self.read = queue.read

    @property
    def begin(self) -> int:
        return max(self._queue.first_start, 0) // UNIT_SIZE

    @property
    def end(self) -> int:
        return self._queue.end


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
        check_record_checksums: bool = False,
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_stop` is called every few thousand records and raises what ends the run early."""
        self._log = commit_log
        self._deleted = deleted
        self._queues = queues
        self._reput = reput
        self._check_body = check_body and not check_record_checksums
        self._check_record_checksums = check_record_checksums
        self._check_stop = check_stop
        self._progress_at = 0
        self._progress_s = monotonic()
        self.percent = 0
        """How much of the log to be scanned was scanned, for other threads."""
        self._records = 0
        self._last: Record | None = None
        self._reason = ""
        self._last_timestamp = 0
        self._skipped = 0
        self._is_clean = False
        self._dispatch_from = 0
        self._pending: list[Append] = []
        files = commit_log.files
        self._evidence = QueueEvidence(self._units_of, self._record_at, files.is_missing, files.min_offset)
        self._order = QueueOrder(self._evidence, self._accept, self._skip)

    def run(self, checkpoint: Checkpoint, *, clean: bool) -> Recovered:
        """Bring log and queues into agreement. StoreError when the disk refuses."""
        segments = self._log.files.segments
        self._is_clean = clean
        dispatched_to = max((queue.physical_end for queue in self._queues.truncatable()), default=0)
        if clean:
            start, self._dispatch_from = self._clean_start(dispatched_to), dispatched_to
        else:
            start = self._crash_start(checkpoint)
        try:
            end, start = self._scan_back_from(start) if segments else (0, 0)
            removed = self._truncate_queues(end) if clean else self._cut_queues(start, end)
            cleared = self._log.files.truncate(end, _LOOK_BEHIND_CLEAN_END if clean else None)
            if clean:
                self._log.files.sync_names()  # a start that was killed may have made the segment that is next
            else:
                self._log.files.sync_from(start)
            if any(chain.is_by_unit for _, chain in self._order.accepted()):
                self._queues.sync()  # nothing but these units shows the next recovery what this one decided
        except OSError as problem:
            raise StoreError(f"recovery cannot write: {problem}") from problem
        if self._reput.failed:
            raise StoreError("recovery cannot write queue units")
        last = self._last
        self._log.set_end(end, last.physical_offset if last else 0, self._last_timestamp)
        self._reput.offset = end
        self._finish_queues()
        found = Recovered(
            start,
            end,
            self._records,
            last.physical_offset if last else 0,
            self._last_timestamp,
            cleared,
            removed,
            self._reason,
            self._skipped,
        )
        log.info(
            "recovered clean=%s from=%d end=%d records=%d cleared_bytes=%d removed_units=%d skipped=%d reason=%s",
            clean,
            *(found.scanned_from, found.end, found.records, found.cleared_bytes, found.removed_units, found.skipped),
            found.reason,
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
            segment.drop_page_cache()
            first = parse(segment.view, 0, check_body=False)
            if isinstance(first, Record) and 0 < first.store_timestamp <= limit:
                return segment.start
        return self._log.files.min_offset

    def _scan_back_from(self, start: int) -> tuple[int, int]:
        segments = 1  # to go back; doubled each time, so that no log is read more than a few times
        while True:
            try:
                end = self._scan(start)
                if self._records or start <= self._log.files.min_offset:
                    return end, start
                raise BeginsTooLateError(f"no record at {start}")
            except BeginsTooLateError as gap:
                self._check_stop()
                for _ in range(segments):
                    previous = self._log.files.before(start)
                    if previous is None:
                        break
                    previous.drop_page_cache()
                    start = previous.start
                segments *= 2
                start = max(start, self._log.files.min_offset)
                self._dispatch_from = 0
                log.warning("%s, scanning again from=%d", gap, start)

    # the scan

    def _scan(self, start: int) -> int:
        """Check every record from `start`, dispatch those from `_dispatch_from`; returns the last whole one's end."""
        self._records = self._skipped = self._last_timestamp = 0
        self._last = None
        self._pending.clear()
        self._evidence.start = start
        self._scan_began_s = monotonic()
        may_go_back = start > self._log.files.min_offset
        self._order = order = QueueOrder(
            self._evidence, self._accept, self._skip, may_go_back=may_go_back, trusts_units=self._is_clean
        )
        end = self._progress_at = start
        gaps = [gap for gap in self._log.files.gaps if gap[0] >= start]
        for record in self._records_from(start):
            while gaps and record.physical_offset >= gaps[0][1]:
                gaps.pop(0)
                order.pass_gap()
            end = record.physical_offset + record.size
            self._records += 1
            self._last = record
            if self._gets_unit(record):
                order.add(record)
            else:
                self._note(record)
            if self._records % _LOOK_UP_EVERY == 0:
                self._look_up(end)
        order.finish()
        self._dispatch()
        if self._skipped:
            log.warning("records of no queue stay in the log records=%d; store verify names them", self._skipped)
        return end

    def _look_up(self, at: int) -> None:
        """Log how far the scan is, by bytes and by time, and end it when the start was called off."""
        self._check_stop()
        now_s = monotonic()
        start, log_end = self._evidence.start, self._log.files.segments[-1].end
        self.percent = 100 * (at - start) // (log_end - start)
        if at - self._progress_at >= _PROGRESS_BYTES or now_s - self._progress_s >= _PROGRESS_S:
            self._progress_at, self._progress_s = at, now_s
            rate = (at - start) / max(now_s - self._scan_began_s, 0.001)
            log.info(
                "recovering offset=%d records=%d percent=%d mb_per_s=%.0f at_most_s=%.0f",
                *(at, self._records, self.percent, rate / 1e6, (log_end - at) / rate),
            )

    def _gets_unit(self, record: Record) -> bool:
        is_ours = has_unit(record.sys_flag) and record.topic not in self._queues.batch_topics
        return is_ours and not self._deleted.covers(record.topic, record.physical_offset)

    def _accept(self, record: Record, hole: int) -> None:
        """This record gets its unit; the offsets from `hole` up to its own have no records."""
        if record.physical_offset >= self._dispatch_from:
            queue = self._queues.make(record.topic, record.queue_id)
            if hole < record.queue_offset:
                self._dispatch()
                queue.leave_hole(hole, record.queue_offset)
            self._pend(record, queue)
        else:
            self._last_timestamp = max(self._last_timestamp, record.store_timestamp)

    def _skip(self, record: Record, reason: str) -> None:
        self._skipped += 1
        if self._skipped <= _NAMED_SKIPPED:
            log.warning(
                "record gets no queue unit offset=%d topic=%r queue_id=%d queue_offset=%d reason=%s",
                *(record.physical_offset, record.topic, record.queue_id, record.queue_offset, reason),
            )

    def _note(self, record: Record) -> None:
        """A record that has no queue of ours: it is dispatched all the same."""
        if record.physical_offset >= self._dispatch_from:
            self._pend(record, None)
        else:
            self._last_timestamp = max(self._last_timestamp, record.store_timestamp)

    def _pend(self, record: Record, queue: ConsumeQueue | None) -> None:
        self._last_timestamp = max(self._last_timestamp, record.store_timestamp)
        self._pending.append(self._reput.append_of(record, queue))
        if len(self._pending) >= _DISPATCH_AT_ONCE:
            self._dispatch()

    def _dispatch(self) -> None:
        self._reput.dispatch(self._pending)
        self._pending.clear()

    def _units_of(self, key: Key) -> _OpenUnits | None:
        queue = self._queues.get(*key)
        return None if queue is None else _OpenUnits(queue)

    def _record_at(self, physical_offset: int) -> Record | None:
        segment = self._log.files.find(physical_offset)
        found = parse(segment.view, physical_offset - segment.start, check_body=False) if segment is not None else None
        return found if isinstance(found, Record) and found.physical_offset == physical_offset else None

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
            segment, at = self._log.files.at_or_after(segment.end), 0
        self._reason = "last segment is closed"

    def _records_of(self, segment: MappedFile, at: int) -> Iterator[Record]:
        while True:
            found = self._parse(segment, at)
            if isinstance(found, UnreadableTopic) and found.record is not None:
                found = found.record  # its escaped topic has no queue: it is skipped
            if not isinstance(found, Record):
                self._reason = found.reason if isinstance(found, Damaged) else "nothing more written"
                return
            if found.physical_offset != segment.start + at:
                self._reason = f"record of offset {found.physical_offset} stands at {segment.start + at}"
                return
            at += found.size
            yield found

    def _parse(self, segment: MappedFile, at: int) -> Parsed:
        found = parse(segment.view, at, check_body=self._check_body)
        record = found.record if isinstance(found, UnreadableTopic) else found
        if self._check_record_checksums and isinstance(record, Record) and not has_valid_checksum(record):
            return Damaged("record checksum")
        return found

    # afterwards

    def _truncate_queues(self, end: int) -> int:
        return sum(queue.truncate(end) for queue in self._queues.truncatable())

    def _cut_queues(self, start: int, end: int) -> int:
        """After a crash any unit that was not synced may be missing, stale or torn, so positions alone say nothing:
        a queue ends behind the last of its scanned records, or, if there is none, with a unit that has its record."""
        removed = 0
        chains = dict(self._order.accepted())
        for queue in self._queues.truncatable():
            self._check_stop()
            chain = chains.get((queue.topic, queue.queue_id))
            removed += queue.cut(self._end_by_records(queue, start, end) if chain is None else chain.next)
            queue.clear_tail()
            queue.distrust(queue.end if chain is None else chain.first)
        return removed

    def _end_by_records(self, queue: ConsumeQueue, start: int, log_end: int) -> int:
        kept = queue.end
        while kept > queue.min_offset and not self._has_record(queue, kept - 1, start, log_end):
            kept -= 1
        return kept

    def _has_record(self, queue: ConsumeQueue, offset: int, start: int, log_end: int) -> bool:
        """Whether a unit is that of a record in front of the scan, or older than the log."""
        unit = queue.unit(offset)
        if unit is None or unit[1] == FILLER_RECORD_SIZE:
            return unit is not None
        if unit[0] < self._log.files.min_offset:
            before = queue.unit(offset - 1) if offset else None
            return unit[1] > 0 and (before is None or before[1] == FILLER_RECORD_SIZE or sum(before[:2]) <= unit[0])
        if self._log.files.is_missing(unit[0]):
            return True  # its offset was given away
        if unit[0] >= start or unit[0] + unit[1] > log_end:
            return False
        found = self._record_at(unit[0])
        place = queue.topic, queue.queue_id, unit[1]
        return found is not None and (found.topic, found.queue_id, found.size) == place

    def _finish_queues(self) -> None:
        for queue in self._queues.by_key.values():
            queue.next_offset = queue.end
            queue.correct_min_offset(self._log.files.min_offset)
