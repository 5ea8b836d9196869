"""Token buckets with integer arithmetic, and a bounded table of them by key.

A bucket holds at most `capacity` tokens and gains `rate` tokens per second. One token is one request or one byte.
Levels are stored in billionths of a token, so that a bucket gains exactly `rate` units per nanosecond and nothing is
rounded.

A request may be served if the bucket holds its tokens, or is full if the request needs more than a full bucket. Tokens
may be taken before they are there: the level is then negative, and later requests wait for all earlier ones. So
requests are served in the order in which they reserved their tokens.

The table keeps the most recently used keys. A bucket that has not been used for as long as it takes to fill equals a
new one, so it is dropped without effect.
"""

from collections import OrderedDict
from enum import Enum
from typing import Final

import msgspec

NANOS: Final = 1_000_000_000
MAX_KEYS: Final = 16_384

Amounts = tuple[int, int, int]
"""Requests, bytes received, bytes sent; the order of `Kind`."""


class Kind(Enum):
    """The amounts that are limited per second."""

    REQUESTS = "requests"
    BYTES_IN = "bytes_in"
    BYTES_OUT = "bytes_out"


class TokenBucket:
    """One bucket, full at `now_ns`. `capacity` in tokens, at least one."""

    __slots__ = ("_capacity", "_filled_ns", "_level", "rate")

    def __init__(self, rate: int, capacity: int, now_ns: int) -> None:
        self.rate = rate
        self._capacity = self._level = max(capacity, 1) * NANOS
        self._filled_ns = now_ns

    def __repr__(self) -> str:
        return f"<TokenBucket {self._level / NANOS:.3f} of {self._capacity // NANOS}, {self.rate}/s>"

    def fill(self, now_ns: int) -> None:
        """Add the tokens gained until `now_ns`."""
        gained = (now_ns - self._filled_ns) * self.rate
        self._filled_ns = now_ns
        self._level = min(self._level + gained, self._capacity)

    def wait_ns(self, tokens: int) -> int:
        """Return how long a request for `tokens` has to wait; 0 if it may be served now."""
        missing = min(tokens * NANOS, self._capacity) - self._level
        return -(-missing // self.rate) if missing > 0 else 0

    def take(self, tokens: int) -> None:
        """Take tokens, even if they are not there."""
        self._level -= tokens * NANOS

    @property
    def tokens(self) -> int:
        """Return the number of whole tokens; negative if more were taken than there were."""
        return self._level // NANOS

    @property
    def fill_ns(self) -> int:
        """Return how long an unused bucket takes to be full."""
        return -(-(self._capacity - self._level) // self.rate)


class Meter:
    """The buckets of one key; None for amounts without a quota."""

    __slots__ = ("buckets", "key", "used_ns")

    def __init__(self, key: str, buckets: tuple[TokenBucket | None, ...], now_ns: int) -> None:
        self.key = key
        self.buckets = buckets
        self.used_ns = now_ns

    def __repr__(self) -> str:
        return f"<Meter {self.key!r} {self.buckets!r}>"

    def fill(self, now_ns: int) -> None:
        """Add the tokens gained until `now_ns`."""
        self.used_ns = now_ns
        for bucket in self.buckets:
            if bucket is not None:
                bucket.fill(now_ns)

    def wait_ns(self, amounts: Amounts) -> tuple[int, Kind]:
        """Return the longest wait for these amounts, and the kind that causes it."""
        longest, cause = 0, Kind.REQUESTS
        for kind, bucket, amount in zip(Kind, self.buckets, amounts, strict=True):
            wait_ns = 0 if bucket is None else bucket.wait_ns(amount)
            if wait_ns > longest:
                longest, cause = wait_ns, kind
        return longest, cause

    def take(self, amounts: Amounts) -> None:
        """Take these amounts."""
        for bucket, amount in zip(self.buckets, amounts, strict=True):
            if bucket is not None:
                bucket.take(amount)

    def fitting(self, sizes: list[int]) -> int:
        """Return how many requests of these sizes, from the first one on, may be served now."""
        requests, bytes_in, bytes_out = self.buckets
        count = len(sizes)
        if requests is not None:
            count = max(min(count, requests.tokens), 0)
        if bytes_out is not None and bytes_out.tokens < 1:
            return 0
        tokens = 0 if bytes_in is None else bytes_in.tokens
        if bytes_in is None or sum(sizes[:count]) <= tokens:
            return count
        total = 0
        for number, size in enumerate(sizes[:count]):
            total += size
            if total > tokens and (number or bytes_in.wait_ns(size)):
                return number
        return count

    def is_full_by(self, now_ns: int) -> bool:
        """Return whether all buckets are full at `now_ns`, and so equal to new ones."""
        return all(bucket is None or self.used_ns + bucket.fill_ns <= now_ns for bucket in self.buckets)


class MetersStatistics(msgspec.Struct, frozen=True):
    """`keys` in the table now; `evicted`: keys dropped before their buckets were full, because of MAX_KEYS."""

    keys: int
    evicted: int


class Meters:
    """The meters of one scope, by key. `rates` 0: no quota for that amount."""

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self.rates: Amounts = (0, 0, 0)
        self._burst_ms = 0
        self._max_keys = max_keys
        self._meters: OrderedDict[str, Meter] = OrderedDict()  # the least recently used first
        self._evicted = 0

    def __repr__(self) -> str:
        return f"<Meters rates={self.rates} keys={len(self._meters)}>"

    def configure(self, rates: Amounts, burst_ms: int) -> None:
        """Use these rates from now on; if any value is new, all buckets begin full."""
        if (rates, burst_ms) == (self.rates, self._burst_ms):
            return
        self.rates, self._burst_ms = rates, burst_ms
        self._meters.clear()

    def statistics(self) -> MetersStatistics:
        """Return the current figures."""
        return MetersStatistics(len(self._meters), self._evicted)

    def filled(self, key: str, now_ns: int) -> Meter:
        """Return the meter of a key, with the tokens gained until `now_ns`."""
        meter = self._meters.get(key)
        if meter is not None:
            self._meters.move_to_end(key)
            meter.fill(now_ns)
            return meter
        if len(self._meters) >= self._max_keys:
            self._drop_oldest(now_ns)
        buckets = tuple(
            TokenBucket(rate, rate * self._burst_ms // 1000, now_ns) if rate else None for rate in self.rates
        )
        meter = self._meters[key] = Meter(key, buckets, now_ns)
        return meter

    def _drop_oldest(self, now_ns: int) -> None:
        _, oldest = self._meters.popitem(last=False)
        if not oldest.is_full_by(now_ns):
            self._evicted += 1
