"""Put times: how long sends take from their arrival to what the store decided, the last minute of them spread out.

Whoever answers sends notes a turn of them here in one call, which counts them among all requests' latencies as well.
Under SYNC_FLUSH the flush is part of it. The spread that is shown is that of the last whole minute, as in RocketMQ, so
that one look shows a minute and not whatever has passed of it.

Source: docs/formats.md, "Runtime information".
"""

from bisect import bisect_left
from time import monotonic
from typing import Final

import msgspec

from broker.remoting.latencies import Latencies

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

_LAST_MS: Final = [last for _, last in SPREAD if last is not None]


class PutTimesStatistics(msgspec.Struct, frozen=True):
    """Messages of the last whole minute by SPREAD; the longest put since the start."""

    spread: tuple[int, ...]
    longest_ms: int


class PutTimes:
    """Counts sends by the time that they took; `latencies` hears of them too."""

    def __init__(self, latencies: Latencies) -> None:
        self._latencies = latencies
        self._counts = [0] * len(SPREAD)
        self._spread = tuple(self._counts)
        self._longest_ms = 0
        self._minute: int | None = None

    def __repr__(self) -> str:
        return f"<PutTimes longest_ms={self._longest_ms}>"

    def statistics(self) -> PutTimesStatistics:
        """The figures now."""
        return PutTimesStatistics(self._spread, self._longest_ms)

    def note(
        self, request_code: int, response_code: int, arrived_s: float, times: int = 1, *, was_oneway: bool = False
    ) -> None:
        """Sends that came at `arrived_s` (of time.monotonic) are decided now; see `Latencies.note`."""
        took_ms = int((monotonic() - arrived_s) * 1000)
        self._counts[bisect_left(_LAST_MS, took_ms)] += times
        if took_ms > self._longest_ms:
            self._longest_ms = took_ms
        self._latencies.note(request_code, response_code, arrived_s, times, was_oneway=was_oneway)

    def step(self, now_ms: int) -> None:
        """Turn to the next minute if it has begun; `now_ms` is Unix time."""
        minute = now_ms // MINUTE_MS
        if self._minute is not None and minute != self._minute:
            self._spread = tuple(self._counts)
            self._counts = [0] * len(SPREAD)
        self._minute = minute


def spread_text(spread: tuple[int, ...]) -> str:
    """`[<=0ms]:29 [0~10ms]:3 ...`, with a space behind each, as RocketMQ writes it."""
    return "".join(f"[{name}]:{count} " for (name, _), count in zip(SPREAD, spread, strict=True))
