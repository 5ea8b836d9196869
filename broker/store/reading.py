"""Reading a queue: which records a pull gets, and where the next one should begin.

`get` walks the units from an offset. A unit is tested by its tags code without touching the log; the record behind
a chosen one becomes part of a region: adjacent records merge, so that a run of one queue leaves as one piece of the
file.

Limits, per unit, judged by where its record lies: within 40 % of RAM behind the log's end it counts as memory (32
messages, 256 KiB), else as disk (8 messages, 64 KiB). The first message always fits. At most 800 units are
inspected, and never those of two queue segments in one call.

Source: docs/formats.md, "getMessage".
"""

import os
from collections.abc import Callable
from enum import Enum, auto

import msgspec

from broker.store.commit_log import CommitLog
from broker.store.config import StoreConfig
from broker.store.consume_queue import ConsumeQueue
from broker.store.mapped_file import MappedFile
from protocol.disk import UNIT, UNIT_SIZE

MAX_PULL_BYTES = 128 << 20
_FALLBACK_RAM_BYTES = 24 << 30


class GetStatus(Enum):
    """How a get ended; docs/formats.md says what a client makes of each."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()


class Region(msgspec.Struct, frozen=True, gc=False):
    """Whole records, one behind the other: `size` bytes of `file` from byte `position` of it."""

    file: MappedFile
    position: int
    size: int

    @property
    def view(self) -> memoryview:
        """The bytes, through the mapping; keep it no longer than the transfer takes."""
        return self.file.view[self.position : self.position + self.size]


class GetResult(msgspec.Struct):
    """`regions` in queue order; offsets in units; `behind_memory`: the next messages are only on disk."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    regions: list[Region] = []
    message_count: int = 0
    total_bytes: int = 0
    behind_memory: bool = False


Matches = Callable[[int], bool]


def memory_window_bytes(ratio_percent: int) -> int:
    """How far behind the log's end a record still counts as being in memory."""
    try:
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        ram = _FALLBACK_RAM_BYTES
    return ram * ratio_percent // 100


class Reader:
    """Gets from queues of one log."""

    def __init__(self, config: StoreConfig, commit_log: CommitLog) -> None:
        self._log = commit_log
        self._memory_bytes = memory_window_bytes(config.access_message_in_memory_max_ratio)
        self._inspected_bytes = config.max_filter_message_size
        memory = config.max_transfer_bytes_on_message_in_memory, config.max_transfer_count_on_message_in_memory
        disk = config.max_transfer_bytes_on_message_in_disk, config.max_transfer_count_on_message_in_disk
        self._limits = (memory, disk)  # (bytes, messages) by whether the record is behind memory

    def get(
        self, queue: ConsumeQueue | None, offset: int, max_count: int, matches: Matches | None, max_total_bytes: int
    ) -> GetResult:
        """Up to `max_count` messages from queue offset `offset`, those whose tags code `matches` accepts."""
        if queue is None:  # RocketMQ makes a queue when it is first asked for, so it is there and empty
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.end
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        return self._scan(queue, offset, max_count, matches, max_total_bytes)

    def _scan(
        self, queue: ConsumeQueue, offset: int, max_count: int, matches: Matches | None, max_total_bytes: int
    ) -> GetResult:
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, queue.min_offset, queue.end)
        units_left = max(self._inspected_bytes, max_count * UNIT_SIZE) // UNIT_SIZE
        chunk_units = max(1, min(max_count, units_left))
        collector = _Collector(self._log, result)
        while units_left > 0:
            units = queue.read(result.next_begin_offset, chunk_units)
            if not units:
                break
            for physical_offset, size, tags_code in UNIT.iter_unpack(units):
                if self._is_full(result, physical_offset, size, max_count, max_total_bytes):
                    return collector.finish(self._memory_bytes)
                result.next_begin_offset += 1
                collector.newest = physical_offset
                if physical_offset < collector.skip_below:
                    continue
                if matches is not None and not matches(tags_code):
                    collector.note_unmatched()
                    continue
                collector.add(physical_offset, size)
            units_left -= chunk_units
            chunk_units = units_left
            if result.next_begin_offset == queue.next_segment_offset(offset):
                break
        if result.next_begin_offset == offset:  # nothing to read where units should be
            return GetResult(
                GetStatus.OFFSET_FOUND_NULL, queue.next_segment_offset(offset), queue.min_offset, queue.end
            )
        return collector.finish(self._memory_bytes)

    def _is_full(
        self, result: GetResult, physical_offset: int, size: int, max_count: int, max_total_bytes: int
    ) -> bool:
        """Whether this unit has to wait for the next call. Never before the first message."""
        count, total = result.message_count, result.total_bytes
        if not count:
            return False
        if count >= max_count or total + size > max_total_bytes or total >= MAX_PULL_BYTES:
            return True
        limit_bytes, limit_count = self._limits[self._log.written - physical_offset > self._memory_bytes]
        return total + size > limit_bytes or count + 1 > limit_count


class _Collector:
    """Builds a result's regions; units below `skip_below` are skipped: a record in their segment was gone."""

    __slots__ = ("_begin", "_file", "_log", "_result", "_size", "newest", "skip_below")

    def __init__(self, commit_log: CommitLog, result: GetResult) -> None:
        self._log = commit_log
        self._result = result
        self._file: MappedFile | None = None
        self._begin = self._size = 0
        self.newest = 0
        self.skip_below = -1

    def add(self, physical_offset: int, size: int) -> None:
        """Take a record, or note that it is gone."""
        result = self._result
        file = self._file
        if file is not None and physical_offset == file.start + self._begin + self._size:
            fits = physical_offset + size <= min(file.end, self._log.written)
        else:
            self._close_region()
            file = self._file = self._log.files.find(physical_offset)
            self._begin = physical_offset - file.start if file is not None else 0
            self._size = 0
            fits = file is not None and physical_offset + size <= min(file.end, self._log.written)
        if not fits or size <= 0:
            self._note_gone(physical_offset)
            return
        self._size += size
        self.skip_below = -1
        result.message_count += 1
        result.total_bytes += size
        result.status = GetStatus.FOUND

    def note_unmatched(self) -> None:
        """A unit that the filter refused."""
        if not self._result.message_count:
            self._result.status = GetStatus.NO_MATCHED_MESSAGE

    def _note_gone(self, physical_offset: int) -> None:
        if not self._result.message_count:
            self._result.status = GetStatus.MESSAGE_WAS_REMOVING
        self._close_region()
        self.skip_below = self._log.next_segment_start(physical_offset)

    def _close_region(self) -> None:
        if self._file is not None and self._size:
            self._result.regions.append(Region(self._file, self._begin, self._size))
        self._file = None
        self._size = 0

    def finish(self, memory_bytes: int) -> GetResult:
        """The result with its last region."""
        self._close_region()
        self._result.behind_memory = self._log.written - self.newest > memory_bytes
        return self._result
