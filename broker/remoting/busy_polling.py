"""Busy polling: the loop polls for an event that is expected soon before it sleeps.

A producer with one message in flight sends the next one as soon as it has the response, and a flush that a single
commit waits for takes little time. Sleeping until then costs more than the send itself: on a small virtual machine a
thread wakes after 40 to 80 µs and finds its caches cold, so the same instructions take three times as long. So for up
to `limit_us` the loop polls without blocking. Each poll is a complete event-loop iteration, in which all connections
are served; the interpreter lock is released during the system call.

A poll that times out has wasted CPU. When timeouts exceed successes by FAILURES_BEFORE_BACKOFF, opportunities are
skipped; each further timeout doubles the number of skipped ones, up to 256. So other producers pay about a microsecond
per message. On a machine with a single CPU, on which no producer could send meanwhile, the loop never polls.
"""

import asyncio
import os
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

import msgspec

FAILURES_BEFORE_BACKOFF: Final = 4
MAX_FAILURES: Final = 12  # limit of the failure count: at most 256 opportunities are skipped


class ReceivedBytes(Protocol):
    """The counter that shows whether data arrived."""

    received_bytes: int


class BusyPollingStatistics(msgspec.Struct, frozen=True):
    """How often the loop polled since the start, and how often it timed out."""

    polls: int
    timed_out: int


class BusyPolling:
    """Keeps the loop from sleeping. `clock` returns seconds; `limit_us` 0 turns polling off."""

    def __init__(self, limit_us: int, reads: ReceivedBytes, clock: Callable[[], float] = monotonic) -> None:
        self._limit_us = limit_us
        self._reads = reads
        self._clock = clock
        self._seen_bytes = 0  # when polling began
        self._until_s = 0.0
        self._is_polling = False
        self._to_skip = 0  # opportunities that are still skipped
        self._failures = 0  # timeouts minus successes, at least 0
        self._polls = 0
        self._timed_out = 0
        self._call_soon: Callable[[Callable[[], None]], object] | None = None

    def __repr__(self) -> str:
        return f"<BusyPolling limit_us={self._limit_us} polls={self._polls} timed_out={self._timed_out}>"

    def statistics(self) -> BusyPollingStatistics:
        """Return the current figures."""
        return BusyPollingStatistics(self._polls, self._timed_out)

    def begin(self, times: int = 1) -> int:
        """Poll for an expected event, for `times` times the limit. Return the limit in µs; 0: polling is skipped."""
        if self._to_skip or not self._limit_us:
            self._to_skip -= self._to_skip > 0
            return 0
        self._polls += 1
        self._until_s = self._clock() + self._limit_us * times / 1e6
        self._seen_bytes = self._reads.received_bytes
        if self._is_polling:
            self._succeeded()  # the expected event
        else:
            self._is_polling = True
            if self._call_soon is None:
                self._call_soon = asyncio.get_running_loop().call_soon
            self._call_soon(self._poll)
        return self._limit_us

    def _poll(self) -> None:
        """Continue for another event-loop iteration, unless data arrived or the time is over."""
        if self._reads.received_bytes != self._seen_bytes:
            self._succeeded()
        elif self._clock() < self._until_s and self._call_soon is not None:
            self._call_soon(self._poll)
            return
        else:
            self._timed_out += 1
            self._failures = min(self._failures + 1, MAX_FAILURES)
            self._to_skip = 1 << self._failures >> FAILURES_BEFORE_BACKOFF
        self._is_polling = False

    def _succeeded(self) -> None:
        if self._failures:
            self._failures -= 1


def effective_limit_us(limit_us: int) -> int:
    """Return the limit; 0 on a single CPU, where no other process could run meanwhile."""
    return limit_us if len(os.sched_getaffinity(0)) > 1 else 0
