"""Busy polling: how long the loop polls, and when it backs off; event-loop iterations are real, the time is
simulated."""

import asyncio
import os
import random
from itertools import pairwise

import pytest

from skylarkmq.broker.remoting.busy_polling import (
    FAILURES_BEFORE_BACKOFF,
    MAX_FAILURES,
    BusyPolling,
    BusyPollingStatistics,
    effective_limit_us,
)

LIMIT_US = 300


class SteppedPolling:
    """Busy polling with a simulated clock and received bytes."""

    def __init__(self, limit_us: int = LIMIT_US) -> None:
        self.received_bytes = 0
        self.now_s = 5.0
        self.busy_polling = BusyPolling(limit_us, self, lambda: self.now_s)

    async def iterate(self, after_us: float = 0) -> None:
        """Run one event-loop iteration, after `after_us`."""
        self.now_s += after_us / 1e6
        await asyncio.sleep(0)

    async def time_out(self) -> None:
        """Poll for an event that does not come."""
        self.busy_polling.begin()
        await self.iterate(LIMIT_US + 1)

    @property
    def figures(self) -> BusyPollingStatistics:
        return self.busy_polling.statistics()


async def test_the_loop_polls_until_the_limit() -> None:
    """In each iteration before the limit it polls again, afterwards it stops."""
    it = SteppedPolling()
    it.busy_polling.begin()
    for _ in range(3):
        await it.iterate(LIMIT_US / 4)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=0)
    await it.iterate(LIMIT_US / 2)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=1)


async def test_received_data_ends_the_polling() -> None:
    """Any received data counts as the expected event."""
    it = SteppedPolling()
    it.busy_polling.begin()
    await it.iterate(1)
    it.received_bytes += 1
    await it.iterate(LIMIT_US * 2)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=0)


async def test_polling_continues_after_each_success() -> None:
    """After a send that arrived in time, the loop polls for the next one, for the full limit."""
    it = SteppedPolling()
    for _ in range(5):
        it.busy_polling.begin()
        await it.iterate(LIMIT_US - 1)
        it.received_bytes += 1_300
    assert it.figures == BusyPollingStatistics(polls=5, timed_out=0)


async def test_polling_backs_off_after_timeouts() -> None:
    """The loop polls a few times at every opportunity, then skips twice as many each time, up to 256."""
    it = SteppedPolling()
    occasions = []
    for number in range(2_000):
        before = it.figures.polls
        await it.time_out()
        if it.figures.polls > before:
            occasions.append(number)
    gaps = [after - before for before, after in pairwise(occasions)]
    assert gaps[: FAILURES_BEFORE_BACKOFF - 1] == [1] * (FAILURES_BEFORE_BACKOFF - 1)
    assert gaps[FAILURES_BEFORE_BACKOFF - 1 : MAX_FAILURES] == [2, 3, 5, 9, 17, 33, 65, 129, 257]
    assert set(gaps[MAX_FAILURES:]) == {257}
    assert it.figures.timed_out == len(occasions)


async def test_each_success_cancels_one_timeout() -> None:
    """After as many successes as timeouts, the loop polls at every opportunity again."""
    it = SteppedPolling()
    for _ in range(5_000):
        await it.time_out()
    for _ in range(MAX_FAILURES):
        while not it.busy_polling.begin():
            pass
        it.received_bytes += 1
        await it.iterate()
    before = it.figures.polls
    for _ in range(FAILURES_BEFORE_BACKOFF):
        await it.time_out()
    assert it.figures.polls == before + FAILURES_BEFORE_BACKOFF


async def test_polling_is_rare_for_producers_that_are_rarely_in_time() -> None:
    """Two timeouts per success, on average, are too many."""
    it = SteppedPolling()
    choice = random.Random(5)
    for _ in range(5_000):
        it.busy_polling.begin()
        it.received_bytes += choice.random() < 1 / 3
        await it.iterate(LIMIT_US + 1)
    assert it.figures.polls < 150


async def test_the_limit_can_be_multiplied() -> None:
    """For a flush the loop polls for a multiple of the limit."""
    it = SteppedPolling()
    assert it.busy_polling.begin(2) == LIMIT_US
    await it.iterate(LIMIT_US * 1.5)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=0)
    await it.iterate(LIMIT_US)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=1)


async def test_limit_0_turns_polling_off() -> None:
    """busyPollMicros=0."""
    it = SteppedPolling(0)
    it.busy_polling.begin()
    await it.iterate(1)
    assert it.figures == BusyPollingStatistics(0, 0)


def test_no_polling_on_a_single_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The awaited process could not run."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert effective_limit_us(LIMIT_US) == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3})
    assert effective_limit_us(LIMIT_US) == LIMIT_US
