"""Put latency: the time from the arrival of a send to the store's decision, as a distribution over the last minute.

Send processors report the sends of an event-loop iteration in one call, which also updates the latencies of all
requests. Under SYNC_FLUSH the time includes the flush. The figures cover the last complete minute, as in
RocketMQ, so that each query covers a minute and not the elapsed part of one. They are the distribution, and the times
that 99 % and 99.9 % of the puts did not exceed. They have the resolution of the underlying ranges: 1 ms up to 20 ms,
and less than a tenth of the time from there.

Source: docs/reference/wire.md, "Runtime information".
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import msgspec

from skylarkmq.broker.remoting.request_latency import Latencies

MINUTE_MS: Final = 60_000
SPREAD: Final = (
    ("<=0ms", 0),
    ("0~10ms", 9),
    ("10~50ms", 49),
    ("50~100ms", 99),
    ("100~200ms", 199),
    ("200~500ms", 499),
    ("500ms~1s", 999),
    ("1~2s", 1_999),
    ("2~3s", 2_999),
    ("3~4s", 3_999),
    ("4~5s", 4_999),
    ("5~10s", 9_999),
    ("10s~", None),
)
"""RocketMQ's names of the ranges, and the last whole ms of each range."""

_LAST_MS: Final[Sequence[int]] = [
    *range(20),
    *range(21, 50, 2),
    *range(54, 100, 5),
    *range(109, 200, 10),
    *range(219, 500, 20),
    *range(549, 1_000, 50),
    *range(1_099, 2_000, 100),
    *range(2_199, 10_000, 200),
]
"""The last whole ms of each counted range, except the last range, which has no end. SPREAD joins several of these."""

_RANGE_OF: Final = [bisect_left([last for _, last in SPREAD if last is not None], last) for last in _LAST_MS]
"""For each counted range the index of its range in SPREAD."""


class PutLatencyStatistics(msgspec.Struct, frozen=True):
    """Messages of the last complete minute by SPREAD; the ms that 99 % and 99.9 % of them did not exceed (0 without
    messages); the longest put since the start."""

    spread: tuple[int, ...]
    longest_ms: int
    within_99_ms: int = 0
    within_999_ms: int = 0


class PutLatency:
    """Counts sends by their latency, and adds them to `latencies`."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._counts = _nothing()
        self._last_minute = _nothing()
        self._longest_ms = 0
        self._minute: int | None = None

    def __repr__(self) -> str:
        return f"<PutLatency longest_ms={self._longest_ms}>"

    def statistics(self) -> PutLatencyStatistics:
        """Return the current figures."""
        counts = self._last_minute
        within_99_ms, within_999_ms = (self._within(counts, thousandths) for thousandths in (990, 999))
        return PutLatencyStatistics(_joined(counts), self._longest_ms, within_99_ms, within_999_ms)

    def _within(self, counts: Sequence[int], thousandths: int) -> int:
        """Return the last ms of the range up to which that many thousandths of all puts were decided."""
        missing = -(-sum(counts) * thousandths // 1_000)
        for last_ms, count in zip([*_LAST_MS, self._longest_ms], counts, strict=True):
            missing -= count
            if missing <= 0:
                return min(last_ms, self._longest_ms)
        raise AssertionError("the parts are more than the whole")

    def note(
        self, request_code: int, response_code: int, arrived_s: float, times: int = 1, *, was_oneway: bool = False
    ) -> None:
        """Count `times` sends that arrived at `arrived_s` (time.monotonic) and are decided now; see `Latencies`."""
        took_ms = int(self._latencies.note(request_code, response_code, arrived_s, times, was_oneway=was_oneway))
        self._counts[bisect_left(_LAST_MS, took_ms)] += times
        if took_ms > self._longest_ms:
            self._longest_ms = took_ms

    def step(self, now_ms: int) -> None:
        """Switch to the next minute if it has begun; `now_ms` is from a steady clock."""
        minute = now_ms // MINUTE_MS
        if self._minute is not None and minute != self._minute:
            self._last_minute = self._counts
            self._counts = _nothing()
        self._minute = minute


def _nothing() -> list[int]:
    """Return counts of zero, one per range of _LAST_MS and one for the last range."""
    return [0] * (len(_LAST_MS) + 1)


def _joined(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the counts by SPREAD."""
    spread = [0] * len(SPREAD)
    for at, count in zip((*_RANGE_OF, len(SPREAD) - 1), counts, strict=True):
        spread[at] += count
    return tuple(spread)


def spread_text(spread: tuple[int, ...]) -> str:
    """Return `[<=0ms]:29 [0~10ms]:3 ...`, with a space after each entry, in RocketMQ's format."""
    return "".join(f"[{name}]:{count} " for (name, _), count in zip(SPREAD, spread, strict=True))
