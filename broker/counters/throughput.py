"""Throughput: how fast counters grow, and their values at the start of the day.

`step` reads the counters once a second and keeps ten minutes of samples. A rate over a window is the growth since the
sample at its beginning, or since the oldest sample. So there are rates from the second sample on; RocketMQ leaves
blanks here that its own tools cannot parse. Days begin at midnight, local time.

Source: docs/reference/wire.md, "Runtime information".
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
    found: int = 0  # pulls whose response had messages
    missed: int = 0  # pulls whose response had none
    delivered: int = 0  # messages in responses to pulls
    system_puts: int = 0  # messages stored in RocketMQ's internal topics, such as delayed messages

    @property
    def user_puts(self) -> int:
        """Return the messages stored in all other topics."""
        return self.puts - self.system_puts


class Days(msgspec.Struct, frozen=True):
    """Counters at the start of yesterday and of today; zeros for days before the start of the process."""

    yesterday: Counters = Counters()
    today: Counters = Counters()


class Throughput:
    """Samples of counters. `read` returns the current counters."""

    def __init__(self, read: Callable[[], Counters]) -> None:
        self._read = read
        self._samples: deque[tuple[int, Counters]] = deque(maxlen=max(WINDOWS_S) + 1)
        self._day: tuple[int, int] | None = None
        self.days = Days()

    def __repr__(self) -> str:
        return f"<Throughput samples={len(self._samples)}>"

    def statistics(self) -> Counters:
        """Return the current counters."""
        return self._read()

    def step(self, now_ms: int, unix_ms: int) -> None:
        """Take a sample if the last one is a second old by the steady clock `now_ms`; `unix_ms` determines the day."""
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
        """Return the growth of a value per second, over each of WINDOWS_S."""
        return tuple(self._rate(value, window_s) for window_s in WINDOWS_S)

    def _rate(self, value: Callable[[Counters], int], window_s: int) -> float:
        if len(self._samples) < 2:
            return 0.0
        end_ms, newest = self._samples[-1]
        begin_ms, oldest = self._samples[max(-len(self._samples), -1 - window_s)]
        elapsed_ms = end_ms - begin_ms
        return (value(newest) - value(oldest)) * 1000 / elapsed_ms if elapsed_ms > 0 else 0.0
