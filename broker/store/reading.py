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
from protocol.disk import FILLER_RECORD_SIZE, UNIT, UNIT_SIZE

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
        self._limits = (
            (config.max_transfer_count_on_message_in_memory, config.max_transfer_bytes_on_message_in_memory),
            (config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk),
        )

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
        scan = _Scan(offset, self._log.files.min_offset)
        wanted = max(max_count, 1)
        limits = [(min(count, max_count), min(size, max_total_bytes, MAX_PULL_BYTES)) for count, size in self._limits]
        units_left = max(self._inspected_bytes, max_count * UNIT_SIZE) // UNIT_SIZE
        chunk_units = max(1, min(max_count, units_left))
        section_end = min(queue.next_segment_offset(offset), queue.end)
        while units_left > 0 and scan.next_offset < section_end and not scan.is_full and len(scan.records) < wanted:
            units = queue.read(scan.next_offset, chunk_units)
            if not units:  # nothing where units should be
                return GetResult(GetStatus.OFFSET_FOUND_NULL, section_end, queue.min_offset, queue.end)
            self._inspect(units, scan, limits, matches)
            units_left -= chunk_units
            chunk_units = units_left
        return GetResult(
            GetStatus.FOUND if scan.records else scan.status,
            scan.next_offset,
            queue.min_offset,
            queue.end,
            self._regions(scan.records),
            len(scan.records),
            scan.total_bytes,
            self._log.written - scan.newest > self._memory_bytes,
        )

    def _inspect(self, units: bytes, scan: "_Scan", limits: list[tuple[int, int]], matches: Matches | None) -> None:
        """Choose among `units` until the limits are reached; the loop that every message read goes through."""
        written = self._log.written
        memory_from = written - self._memory_bytes
        in_memory, on_disk = limits
        records = scan.records
        total = scan.total_bytes
        inspected = 0
        for physical_offset, size, tags_code in UNIT.iter_unpack(units):
            if records:
                most, most_bytes = in_memory if physical_offset >= memory_from else on_disk
                if len(records) >= most or total + size > most_bytes:
                    scan.is_full = True
                    break
            inspected += 1
            scan.newest = physical_offset
            if matches is not None and not matches(tags_code):
                if physical_offset >= scan.skip_below:
                    scan.status = GetStatus.NO_MATCHED_MESSAGE
            elif scan.readable_from <= physical_offset <= written - size:
                records.append((physical_offset, size))
                total += size
            else:
                self._note_gone(scan, physical_offset, size)
        scan.next_offset += inspected
        scan.total_bytes = total

    def _note_gone(self, scan: "_Scan", physical_offset: int, size: int) -> None:
        """A unit without its record: the rest of that segment is passed over too, but not behind a unit of nobody."""
        if physical_offset < scan.skip_below:
            return
        scan.status = GetStatus.MESSAGE_WAS_REMOVING
        if size != FILLER_RECORD_SIZE and physical_offset < self._log.written:
            scan.skip_below = self._log.next_segment_start(physical_offset)
            scan.readable_from = max(scan.readable_from, scan.skip_below)

    def _regions(self, records: list[tuple[int, int]]) -> list[Region]:
        """The records' places in their files; neighbours become one."""
        regions: list[Region] = []
        file: MappedFile | None = None
        file_end = begin = end = 0
        for physical_offset, size in records:
            if physical_offset == end < file_end:
                end += size
                continue
            if file is not None:
                regions.append(Region(file, begin - file.start, end - begin))
            if physical_offset >= file_end:
                file = self._log.files.find(physical_offset)
                file_end = file.end if file is not None else 0
            begin, end = physical_offset, physical_offset + size
        if file is not None:
            regions.append(Region(file, begin - file.start, end - begin))
        return regions


class _Scan(msgspec.Struct, gc=False):
    """How far a get has come. Records below byte `readable_from` are gone, those below `skip_below` passed over."""

    next_offset: int
    readable_from: int
    status: GetStatus = GetStatus.NO_MATCHED_MESSAGE  # as long as there is no record
    records: list[tuple[int, int]] = []  # physical offset and size
    total_bytes: int = 0
    newest: int = 0
    is_full: bool = False
    skip_below: int = 0
