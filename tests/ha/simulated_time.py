"""Time of a simulation: callbacks in the order of their times, and a random generator that decides everything."""

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class Simulation:
    """One run. `now` is true time in seconds; machines have clocks of their own."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._count = 0

    def after(self, delay: float, call: Callable[..., Any], *args: Any) -> None:
        """Call something later. Calls for the same time happen in the order of their requests."""
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay, self._count, call, args))

    def between(self, low: float, high: float) -> float:
        """Return a random time."""
        return low + (high - low) * self.rng.random()

    def run_until(self, end: float) -> None:
        """Make all calls up to this time."""
        queue = self._queue
        while queue and queue[0][0] <= end:
            self.now, _, call, args = heapq.heappop(queue)
            call(*args)
        self.now = end
