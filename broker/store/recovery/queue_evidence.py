"""What the files of queues show of the records before a scan of the log, for broker.store.recovery.queue_order.

Units of records before the scan are on disk: the checkpoint vouches for them. Units of later records may be missing,
stale or torn, so a unit only counts if its record is there and is one of its queue. One that points before the log's
first byte may be that of a record that retention took, or a torn one: then a scanned record is believed against it.

Source: docs/formats.md, "Recovery".
"""

from collections.abc import Callable
from typing import Protocol

from skylarkmq.broker.store.recovery.queue_order import NO_FRONT, Front, Key
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT, UNIT_SIZE
from skylarkmq.protocol.record import Record
from skylarkmq.protocol.unit_search import first_at_or_after


class StoredUnits(Protocol):
    """The units of one queue, as its files have them."""

    @property
    def begin(self) -> int:
        """The first offset that the files hold."""

    @property
    def end(self) -> int:
        """One past the last unit."""

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` units from `offset` on."""


class QueueEvidence:
    """`start`: the first byte of the log that is judged, `log_start` the first that exists. `record_at` returns the
    record that begins at a byte of the log, None when none does; `is_missing` whether a byte lies in a gap."""

    def __init__(
        self,
        find: Callable[[Key], StoredUnits | None],
        record_at: Callable[[int], Record | None],
        is_missing: Callable[[int], bool],
        log_start: int,
    ) -> None:
        self._find = find
        self._record_at = record_at
        self._is_missing = is_missing
        self._log_start = log_start
        self.start = 0

    def unit(self, key: Key, offset: int) -> tuple[int, int] | None:
        """Physical offset and size in a queue's unit; None when it has no such unit."""
        units = self._find(key)
        if units is None or not units.begin <= offset < units.end:
            return None
        return _unit(units, offset)

    def front(self, record: Record) -> Front | None:
        """What the queue of a record has before `start`."""
        if self.start == 0:
            return NO_FRONT
        key = record.topic, record.queue_id
        units = self._find(key)
        if units is None or units.begin >= units.end:
            return None
        return self._usual(units, record) or self._searched(units, key)

    def _usual(self, units: StoredUnits, record: Record) -> Front | None:
        """The unit before is that of the queue's record before, and this record's own place is not taken."""
        offset = record.queue_offset
        if not units.begin < offset <= units.end:
            return None
        own = _unit(units, offset) if offset < units.end else None
        if own is not None and own[0] < self.start:
            return None
        return self._behind(units, (record.topic, record.queue_id), offset)

    def _searched(self, units: StoredUnits, key: Key) -> Front | None:
        low = units.begin
        at = first_at_or_after(units.read, low, units.end, self.start)
        fillers = 0
        while at > low:
            unit = _unit(units, at - 1)
            if unit is not None and unit[1] == FILLER_RECORD_SIZE:
                fillers += 1
            elif (front := self._behind(units, key, at)) is not None:
                return Front(at, at + fillers, front.log_end, front.is_sure)
            else:
                fillers = 0
            at -= 1
        return Front(low + fillers, low + fillers, 0, False) if fillers else None

    def _behind(self, units: StoredUnits, key: Key, at: int) -> Front | None:
        """The front that ends with the unit before `at`, if its record lies before `start` and is that unit's."""
        offset = at - 1
        unit = _unit(units, offset)
        if unit is None or not 0 < unit[1] < FILLER_RECORD_SIZE or unit[0] >= self.start:
            return None
        end = unit[0] + unit[1]
        if unit[0] < self._log_start:
            before = _unit(units, offset - 1) if offset > units.begin else None
            is_in_order = before is None or before[1] == FILLER_RECORD_SIZE or sum(before) <= unit[0]
            return Front(at, at, end, False) if is_in_order else None
        if self._is_missing(unit[0]):
            return Front(at, at, end, False)
        found = self._record_at(unit[0])
        if found is None or (found.topic, found.queue_id, found.size) != (*key, unit[1]):
            return None
        return Front(at, at, end, found.queue_offset == offset)

    def __repr__(self) -> str:
        return f"<QueueEvidence start={self.start}>"


def _unit(units: StoredUnits, offset: int) -> tuple[int, int] | None:
    data = units.read(offset, 1)
    if len(data) < UNIT_SIZE:
        return None
    physical_offset, size, _ = UNIT.unpack(data[:UNIT_SIZE])
    return physical_offset, size
