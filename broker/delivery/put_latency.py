"""Put times: how long sends take from their arrival to what the store decided, the last minute of them spread out.

Whoever answers sends notes a turn of them here in one call, which counts them among all requests' latencies as well.
Under SYNC_FLUSH the flush is part of it. What is shown is of the last whole minute, as in RocketMQ, so that one look
shows a minute and not whatever has passed of it: the spread, and the times within which nearly all puts stayed. These
are as fine as the counts behind them, steps of a millisecond up to 20, and of less than a tenth of the time from there.

Source: docs/formats.md, "Runtime information".
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
"""RocketMQ's names of the ranges, and the last whole ms of each."""

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
"""The last whole ms of each range that is counted, the one that has no end left out; SPREAD joins neighbours."""

_RANGE_OF: Final = [bisect_left([last for _, last in SPREAD if last is not None], last) for last in _LAST_MS]
"""Which range of SPREAD a range belongs to."""


class PutTimesStatistics(msgspec.Struct, frozen=True):
    """Messages of the last whole minute by SPREAD, and within how many ms 99 % and 99.9 % of them were decided (0: of
    none); the longest put since the start."""

    spread: tuple[int, ...]
    longest_ms: int
    within_99_ms: int = 0
    within_999_ms: int = 0


class PutTimes:
    """Counts sends by the time that they took; `latencies` hears of them too."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._counts = _nothing()
        self._last_minute = _nothing()
        self._longest_ms = 0
        self._minute: int | None = None

    def __repr__(self) -> str:
        return f"<PutTimes longest_ms={self._longest_ms}>"

    def statistics(self) -> PutTimesStatistics:
        """The figures now."""
        counts = self._last_minute
        within_99_ms, within_999_ms = (self._within(counts, thousandths) for thousandths in (990, 999))
        return PutTimesStatistics(_joined(counts), self._longest_ms, within_99_ms, within_999_ms)

    def _within(self, counts: Sequence[int], thousandths: int) -> int:
        """The last ms of the range in which that part of all puts is complete."""
        missing = -(-sum(counts) * thousandths // 1_000)
        for last_ms, count in zip([*_LAST_MS, self._longest_ms], counts, strict=True):
            missing -= count
            if missing <= 0:
                return min(last_ms, self._longest_ms)
        raise AssertionError("the parts are more than the whole")

    def note(
        self, request_code: int, response_code: int, arrived_s: float, times: int = 1, *, was_oneway: bool = False
    ) -> None:
        """Sends that came at `arrived_s` (of time.monotonic) are decided now; see `Latencies.note`."""
        took_ms = int(self._latencies.note(request_code, response_code, arrived_s, times, was_oneway=was_oneway))
        self._counts[bisect_left(_LAST_MS, took_ms)] += times
        if took_ms > self._longest_ms:
            self._longest_ms = took_ms

    def step(self, now_ms: int) -> None:
        """Turn to the next minute if it has begun; `now_ms` is that of a steady clock."""
        minute = now_ms // MINUTE_MS
        if self._minute is not None and minute != self._minute:
            self._last_minute = self._counts
            self._counts = _nothing()
        self._minute = minute


def _nothing() -> list[int]:
    """Counts of no puts: by _LAST_MS, and those beyond."""
    return [0] * (len(_LAST_MS) + 1)


def _joined(counts: Sequence[int]) -> tuple[int, ...]:
    """Counts by SPREAD."""
    spread = [0] * len(SPREAD)
    for at, count in zip((*_RANGE_OF, len(SPREAD) - 1), counts, strict=True):
        spread[at] += count
    return tuple(spread)


def spread_text(spread: tuple[int, ...]) -> str:
    """`[<=0ms]:29 [0~10ms]:3 ...`, with a space behind each, as RocketMQ writes it."""
    return "".join(f"[{name}]:{count} " for (name, _), count in zip(SPREAD, spread, strict=True))
