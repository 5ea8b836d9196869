"""Counting values by size: what a histogram needs, in plain integers.

A count is one bisection and two additions; nothing is allocated, and nobody is told. Who wants to see the figures reads
`bounds`, `counts` and `total` when he wants them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from skylarkmq.protocol import compiled

FEW: Final = 4
"""Up to that many values are looked at one by one."""


def plain_count_up(values: Sequence[int], bounds: Sequence[float], counts: list[int]) -> int:
    """Add to `counts` how many values lie up to each of the bounds, and above all of them; returns their sum.

    A turn's values mostly lie between the same two bounds.
    """
    if len(values) > FEW:
        at = bisect_left(bounds, max(values))
        if not at or min(values) > bounds[at - 1]:
            counts[at] += len(values)
            return sum(values)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return sum(values)


_leaf = compiled.load("counts")
count_up = plain_count_up if _leaf is None else _leaf.count_up


class Histogram:
    """Values counted by the first bound that they do not exceed; the last count is of those above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def __repr__(self) -> str:
        return f"<Histogram {self.counts} total={self.total}>"

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self.counts)

    def note(self, value: float, times: int = 1) -> None:
        """Count a value that came so often."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def note_all(self, values: Sequence[int]) -> None:
        """Count a turn's values, whole numbers all. At least one."""
        self.total += count_up(values, self.bounds, self.counts)

    def plus(self, others: Iterable["Histogram"], sign: int = 1) -> "Histogram":
        """The sum with (or, `sign` -1, the difference from) others of the same bounds."""
        result = Histogram(self.bounds)
        result.counts = self.counts.copy()
        result.total = self.total
        for other in others:
            result.total += sign * other.total
            result.counts = [own + sign * count for own, count in zip(result.counts, other.counts, strict=True)]
        return result
