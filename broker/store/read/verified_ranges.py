"""The ranges of the log that are verified: their bytes are known to be those that were written.

Everything from `tail` on is verified: it was appended since the start, or checked by recovery. Below `tail`, ranges
that were read and checked once are kept in a sorted list, disjoint and not adjacent. A consumer that catches up reads
in order, so its range just grows. Readers of many interleaved queues leave gaps, so the list is bounded. Dropping a
range only costs a second check.
"""

from bisect import bisect_left, bisect_right
from typing import Final

import msgspec

MOST_RANGES: Final = 4_096


class VerifiedStatistics(msgspec.Struct, frozen=True):
    """`ranges` below the tail and their bytes. `tail`: the offset from which the whole log is verified."""

    tail: int
    ranges: int
    bytes: int


class VerifiedRanges:
    """Verified ranges [begin, end), of bytes of the log or of units of a queue."""

    def __init__(self, most_ranges: int = MOST_RANGES, tail: int = 0) -> None:
        self.tail = tail
        self._most_ranges = most_ranges
        self._begins: list[int] = []
        self._ends: list[int] = []

    def covers(self, begin: int, end: int) -> bool:
        """Return whether all of [begin, end) is verified."""
        if begin >= self.tail:
            return True
        at = bisect_right(self._begins, begin) - 1
        return at >= 0 and end <= self._ends[at]

    def add(self, begin: int, end: int) -> None:
        """Mark [begin, end) as verified."""
        first = bisect_left(self._ends, begin)  # the first range that touches it
        last = bisect_right(self._begins, end)  # the first later range that does not touch it
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
        """Return a snapshot."""
        return VerifiedStatistics(self.tail, len(self._begins), sum(self._ends) - sum(self._begins))

    def __repr__(self) -> str:
        return f"<VerifiedRanges ranges={len(self._begins)} tail={self.tail}>"
