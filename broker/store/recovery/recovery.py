"""Recovery after a stop or a crash: finds the end of the log and makes the queues agree with it.

    clean stop      begin at the record of the newest queue unit; if it is valid, only later bytes are scanned
    anything else   begin at the last segment whose first message is at least 3 s older than the checkpoint's timestamps

Every record from there on is checked (broker.store.recovery.record_check). The log ends at the first bytes that are not
a whole record. All later bytes are cleared: stale records could otherwise become valid again after a later append. A
whole record is never cleared. A record that cannot continue its queue (broker.store.recovery.queue_order) is skipped:
it stays in the log and gets no unit.

A replicated log may end with records that are not committed (`show_to`). They are checked and numbered, so that new
messages of their queues continue after them, and stay invisible until LogDispatch shows them.

Queues lose their units at or after the log's end, and get the units of all scanned records that are not skipped. A
record that is dispatched twice writes the same unit to the same offset, so a recovery may be interrupted and repeated.
If a queue ends before its first scanned record, units from before the scan are missing: the scan starts over one
segment earlier, then two, four and so on.

After a crash the log is read from the disk and not from the page cache, because after a failed sync the page cache
contains bytes that never reached the disk.

Source: docs/reference/disk.md, "Recovery".
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.store.dispatch.dispatch import Dispatch
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.deleted_topics import DeletedTopics
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.recovery.open_queues import OpenQueueEvidence
from skylarkmq.broker.store.recovery.queue_order import Key, QueueOrder, ScanStartTooLateError
from skylarkmq.broker.store.recovery.record_check import RecordCheck, lacks_bytes
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, Checkpoint
from skylarkmq.protocol.record import BLANK, MAGIC_BLANK, Blank, Damaged, Record, parse

log = logging.getLogger(__name__)

CHECKPOINT_MARGIN_MS: Final = 3_000
_DISPATCH_BATCH: Final = 4_096  # records collected before their units are written
_PROBE_BYTES: Final = 16 << 20  # longer than any record, so stale records after a clean end are found within it
_PROGRESS_BYTES: Final = 1 << 28  # a log line every 256 MiB
_PROGRESS_S: Final = 5.0  # or after this many seconds
_UNLIMITED: Final = 1 << 62
_LOGGED_SKIPPED: Final = 20  # skipped records that are logged one by one
_PROGRESS_EVERY: Final = 2_048  # records between two progress checks and calls of `check_stop`


class Recovered(msgspec.Struct, frozen=True):
    """Result of a recovery. Offsets in bytes of the log. `skipped`: whole records that get no unit in their queue.

    `shown`: everything below this byte is dispatched. `lacks_bytes`: a replicated log ends before a record that seems
    to lack bytes, and that may have been whole and synced.
    """

    scanned_from: int
    end: int
    records: int
    last_record: int
    last_store_timestamp: int
    cleared_bytes: int
    removed_units: int
    reason: str
    skipped: int
    shown: int
    lacks_bytes: bool


class Recovery:
    """One recovery of one store, before it serves requests."""

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        dispatch: Dispatch,
        deleted: DeletedTopics,
        check: RecordCheck,
        *,
        is_follower: bool = False,
        show_to: int | None = None,
        synced_to: int = 0,
        before_loss: Callable[[], None] = lambda: None,
        undecided: Sequence[int] = (),
        check_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_follower`: the log grows by bytes of another log, which LogDispatch judges in the same order.

        `show_to`: records that end above this byte are not dispatched. None: all are. `synced_to`: the log was synced
        up to this byte. `before_loss` is called before a record is cleared that may have been whole. `undecided`: the
        offsets of records that a follower had not decided about.

        `check_stop` is called every few thousand records; its exception ends the recovery."""
        self._log = commit_log
        self._deleted = deleted
        self._queues = queues
        self._dispatch = dispatch
        self._check = check
        self._is_follower = is_follower
        self._show_to = _UNLIMITED if show_to is None else show_to
        self._is_replicated = is_follower or show_to is not None
        self._synced_to = max(synced_to, 0 if show_to is None else show_to)
        self._synced_before_ms = 0
        self._before_loss = before_loss
        self._lacks_bytes = False
        self._undecided = undecided
        self._recalled: set[int] = set()  # those from before the scan
        self._closed_end = 0  # the end of the last segment that a blank closes
        self._shown: int | None = None  # the first record that is not dispatched
        self._next: dict[Key, int] = {}  # the next offsets of queues with records that are not dispatched
        self._check_stop = check_stop
        self._progress_at = 0
        self._progress_s = monotonic()
        self.percent = 0
        """Scanned part of the log to be scanned; other threads read it."""
        self._records = 0
        self._last: Record | None = None
        self._reason = ""
        self._last_timestamp = 0
        self._skipped = 0
        self._is_clean = False
        self._dispatch_from = 0
        self._went_back = False  # all scanned units are written again
        self._pending: list[Append] = []
        self._evidence = OpenQueueEvidence(commit_log.files, queues)
        self._order = QueueOrder(self._evidence, self._accept, self._skip)

    def run(self, checkpoint: Checkpoint, *, clean: bool) -> Recovered:
        """Make log and queues agree. Raises StoreError if the disk fails."""
        segments = self._log.files.segments
        self._is_clean = clean
        self._synced_before_ms = checkpoint.physic_timestamp - CHECKPOINT_MARGIN_MS
        dispatched_to = max((queue.physical_end for queue in self._queues.truncatable()), default=0)
        if clean:
            start, self._dispatch_from = self._clean_start(dispatched_to), dispatched_to
            self._show_to = max(self._show_to, dispatched_to)
        else:
            start = self._crash_start(checkpoint)
        try:
            end, start = self._scan_back_from(start) if segments else (0, 0)
            if self._lacks_bytes:
                self._before_loss()
            keeps_units = clean and not self._went_back
            removed = self._truncate_queues(end) if keeps_units else self._cut_queues(start, end)
            cleared = self._log.files.truncate(end, _PROBE_BYTES if clean else None)
            if clean:
                self._log.files.sync_names()  # a killed start may have created the next segment
            else:
                self._log.files.sync_from(start)
            if any(chain.is_confirmed_by_unit for _, chain in self._order.accepted()):
                self._queues.sync()  # only these units lead the next recovery to the same decision
        except OSError as problem:
            raise StoreError(f"recovery cannot write: {problem}") from problem
        if self._dispatch.failed:
            raise StoreError("recovery cannot write queue units")
        last = self._last
        self._log.set_end(end, last.physical_offset if last else 0, self._last_timestamp)
        self._dispatch.offset = shown = self._dispatched_end(end, last)
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
            shown,
            self._lacks_bytes,
        )
        log.info(
            "recovered clean=%s from=%d end=%d records=%d cleared_bytes=%d removed_units=%d skipped=%d reason=%s",
            clean,
            found.scanned_from,
            found.end,
            found.records,
            found.cleared_bytes,
            found.removed_units,
            found.skipped,
            found.reason,
        )
        return found

    @property
    def order(self) -> QueueOrder:
        """The order of queue offsets after the scan."""
        return self._order

    def _dispatched_end(self, end: int, last: Record | None) -> int:
        """Return up to where the log is dispatched. A blank at its end may be above `show_to`, as records may."""
        if self._shown is not None:
            return self._shown
        return end if last is None or end <= self._show_to else last.physical_offset + last.size

    # where to begin

    def _clean_start(self, dispatched_to: int) -> int:
        """Return the offset of the newest record with a unit if it is valid, else the start of its segment."""
        newest = max(self._queues.truncatable(), key=lambda queue: queue.physical_end, default=None)
        unit = newest.unit(newest.end - 1) if newest is not None and newest.physical_end else None
        if unit is not None and (segment := self._log.files.find(unit[0])) is not None:
            found = self._check.at(segment, unit[0] - segment.start)
            if isinstance(found, Record) and found.size == unit[1]:
                return unit[0]
        if dispatched_to:
            log.warning("newest queue unit has no record, scanning its segment offset=%d", dispatched_to)
        segment = self._log.files.find(dispatched_to)
        return segment.start if segment is not None else self._log.files.min_offset

    def _crash_start(self, checkpoint: Checkpoint) -> int:
        """Return the last segment whose first record is older than everything that the checkpoint covers."""
        limit = min(checkpoint.physic_timestamp, checkpoint.logics_timestamp) - CHECKPOINT_MARGIN_MS
        for segment in reversed(self._log.files.segments):
            self._check_stop()
            segment.drop_page_cache()
            first = parse(segment.view, 0, check_body=False)
            if isinstance(first, Record) and 0 < first.store_timestamp <= limit:
                return segment.start
        return self._log.files.min_offset

    def _scan_back_from(self, start: int) -> tuple[int, int]:
        segments = 1  # to go back; doubled each time, so that the log is read only a few times
        while True:
            try:
                end = self._scan(start)
                if self._records or start <= self._log.files.min_offset:
                    return end, start
                raise ScanStartTooLateError(f"no record at {start}")
            except ScanStartTooLateError as gap:
                self._check_stop()
                for _ in range(segments):
                    previous = self._log.files.before(start)
                    if previous is None:
                        break
                    previous.drop_page_cache()
                    start = previous.start
                segments *= 2
                start = max(start, self._log.files.min_offset)
                self._dispatch_from, self._went_back = 0, True
                log.warning("%s, scanning again from=%d", gap, start)

    # the scan

    def _scan(self, start: int) -> int:
        """Check every record from `start` and dispatch those from `_dispatch_from` on. Return the end of the last."""
        self._records = self._skipped = self._last_timestamp = self._closed_end = 0
        self._lacks_bytes = False
        self._last = self._shown = None
        self._next.clear()
        self._pending.clear()
        self._evidence.start = start
        self._scan_began_s = monotonic()
        may_go_back = start > self._log.files.min_offset
        self._order = order = QueueOrder(
            self._evidence, self._accept, self._skip, may_go_back=may_go_back, trusts_units=self._is_clean
        )
        self._recall(order, start)
        end = self._progress_at = start
        gaps = [gap for gap in self._log.files.gaps if gap[0] >= start]
        for record in self._records_from(start):
            while gaps and record.physical_offset >= gaps[0][1]:
                gaps.pop(0)
                order.pass_gap()
            before, end = end, record.physical_offset + record.size
            if end > self._show_to and self._shown is None:
                order = self._begin_tail(record, before)
            self._records += 1
            self._last = record
            if self._queues.gives_unit(record, self._deleted):
                order.add(record)
            else:
                self._note(record)
            if self._records % _PROGRESS_EVERY == 0:
                self._report_progress(end)
        order.pause() if self._is_follower else order.finish()
        self._dispatch_pending()
        if self._skipped:
            log.warning("records without a queue stay in the log records=%d; store verify lists them", self._skipped)
        return max(end, self._closed_end) if self._is_replicated else end

    def _recall(self, order: QueueOrder, start: int) -> None:
        """Judge the undecided records from before the scan first."""
        self._recalled = {offset for offset in self._undecided if offset < start}
        for offset in sorted(self._recalled):
            record = self._evidence.record_at(offset)
            if record is not None and self._queues.gives_unit(record, self._deleted):
                order.recall(record)

    def _begin_tail(self, record: Record, before: int) -> QueueOrder:
        """Stop the dispatch before this record. Return the order that only numbers the messages from here on.

        `before`: the end of the last dispatched record. A blank after it may be above `show_to`, too.
        """
        self._order.pause()
        self._shown = record.physical_offset if record.physical_offset <= self._show_to else before
        return self._order.copied(self._number, _ignore)

    def _number(self, record: Record, _gap_begin: int) -> None:
        self._note_time(record)
        self._next[record.topic, record.queue_id] = record.queue_offset + 1

    def _report_progress(self, at: int) -> None:
        """Log the progress of the scan, by bytes and by time. End the scan if the start was canceled."""
        self._check_stop()
        now_s = monotonic()
        start, log_end = self._evidence.start, self._log.files.segments[-1].end
        self.percent = 100 * (at - start) // (log_end - start)
        if at - self._progress_at >= _PROGRESS_BYTES or now_s - self._progress_s >= _PROGRESS_S:
            self._progress_at, self._progress_s = at, now_s
            rate = (at - start) / max(now_s - self._scan_began_s, 0.001)
            log.info(
                "recovering offset=%d records=%d percent=%d mb_per_s=%.0f at_most_s=%.0f",
                at,
                self._records,
                self.percent,
                rate / 1e6,
                (log_end - at) / rate,
            )

    def _accept(self, record: Record, gap_begin: int) -> None:
        """Give this record its unit. The offsets from `gap_begin` up to its own have no records."""
        self._note_time(record)
        if record.physical_offset >= self._dispatch_from or record.physical_offset in self._recalled:
            queue = self._queues.make(record.topic, record.queue_id)
            if gap_begin < record.queue_offset:
                self._dispatch_pending()
                queue.fill_gap(gap_begin, record.queue_offset)
            self._pend(record, queue)

    def _skip(self, record: Record, reason: str) -> None:
        self._skipped += 1
        if self._skipped <= _LOGGED_SKIPPED:
            log.warning(
                "record gets no queue unit offset=%d topic=%r queue_id=%d queue_offset=%d reason=%s",
                record.physical_offset,
                record.topic,
                record.queue_id,
                record.queue_offset,
                reason,
            )

    def _note(self, record: Record) -> None:
        """Dispatch a record that belongs to no queue."""
        self._note_time(record)
        if record.physical_offset >= self._dispatch_from and self._shown is None:
            self._pend(record, None)

    def _note_time(self, record: Record) -> None:
        """Note a store time. On a follower, records that are not dispatched may be truncated, and do not count."""
        if self._shown is None or not self._is_follower:
            self._last_timestamp = max(self._last_timestamp, record.store_timestamp)

    def _pend(self, record: Record, queue: ConsumeQueue | None) -> None:
        self._pending.append(self._dispatch.append_of(record, queue))
        if len(self._pending) >= _DISPATCH_BATCH:
            self._dispatch_pending()

    def _dispatch_pending(self) -> None:
        self._dispatch.dispatch(self._pending)
        self._pending.clear()

    def _records_from(self, start: int) -> Iterator[Record]:
        """Yield records in order, each at its own physical offset. `_reason` is then why they ended."""
        segment = self._log.files.find(start)
        at = start - segment.start if segment is not None else 0
        while segment is not None:
            for record in self._records_of(segment, at):
                yield record
                at = record.position + record.size
            blank = parse(segment.view, at)
            if not isinstance(blank, Blank):
                return
            if blank.size != segment.size - at:  # torn; readers only check its magic
                log.warning("blank repaired path=%s position=%d size=%d", segment.path, at, blank.size)
                segment.write(BLANK.pack(segment.size - at, MAGIC_BLANK), at)
            self._closed_end = segment.end
            segment, at = self._log.files.at_or_after(segment.end), 0
        self._reason = "last segment is closed"

    def _records_of(self, segment: MappedFile, at: int) -> Iterator[Record]:
        while True:
            found = self._check.at(segment, at)
            if not isinstance(found, Record):
                self._reason = found.reason if isinstance(found, Damaged) else "end of the written part"
                return
            if not self._is_surely_synced(found) and lacks_bytes(found):
                self._lacks_bytes = True
                self._reason = f"record at {found.physical_offset} lacks bytes"
                return
            at += found.size
            yield found

    def _is_surely_synced(self, record: Record) -> bool:
        """Return whether a record was synced, by the kind of stop, the committed mark, or the checkpoint; True if the
        log has no copies, which could differ from it."""
        end = record.physical_offset + record.size
        is_old = end <= self._synced_to or record.store_timestamp < self._synced_before_ms
        return not self._is_replicated or self._is_clean or is_old

    # after the scan

    def _truncate_queues(self, end: int) -> int:
        """Cut the queues after a clean stop. A queue that began again in the scan ends earlier than its old units."""
        removed = 0
        chains = dict(self._order.accepted())
        for queue in self._queues.truncatable():
            chain = chains.get((queue.topic, queue.queue_id))
            removed += queue.truncate(end) if chain is None else queue.cut(chain.next)
        return removed

    def _cut_queues(self, start: int, end: int) -> int:
        """Cut the queues after a crash: units that were not synced may be missing, stale or torn.

        A queue ends after its last scanned record. Without one, it ends with the last unit that has its record.
        """
        removed = 0
        chains = dict(self._order.accepted())
        for queue in self._queues.truncatable():
            self._check_stop()
            chain = chains.get((queue.topic, queue.queue_id))
            removed += queue.cut(self._end_by_records(queue, start, end) if chain is None else chain.next)
            queue.clear_tail()
            queue.mark_unsynced(queue.end if chain is None else chain.first)
        return removed

    def _end_by_records(self, queue: ConsumeQueue, start: int, log_end: int) -> int:
        kept = queue.end
        while kept > queue.min_offset and not self._has_record(queue, kept - 1, start, log_end):
            kept -= 1
        return kept

    def _has_record(self, queue: ConsumeQueue, offset: int, start: int, log_end: int) -> bool:
        """Return whether the unit belongs to a record before the scan, or is older than the log."""
        unit = queue.unit(offset)
        if unit is None or unit[1] == FILLER_RECORD_SIZE:
            return unit is not None
        if unit[0] < self._log.files.min_offset:
            before = queue.unit(offset - 1) if offset else None
            return unit[1] > 0 and (before is None or before[1] == FILLER_RECORD_SIZE or sum(before[:2]) <= unit[0])
        if self._log.files.is_missing(unit[0]):
            return True  # its offset is in use
        if unit[0] >= start or unit[0] + unit[1] > log_end:
            return False
        found = self._evidence.record_at(unit[0])
        place = queue.topic, queue.queue_id, unit[1]
        return found is not None and (found.topic, found.queue_id, found.size) == place

    def _finish_queues(self) -> None:
        for queue in self._queues.by_key.values():
            queue.next_offset = queue.end
            queue.correct_min_offset(self._log.files.min_offset)
        for key, offset in self._next.items():
            self._queues.make(*key).next_offset = offset


def _ignore(_record: Record, _reason: str) -> None:
    """Skip a record that is not dispatched: its dispatch will report it."""
