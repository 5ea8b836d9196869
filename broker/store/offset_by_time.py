"""Which queue offset belongs to a point in time.

Store timestamps never decrease along a queue, so this is a binary search over its units, reading one timestamp from
the log for each. LOWER: the first message at or after the time (one past the last if all are older). UPPER: the
last message at or before it (the first if all are newer). Source: docs/formats.md, "Offset by time".
"""

from enum import Enum

from broker.store.commit_log import CommitLog
from broker.store.consume_queue import ConsumeQueue
from protocol.record import store_timestamp_at


class Boundary(Enum):
    """Which end of a run of equal times is meant, and which side of a gap."""

    LOWER = "lower"
    UPPER = "upper"


def store_time_of(commit_log: CommitLog, queue: ConsumeQueue, offset: int) -> int | None:
    """The store timestamp (ms) of the message at a queue offset; None when its record is not there."""
    unit = queue.unit(offset) if queue.min_offset <= offset < queue.end else None
    if unit is None:
        return None
    record = commit_log.bytes_at(unit[0], unit[1])
    return store_timestamp_at(record, 0) if record is not None else None


def offset_by_time(commit_log: CommitLog, queue: ConsumeQueue, timestamp: int, boundary: Boundary) -> int:
    """A queue offset in [min, max]; the queue's min when a record that the search needs is not there."""
    is_lower = boundary is Boundary.LOWER
    low, high = queue.min_offset, queue.end
    while low < high:
        middle = (low + high) // 2
        time = store_time_of(commit_log, queue, middle)
        if time is None:
            return queue.min_offset
        if time < timestamp or (time == timestamp and not is_lower):
            low = middle + 1
        else:
            high = middle
    return low if is_lower else max(low - 1, queue.min_offset)
