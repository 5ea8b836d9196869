"""When messages are due at a fixed rate, whatever the broker does.

A loader that waits for a slow answer and only then sends the next message leaves out just those latencies that a
steady sender would have met (coordinated omission). So the times are fixed beforehand: message n is due at
start + n / rate, a message that could not leave on time leaves late, and its latency counts from the time at which it
was due.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

NS: Final = 1_000_000_000


class Schedule:
    """Due times in nanoseconds of the clock that gave `start_ns`; `rate` is messages per second."""

    __slots__ = ("_interval_ns", "sent", "start_ns")

    def __init__(self, rate: float, start_ns: int) -> None:
        if rate <= 0:
            raise ValueError(f"a rate is messages per second and above 0, not {rate}")
        self._interval_ns = NS / rate
        self.start_ns = start_ns
        self.sent = 0

    def __repr__(self) -> str:
        return f"<Schedule {NS / self._interval_ns:g}/s sent={self.sent}>"

    def due(self, now_ns: int) -> int:
        """How many messages should have been sent by now and were not."""
        return int((now_ns - self.start_ns) / self._interval_ns) + 1 - self.sent

    def next_due_ns(self) -> int:
        """When the next message is due."""
        return self.start_ns + int(self.sent * self._interval_ns)

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """The due times of the next messages, which count as sent."""
        numbers = np.arange(self.sent, self.sent + count)
        self.sent += count
        return self.start_ns + (numbers * self._interval_ns).astype(np.int64)
