"""Rates over the last minute, from counters that are read at each scrape.

Each scrape stores the counters that it read. A rate is the growth since the scrape a minute ago, or since the oldest
stored one; before the first, since the start. Without scrapes nothing is computed, and concurrent scrapers share the
stored values. A counter that has decreased was restarted (its topic was deleted and created again).
"""

from collections import deque
from collections.abc import Hashable
from typing import Final

WINDOW_S: Final = 60.0
SPACING_S: Final = 10.0

Seen = dict[Hashable, float]


class Rates:
    """Counters by key. `now_s` is a steady clock in seconds."""

    def __init__(self, now_s: float) -> None:
        self._seen: deque[tuple[float, Seen]] = deque([(now_s, {})])
        self._current: Seen = {}
        self._elapsed_s = 0.0

    def __repr__(self) -> str:
        return f"<Rates scrapes={len(self._seen)} counters={len(self._current)}>"

    def begin(self, now_s: float) -> None:
        """Begin a scrape."""
        seen = self._seen
        self._current = {}
        if now_s - seen[-1][0] >= SPACING_S:
            seen.append((now_s, self._current))
        while len(seen) > 2 and now_s - seen[1][0] >= WINDOW_S:
            seen.popleft()
        self._elapsed_s = now_s - seen[0][0]

    def growth(self, key: Hashable, counter: float) -> float:
        """Return how much the counter has grown."""
        self._current[key] = counter
        before = self._seen[0][1].get(key, 0)
        return counter - before if counter >= before else counter

    def per_second(self, key: Hashable, counter: float) -> float:
        """Return its growth per second."""
        growth = self.growth(key, counter)
        return growth / self._elapsed_s if self._elapsed_s > 0 else 0.0
