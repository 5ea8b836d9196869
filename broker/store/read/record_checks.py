"""Checks of records from before the start, before they are delivered.

A disk may return other bytes than were written. Bytes that were appended since the start, or scanned by recovery, are
verified. An older unit and its record are not: a flipped bit in a unit would deliver the middle of some record as a
message. So such a record must

    parse as a record at the offset and with the size that its unit states
    carry its own physical offset, and the requested topic, queue id and queue offset   the header has no checksum
    have a body that matches its CRC                                                    once; then its range is verified

A unit that passed these checks is not checked again.

A record that fails is damaged: it is skipped and logged once, and the messages around it are delivered.

RocketMQ can leave queues whose units lie at higher queue offsets than their records state ("Dispatch"). A record with
another queue offset is valid if its neighbor in the queue is shifted by the same amount.

Source: docs/reference/disk.md, "Checking one record".
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX
from skylarkmq.broker.store.read.log_reads import Copy, LogReads
from skylarkmq.broker.store.read.verified_ranges import VerifiedRanges, VerifiedStatistics
from skylarkmq.protocol.record import SMALLEST_RECORD, Damaged, Record, parse
from skylarkmq.protocol.record_checksum import has_wrong_checksum
from skylarkmq.protocol.record_fields import queue_offset_at

log = logging.getLogger(__name__)

_LOGGED_LIMIT: Final = 10_000  # damaged records that are not logged again
_QUEUES_LIMIT: Final = 10_000  # queues whose checked units are kept


ChosenUnit = tuple[int, int, int]
"""A unit that a get has selected: physical offset, size, queue offset."""


class RecordChecksStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: checked records, and damaged ones, which were not delivered."""

    checked: int
    damaged: int
    verified: VerifiedStatistics


