"""How late the loop is, on timers that come when the test lets them."""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any

from skylarkmq.broker.ops.loop_lag import INTERVAL_S, LoopLag
from tests.harness.timers import Timer


class LateTimers:
    """One timer, which comes when `fire` says."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.timer = Timer(0, lambda: None)

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], Any], /) -> TimerHandle:
        self.timer = Timer(when, callback)
        return self.timer

    def fire(self, late_s: float) -> None:
        self.now_s = self.timer.when() + late_s
        self.timer.callback()


def test_lateness_is_the_time_between_due_and_done() -> None:
    """A look that comes in time is none, one that comes late counts with its lateness; the next is due from then on."""
    timers = LateTimers()
    lag = LoopLag(timers)
    lag.start()
    for late_s in (0.0, 0.25, 0.015):
        timers.fire(late_s)
        assert timers.timer.when() == timers.now_s + INTERVAL_S
    assert lag.seconds.counts == [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0]
    assert lag.statistics().measurements == 3
    assert round(lag.statistics().worst_s, 3) == 0.25
    assert "0.250" in repr(lag)


def test_after_stop_it_looks_no_more() -> None:
    """Its timer is cancelled."""
    timers = LateTimers()
    lag = LoopLag(timers)
    lag.stop()
    lag.start()
    lag.stop()
    assert timers.timer.is_cancelled
