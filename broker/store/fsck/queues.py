"""Checks consume queues against the log: every record has its unit, and every unit its record.

The log determines where each unit must be and what it must contain. So expected units are collected per queue and
compared with the files in whole runs, as bytes. Offsets covered by the log's records are thereby verified. The rest of
a queue's units are fillers, belong to records that retention deleted, or point nowhere.

Recovery's rule decides which records get a unit (broker.store.recovery.queue_order). Skipped records and gaps of queues
are reported. A queue begins again at offset 0 if its topic was deleted and created again. Then the units of its earlier
records are gone, so what was found about them is no damage. RocketMQ 4.9 also does that to the queue of half messages
whenever a topic is deleted.

Not checked: prepared and rolled-back transactions, which get no unit; batches in one record and topics with a queue
under batchconsumequeue/, which use another type of queue; records from before the deletion of their topic.

Source: docs/reference/disk.md, "ConsumeQueue", "tagsCode", "Dispatch".
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from skylarkmq.broker.store.dispatch.dispatch import schedule_tags_code
from skylarkmq.broker.store.files.record_rules import has_unit
from skylarkmq.broker.store.fsck.findings import Doubts, Finding, Findings, OnProgress, Progress, Severity
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.broker.store.fsck.queue_files import QueueOnDisk
from skylarkmq.broker.store.fsck.segments import directories
from skylarkmq.broker.store.queue.tail import pack_units
from skylarkmq.broker.store.recovery.queue_evidence import QueueEvidence
from skylarkmq.broker.store.recovery.queue_order import Key, QueueOrder
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.disk import (
    BATCH_CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    FILLER_RECORD_SIZE,
    UNIT,
    UNIT_SIZE,
)
from skylarkmq.protocol.record import Record
from skylarkmq.protocol.unit_search import UNIT_DTYPE

_PENDING_UNITS: Final = 1 << 16  # expected units collected before they are compared
_UNITS_AT_ONCE: Final = 1 << 16
_LEVEL_STEP_MS: Final = 1_000
_EXTENSION_ADDRESS: Final = -(1 << 31) - 1  # tags codes up to here point into consumequeue_ext/


class _Covered:
    """The records of one queue in the log: their offsets are `ranges`, and the growing range [first, next)."""

    __slots__ = ("doubts", "fields", "first", "next", "queue", "ranges")

    def __init__(self, queue: QueueOnDisk, first: int) -> None:
        self.queue = queue
        self.ranges: list[tuple[int, int]] = []
        self.first = self.next = first  # of the growing range: [first, next)
        self.fields: list[int] = []  # units not yet compared; the last of them has offset next - 1
        self.doubts = Doubts()


class QueueCheck:
    """The check of the queues, fed with the log's records in order."""

    def __init__(
        self,
        root: Path,
        size: int,
        log: LogCheck,
        found: Findings,
        *,
        crashed: bool,
        delay_levels: Sequence[int],
        deleted: Mapping[str, int],
        topics: Collection[str] | None,
        uncommitted_from: int | None = None,
    ) -> None:
        self._root = root
        self._size = size
        self._log = log
        self._found = found
        self._crashed = crashed
        self._lagging = Severity.WARNING if crashed else Severity.DAMAGE
        self._delay_levels = delay_levels
        self._deleted = deleted
        self._topics = topics
        self._uncommitted_from = uncommitted_from
        self._uncommitted = 0
        self._batch_topics = frozenset(directories(root / BATCH_CONSUME_QUEUE_DIRECTORY))
        self._queues: dict[tuple[str, int], QueueOnDisk] = {}
        self._covered: dict[tuple[str, int], _Covered] = {}
        self._pending = 0
        self._of_deleted_topics: dict[str, int] = {}
        self._begun_again: dict[str, int] = {}
        self._expired = 0
        evidence = QueueEvidence(self._units_of, lambda _: None, lambda _: False, log.start)
        evidence.start = log.start
        self._order = QueueOrder(evidence, self._expect, self._skip)
        self._damages = 0  # of the log at the last records

    # before the log

    def check_files(self, progress: OnProgress) -> None:
        """Check the files of each queue by themselves."""
        topics = directories(self._root / CONSUME_QUEUE_DIRECTORY)
        for number, topic in enumerate(topics):
            for name in directories(self._root / CONSUME_QUEUE_DIRECTORY / topic):
                if name.isascii() and name.isdigit():
                    queue = QueueOnDisk(self._root, topic, int(name), self._size)
                    queue.check(self._found, self._lagging)
                    self._queues[topic, int(name)] = queue
            progress(Progress("queue files", number + 1, len(topics)))

    # with the log

    def add(self, records: Sequence[Record]) -> None:
        """Add the next records of the log."""
        if self._log.damages != self._damages:
            self._damages = self._log.damages
            self._order.pass_gap()
        for record in records:
            if has_unit(record.sys_flag) and record.topic not in self._batch_topics:
                if self._deleted and record.physical_offset < self._deleted.get(record.topic, 0):
                    continue
                self._order.add(record)
        if self._pending >= _PENDING_UNITS:
            self._compare_all()

    def _units_of(self, key: Key) -> QueueOnDisk | None:
        return self._queues.get(key)

    def _skip(self, record: Record, reason: str) -> None:
        what = f"record {record.physical_offset} ({record.topic!r}-{record.queue_id}) gets no queue unit: {reason}"
        file, at = self._log.location_of(record.physical_offset)
        follows = "it is not delivered; it stays in the log"
        self._found.add("skipped", Finding(Severity.WARNING, file, at, what, follows))

    def _expect(self, record: Record, _gap_begin: int = 0) -> None:
        key = record.topic, record.queue_id
        covered = self._covered.get(key)
        if covered is None:
            queue = self._queues.get(key) or QueueOnDisk(self._root, *key, self._size)
            covered = self._covered[key] = _Covered(queue, record.queue_offset)
        elif record.queue_offset != covered.next:
            self._begin_range(covered, record)
        covered.fields += (record.physical_offset, record.size, unit_tags_code(record, self._delay_levels))
        covered.next += 1
        self._pending += 1

    def _begin_range(self, covered: _Covered, record: Record) -> None:
        """Begin a new range of offsets: after a gap, or because the topic was deleted and created again."""
        if record.queue_offset < covered.next:
            self._begun_again[record.topic] = self._begun_again.get(record.topic, 0) + 1
            covered.ranges, covered.fields, covered.doubts = [], [], Doubts()
        else:
            self._compare(covered)
            covered.ranges.append((covered.first, covered.next))
        covered.first = covered.next = record.queue_offset

    def _compare_all(self) -> None:
        for covered in self._covered.values():
            if covered.fields:
                self._compare(covered)
        self._pending = 0

    def _compare(self, covered: _Covered) -> None:
        fields = covered.fields
        count = len(fields) // 3
        first = covered.next - count
        there = covered.queue.read(first, count) if covered.queue.end > first else b""
        if there != pack_units(fields):
            for number in range(count):
                expected = (fields[3 * number], fields[3 * number + 1], fields[3 * number + 2])
                unit = there[number * UNIT_SIZE : (number + 1) * UNIT_SIZE]
                self._compare_unit(covered, first + number, expected, unit)
        covered.fields = []

    def _compare_unit(self, covered: _Covered, offset: int, expected: tuple[int, int, int], unit: bytes) -> None:
        queue = covered.queue
        name = f"{queue.topic}-{queue.queue_id}@{offset}"
        if offset >= queue.end or len(unit) < UNIT_SIZE:
            self._report_missing(covered, name, expected[0])
            return
        there = UNIT.unpack(unit)
        if there == expected or (there[:2] == expected[:2] and there[2] <= _EXTENSION_ADDRESS):
            return
        file, at = queue.location_of(offset)
        if queue.topic == SystemTopic.SCHEDULE and _is_of_another_level(there, expected):
            what = f"the unit {name} is due at {there[2]}, by its current level at {expected[2]}"
            follows = "messageDelayLevel was different when it was sent; it is delivered at the earlier time"
            self._found.add("level", Finding(Severity.WARNING, file, at, what, follows))
            return
        what = f"the unit {name} contains {there}, its record {expected} (offset, size, tags code)"
        follows = "consumers miss the message or get another one"
        covered.doubts.add("unit", Finding(Severity.DAMAGE, file, at, what, follows))

    def _report_missing(self, covered: _Covered, name: str, physical_offset: int) -> None:
        queue = covered.queue
        if self._uncommitted_from is not None and physical_offset >= self._uncommitted_from:
            self._uncommitted += 1
            return
        if not queue.end and self._topics is not None and queue.topic not in self._topics:
            self._of_deleted_topics[queue.topic] = self._of_deleted_topics.get(queue.topic, 0) + 1
            return
        file, at = self._log.location_of(physical_offset)
        what = f"record {physical_offset} ({name}) is in no queue"
        follows = "the next start adds it" if self._crashed else "consumers never get it"
        covered.doubts.add("missing", Finding(self._lagging, file, at, what, follows))

    # after the log

    def finish(self) -> None:
        """Check the units beyond the records of the log."""
        self._order.finish()
        self._compare_all()
        for covered_queue in self._covered.values():
            covered_queue.doubts.confirm(self._found)
        for key, queue in self._queues.items():
            covered = self._covered.get(key)
            ranges = [] if covered is None else [*covered.ranges, (covered.first, covered.next)]
            if queue.topic not in self._batch_topics:
                for begin, end in _outside(ranges, queue.begin, queue.end):
                    self._check_rest(queue, begin, end)
        if self._expired:
            what = f"{self._expired} queue units point below the first log file"
            self._note(CONSUME_QUEUE_DIRECTORY, what, "their messages were deleted by retention; they are not used")
        if self._uncommitted:
            what = f"{self._uncommitted} records above the committed mark {self._uncommitted_from} are in no queue"
            self._note(CONSUME_QUEUE_DIRECTORY, what, "a replica shows them once they are committed")
        for topic, count in self._begun_again.items():
            what = f"{count} queues of {topic} begin at offset 0 again"
            self._note(CONSUME_QUEUE_DIRECTORY, what, "the topic was deleted and created again; earlier records expire")
        for topic, count in self._of_deleted_topics.items():
            what = f"{count} records of {topic}, which is not an existing topic, are in no queue"
            self._note(CONSUME_QUEUE_DIRECTORY, what, "the topic was deleted; its records expire with the log's files")

    def ends(self) -> dict[Key, int]:
        """Return the offset after the last one of each queue, by its files or by the log, whichever is later."""
        ends = {key: queue.end for key, queue in self._queues.items()}
        return ends | {key: max(ends.get(key, 0), covered.next) for key, covered in self._covered.items()}

    def _note(self, file: str, what: str, follows: str) -> None:
        self._found.add("note", Finding(Severity.NOTE, file, None, what, follows))

    def _check_rest(self, queue: QueueOnDisk, begin: int, end: int) -> None:
        while begin < end:
            data = queue.read(begin, min(end - begin, _UNITS_AT_ONCE))
            units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
            if not len(units):
                return
            offsets, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
            fillers = sizes == FILLER_RECORD_SIZE
            expired = ~fillers & (offsets + sizes <= self._log.start)
            self._expired += int(np.count_nonzero(expired))
            inside = (offsets >= self._log.start) & (offsets + sizes <= self._log.end)
            dangling = ~fillers & ~expired & ~(inside if queue.is_light else np.zeros(len(units), bool))
            for number in np.flatnonzero(dangling):
                self._report_dangling(queue, begin + int(number), int(offsets[number]))
            begin += len(units)

    def _report_dangling(self, queue: QueueOnDisk, offset: int, physical_offset: int) -> None:
        file, at = queue.location_of(offset)
        what = f"{queue.topic}-{queue.queue_id}@{offset} points at {physical_offset}: no valid record of it there"
        is_lagging = self._crashed and physical_offset >= self._log.end
        follows = "the next start removes the unit" if is_lagging else "consumers get no message for it"
        self._found.add("astray", Finding(Severity.WARNING if is_lagging else Severity.DAMAGE, file, at, what, follows))

    def __repr__(self) -> str:
        return f"<QueueCheck queues={len(self._queues)}>"


def unit_tags_code(record: Record, delay_levels: Sequence[int]) -> int:
    """Return the tags code in the unit of a record. Delay levels in ms."""
    code = record.tags_code
    if record.topic == SystemTopic.SCHEDULE:
        return schedule_tags_code(record.properties, record.store_timestamp, code, delay_levels)
    return code


def _is_of_another_level(there: tuple[int, int, int], expected: tuple[int, int, int]) -> bool:
    """Return whether two units differ only in the due time, by whole seconds, as delay levels do."""
    return there[:2] == expected[:2] and (there[2] - expected[2]) % _LEVEL_STEP_MS == 0


def _outside(ranges: Sequence[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of [begin, end) that no range covers."""
    for covered_begin, covered_end in sorted(ranges):
        if begin < min(covered_begin, end):
            yield begin, min(covered_begin, end)
        begin = max(begin, covered_end)
    if begin < end:
        yield begin, end
