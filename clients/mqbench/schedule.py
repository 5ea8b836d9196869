"""Due times of messages at a fixed rate, independent of the broker.

A loader that waits for a slow response before it sends the next message omits exactly those latencies that a steady
producer would have observed (coordinated omission). So the times are fixed in advance: message n is due at
start + n / rate. A message that cannot leave on time leaves late, and its latency counts from its due time.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

NS: Final = 1_000_000_000


class Schedule:
    """Due times in nanoseconds of the clock of `start_ns`; `rate` is messages per second."""

    __slots__ = ("_interval_ns", "sent", "start_ns")

    def __init__(self, rate: float, start_ns: int) -> None:
        if rate <= 0:
            raise ValueError(f"a rate must be above 0 messages per second, not {rate}")
        self._interval_ns = NS / rate
        self.start_ns = start_ns
        self.sent = 0

    def __repr__(self) -> str:
        return f"<Schedule {NS / self._interval_ns:g}/s sent={self.sent}>"

    def due(self, now_ns: int) -> int:
        """Return how many messages are due and not sent."""
        return int((now_ns - self.start_ns) / self._interval_ns) + 1 - self.sent

    def next_due_ns(self) -> int:
        """Return the due time of the next message."""
        return self.start_ns + int(self.sent * self._interval_ns)

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """Return the due times of the next messages, and count them as sent."""
        numbers = np.arange(self.sent, self.sent + count)
        self.sent += count
        return self.start_ns + (numbers * self._interval_ns).astype(np.int64)
