"""Lag of the event loop: a timer that measures, ten times a second, how late it runs.

Everything that blocks the loop shows here: a long iteration, a garbage collection, or a machine that does not schedule
the process. Times come from the loop's own clock, so every other timer suffers the same lag.
"""

from asyncio import TimerHandle
from typing import Final

import msgspec

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.delivery.arrivals import Timers

INTERVAL_S: Final = 0.1
BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class LoopLagStatistics(msgspec.Struct, frozen=True):
    """Measurements since the start; `worst_s` never decreases."""

    measurements: int
    worst_s: float


class LoopLag:
    """Measures the lag in seconds."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: TimerHandle | None = None
        self._due_s = 0.0
        self._worst_s = 0.0
        self.seconds = Histogram(BOUNDS_S)

    def __repr__(self) -> str:
        return f"<LoopLag worst_s={self._worst_s:.3f}>"

    def start(self) -> None:
        """Start measuring."""
        self._schedule(self._timers.time() + INTERVAL_S)

    def stop(self) -> None:
        """Stop measuring."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, due_s: float) -> None:
        self._due_s = due_s
        self._timer = self._timers.call_at(due_s, self._measure)

    def _measure(self) -> None:
        now_s = self._timers.time()
        late_s = max(now_s - self._due_s, 0.0)
        self._worst_s = max(self._worst_s, late_s)
        self.seconds.note(late_s)
        self._schedule(now_s + INTERVAL_S)

    def statistics(self) -> LoopLagStatistics:
        """Return the current totals."""
        return LoopLagStatistics(measurements=self.seconds.count, worst_s=self._worst_s)
