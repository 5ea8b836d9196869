"""Rates of a consumer by topic, over the last minute and hour, for operators (GET_CONSUMER_RUNNING_INFO, 307).

Pulls and handler calls add to totals. A sample of the totals is taken every SAMPLE_S and kept for a minute; every
sixtieth sample is kept for an hour. A rate is the difference between the current totals and the oldest sample, divided
by the time between them. Before the second sample, rates count from the start.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.protocol.bodies.client_state import ConsumeStatus

SAMPLE_S: Final = 10.0
SAMPLES: Final = 6  # of a minute, and of an hour
HOUR_EVERY: Final = 60


class Totals(msgspec.Struct):
    """The totals of one topic since the start: pulls that returned messages, handler calls, times in s."""

    pulls: int = 0
    pull_s: float = 0.0
    pulled: int = 0
    calls: int = 0
    call_s: float = 0.0
    succeeded: int = 0
    failed: int = 0

    def since(self, then: "Totals") -> "Totals":
        """Return the difference to earlier totals."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(then), strict=True)
        return Totals(*(now - before for now, before in pairs))


class Sample(msgspec.Struct, frozen=True):
    """The totals of all topics at one time (s, of the clock)."""

    at_s: float
    totals: dict[str, Totals]


class ConsumeRates:
    """The rates of one consumer. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.totals: defaultdict[str, Totals] = defaultdict(Totals)  # by topic; callers add to them
        self._minute = deque([Sample(clock(), {})], maxlen=SAMPLES)
        self._hour = deque([Sample(clock(), {})], maxlen=SAMPLES)
        self._count = 0

    def __repr__(self) -> str:
        return f"<ConsumeRates {len(self.totals)} topics>"

    async def sample(self) -> None:
        """Take a sample. Called every SAMPLE_S."""
        copies = {topic: msgspec.structs.replace(totals) for topic, totals in self.totals.items()}
        sample = Sample(self._clock(), copies)
        self._minute.append(sample)
        self._count += 1
        if self._count % HOUR_EVERY == 0:
            self._hour.append(sample)

    def status(self, topic: str) -> ConsumeStatus:
        """Return times in ms and rates per second over the last minute. If the handler did not run in it, its time is
        that of the last hour. `consume_failed_msgs` counts the last hour.
        """
        now = self.totals.get(topic, Totals())
        first, of_hour = self._minute[0], now.since(self._hour[0].totals.get(topic, Totals()))
        of_minute = now.since(first.totals.get(topic, Totals()))
        spent_s = max(self._clock() - first.at_s, 1.0)
        worked = of_minute if of_minute.calls else of_hour
        return ConsumeStatus(
            pull_rt=_mean_ms(of_minute.pull_s, of_minute.pulls),
            pull_tps=of_minute.pulled / spent_s,
            consume_rt=_mean_ms(worked.call_s, worked.calls),
            consume_ok_tps=of_minute.succeeded / spent_s,
            consume_failed_tps=of_minute.failed / spent_s,
            consume_failed_msgs=of_hour.failed,
        )


def _mean_ms(spent_s: float, count: int) -> float:
    return spent_s * 1000 / count if count else 0.0
