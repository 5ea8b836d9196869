"""All lookups in a store, and the parts that they share.

    Reader          gets: which records, and where the next get begins
    RecordChecks    checks records from before the start before they are delivered
    LogReads        bytes of the log, hot or cold
    ColdReads       reads that do not wait

Once the store has a loop, every method may raise ColdRead: fetch its range, then call again.

Source: docs/reference/disk.md, "getMessage", "Offset by time"; docs/reference/wire.md, "Queries".
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdRead, ColdReads, ColdReadStatistics
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.errors import LostBytesError
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.read.log_reads import LogReads
from skylarkmq.broker.store.read.offset_by_time import Boundary, OffsetByTime
from skylarkmq.broker.store.read.property_filters import PropertyTest, Wanted, has_wanted
from skylarkmq.broker.store.read.queue_reads import GetResult, Reader
from skylarkmq.broker.store.read.record_checks import RecordChecks, RecordChecksStatistics
from skylarkmq.broker.store.read.residency import ResidencyStatistics
from skylarkmq.broker.store.read.unit_window import UnitWindow
from skylarkmq.broker.store.read.verified_ranges import VerifiedRanges
from skylarkmq.protocol.disk import UNIT
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, Record, parse
from skylarkmq.protocol.unit_search import first_at_or_after

Get = Callable[[ConsumeQueue | None, int, int, Wanted | None, int], GetResult]


class StoreReaderStatistics(msgspec.Struct, frozen=True):
    """Checked records, and reads that missed the memory."""

    checks: RecordChecksStatistics
    cold: ColdReadStatistics
    residency: ResidencyStatistics


class StoreReader:
    """Lookups in one log and its queues."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._reads = self.reads = ColdReads(config.cold_read_threads)
        self._verified = VerifiedRanges()
        self._log_reads = LogReads(commit_log, self._reads, self._verified)
        self._checks = RecordChecks(commit_log, self._log_reads, self._reads, self._verified)
        self._by_time = OffsetByTime(commit_log, self._log_reads, self._reads)
        self._units = UnitWindow(self._reads)
        self._reader = Reader(config, commit_log, self._log_reads, self._checks, self._reads)
        self.configure = self._reader.configure
        """As Reader.configure: no other part has settings that may change."""
        self.get: Get = self._reader.get
        """As Reader.get. Bound directly, without a call in between, because every pull uses it."""

        self.read_ahead = self._reader.read_ahead
        """As Reader.read_ahead."""
        self.log_region = self._log_reads.region
        """As LogReads.region."""

    def begin(self, verified_from: int) -> None:
        """Set the end of recovery: the log is verified from this byte on."""
        self._verified.tail = verified_from

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on raise ColdRead instead of waiting for a disk."""
        self._reads.start(loop)

    def close(self) -> None:
        """End the threads."""
        self._reads.close()

    def fetch(self, cold: ColdRead) -> asyncio.Future[None]:
        """Return a future that is done once the call can be repeated. Do not cancel it: other requests may share it."""
        return self._reads.fetch(cold)

    def with_current_min_offset(self, queue: ConsumeQueue) -> ConsumeQueue:
        """Update the queue's smallest offset to the current start of the log, and return the queue."""
        queue.correct_min_offset(self._log.files.min_offset, self._reads)
        return queue

    def units(self, queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return `(physical offset, size, tags code)` of up to `count` messages from `offset` on, in one segment."""
        return list(UNIT.iter_unpack(queue.read_nowait(offset, count, self._reads)))

    def has_wanted(self, queue: ConsumeQueue, offset: int, count: int, test: PropertyTest) -> bool:
        """Return whether one of `count` messages from `offset` passes the test, or the result is not known at once."""
        return has_wanted(queue, offset, count, test, self._log_reads, self._reads)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """Return the record that begins at this byte of the log, or None if there is no valid one."""
        head = self._log_reads.bytes_at(physical_offset, BLANK_SIZE)
        size = BLANK.unpack(head)[0] if head is not None else 0
        if not self._log_reads.may_contain_record(physical_offset, size):
            return None
        source = self._log_reads.bytes_at(physical_offset, size)
        found = parse(source) if source is not None else None
        return source if isinstance(found, Record) and found.physical_offset == physical_offset else None

    def copied_record_at(self, physical_offset: int) -> Record | None:
        """Return a copy of the record that begins at this byte of the log, or None if there is no valid one."""
        try:
            head = self._log_reads.bytes_at(physical_offset, BLANK_SIZE)
        except LostBytesError:
            return None  # logged
        size = BLANK.unpack(head)[0] if head is not None else 0
        return self.record_of_size_at(physical_offset, size)

    def record_of_size_at(self, physical_offset: int, size: int) -> Record | None:
        """Return a copy of the record of `size` bytes at this byte of the log, or None if there is no valid one."""
        try:
            if not self._log_reads.may_contain_record(physical_offset, size):
                return None
            source = self._log_reads.bytes_at(physical_offset, size)
        except LostBytesError:
            return None  # logged
        found = None if source is None else parse(memoryview(bytes(source)))
        is_it = isinstance(found, Record) and (found.physical_offset, found.size) == (physical_offset, size)
        return found if isinstance(found, Record) and is_it else None

    def record_of_unit(self, queue: ConsumeQueue, offset: int, physical_offset: int) -> Record | None:
        """Return a copy of the record at this byte of the log if the queue's unit at `offset` points at it.

        Units are read several at a time (UnitWindow).
        """
        size = self._units.record_size(queue, offset, physical_offset)
        return None if size is None else self.record_of_size_at(physical_offset, size)

    def has_unit_of(self, queue: ConsumeQueue, record: Record) -> bool:
        """Return whether a unit of the queue points at the record, or the record is appended and has no unit yet."""
        if queue.end <= record.queue_offset < queue.next_offset:
            return True
        if self._points_at(queue, record.queue_offset, record):
            return True
        read = partial(queue.read_nowait, reads=self._reads)  # RocketMQ can write units at higher queue offsets
        found = first_at_or_after(read, queue.min_offset, queue.end, record.physical_offset)
        return self._points_at(queue, found, record)

    def _points_at(self, queue: ConsumeQueue, offset: int, record: Record) -> bool:
        unit = queue.unit_nowait(offset, self._reads) if queue.min_offset <= offset < queue.end else None
        return unit is not None and unit[0] == record.physical_offset

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> int:
        """Return the queue offset for a store timestamp (ms)."""
        return self._by_time.find(queue, timestamp, boundary)

    def store_time_at(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the store timestamp (ms) of a queue's message, or None if it does not exist."""
        return self._by_time.store_time_at(queue, offset)

    def statistics(self) -> StoreReaderStatistics:
        """Return a snapshot."""
        return StoreReaderStatistics(self._checks.statistics(), self._reads.statistics(), self._log_reads.statistics())

    def __repr__(self) -> str:
        return f"<StoreReader {self._checks!r} {self._reads!r}>"
