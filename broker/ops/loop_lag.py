"""How late the event loop comes to what is due: a timer that measures by how much it is late, ten times a second.

Whatever holds the loop, be it a long turn, a garbage collection or a machine that lets it wait, shows here. The time is
that of the loop's own clock, so that the lag is what every other timer suffers.
"""

from asyncio import TimerHandle
from typing import Final

import msgspec

from skylarkmq.broker.delivery.arrivals import Timers
from skylarkmq.broker.histogram import Histogram

INTERVAL_S: Final = 0.1
BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


class LoopLagStatistics(msgspec.Struct, frozen=True):
    """Since the start; `worst_s` never goes down."""

    looks: int
    worst_s: float


class LoopLag:
    """Seconds of lateness."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: TimerHandle | None = None
        self._due_s = 0.0
        self._worst_s = 0.0
        self.seconds = Histogram(BOUNDS_S)

    def __repr__(self) -> str:
        return f"<LoopLag worst_s={self._worst_s:.3f}>"

    def start(self) -> None:
        """Look from now on."""
        self._look_at(self._timers.time() + INTERVAL_S)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_at(self, due_s: float) -> None:
        self._due_s = due_s
        self._timer = self._timers.call_at(due_s, self._look)

    def _look(self) -> None:
        now_s = self._timers.time()
        late_s = max(now_s - self._due_s, 0.0)
        self._worst_s = max(self._worst_s, late_s)
        self.seconds.note(late_s)
        self._look_at(now_s + INTERVAL_S)

    def statistics(self) -> LoopLagStatistics:
        """The figures now."""
        return LoopLagStatistics(looks=self.seconds.count, worst_s=self._worst_s)
