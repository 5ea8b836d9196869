"""Latencies in a fixed amount of memory, whatever their number, with percentiles exact to 0.05 %.

The layout is that of HdrHistogram: below 2,048 ns every value has a bucket of its own; from there each doubling of the
value has 1,024 buckets. A value counts as the middle of its bucket, which is off by at most 0.05 %.

    bucket = value                                     value < 2048
    bucket = shift * 1024 + (value >> shift)           shift = bits of value - 11

Values are whole nanoseconds; values above LARGEST_NS (about 18 minutes) count as LARGEST_NS.
"""

from collections.abc import Iterable
from typing import Final, Self

import numpy as np
import numpy.typing as npt

SUB_BITS: Final = 10
SUB_BUCKETS: Final = 1 << SUB_BITS
LARGEST_NS: Final = (1 << 40) - 1
BUCKETS: Final = (40 - SUB_BITS) * SUB_BUCKETS + SUB_BUCKETS

PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)

Ints = npt.NDArray[np.int64]


class Histogram:
    """The number of occurrences of each latency."""

    __slots__ = ("counts", "largest_ns", "total_ns")

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(BUCKETS, np.int64)
        self.largest_ns = 0
        self.total_ns = 0

    def __repr__(self) -> str:
        return f"<Histogram {self.count} values, p50 {self.percentile(50.0)} ns>"

    @property
    def count(self) -> int:
        """The number of values."""
        return int(self.counts.sum())

    @property
    def mean_ns(self) -> float:
        """The arithmetic mean; 0 without values."""
        return self.total_ns / max(1, self.count)

    def add(self, values_ns: Ints) -> None:
        """Count values, in nanoseconds; negative ones (after a clock was set back) count as 0."""
        if not len(values_ns):
            return
        values = np.clip(values_ns, 0, LARGEST_NS)
        self.counts += np.bincount(buckets_of(values), minlength=BUCKETS)
        self.largest_ns = max(self.largest_ns, int(values.max()))
        self.total_ns += int(values.sum())

    def merge(self, other: Self) -> None:
        """Add the counts of another histogram."""
        self.counts += other.counts
        self.largest_ns = max(self.largest_ns, other.largest_ns)
        self.total_ns += other.total_ns

    def percentile(self, percent: float) -> int:
        """Return the smallest latency (ns) that at least `percent` % of the values do not exceed; 0 without values."""
        return self.percentiles((percent,))[0]

    def percentiles(self, percents: Iterable[float] = PERCENTILES) -> list[int]:
        """Return several percentiles in one pass."""
        running = np.cumsum(self.counts)
        if not running[-1]:
            return [0 for _ in percents]
        ranks = [max(1, int(np.ceil(round(percent / 100 * int(running[-1]), 6)))) for percent in percents]
        return [min(middle_of(int(np.searchsorted(running, rank))), self.largest_ns) for rank in ranks]


def buckets_of(values_ns: Ints) -> Ints:
    """Return the bucket of each value."""
    bits = np.frexp(values_ns.astype(np.float64))[1].astype(np.int64)
    shifts = np.maximum(bits - (SUB_BITS + 1), 0)
    buckets: Ints = shifts * SUB_BUCKETS + (values_ns >> shifts)
    return buckets


def middle_of(bucket: int) -> int:
    """Return the value in the middle of a bucket, in nanoseconds."""
    shift = max(0, (bucket >> SUB_BITS) - 1)
    lowest = (bucket - shift * SUB_BUCKETS) << shift
    return lowest + ((1 << shift) >> 1)
