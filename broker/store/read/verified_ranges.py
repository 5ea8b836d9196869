"""Which bytes of the log are known to be what was written.

Everything from `tail` on: it was appended since the start, or checked by the recovery's scan. Below it, what was read
and checked once: a sorted list of ranges that do not touch. A consumer that catches up reads in order, and its range
just grows; readers of many queues side by side leave holes, so the list is bounded. A range that is dropped costs a
second check, nothing else.
"""

from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

MOST_RANGES: Final = 4_096


class VerifiedStatistics(msgspec.Struct, frozen=True):
    """`ranges` below the tail and their bytes; `tail`: the byte of the log that everything behind is verified from."""

    tail: int
    ranges: int
    bytes: int


class VerifiedRanges:
    """Ranges of bytes of the log, each [begin, end); or of units of a queue."""

    def __init__(self, most_ranges: int = MOST_RANGES, tail: int = 0) -> None:
        self.tail = tail
        self._most_ranges = most_ranges
        self._begins: list[int] = []
        self._ends: list[int] = []

    def covers(self, begin: int, end: int) -> bool:
        """Whether all of [begin, end) is verified."""
        if begin >= self.tail:
            return True
        at = bisect_right(self._begins, begin) - 1
        return at >= 0 and end <= self._ends[at]

    def add(self, begin: int, end: int) -> None:
        """[begin, end) was checked."""
        first = bisect_left(self._ends, begin)  # the first range that it touches
        last = bisect_right(self._begins, end)  # the first one behind it that it does not
        if first < last:
            begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
        if end >= self.tail:
            self.tail = min(begin, self.tail)
            del self._begins[first:], self._ends[first:]
            return
        self._begins[first:last] = [begin]
        self._ends[first:last] = [end]
        if len(self._begins) > self._most_ranges:
            del self._begins[0], self._ends[0]

    def statistics(self) -> VerifiedStatistics:
        """The figures now."""
        return VerifiedStatistics(self.tail, len(self._begins), sum(self._ends) - sum(self._begins))

    def __repr__(self) -> str:
        return f"<VerifiedRanges ranges={len(self._begins)} tail={self.tail}>"
