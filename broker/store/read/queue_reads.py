"""Reads of a queue: which records a pull gets, and where the next pull begins.

`get` walks the units from an offset. It tests a unit by its tags code without reading the log, or by the properties of
its record (`PropertyTests`). Records of selected units become regions. Adjacent records merge, so that a run of one
queue is sent as one piece of the file. Units and records from before the start are checked before they are sent
(`RecordChecks`). A get does not wait for cold bytes (`ColdReads`): it changes nothing, so it is simply run again.

The limits per unit depend on where its record lies. Within 40 % of RAM before the log's end it counts as in memory (32
messages, 256 KiB), else as on disk (8 messages, 64 KiB). The first message always fits. At most 800 units are
inspected, or as many as the larger of these counts if an operator has raised it: a request for more messages than a get
may return does not inspect more units. A get continues in the next queue segment only while it has found no message,
and only with travelCqFileNumWhenGetMessage above 1: one get never returns messages of two queue segments.

Source: docs/reference/disk.md, "getMessage".
"""

import os
from collections.abc import Iterator, Sequence
from enum import IntEnum, auto
from struct import Struct
from time import monotonic

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.read.log_reads import LONG_RUN_BYTES, Chosen, Copy, LogReads, Piece, Region
from skylarkmq.broker.store.read.property_filters import AT_ONCE, Matches, PropertyTests, Wanted, as_matches
from skylarkmq.broker.store.read.record_checks import ChosenUnit, RecordChecks
from skylarkmq.broker.store.read.residency import RESIDENCY_TTL_S
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT, UNIT_SIZE
from skylarkmq.protocol.unit_runs import MOST_UNITS, Records, UnitRun

MAX_PULL_BYTES = 128 << 20
_RUN_BYTES = 8 << 20  # largest run of records whose residency is checked
_OFFSET = Struct(">q").unpack_from
_FALLBACK_RAM_BYTES = 24 << 30


class GetStatus(IntEnum):
    """Result of a get. docs/reference/wire.md, "Pull", lists what a client does for each."""

    FOUND = auto()
    NO_MATCHED_MESSAGE = auto()
    MESSAGE_WAS_REMOVING = auto()
    OFFSET_FOUND_NULL = auto()
    OFFSET_OVERFLOW_BADLY = auto()
    OFFSET_OVERFLOW_ONE = auto()
    OFFSET_TOO_SMALL = auto()
    NO_MATCHED_LOGIC_QUEUE = auto()
    NO_MESSAGE_IN_QUEUE = auto()
    OFFSET_RESET = auto()  # never the result of a get: a pull of a group whose offset was reset elsewhere


_FOUND = GetStatus.FOUND


class GetResult(msgspec.Struct):
    """`regions` in queue order; offsets in units.

    `fall_behind_bytes`: bytes of the log after the last inspected unit, -1 if none was inspected. `behind_memory`: that
    is more than counts as in memory.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    regions: Sequence[Piece] = ()
    message_count: int = 0
    total_bytes: int = 0
    fall_behind_bytes: int = -1
    behind_memory: bool = False


class ReadAhead(msgspec.Struct, frozen=True):
    """Units of a queue whose records may be sent unchecked until `until_s` of time.monotonic.

    Residency of the memory is not reliable for longer. One pull gets at most `most` messages and `most_bytes` bytes.
    """

    queue: ConsumeQueue
    units: "UnitRun[MappedFile]"
    most: int
    most_bytes: int
    until_s: float


def as_piece(records: Records, run: "UnitRun[MappedFile]") -> Piece:
    """Return the records of a run in the form that is cheapest to send: contiguous ones need no copy."""
    if not records.is_run:
        return records
    file = run.segment
    return Region(file, records.begin - file.start, records.size)


def memory_window_bytes(ratio_percent: int) -> int:
    """Return up to which distance from the log's end, in bytes, a record counts as in memory."""
    try:
        ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        ram = _FALLBACK_RAM_BYTES
    return ram * ratio_percent // 100


