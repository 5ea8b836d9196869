"""Looking out: how long the loop stays awake, for whom, and when it gives up; its turns are real, the time is told."""

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


class Awake:
    """A lookout, the clock it goes by, and the bytes that it sees come."""

    def __init__(self, limit_us: int = LIMIT_US) -> None:
        self.received_bytes = 0
        self.now_s = 5.0
        self.busy_polling = BusyPolling(limit_us, self, lambda: self.now_s)

    async def turn(self, after_us: float = 0) -> None:
        """One turn of the loop, so much later."""
        self.now_s += after_us / 1e6
        await asyncio.sleep(0)

    async def miss(self) -> None:
        """Something is near, and does not come."""
        self.busy_polling.begin()
        await self.turn(LIMIT_US + 1)

    @property
    def figures(self) -> BusyPollingStatistics:
        return self.busy_polling.statistics()


async def test_the_loop_looks_until_the_limit() -> None:
    """In each turn before it once more, behind it no more."""
    it = Awake()
    it.lookout.begin()
    for _ in range(3):
        await it.turn(LIMIT_US / 4)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=0)
    await it.turn(LIMIT_US / 2)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=1)


async def test_who_comes_in_time_ends_the_look() -> None:
    """Whatever was read, it is what the loop was awake for."""
    it = Awake()
    it.lookout.begin()
    await it.turn(1)
    it.received_bytes += 1
    await it.turn(LIMIT_US * 2)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=0)


async def test_looks_follow_each_other_without_a_gap() -> None:
    """A send that was looked for has the next one looked for, for as long again."""
    it = Awake()
    for _ in range(5):
        it.lookout.begin()
        await it.turn(LIMIT_US - 1)
        it.received_bytes += 1_300
    assert it.figures == BusyPollingStatistics(polls=5, timed_out=0)


async def test_who_never_comes_in_time_is_looked_for_ever_more_rarely() -> None:
    """A few times at every occasion, then with twice as many left out each time, at last 256."""
    it = Awake()
    occasions = []
    for number in range(2_000):
        before = it.figures.polls
        await it.miss()
        if it.figures.polls > before:
            occasions.append(number)
    gaps = [after - before for before, after in pairwise(occasions)]
    assert gaps[: FAILURES_BEFORE_BACKOFF - 1] == [1] * (FAILURES_BEFORE_BACKOFF - 1)
    assert gaps[FAILURES_BEFORE_BACKOFF - 1 : MAX_FAILURES] == [2, 3, 5, 9, 17, 33, 65, 129, 257]
    assert set(gaps[MAX_FAILURES:]) == {257}
    assert it.figures.timed_out == len(occasions)


async def test_each_who_comes_in_time_takes_a_failure_back() -> None:
    """As many as had failed, and every occasion counts again, as in the beginning."""
    it = Awake()
    for _ in range(5_000):
        await it.miss()
    for _ in range(MAX_FAILURES):
        while not it.lookout.begin():
            pass
        it.received_bytes += 1
        await it.turn()
    before = it.figures.polls
    for _ in range(FAILURES_BEFORE_BACKOFF):
        await it.miss()
    assert it.figures.polls == before + FAILURES_BEFORE_BACKOFF


async def test_who_seldom_comes_in_time_is_seldom_looked_for() -> None:
    """Two failures for each success, on average, are too many."""
    it = Awake()
    choice = random.Random(5)
    for _ in range(5_000):
        it.lookout.begin()
        it.received_bytes += choice.random() < 1 / 3
        await it.turn(LIMIT_US + 1)
    assert it.figures.polls < 150


async def test_a_flush_is_looked_for_longer() -> None:
    """So many times the limit."""
    it = Awake()
    assert it.lookout.begin(2) == LIMIT_US
    await it.turn(LIMIT_US * 1.5)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=0)
    await it.turn(LIMIT_US)
    assert it.figures == BusyPollingStatistics(polls=1, timed_out=1)


async def test_without_a_limit_nothing_is_looked_for() -> None:
    """busyPollMicros=0."""
    it = Awake(0)
    it.lookout.begin()
    await it.turn(1)
    assert it.figures == BusyPollingStatistics(0, 0)


def test_one_cpu_is_not_kept_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is waited for could not run."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert effective_limit_us(LIMIT_US) == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3})
    assert effective_limit_us(LIMIT_US) == LIMIT_US
