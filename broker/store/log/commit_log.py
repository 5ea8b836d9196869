"""The commit log: the messages of all queues, one record after the other, in order of arrival.

The appends of one event-loop iteration form one batch (broker.store.log.record_batch). `put` and `put_run` assign
offsets and build the records. `commit` writes all of them with one pwrite. No message is acknowledged, dispatched or
readable before that write succeeds. If the write fails or is short, the whole batch is rolled back: the bytes that
reached the file are cleared, queue offsets are restored, and every append gets an error status.

A record never spans segments. A record of L bytes fits into R remaining bytes only if L + 8 <= R. Otherwise a blank
(8 bytes of it are written) fills the segment, and the record opens the next one. A batch of `put_all` is contiguous: if
it does not fit, all of it goes to the next segment.

The log takes the store timestamp once per batch. Store timestamps never decrease.

Source: docs/reference/disk.md, "CommitLog record", "End-of-file blank", "Append path".
"""

import errno
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.files.mapped_file_queue import MappedFileQueue
from skylarkmq.broker.store.files.record_rules import fits_fields, may_be_put
from skylarkmq.broker.store.files.zero_fill import ZeroFill
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.record_batch import PythonRecordBatch, RecordBatch
from skylarkmq.broker.store.log.running_flags import RunningFlag, RunningFlags
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, MAGIC_BLANK, MAX_PROPERTIES_BYTES

log = logging.getLogger(__name__)

_RECORD_OVERHEAD: Final = 64 << 10  # a record may exceed the maximum body size by this many bytes
_PROBE_BYTES: Final = 4_096
_RETRY_MS: Final = 1_000
_FULL_DISK: Final = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class CommitLogStatistics(msgspec.Struct, frozen=True):
    """Offsets in bytes; totals since the start of the process."""

    min_offset: int
    max_offset: int
    messages: int
    written_bytes: int
    failed_batches: int
    damaged_segments: int