class Reader:
    """Reads from the queues of one log."""

    def __init__(
        self, config: StoreConfig, commit_log: CommitLog, log_reads: LogReads, checks: RecordChecks, reads: ColdReads
    ) -> None:
        self._log = commit_log
        self._files = commit_log.files
        self._log_reads = log_reads
        self._checks = checks
        self._reads = reads
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings from the next get on."""
        self._memory_bytes = memory_window_bytes(config.access_message_in_memory_max_ratio)
        self._inspected_bytes = config.max_filter_message_size
        self._most_segments = config.travel_cq_file_num_when_get_message
        self._limits = (
            (config.max_transfer_count_on_message_in_memory, config.max_transfer_bytes_on_message_in_memory),
            (config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk),
        )
        self._most = max(count for count, _ in self._limits)

    def get(
        self, queue: ConsumeQueue | None, offset: int, max_count: int, matches: Wanted | None, max_total_bytes: int
    ) -> GetResult:
        """Return up to `max_count` messages from queue offset `offset` on that pass the filter `matches`.

        Raises ColdRead if bytes that it needs are not in memory.
        """
        if queue is None:  # RocketMQ creates a queue at the first request, so the result is as for an empty queue
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        low, high = queue.min_offset, queue.end
        if low <= offset < high:
            if matches is None and not self._files.gaps:
                found = self._all(queue, offset, max_count, max_total_bytes)
                if found is not None:
                    return found
            return self._scan(queue, offset, max_count, matches, max_total_bytes)
        if high == 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)

    def _all(self, queue: ConsumeQueue, offset: int, max_count: int, max_total_bytes: int) -> GetResult | None:
        """Return the next units as a whole, without an inspection of each. This is the path of most gets.

        None if units or records need a selection, a check, a repair or a copy: then `_scan` handles the get.
        """
        most, most_bytes = self._limits[0]
        count = min(max_count, most, MOST_UNITS, queue.end - offset)
        run = self._unit_run(queue, offset, count)
        records = None if run is None else run.take(offset, count, min(most_bytes, max_total_bytes))
        if run is None or records is None:
            return None
        next_offset, fall_behind = offset + records.count, self._log.written - records.last
        pieces = (as_piece(records, run),)
        return GetResult(
            _FOUND, next_offset, queue.min_offset, queue.end, pieces, records.count, records.size, fall_behind, False
        )

    def read_ahead(self, queue: ConsumeQueue, offset: int, count: int) -> ReadAhead | None:
        """Return up to `count` units from `offset` on, to be taken one by one; None if they need more than that.

        Raises ColdRead if bytes that it needs are not in memory.
        """
        if not queue.min_offset <= offset < queue.end:
            return None
        run = self._unit_run(queue, offset, count)
        if run is None:
            return None
        most, most_bytes = self._limits[0]
        return ReadAhead(queue, run, min(most, MOST_UNITS), most_bytes, monotonic() + RESIDENCY_TTL_S)

    def _unit_run(self, queue: ConsumeQueue, offset: int, count: int) -> "UnitRun[MappedFile] | None":
        """Return up to `count` units from `offset` on whose records are valid, in memory and short; else None."""
        if self._files.gaps:
            return None
        if offset < queue.verified_from and not self._checks.has_checked_units(
            queue, offset, min(offset + count, queue.end)
        ):
            return None
        units = queue.read_nowait(offset, count, self._reads)
        if not units:
            return None
        (begin,) = _OFFSET(units)
        file, written = self._files.find(begin), self._log.written
        if file is None or begin < written - self._memory_bytes:
            return None
        start, is_hot = file.start, begin >= self._log_reads.hot_from
        most_span = file.size if is_hot else _RUN_BYTES
        run = UnitRun(offset, units, file, min(file.end, written), most_span, LONG_RUN_BYTES)
        if not run.count or not (is_hot or self._log_reads.is_in_memory(file, begin - start, run.end - start)):
            return None
        file.check(begin - start, run.end - start)
        return run

    def _scan(
        self, queue: ConsumeQueue, offset: int, max_count: int, matches: Wanted | None, max_total_bytes: int
    ) -> GetResult:
        scan = _Scan(offset, self._log.files.min_offset, offset >= queue.verified_from)
        if matches is not None and not callable(matches):
            scan.tests = PropertyTests(self._log_reads, matches)
            matches = None
        max_count = min(max_count, self._most)
        limits = [(min(count, max_count), min(size, max_total_bytes, MAX_PULL_BYTES)) for count, size in self._limits]
        units_left = max(self._inspected_bytes, max_count * UNIT_SIZE) // UNIT_SIZE
        segments_left = self._most_segments
        while segments_left > 0 and units_left > 0 and scan.next_offset < queue.end and not scan.records:
            segments_left -= 1
            section = scan.next_offset
            self._scan_segment(queue, scan, limits, matches, max_count, units_left)
            if scan.status is GetStatus.OFFSET_FOUND_NULL:
                break
            units_left -= scan.next_offset - section
        records = scan.records
        regions: Sequence[Piece] = scan.copies
        if records and not scan.copies:
            regions = self._log_reads.pieces(records)
        fall_behind = self._log.written - scan.newest
        return GetResult(
            GetStatus.FOUND if records else scan.status,
            scan.next_offset,
            queue.min_offset,
            queue.end,
            regions,
            len(records),
            scan.total_bytes,
            fall_behind,
            fall_behind > self._memory_bytes,
        )

    def _scan_segment(
        self,
        queue: ConsumeQueue,
        scan: "_Scan",
        limits: list[tuple[int, int]],
        matches: Matches | None,
        max_count: int,
        units_left: int,
    ) -> None:
        """Inspect up to `units_left` units of one segment."""
        wanted = max(max_count, 1)
        most_units = units_left if scan.tests is None else AT_ONCE
        chunk_units = max(1, min(max_count, units_left, most_units))
        section_end = min(queue.next_segment_offset(scan.next_offset), queue.end)
        while units_left > 0 and scan.next_offset < section_end and not scan.is_full and len(scan.records) < wanted:
            first = scan.next_offset
            units = queue.read_nowait(first, chunk_units, self._reads)
            if not units:  # no units where some should be
                if not scan.records:
                    scan.next_offset = queue.next_segment_offset(first)
                    scan.status = GetStatus.OFFSET_FOUND_NULL
                return
            known, newest = len(scan.records), scan.newest
            if scan.tests is not None:
                units, matches = scan.tested(units, scan.tests)
            self._inspect(queue, units, scan, limits, matches)
            if self._log.files.gaps:
                self._drop_missing(scan, known)
            if not scan.is_sound and len(scan.records) > known:
                chosen = list(_with_offsets(scan.records[known:], first, units))
                is_checked = self._checks.has_checked(queue, chosen)
                if known and is_checked is bool(scan.copies):  # a get is copied as a whole or not at all: end here
                    scan.keep(known, ())
                    scan.next_offset, scan.newest, scan.is_full = first, newest, True
                    return
                if not is_checked:
                    self._drop_damaged(queue, scan, known, chosen)
            units_left -= chunk_units
            chunk_units = min(units_left, most_units)

    def _drop_missing(self, scan: "_Scan", known: int) -> None:
        """Drop the records selected after the first `known` ones that lie in a gap of the log."""
        is_missing = self._log.files.is_missing
        there = [record for record in scan.records[known:] if not is_missing(record[0])]
        if len(there) < len(scan.records) - known:
            scan.keep(known, there)
            scan.status = GetStatus.MESSAGE_WAS_REMOVING
            scan.is_full = False

    def _drop_damaged(self, queue: ConsumeQueue, scan: "_Scan", known: int, chosen: list[ChosenUnit]) -> None:
        """Drop the records selected after the first `known` ones that do not match their units."""
        good = self._checks.select_valid(queue, chosen)
        scan.copies += [copy for _, copy in good]
        if len(good) < len(chosen):
            scan.keep(known, [(physical_offset, size) for (physical_offset, size, _), _ in good])
            scan.status = GetStatus.MESSAGE_WAS_REMOVING
            scan.is_full = False

    def _inspect(
        self,
        queue: ConsumeQueue,
        units: bytes | bytearray,
        scan: "_Scan",
        limits: list[tuple[int, int]],
        matches: Matches | None,
    ) -> None:
        """Select among `units` until the limits are reached. This loop handles every delivered message."""
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
            scan.newest = physical_offset
            if matches is not None and not matches(tags_code):
                if physical_offset >= scan.skip_below:
                    scan.status = GetStatus.NO_MATCHED_MESSAGE
            elif scan.readable_from <= physical_offset <= written - size:
                records.append((physical_offset, size))
                total += size
            else:
                self._note_gone(queue, scan, scan.next_offset + inspected, physical_offset, size)
            inspected += 1
        scan.next_offset += inspected
        scan.total_bytes = total

    def _note_gone(self, queue: ConsumeQueue, scan: "_Scan", offset: int, physical_offset: int, size: int) -> None:
        """Handle a unit without its record. If the log begins after it, skip the rest of that segment."""
        if physical_offset < scan.skip_below:
            return
        scan.status = GetStatus.MESSAGE_WAS_REMOVING
        if size == FILLER_RECORD_SIZE:
            return
        if physical_offset < scan.readable_from:
            scan.skip_below = self._log.next_segment_start(physical_offset)
            scan.readable_from = max(scan.readable_from, scan.skip_below)
        else:
            fault = f"its queue unit states {size} bytes, beyond the log's end"
            self._checks.note_damaged(queue, physical_offset, offset, fault)


def _with_offsets(chosen: Sequence[Chosen], first: int, units: bytes | bytearray) -> Iterator[ChosenUnit]:
    """Yield selected records with their queue offsets, in the order of their units, which begin at `first`."""
    offsets = enumerate(UNIT.iter_unpack(units), first)
    for record in chosen:
        yield *record, next(offset for offset, unit in offsets if unit[:2] == record)


class _Scan(msgspec.Struct, gc=False):
    """State of a get. Records below byte `readable_from` no longer exist; units below `skip_below` are skipped."""

    next_offset: int
    readable_from: int
    is_sound: bool  # units and records need no checks
    status: GetStatus = GetStatus.NO_MATCHED_MESSAGE  # as long as there is no record
    records: list[Chosen] = []
    copies: list[Copy] = []  # bytes of the records, if they were checked
    total_bytes: int = 0
    newest: int = 0
    is_full: bool = False
    skip_below: int = 0
    tests: PropertyTests | None = None

    def tested(self, units: bytes | bytearray, tests: PropertyTests) -> tuple[bytes | bytearray, Matches]:
        """Test as many of these units as the budget allows by their records' properties. Return them and a test."""
        verdicts = tests.verdicts(units)
        self.is_full = not verdicts
        return units[: len(verdicts) * UNIT_SIZE], as_matches(verdicts)

    def keep(self, known: int, chosen: Sequence[Chosen]) -> None:
        """Replace the records selected after the first `known` ones by `chosen`."""
        self.records[known:] = chosen
        self.total_bytes = sum(size for _, size in self.records)
