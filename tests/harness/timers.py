"""Event-loop timers whose time the test advances."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.harness.stores import Clock

_ROUNDING_MS = 1e-3


class Timer(asyncio.TimerHandle):
    """A callback and its due time."""

    def __init__(self, when: float, callback: Callable[[], Any]) -> None:
        self._at = when
        self.callback = callback
        self.is_canceled = False

    def cancel(self) -> None:
        self.is_canceled = True

    def __lt__(self, other: Any) -> bool:
        return bool(self._at < other._at)

    def when(self) -> float:
        return self._at


class Timers:
    """The clock and timers of an event loop."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], Any], /) -> asyncio.TimerHandle:
        timer = Timer(when, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def pending(self) -> int:
        """Return the number of timers that would still fire."""
        return sum(not timer.is_canceled for timer in self._timers)

    def advance_ms(self, ms: float) -> None:
        """Advance the time; each timer that is due on the way fires at its due time."""
        end = self.now + ms / 1000
        while self._timers and self._timers[0].when() <= end:
            timer = heapq.heappop(self._timers)
            if not timer.is_canceled:
                self.now = timer.when()
                timer.callback()
        self.now = end


class SteppedLoop(Timers):
    """An event loop that runs callbacks; `clock` is the wall clock and advances with it.

    Callbacks of `call_soon` run one iteration after another, before the time advances.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._soon: deque[Timer] = deque()
        self._begin = self.now
        self._passed_ms = 0
        self.iterations = 0

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> asyncio.Handle:
        handle = Timer(self.now, partial(callback, *args))
        self._soon.append(handle)
        return handle

    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay_s, partial(callback, *args))

    def run_iteration(self) -> bool:
        """Run one iteration: the callbacks that were queued when it began. Return whether more callbacks are queued."""
        for _ in range(len(self._soon)):
            handle = self._soon.popleft()
            if not handle.is_canceled:
                self.iterations += 1
                handle.callback()
        return bool(self._soon)

    def pass_ms(self, ms: int) -> None:
        """Advance the time by whole milliseconds; timers that are due on the way fire at their due time."""
        self._settle()
        for _ in range(ms):
            self._clock.now_ms += 1
            self._passed_ms += 1
            self.advance_ms((self._begin + self._passed_ms / 1000 - self.now) * 1000 + _ROUNDING_MS)
            self._settle()

    def _settle(self) -> None:
        while self.run_iteration():
            pass
