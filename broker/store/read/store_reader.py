"""Everything that is looked up in a store, and what the lookups share.

    Reader          gets: which records, where the next one begins
    RecordChecks    what is from before the start is checked before it goes out
    LogReads        bytes of the log, hot or cold
    ColdReads       reads that do not wait

Every method may raise ColdRead once the store has a loop: fetch what it names, then ask again.

Source: docs/formats.md, "getMessage", "Offset by time", "Queries".
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.errors import LostBytesError
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.offset_by_time import Boundary, OffsetByTime
from skylarkmq.broker.store.read.cold_reads import ColdRead, ColdReads, ColdReadStatistics
from skylarkmq.broker.store.read.log_reads import LogReads
from skylarkmq.broker.store.read.property_filters import PropertyTest, Wanted, has_wanted
from skylarkmq.broker.store.read.queue_reads import GetResult, Reader
from skylarkmq.broker.store.read.record_checks import RecordChecks, RecordChecksStatistics
from skylarkmq.broker.store.read.residency import ResidencyStatistics
from skylarkmq.broker.store.read.verified_ranges import VerifiedRanges
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from skylarkmq.protocol.record import BLANK, BLANK_SIZE, Record, parse
from skylarkmq.protocol.unit_search import first_at_or_after

Get = Callable[[ConsumeQueue | None, int, int, Wanted | None, int], GetResult]


class StoreReaderStatistics(msgspec.Struct, frozen=True):
    """What was checked, and what was not in memory."""

    checks: RecordChecksStatistics
    cold: ColdReadStatistics
    residency: ResidencyStatistics


class StoreReader:
    """Lookups in one log and its queues."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._reads = self.reads = ColdReads(config.cold_read_threads)
        self._verified = VerifiedRanges()
        self._places = LogReads(commit_log, self._reads, self._verified)
        self._checks = RecordChecks(commit_log, self._places, self._reads, self._verified)
        self._by_time = OffsetByTime(commit_log, self._places, self._reads)
        self._reader = Reader(config, commit_log, self._places, self._checks, self._reads)
        self.configure = self._reader.configure
        """As Reader.configure: nothing else here has settings that may change."""
        self.get: Get = self._reader.get
        """As Reader.get; no frame of ours between, since every pull comes through here."""

        self.ahead = self._reader.ahead
        """As Reader.ahead."""

    def begin(self, verified_from: int) -> None:
        """After the recovery: from that byte on the log was checked."""
        self._verified.tail = verified_from

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on nothing here waits for a disk."""
        self._reads.start(loop)

    def close(self) -> None:
        """End the threads."""
        self._reads.close()

    def fetch(self, cold: ColdRead) -> asyncio.Future[None]:
        """Done once it is worth asking again. Not to be cancelled: others may wait for the same."""
        return self._reads.fetch(cold)

    def corrected(self, queue: ConsumeQueue) -> ConsumeQueue:
        """The same queue, its smallest offset as the log's start has it now."""
        queue.correct_min_offset(self._log.files.min_offset, self._reads)
        return queue

    def units(self, queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int, int, int]]:
        """`(physical offset, size, tags code)` of up to `count` messages from `offset` on, in one segment."""
        return list(UNIT.iter_unpack(queue.read_nowait(offset, count, self._reads)))

    def has_wanted(self, queue: ConsumeQueue, offset: int, count: int, test: PropertyTest) -> bool:
        """Whether one of `count` messages from `offset` passes the test, or that cannot be told at once."""
        return has_wanted(queue, offset, count, test, self._places, self._reads)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at that byte of the log; None when no sound one does."""
        head = self._places.bytes_at(physical_offset, BLANK_SIZE)
        size = BLANK.unpack(head)[0] if head is not None else 0
        if not self._places.may_hold_record(physical_offset, size):
            return None
        source = self._places.bytes_at(physical_offset, size)
        found = parse(source) if source is not None else None
        return source if isinstance(found, Record) and found.physical_offset == physical_offset else None

    def copied_record_at(self, physical_offset: int) -> Record | None:
        """A copy of the same."""
        try:
            head = self._places.bytes_at(physical_offset, BLANK_SIZE)
        except LostBytesError:
            return None  # logged
        size = BLANK.unpack(head)[0] if head is not None else 0
        return self.known_record(physical_offset, size)

    def known_record(self, physical_offset: int, size: int) -> Record | None:
        """A copy of the record of that size which begins at that byte of the log; None when no sound one does."""
        try:
            if not self._places.may_hold_record(physical_offset, size):
                return None
            source = self._places.bytes_at(physical_offset, size)
        except LostBytesError:
            return None  # logged
        found = None if source is None else parse(memoryview(bytes(source)))
        is_it = isinstance(found, Record) and (found.physical_offset, found.size) == (physical_offset, size)
        return found if isinstance(found, Record) and is_it else None

    def has_unit_of(self, queue: ConsumeQueue, record: Record) -> bool:
        """Return whether one of the queue's units points at the record, or it is appended and has none yet."""
        if queue.end <= record.queue_offset < queue.next_offset:
            return True
        if self._points_at(queue, record.queue_offset, record):
            return True
        read = partial(queue.read_nowait, reads=self._reads)  # RocketMQ can leave units some places further on
        found = first_at_or_after(read, queue.min_offset, queue.end, record.physical_offset)
        return self._points_at(queue, found, record)

    def _points_at(self, queue: ConsumeQueue, offset: int, record: Record) -> bool:
        if queue.written <= offset < queue.end:  # it is in memory still
            begin: int = UNIT.unpack_from(queue.pending, (offset - queue.written) * UNIT_SIZE)[0]
            return begin == record.physical_offset
        unit = queue.unit_nowait(offset, self._reads) if queue.min_offset <= offset < queue.end else None
        return unit is not None and unit[0] == record.physical_offset

    def offset_by_time(self, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> int:
        """The queue offset that belongs to a store timestamp (ms)."""
        return self._by_time.find(queue, timestamp, boundary)

    def store_time_at(self, queue: ConsumeQueue, offset: int) -> int | None:
        """The store timestamp (ms) of a queue's message; None when it is not there."""
        return self._by_time.store_time_at(queue, offset)

    def statistics(self) -> StoreReaderStatistics:
        """The figures now."""
        return StoreReaderStatistics(self._checks.statistics(), self._reads.statistics(), self._places.statistics())

    def __repr__(self) -> str:
        return f"<StoreReader {self._checks!r} {self._reads!r}>"
