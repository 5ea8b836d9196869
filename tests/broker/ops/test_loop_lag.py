"""Event-loop lag, measured with timers that the test fires."""

from asyncio import TimerHandle
from collections.abc import Callable
from typing import Any

from skylarkmq.broker.ops.loop_lag import INTERVAL_S, LoopLag
from tests.harness.timers import Timer


class LateTimers:
    """One timer, fired by `fire`."""

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


def test_lag_is_the_time_between_due_and_run() -> None:
    """A timer that fires in time has no lag, a late one has its lateness; the next one is due an interval later."""
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


def test_stop_cancels_the_timer() -> None:
    """No more measurements follow."""
    timers = LateTimers()
    lag = LoopLag(timers)
    lag.stop()
    lag.start()
    lag.stop()
    assert timers.timer.is_canceled
