"""Lookout: when something is near, the loop looks for it before it goes to sleep.

Who has one send in flight sends the next as soon as he has his answer, and a flush that one commit waits for takes
little time. To sleep until then costs more than the send: a thread is woken after 40 to 80 µs on a small virtual
machine, and finds its caches cold, so that the same instructions take three times as long. So for up to `limit_us` the
loop polls without waiting, turn after turn; each is a whole turn, in which everybody is served, and the interpreter is
free while the kernel is asked.

Looking in vain costs CPU for nothing. When failures are PATIENCE ahead of successes, occasions are let pass, and with
each further failure twice as many, up to 256. So it costs senders of any other habit a microsecond a message, and where
there is only one CPU, on which nobody could send meanwhile, nothing is looked for.
"""

import asyncio
import os
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

import msgspec

PATIENCE: Final = 4
MOST_MISSED: Final = 12  # failures that are told apart: 256 occasions are let pass at most


class Reads(Protocol):
    """What shows that somebody came."""

    received_bytes: int


class LookoutStatistics(msgspec.Struct, frozen=True):
    """How often the loop looked since the start, and how often nobody came in time."""

    looks: int
    in_vain: int


class Lookout:
    """Keeps the loop from sleeping. `clock` counts seconds; `limit_us` 0: never."""

    def __init__(self, limit_us: int, reads: Reads, clock: Callable[[], float] = monotonic) -> None:
        self._limit_us = limit_us
        self._reads = reads
        self._clock = clock
        self._seen_bytes = 0  # when the look began
        self._until_s = 0.0
        self._is_looking = False
        self._to_pass = 0  # so many occasions are still let pass
        self._missed = 0  # by how many looks in vain are ahead
        self._looks = 0
        self._in_vain = 0
        self._call_soon: Callable[[Callable[[], None]], object] | None = None

    def __repr__(self) -> str:
        return f"<Lookout limit_us={self._limit_us} looks={self._looks} in_vain={self._in_vain}>"

    def statistics(self) -> LookoutStatistics:
        """The figures now."""
        return LookoutStatistics(self._looks, self._in_vain)

    def begin(self, times: int = 1) -> int:
        """Something comes soon: look for it, for so many times the limit. Returns the limit in µs; 0: not this time."""
        if self._to_pass or not self._limit_us:
            self._to_pass -= self._to_pass > 0
            return 0
        self._looks += 1
        self._until_s = self._clock() + self._limit_us * times / 1e6
        self._seen_bytes = self._reads.received_bytes
        if self._is_looking:
            self._came()  # it is the one looked for
        else:
            self._is_looking = True
            if self._call_soon is None:
                self._call_soon = asyncio.get_running_loop().call_soon
            self._call_soon(self._look)
        return self._limit_us

    def _look(self) -> None:
        """One turn more, unless somebody came, or nobody in time."""
        if self._reads.received_bytes != self._seen_bytes:
            self._came()
        elif self._clock() < self._until_s and self._call_soon is not None:
            self._call_soon(self._look)
            return
        else:
            self._in_vain += 1
            self._missed = min(self._missed + 1, MOST_MISSED)
            self._to_pass = 1 << self._missed >> PATIENCE
        self._is_looking = False

    def _came(self) -> None:
        if self._missed:
            self._missed -= 1


def affordable(limit_us: int) -> int:
    """The limit; 0 where nobody else could run meanwhile."""
    return limit_us if len(os.sched_getaffinity(0)) > 1 else 0
