"""Counting values by size, in plain integers: the data of a histogram.

Recording a value costs one bisection and two additions, and allocates nothing. Readers of the figures use `bounds`,
`counts` and `total`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from skylarkmq.protocol import compiled

FEW: Final = 4
"""Up to this number, values are counted one by one."""


def python_count_up(values: Sequence[int], bounds: Sequence[float], counts: list[int]) -> int:
    """Add the numbers of values up to each bound, and above all of them, to `counts`; return the sum of the values.

    The values of one read batch are mostly between the same two bounds.
    """
    if len(values) > FEW:
        at = bisect_left(bounds, max(values))
        if not at or min(values) > bounds[at - 1]:
            counts[at] += len(values)
            return sum(values)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return sum(values)


_compiled = compiled.load("counts")
count_up = python_count_up if _compiled is None else _compiled.count_up


class Histogram:
    """Values counted by the first bound that they do not exceed; the last count is for values above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def __repr__(self) -> str:
        return f"<Histogram {self.counts} total={self.total}>"

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self.counts)

    def note(self, value: float, times: int = 1) -> None:
        """Count a value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def note_all(self, values: Sequence[int]) -> None:
        """Count the values of a read batch: integers, at least one."""
        self.total += count_up(values, self.bounds, self.counts)

    def plus(self, others: Iterable["Histogram"], sign: int = 1) -> "Histogram":
        """Return the sum of this and other histograms with the same bounds (`sign` -1: the difference)."""
        result = Histogram(self.bounds)
        result.counts = self.counts.copy()
        result.total = self.total
        for other in others:
            result.total += sign * other.total
            result.counts = [own + sign * count for own, count in zip(result.counts, other.counts, strict=True)]
        return result
