"""Traffic: how fast counters grow, and what they stood at when the day began.

`step` reads the counters once a second and keeps ten minutes of samples. A rate over a window is the growth since the
sample at its beginning, or since the oldest there is: there are rates from the second sample on, where RocketMQ leaves
blanks that its own readers cannot parse. Days are those of local time.

Source: docs/formats.md, "Runtime information".
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

SAMPLE_INTERVAL_MS: Final = 1_000
WINDOWS_S: Final = (10, 60, 600)


class Counters(msgspec.Struct, frozen=True):
    """Totals since the start of the process."""

    puts: int = 0  # messages stored
    found: int = 0  # pulls answered with messages
    missed: int = 0  # pulls answered without
    delivered: int = 0  # messages in those answers
    system_puts: int = 0  # messages stored that went to RocketMQ's own topics: delayed ones on their way, and such

    @property
    def user_puts(self) -> int:
        """The others."""
        return self.puts - self.system_puts


class Days(msgspec.Struct, frozen=True):
    """Counters when yesterday began, and when today did; zeros for days before the start."""

    yesterday: Counters = Counters()
    today: Counters = Counters()


class Traffic:
    """Samples of counters. `read` gives the counters of the moment."""

    def __init__(self, read: Callable[[], Counters]) -> None:
        self._read = read
        self._samples: deque[tuple[int, Counters]] = deque(maxlen=max(WINDOWS_S) + 1)
        self._day: tuple[int, int] | None = None
        self.days = Days()

    def __repr__(self) -> str:
        return f"<Traffic samples={len(self._samples)}>"

    def statistics(self) -> Counters:
        """The counters now."""
        return self._read()

    def step(self, now_ms: int, unix_ms: int) -> None:
        """Take a sample if the last is a second old by `now_ms` of a steady clock; `unix_ms` tells the day."""
        if self._samples and now_ms - self._samples[-1][0] < SAMPLE_INTERVAL_MS:
            return
        counters = self._read()
        self._samples.append((now_ms, counters))
        date = time.localtime(unix_ms / 1000)
        day = date.tm_year, date.tm_yday
        if self._day is not None and day != self._day:
            self.days = Days(yesterday=self.days.today, today=counters)
        self._day = day

    def per_second(self, value: Callable[[Counters], int]) -> tuple[float, ...]:
        """Growth of a value per second, over each of WINDOWS_S."""
        return tuple(self._rate(value, window_s) for window_s in WINDOWS_S)

    def _rate(self, value: Callable[[Counters], int], window_s: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        end_ms, newest = self._samples[-1]
        begin_ms, oldest = self._samples[max(-len(self._samples), -1 - window_s)]
        elapsed_ms = end_ms - begin_ms
        return (value(newest) - value(oldest)) * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0
