"""Evidence from queue files about records before a scan of the log, for broker.store.recovery.queue_order.

Units of records before the scan are on disk, because the checkpoint covers them. Units of later records may be missing,
stale or torn, so a unit only counts if its record exists and belongs to its queue. A unit that points before the log's
first byte either belongs to a record that retention deleted, or is torn. In that case a scanned record outweighs it.

Source: docs/reference/disk.md, "Recovery".
"""

from collections.abc import Callable
from typing import Protocol

from skylarkmq.broker.store.recovery.queue_order import EMPTY_PREFIX, Key, QueuePrefix
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT, UNIT_SIZE
from skylarkmq.protocol.record import Record
from skylarkmq.protocol.unit_search import first_at_or_after


class StoredUnits(Protocol):
    """The units of one queue in its files."""

    @property
    def begin(self) -> int:
        """The first offset in the files."""

    @property
    def end(self) -> int:
        """The offset after the last unit."""

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` units from `offset` on."""


class QueueEvidence:
    """Reads queue units. `start`: the first byte of the log that is scanned. `log_start`: the first that exists.

    `record_at` returns the record that begins at a byte of the log, or None. `is_missing` returns whether a byte lies
    in a gap of the log.
    """

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
        self.log_start = log_start
        self.start = 0

    def unit(self, key: Key, offset: int) -> tuple[int, int] | None:
        """Return physical offset and size in a queue's unit, or None without such a unit."""
        units = self._find(key)
        if units is None or not units.begin <= offset < units.end:
            return None
        return _unit(units, offset)

    def prefix(self, record: Record) -> QueuePrefix | None:
        """Return the state of a record's queue before `start`, or None if there is no evidence."""
        if self.start == 0:
            return EMPTY_PREFIX
        key = record.topic, record.queue_id
        units = self._find(key)
        if units is None or units.begin >= units.end:
            return None
        return self._from_previous_unit(units, record) or self._by_search(units, key)

    def _from_previous_unit(self, units: StoredUnits, record: Record) -> QueuePrefix | None:
        """Return the prefix that ends with the previous unit. None if this record's own offset is taken."""
        offset = record.queue_offset
        if not units.begin < offset <= units.end:
            return None
        own = _unit(units, offset) if offset < units.end else None
        if own is not None and own[0] < self.start:
            return None
        return self._ending_at(units, (record.topic, record.queue_id), offset)

    def _by_search(self, units: StoredUnits, key: Key) -> QueuePrefix | None:
        """Return the prefix that ends with the last valid unit from before the scan. Filler units after it belong to
        the gap before a record of the scan."""
        low = units.begin
        at = first_at_or_after(units.read, low, units.end, self.start)
        fillers = 0
        while at > low:
            unit = _unit(units, at - 1)
            if unit is not None and unit[1] == FILLER_RECORD_SIZE:
                fillers += 1
            elif (prefix := self._ending_at(units, key, at)) is not None:
                return QueuePrefix(at, prefix.log_end, prefix.is_sure)
            else:
                fillers = 0
            at -= 1
        return QueuePrefix(low + fillers, 0, False) if fillers else None

    def _ending_at(self, units: StoredUnits, key: Key, at: int) -> QueuePrefix | None:
        """Return the prefix that ends with the unit before `at`, if the record of that unit is valid and lies before
        `start`."""
        offset = at - 1
        unit = _unit(units, offset)
        if unit is None or not 0 < unit[1] < FILLER_RECORD_SIZE or unit[0] >= self.start:
            return None
        end = unit[0] + unit[1]
        if unit[0] < self.log_start:
            before = _unit(units, offset - 1) if offset > units.begin else None
            is_in_order = before is None or before[1] == FILLER_RECORD_SIZE or sum(before) <= unit[0]
            return QueuePrefix(at, end, False) if is_in_order else None
        if self._is_missing(unit[0]):
            return QueuePrefix(at, end, False)
        found = self._record_at(unit[0])
        if found is None or (found.topic, found.queue_id, found.size) != (*key, unit[1]):
            return None
        return QueuePrefix(at, end, found.queue_offset == offset)

    def __repr__(self) -> str:
        return f"<QueueEvidence start={self.start}>"


def _unit(units: StoredUnits, offset: int) -> tuple[int, int] | None:
    data = units.read(offset, 1)
    if len(data) < UNIT_SIZE:
        return None
    physical_offset, size, _ = UNIT.unpack(data[:UNIT_SIZE])
    return physical_offset, size