class RecordChecks:
    """Checks the records that gets select among old units."""

    def __init__(self, commit_log: CommitLog, log_reads: LogReads, reads: ColdReads, verified: VerifiedRanges) -> None:
        self._log = commit_log
        self._log_reads = log_reads
        self._reads = reads
        self._verified = verified
        self._units: dict[ConsumeQueue, VerifiedRanges] = {}  # offsets of checked units
        self._logged: dict[int, None] = {}
        self._checked = 0
        self._damaged = 0

    def has_checked(self, queue: ConsumeQueue, records: Sequence[ChosenUnit]) -> bool:
        """Return whether all of these units and their records were checked before."""
        units = self._units.get(queue)
        if units is None:
            return False
        first, last = records[0][2], records[-1][2]
        if last - first == len(records) - 1:
            return units.covers(first, last + 1)
        return all(units.covers(offset, offset + 1) for _, _, offset in records)

    def has_checked_units(self, queue: ConsumeQueue, begin: int, end: int) -> bool:
        """Return whether the units [begin, end) of a queue, and their records, were checked before."""
        units = self._units.get(queue)
        return units is not None and units.covers(begin, end)

    def _note_valid(self, queue: ConsumeQueue, records: Sequence[ChosenUnit]) -> None:
        """Store that these units, in order, are valid."""
        units = self._units.get(queue)
        if units is None:
            if len(self._units) >= _QUEUES_LIMIT:
                self._units.clear()
            units = self._units[queue] = VerifiedRanges(tail=queue.verified_from)
        begin = end = records[0][2]
        for _, _, offset in records:
            if offset != end:
                units.add(begin, end)
                begin = offset
            end = offset + 1
        units.add(begin, end)

    def select_valid(self, queue: ConsumeQueue, records: Sequence[ChosenUnit]) -> list[tuple[ChosenUnit, Copy]]:
        """Return the valid ones of a queue's records, with their bytes. After ColdRead: call again."""
        plausible = [record for record in records if self._is_plausible(queue, record)]
        good: list[tuple[ChosenUnit, Copy]] = []
        for record, view in self._views(plausible):
            physical_offset, size, queue_offset = record
            self._checked += 1
            end = physical_offset + size
            found = parse(view, 0, check_body=not self._verified.covers(physical_offset, end))
            fault = self._fault(queue, record, found) if isinstance(found, Record) else _reason(found)
            if fault is None:
                self._verified.add(physical_offset, end)
                good.append((record, Copy(view)))
            else:
                self.note_damaged(queue, physical_offset, queue_offset, fault)
        if good:
            self._note_valid(queue, [record for record, _ in good])
        return good

    def _is_plausible(self, queue: ConsumeQueue, record: ChosenUnit) -> bool:
        """Return whether such a record can exist. Only then are its bytes read."""
        physical_offset, size, queue_offset = record
        if self._log_reads.may_contain_record(physical_offset, size):
            return True
        if self._log.files.find(physical_offset) is not None:  # else its whole segment is missing
            self.note_damaged(queue, physical_offset, queue_offset, f"its queue unit states {size} bytes")
        return False

    def _views(self, records: Sequence[ChosenUnit]) -> Iterator[tuple[ChosenUnit, memoryview]]:
        """Yield every record with its bytes."""
        regions = self._log_reads.regions([(physical_offset, size) for physical_offset, size, _ in records])
        copies = iter(self._log_reads.copies(regions))
        rest = memoryview(b"")
        for record in records:
            rest = rest or next(copies).view
            size = record[1]
            yield record, rest[:size]
            rest = rest[size:]

    def _fault(self, queue: ConsumeQueue, record: ChosenUnit, found: Record) -> str | None:
        physical_offset, size, queue_offset = record
        if found.size != size:
            return f"it has {found.size} bytes, its queue unit states {size}"
        if found.physical_offset != physical_offset:
            return f"it carries the offset {found.physical_offset}"
        if has_wrong_checksum(found):
            return "record checksum"
        if queue.topic.startswith(LIGHT_QUEUE_PREFIX):  # its units refer to records of other topics
            return None
        if (found.topic, found.queue_id) != (queue.topic, queue.queue_id):
            return f"it belongs to {found.topic!r} queue {found.queue_id}"
        shift = found.queue_offset - queue_offset
        neighbors = queue_offset - 1, queue_offset + 1
        if shift and not any(self._is_shifted(queue, neighbor, shift) for neighbor in neighbors):
            return f"it carries the queue offset {found.queue_offset}"
        return None

    def _is_shifted(self, queue: ConsumeQueue, queue_offset: int, shift: int) -> bool:
        unit = queue.unit_nowait(queue_offset, self._reads) if queue.min_offset <= queue_offset < queue.end else None
        head = self._log_reads.bytes_at(unit[0], SMALLEST_RECORD) if unit is not None else None
        return head is not None and queue_offset_at(head, 0) - queue_offset == shift

    def note_damaged(self, queue: ConsumeQueue, physical_offset: int, queue_offset: int, fault: str) -> None:
        """Log a damaged record, once."""
        if physical_offset in self._logged:
            return
        self._damaged += 1
        if len(self._logged) < _LOGGED_LIMIT:
            self._logged[physical_offset] = None
        segment = self._log.files.find(physical_offset)
        log.error(
            "damaged record is not delivered file=%s at=%d topic=%s queue_id=%d queue_offset=%d reason=%s",
            segment.path if segment is not None else None,
            physical_offset - segment.start if segment is not None else physical_offset,
            queue.topic,
            queue.queue_id,
            queue_offset,
            fault,
        )

    def statistics(self) -> RecordChecksStatistics:
        """Return a snapshot."""
        return RecordChecksStatistics(self._checked, self._damaged, self._verified.statistics())

    def __repr__(self) -> str:
        return f"<RecordChecks checked={self._checked} damaged={self._damaged}>"


def _reason(found: object) -> str:
    return found.reason if isinstance(found, Damaged) else "no record there"
