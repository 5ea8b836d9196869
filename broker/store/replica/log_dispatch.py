"""Dispatch of records that are in the log already: on a follower, which appends bytes, and of a recovered tail.

It continues the scan of recovery where that ended, with the same check of each record (RecordCheck) and the same order
of queue offsets (QueueOrder), so it gives every record the unit that a recovery of the same bytes gives it. A recovery
ends, and then decides the records that are undecided; this dispatch does not: such a record waits for the next record
of its queue. It is in the index meanwhile, as in a recovery that skips it.

Records in the common layout are read many at a time, if there are many. A half record at the end waits for its rest.
Bytes that cannot become a record raise DamagedReplicaError.

Source: docs/reference/disk.md, "Recovery", "Followers".
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from skylarkmq.broker.store.dispatch.dispatch import Dispatch
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.common_records import QueueRun, Run, run_at
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.deleted_topics import DeletedTopics
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.recovery.open_queues import OpenQueueEvidence
from skylarkmq.broker.store.recovery.queue_order import EMPTY_PREFIX, Chain, QueueOrder, QueuePrefix
from skylarkmq.broker.store.recovery.record_check import RecordCheck
from skylarkmq.broker.store.replica.errors import DamagedReplicaError
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Record

log = logging.getLogger(__name__)

SLICE_RECORDS: Final = 512
SLICE_BYTES: Final = 2 << 20
"""A slice takes a few milliseconds, and ends with the record that reaches either limit."""
RUN_FROM_BYTES: Final = 16 << 10
"""From here on records are read as a run: for less, reading each one takes less time."""
RUN_BYTES: Final = 128 << 10
"""A run is a slice."""


class LogDispatch:
    """`shown`: everything below this byte of the log is judged, and visible unless it is undecided.

    `order`: the queue order of the recovery, whose scan ended at `shown`. `show`: makes appends visible.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        dispatch: Dispatch,
        deleted: DeletedTopics,
        check: RecordCheck,
        order: QueueOrder,
        show: Callable[[Sequence[Append]], None],
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._dispatch = dispatch
        self._deleted = deleted
        self._check = check
        self._has_runs = not check.checks_records
        self._show = show
        self._evidence = _LiveEvidence(commit_log.files, queues)
        self._order = order.continued(self._evidence, self._accept, self._skip)
        self._current: Record | None = None  # the record that is judged, until it gets its unit
        self._pending: list[Append] = []
        self._pending_next: dict[ConsumeQueue, int] = {}  # the next offset of queues with pending records
        self._checked = 0  # in this slice, bytes of the log below are checked not to be lost
        self.shown = dispatch.offset

    def show(self, limit: int) -> None:
        """Dispatch all whole records that end at or below byte `limit`.

        Raises DamagedReplicaError for bytes that are not a record, LostBytesError for bytes that cannot be read, and
        OSError if the units of a queue cannot be written. All earlier records are dispatched then.
        """
        while not self.show_slice(limit):
            pass

    def show_slice(self, limit: int) -> bool:
        """Do the same for the next slice of them. Return whether there are no more."""
        end = min(limit, self._log.written)
        self._evidence.log_start = self._log.files.min_offset
        self._checked = 0
        enough = self.shown + SLICE_BYTES
        try:
            if self._show_run(end):
                return False
            for _ in range(SLICE_RECORDS):
                record = self._next(end)
                if record is None:
                    return True
                self._judge(record)
                if self.shown >= enough:
                    break
        finally:
            self._publish()
        return False

    def undecided(self) -> frozenset[int]:
        """Return the offsets of the records that wait for the next one of their queue."""
        return frozenset(self._order.undecided)

    def finish(self) -> None:
        """Decide all undecided records, as a recovery does at the end of the log."""
        self._order.finish()

    def forget(self, topic: str, end: int) -> None:
        """Forget the queues of a topic whose records below byte `end` were deleted. Later records get their units."""
        self._order.forget(topic, end)

    # the next records

    def _show_run(self, end: int) -> bool:
        """Judge the next records in the common layout, if there are many. Return whether there were any."""
        segment = self._log.files.find(self.shown) if self._has_runs and end - self.shown >= RUN_FROM_BYTES else None
        if segment is None:
            return False
        at, known = self.shown - segment.start, min(end, segment.end, self.shown + RUN_BYTES) - segment.start
        if known - at < RUN_FROM_BYTES:
            return False
        segment.check(at, known)
        run = run_at(segment.view[:known], at, segment.start)
        segment.check_faults(at, known)
        if not self._show_plain(run):
            for record in run.records():
                self._judge(record)
        return bool(run)

    def _show_plain(self, run: Run) -> bool:
        """Give the records of a run their units, if each one continues its queue. Return False otherwise, and for an
        empty run: nothing is done then."""
        grown = run.queues()
        if grown is None:
            return False
        numbers, parts = grown
        chains: list[Chain] = []
        queues: list[ConsumeQueue] = []
        for part in parts:
            continued = self._continued(part)
            if continued is None:
                return False
            chains.append(continued[0])
            queues.append(continued[1])
        self._pending = run.appends(numbers, queues)
        for chain, part in zip(chains, parts, strict=True):
            chain.extend(part.end, part.log_end)
        self.shown = self._evidence.start = run.end
        return True

    def _continued(self, part: QueueRun) -> tuple[Chain, ConsumeQueue] | None:
        """Return the chain and the queue that these records continue, if they do."""
        topic, queue_id = part.topic, part.queue_id
        chain, queue = self._order.continuable(topic, queue_id), self._queues.by_key.get((topic, queue_id))
        if chain is None or queue is None or queue.is_schedule:
            return None
        if not part.first == chain.next == self._next_of(queue):
            return None
        if topic in self._queues.batch_topics or self._deleted.covers(topic, self.shown):
            return None
        return chain, queue

    def _next(self, end: int) -> Record | None:
        """Return the next whole record; None if more bytes are needed."""
        while self.shown < end:
            segment = self._log.files.find(self.shown)
            if segment is None:
                return None
            at = self.shown - segment.start
            known = min(end, segment.end) - self.shown
            if known < BLANK_SIZE and end < segment.end:
                return None
            if self._checked < self.shown + known:
                segment.check(at, at + known)
                self._checked = self.shown + known
            if known >= BLANK_SIZE:
                size, magic = BLANK.unpack_from(segment.view, at)
                if magic == MAGIC_BLANK:
                    if end < segment.end:
                        return None
                    self.shown = segment.end
                    continue
                if known < size <= segment.size - at - BLANK_SIZE and magic in {MAGIC_V1, MAGIC_V2}:
                    return None
            return self._record_at(segment, at, at + known)
        return None

    def _record_at(self, segment: MappedFile, at: int, end: int) -> Record:
        found = self._check.at(segment, at)
        if isinstance(found, Record):
            segment.check_faults(at, at + found.size)
            return found
        segment.check(at, end)
        raise DamagedReplicaError(self.shown, getattr(found, "reason", "no record"))

    # its unit

    def _judge(self, record: Record) -> None:
        self._current = record
        if self._queues.gives_unit(record, self._deleted):
            self._order.add(record)
        if self._current is not None:
            self._current = None
            self._pending.append(self._dispatch.append_of(record, None))
        self.shown = self._evidence.start = record.physical_offset + record.size

    def _accept(self, record: Record, _gap_begin: int) -> None:
        """Give this record its unit. It is the current record, or the one before it in its queue, undecided so far."""
        queue = self._queues.make(record.topic, record.queue_id)
        if record.queue_offset != self._next_of(queue):
            self._publish()
            self._continue_at(queue, record.queue_offset)
        append = self._dispatch.append_of(record, queue)
        if record is self._current:
            self._current = None
            self._pending_next[queue] = record.queue_offset + 1
            self._pending.append(append)
        else:
            self._publish()
            self._dispatch.add_unit(append)

    def _next_of(self, queue: ConsumeQueue) -> int:
        offset = self._pending_next.get(queue)
        if offset is not None:
            return offset
        return queue.pending_next if queue.pending else queue.end

    def _continue_at(self, queue: ConsumeQueue, offset: int) -> None:
        """Make `offset` the next one of a queue, in its files too: units in memory follow those in files. Rare."""
        if queue.pending and not self._dispatch.writes.write(queue):
            raise OSError(f"queue units cannot be written: {self._dispatch.writes.failure}")
        queue.continue_at(offset)

    def _skip(self, record: Record, reason: str) -> None:
        log.warning(
            "record gets no queue unit offset=%d topic=%r queue_id=%d queue_offset=%d reason=%s",
            record.physical_offset,
            record.topic,
            record.queue_id,
            record.queue_offset,
            reason,
        )

    def _publish(self) -> None:
        pending, self._pending = self._pending, []
        self._pending_next.clear()
        if pending:
            self._log.last_record = max(self._log.last_record, pending[-1].physical_offset)
            self._log.last_store_timestamp = max(self._log.last_store_timestamp, pending[-1].store_timestamp)
            self._show(pending)

    def __repr__(self) -> str:
        return f"<LogDispatch shown={self.shown}>"


class _LiveEvidence(OpenQueueEvidence):
    """Evidence about a queue without a judged record: recovery has left its units as the log wants them."""

    def prefix(self, record: Record) -> QueuePrefix | None:
        """Return the end of the record's queue; only behind filler units the units are read."""
        queue = self._queues.get(record.topic, record.queue_id)
        if queue is not None and queue.physical_end:
            return QueuePrefix(queue.end, queue.physical_end, queue.physical_end > self.log_start)
        if queue is None and self.log_start == 0:
            return EMPTY_PREFIX
        return super().prefix(record)
