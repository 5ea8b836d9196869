"""Timers whose time moves only when told to."""

import asyncio
import heapq
from collections.abc import Callable
from typing import Any


class Timer(asyncio.TimerHandle):
    """A callback and its time."""

    def __init__(self, when: float, callback: Callable[[], Any]) -> None:
        self._at = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def __lt__(self, other: Any) -> bool:
        return bool(self._at < other._at)

    def when(self) -> float:
        return self._at


class Timers:
    """The part of an event loop that knows the time."""

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
        """Timers that would still fire."""
        return sum(not timer.is_cancelled for timer in self._timers)

    def advance_ms(self, ms: float) -> None:
        """Let time pass; whatever is due on the way happens at its time."""
        end = self.now + ms / 1000
        while self._timers and self._timers[0].when() <= end:
            timer = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                self.now = timer.when()
                timer.callback()
        self.now = end
