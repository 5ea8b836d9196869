"""Rates of the last minutes, from the counters of brokers.

A page that shows rates adds a sample; samples closer than INTERVAL_S are left out. So the history begins with the first
view, and has gaps while no page is open. A rate is the difference of two counters; a counter that went down belongs to
a broker that has restarted, and gives no rate.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

INTERVAL_S: Final = 3.0
SAMPLES: Final = 120


class Counters(NamedTuple):
    """Messages that a broker has stored, and delivered, since midnight or its start."""

    stored: int
    delivered: int


class Rate(NamedTuple):
    """Messages per second of all brokers, at a time (monotonic seconds)."""

    at_s: float
    stored: float
    delivered: float


class RateHistory:
    """The rates of one cluster."""

    def __init__(self) -> None:
        self._last: tuple[float, Mapping[str, Counters]] | None = None
        self._rates: deque[Rate] = deque(maxlen=SAMPLES)

    def __repr__(self) -> str:
        return f"<RateHistory samples={len(self._rates)}>"

    @property
    def rates(self) -> Sequence[Rate]:
        """Return the rates, oldest first."""
        return self._rates

    def add(self, now_s: float, counters: Mapping[str, Counters]) -> None:
        """Add the counters of all brokers, by address."""
        if self._last is None:
            self._last = now_s, counters
            return
        last_s, last = self._last
        seconds = now_s - last_s
        if seconds < INTERVAL_S:
            return
        stored = delivered = 0
        for address, now in counters.items():
            before = last.get(address)
            if before is not None and now.stored >= before.stored and now.delivered >= before.delivered:
                stored += now.stored - before.stored
                delivered += now.delivered - before.delivered
        self._rates.append(Rate(now_s, stored / seconds, delivered / seconds))
        self._last = now_s, counters