class CommitLog:
    """The writer of the log.

    `end` is the offset of the next record. `written` is the end of the readable log. Between two commits they differ by
    the size of the open batch.
    """

    def __init__(
        self, config: StoreConfig, files: MappedFileQueue, queues: QueueTable, now_ms: Callable[[], int]
    ) -> None:
        self._config = config
        self._queues = queues.by_key
        self._queues_of = queues.by_topic
        self._make_queue = queues.make
        self._now_ms = now_ms
        self._size = config.mapped_file_size_commit_log
        self._zeros = ZeroFill(config)
        self.files = files
        self.flags = RunningFlags(self._on_flags)
        self._refusal = self.flags.refusal
        self._records = self._new_records()
        self.put: Callable[[Append], None] = self._records.put
        """Add one message to the batch. A refused message gets its error status at once; nothing else changes then."""
        self.written = 0
        self.last_store_timestamp = 0
        self.last_record = 0  # offset of the last record
        self._segment: MappedFile | None = None
        self._segment_end = 0
        self.kept_room = 0
        """Bytes at the end of each segment that a batch leaves free before its blank: see `LeaderBlock.keep_room`."""
        self._prepare_at = 0  # when `written` reaches this offset, the allocator prepares the next segment
        self._filled: list[tuple[MappedFile, int, bytes]] = []  # segments that the open batch has filled
        self._messages = 0
        self._written_bytes = 0
        self._failed_batches = 0
        self._next_retry_ms = 0

    def _new_records(self) -> PythonRecordBatch:
        return RecordBatch(self._queues, self._config.store_host, self._put_unusual)

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings to all later messages."""
        self._config = config
        self._on_flags()

    def _on_flags(self) -> None:
        self._refusal = self.flags.refusal
        limits = MAX_PROPERTIES_BYTES, self._config.max_message_size, self._size - BLANK_SIZE
        self._records.unchecked_size = min(limits) if self._refusal is None else -1

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self._records.at

    @property
    def batch(self) -> list[Append]:
        """The appends of the open batch."""
        return self._records.appends

    # the open batch

    def _put_unusual(self, append: Append) -> None:
        """Put a message that the fast path of `RecordBatch.put` does not handle."""
        queue = self._queues.get((append.topic, append.queue_id)) or self._new_queue(append)
        if queue is None:
            return
        size = self._records.record_size(append, len(queue.topic_field))
        refusal = self._refuse(append, size) or self._reserve(size)
        if refusal is None:
            self._records.put(append, True)
        else:
            append.status = refusal

    def put_run(self, appends: Sequence[Append]) -> None:
        """Add messages to the batch. Each message is accepted or refused on its own."""
        if not self.batch and self._refusal is None:
            self._open_batch()  # so that the first message of an iteration takes the fast path too
        try:
            self._records.put_run(appends)
        finally:
            if not self.batch:
                self._records.restart()  # all messages were refused: the next batch takes a new timestamp

    def put_all(self, appends: Sequence[Append]) -> None:
        """Add a contiguous batch: all messages, or none."""
        if self._reserve_for(appends, self._records.total_size(appends)):
            self._records.put_run(appends, True)

    def put_alike(self, appends: Sequence[Append]) -> None:
        """Do the same for messages that differ only in body, properties and flag."""
        if self._reserve_for(appends, self._records.total_size_alike(appends)):
            self._records.put_alike(appends)

    def _reserve_for(self, appends: Sequence[Append], size: int) -> bool:
        """Reserve `size` bytes for a batch, or refuse all of it. 0: a message of it needs further checks."""
        refusal = self._reserve(size) if 0 < size <= self._size - BLANK_SIZE else self._refuse_any(appends)
        if refusal is not None:
            for append in appends:
                append.status = refusal
        return refusal is None

    def _refuse_any(self, appends: Sequence[Append]) -> PutStatus | None:
        """Reserve space for the batch and return None, or return why it is refused."""
        total = 0
        record_size, unchecked_size = self._records.record_size, self._records.unchecked_size
        for append in appends:
            queue = self._queues.get((append.topic, append.queue_id)) or self._new_queue(append)
            if queue is None:
                return append.status
            size = record_size(append, len(queue.topic_field))
            is_plain = size <= unchecked_size and fits_fields(append)
            if not is_plain and (refusal := self._refuse(append, size)) is not None:
                return refusal
            total += size
        return PutStatus.MESSAGE_ILLEGAL if total + BLANK_SIZE > self._size else self._reserve(total)

    def _reserve(self, size: int) -> PutStatus | None:
        """Open the batch and ensure `size` bytes of remaining space in the segment. Return the reason of a failure."""
        if not self.batch:
            self._open_batch()
        if self.end + size + BLANK_SIZE > self._segment_end - self.kept_room and not self._roll():
            return PutStatus.CREATE_MAPPED_FILE_FAILED
        return None

    def _refuse(self, append: Append, size: int) -> PutStatus | None:
        """Run the checks that a short message to a writable store cannot fail. docs/reference/disk.md, "Checks before
        the log"."""
        config = self._config
        if self._refusal is not None:
            return self._refusal
        if len(append.properties) > MAX_PROPERTIES_BYTES:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        if not fits_fields(append):
            return PutStatus.MESSAGE_ILLEGAL
        if len(append.body) > config.max_message_size or size > config.max_message_size + _RECORD_OVERHEAD:
            return PutStatus.MESSAGE_ILLEGAL
        return PutStatus.MESSAGE_ILLEGAL if size + BLANK_SIZE > self._size else None

    def _new_queue(self, append: Append) -> ConsumeQueue | None:
        """Create and return the queue of its first message. None if the append was refused: the store refuses all
        messages, or topic and queue id are invalid."""
        if self._refusal is not None:
            append.status = self._refusal
            return None
        if not may_be_put(append.topic, append.queue_id):
            append.status = PutStatus.MESSAGE_ILLEGAL
            return None
        return self._make_queue(append.topic, append.queue_id)

    def _open_batch(self) -> None:
        self.last_store_timestamp = max(self.last_store_timestamp, self._now_ms())
        self._records.open(self.end, self._segment_end - self.kept_room, self.last_store_timestamp)

    def _roll(self) -> bool:
        """Switch to the next segment and end the current one with a blank. False: there is no next segment."""
        if RunningFlag.NO_SEGMENT in self.flags:
            return False  # until `_retry` finds a segment
        start = self._next_start()
        try:
            segment = self.files.segment_at(start)
        except OSError as problem:
            log.error("no segment to append to offset=%d error=%s", start, problem)
            self.flags.set(RunningFlag.NO_SEGMENT, problem)
            return False
        if self._segment is not None:
            blank = BLANK.pack(self._segment_end - self.end, MAGIC_BLANK)
            with self._records.data() as data:
                self._filled.append((self._segment, self._batch_start(), bytes(data) + blank))
            self._records.restart()
        self._records.open(start, segment.end - self.kept_room, self.last_store_timestamp)
        self._switch_to(segment)
        return True

    def _switch_to(self, segment: MappedFile) -> None:
        self._segment = segment
        self._segment_end = segment.end
        self._prepare_at = segment.start + segment.size // 8
        self._zeros.switch_to(segment, self.end)

    def _batch_start(self) -> int:
        return self._filled[-1][0].end if self._filled else self.written

    # commit

    def commit(self) -> list[Append]:
        """Write the batch. Return its appends: PENDING if written, else with the status of the failure."""
        batch = self._records.appends
        if not batch and not self._filled:
            return batch
        end = self._records.at
        try:
            for segment, at, data in self._filled:
                segment.write(data, at - segment.start)
            if (last := self._segment) is not None and batch:
                padding = self._zeros.padding(last, end)
                with self._records.data(padding) as records:
                    last.write(records, self._batch_start() - last.start)
                self._zeros.extend(last, end + padding)
        except OSError as problem:
            self._roll_back(problem)
            return batch
        self._written_bytes += end - self.written
        self._messages += len(batch)
        self.written = end
        if batch:
            self.last_record = batch[-1].physical_offset
        self._close_batch()
        if self.written >= self._prepare_at:
            self._prepare_at = self._segment_end
            self.files.prepare(self._segment_end)
        return batch

    def _close_batch(self) -> None:
        self._records.close()
        self._filled = []

    def _roll_back(self, problem: OSError) -> None:
        """Undo the batch: clear its bytes, restore queue offsets, set error statuses."""
        log.error("append failed offset=%d messages=%d error=%s", self.written, len(self.batch), problem)
        is_full = self._note_failed_write(problem)
        status = PutStatus.SERVICE_NOT_AVAILABLE if is_full else PutStatus.UNKNOWN_ERROR
        for append in reversed(self.batch):
            append.status = status
            if append.queue is not None:
                append.queue.next_offset -= 1
                append.queue = None
        begin, end = self.written, self.end
        self._close_batch()
        self._records.at = begin
        self._clear_failed(begin, end)

    def _note_failed_write(self, problem: OSError) -> bool:
        """Count a failed write. Return whether the disk is full: then the store refuses messages for now."""
        self._failed_batches += 1
        is_full = problem.errno in _FULL_DISK
        if is_full:
            self.flags.set(RunningFlag.LOG_ERROR, problem)
        return is_full

    def _clear_failed(self, begin: int, end: int) -> None:
        """Clear the bytes of a failed write, and continue at `begin`."""
        self.attach()
        try:
            self._clear(begin, end)
        except OSError as second:
            # The remaining bytes could reappear as messages that were refused: only recovery may decide on them.
            log.critical("failed batch not cleared, store is read-only offset=%d error=%s", begin, second)
            self.flags.set(RunningFlag.SYNC_FAILED, second)

    def _clear(self, begin: int, end: int) -> None:
        for segment in self.files.segments:
            if segment.start < end and segment.end > begin:
                segment.zero(max(begin - segment.start, 0), min(end - segment.start, segment.size))

    def step(self, now_ms: int) -> None:
        """Run what is due: the zero fill while no producer appends, and retries of failed operations."""
        if self._segment is not None and not self.batch:
            self._zeros.step(self._segment, self.end, now_ms)
        self._retry(now_ms)

    def close(self) -> None:
        """Stop writing and close all segments."""
        self._zeros.close()
        self.files.close()

    def _retry(self, now_ms: int) -> None:
        """Once a second, test whether a failed operation works again: a write at the end, or the next segment."""
        if not self.flags.reasons() or now_ms < self._next_retry_ms:
            return
        self._next_retry_ms = now_ms + _RETRY_MS
        if RunningFlag.LOG_ERROR in self.flags:
            try:
                self._probe_write()
            except OSError as problem:
                log.debug("log still not writable error=%s", problem)
            else:
                self.flags.clear(RunningFlag.LOG_ERROR)
        if RunningFlag.NO_SEGMENT in self.flags and self.files.is_made(self._next_start()):
            self.flags.clear(RunningFlag.NO_SEGMENT)

    def _probe_write(self) -> None:
        """Write zeros after the end, where zeros are already: a full or read-only disk refuses them like a record."""
        if self._segment is not None:
            at = self.end - self._segment.start
            self._segment.write(bytes(min(_PROBE_BYTES, self._segment.size - at)), at)

    def _next_start(self) -> int:
        return self._segment_end if self._segment is not None else self.end - self.end % self._size

    # positions

    def attach(self) -> None:
        """Make `end` the offset of the next append. It lies in an existing segment or in one to be created."""
        segment = self.files.find(self.end)
        self._segment = None
        self._segment_end = self.end
        if segment is not None:
            self._switch_to(segment)

    def prepare(self) -> None:
        """Start creating the segment of the next append if it does not exist (the first one of a new store)."""
        self.files.prepare(self.end - self.end % self._size)

    def set_end(self, end: int, last_record: int, store_timestamp: int) -> None:
        """Set the end of the log after recovery."""
        self.written = self._records.at = end
        self.last_record = last_record
        self.last_store_timestamp = max(self.last_store_timestamp, store_timestamp)
        self.attach()

    # reading

    def bytes_at(self, offset: int, size: int) -> memoryview | None:
        """Return a view of [offset, offset + size) if that range lies in one segment and is written, else None."""
        segment = self.files.find(offset)
        if segment is None or size <= 0 or offset + size > min(segment.end, self.written):
            return None
        begin = offset - segment.start
        segment.check(begin, begin + size)
        return segment.view[begin : begin + size]

    def next_segment_start(self, offset: int) -> int:
        """Return the start of the segment after the one that contains byte `offset`."""
        return offset - offset % self._size + self._size

    def statistics(self) -> CommitLogStatistics:
        """Counts since the start."""
        return CommitLogStatistics(
            self.files.min_offset,
            self.written,
            self._messages,
            self._written_bytes,
            self._failed_batches,
            damaged_segments=self.files.damaged,
        )

    def __repr__(self) -> str:
        return f"<CommitLog [{self.files.min_offset}, {self.written})>"
