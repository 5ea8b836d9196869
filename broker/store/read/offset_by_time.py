"""Search for the queue offset that belongs to a point in time.

Store timestamps never decrease along a queue. The search is therefore a binary search over the units, across segments,
which reads one timestamp from the log per step. LOWER: the first message at or after the time (one past the last
message if all are older). UPPER: the last message at or before it (the first message if all are newer). In a run of
equal times LOWER finds the first message, UPPER the last. A unit whose record is no longer in the log is older than all
others. A gap in the queue has the time of the first message after it.

Source: docs/reference/disk.md, "Offset by time".
"""

from enum import Enum
from functools import partial

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.read.log_reads import LogReads
from skylarkmq.protocol.disk import FILLER_RECORD_SIZE
from skylarkmq.protocol.record_fields import store_timestamp_at
from skylarkmq.protocol.unit_search import first_with_record

_UP_TO_TIMESTAMP = 76  # bytes of a record up to the store timestamp, with the longest born host
_LONG_AGO = -1


class Boundary(Enum):
    """Which end of a run of equal times is meant, and which side of a gap."""

    LOWER = "lower"
    UPPER = "upper"


class OffsetByTime:
    """Searches the queues of one log. Raises ColdRead if a search needs bytes that are not in the page cache."""

    def __init__(self, commit_log: CommitLog, log_reads: LogReads, reads: ColdReads) -> None:
        self._log = commit_log
        self._log_reads = log_reads
        self._reads = reads

    def store_time_at(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the store timestamp (ms) of the message at a queue offset; None if there is no record."""
        unit = queue.unit_nowait(offset, self._reads) if queue.min_offset <= offset < queue.end else None
        if unit is None:
            return None
        record = self._log_reads.bytes_at(unit[0], min(unit[1], _UP_TO_TIMESTAMP))
        return store_timestamp_at(record, 0) if record is not None and len(record) == _UP_TO_TIMESTAMP else None

    def find(self, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> int:
        """Return a queue offset in [min, max]; the minimum if a record that the search needs is missing."""
        is_lower = boundary is Boundary.LOWER
        low, high = queue.min_offset, queue.end
        read = partial(queue.read_nowait, reads=self._reads)
        while low < high:
            middle = (low + high) // 2
            at = first_with_record(read, middle, high)
            if at == high:
                high = middle
                continue
            time = self._time_to_compare(queue, at)
            if time is None:
                return queue.min_offset
            if time < timestamp or (time == timestamp and not is_lower):
                low = at + 1
            else:
                high = middle
        if is_lower:
            return first_with_record(read, low, queue.end)
        return self._last_before(queue, low)

    def _last_before(self, queue: ConsumeQueue, offset: int) -> int:
        """Return the last offset below `offset` that is not in a gap; else the queue's minimum."""
        while (offset := offset - 1) > queue.min_offset:
            unit = queue.unit_nowait(offset, self._reads)
            if unit is None or unit[1] != FILLER_RECORD_SIZE:
                return offset
        return queue.min_offset

    def _time_to_compare(self, queue: ConsumeQueue, offset: int) -> int | None:
        unit = queue.unit_nowait(offset, self._reads)
        if unit is not None and unit[0] < self._log.files.min_offset:
            return _LONG_AGO
        return self.store_time_at(queue, offset)

    def __repr__(self) -> str:
        return f"<OffsetByTime {self._log!r}>"
