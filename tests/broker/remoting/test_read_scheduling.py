"""Read scheduling: windows, the queue, and waiting times; event-loop iterations are real, the time is simulated."""

import asyncio
from collections.abc import Callable

from skylarkmq.broker.remoting.read_scheduling import (
    LONG_S,
    RECEIVE_BUFFER_BYTES,
    ROUND_BYTES,
    SMALLEST_READ,
    USUAL_READ,
    ReadScheduler,
)


class FakeConnection:
    """A connection that records when it may read again."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order

    def try_resume_reading(self) -> None:
        self._order.append(self._name)


def scheduler(is_short: Callable[[], bool] = lambda: False, now_s: float = 1.0) -> ReadScheduler:
    return ReadScheduler(is_short, lambda: now_s)


async def iterate() -> None:
    """Run one event-loop iteration."""
    await asyncio.sleep(0)


async def test_a_read_that_fills_the_window_is_queued() -> None:
    """With one byte less there is nothing more to read."""
    it = scheduler()
    assert len(it.window) == RECEIVE_BUFFER_BYTES
    assert not it.record_read(RECEIVE_BUFFER_BYTES - 1, 1.0)
    assert it.record_read(RECEIVE_BUFFER_BYTES, 1.0)


async def test_reads_are_small_after_the_bytes_of_a_round() -> None:
    """The byte that completes ROUND_BYTES reduces the window to SMALLEST_READ, until the next round."""
    it = scheduler()
    for _ in range(ROUND_BYTES // RECEIVE_BUFFER_BYTES - 1):
        it.record_read(RECEIVE_BUFFER_BYTES, 1.0)
    it.record_read(RECEIVE_BUFFER_BYTES - 1, 1.0)
    assert len(it.window) == RECEIVE_BUFFER_BYTES
    it.record_read(1, 1.0)
    assert len(it.window) == SMALLEST_READ
    assert not it.record_read(SMALLEST_READ - 1, 1.0)
    assert it.record_read(SMALLEST_READ, 1.0)
    await iterate()
    assert len(it.window) == RECEIVE_BUFFER_BYTES


async def test_the_queue_resumes_in_order() -> None:
    """A long queue resumes as many connections per round as share its bytes in usual reads; a short one resumes all."""
    it = scheduler()
    order: list[str] = []
    names = [f"{number}" for number in range(67)]
    for name in names:
        it.enqueue(FakeConnection(name, order))
    assert it.statistics().queued == 67
    await iterate()
    assert (order, len(it.window)) == (names[:32], USUAL_READ)
    await iterate()
    assert (order, len(it.window)) == (names[:64], USUAL_READ)
    await iterate()
    assert (order, len(it.window)) == (names, RECEIVE_BUFFER_BYTES)
    await iterate()
    figures = it.statistics()
    assert (figures.queued, figures.filled, figures.rounds) == (0, 67, 3)


async def test_a_connection_is_queued_once() -> None:
    """A connection that is enqueued again keeps its position."""
    it = scheduler()
    order: list[str] = []
    connection = FakeConnection("a", order)
    it.enqueue(connection)
    it.enqueue(connection)
    await iterate()
    await iterate()
    assert order == ["a"]


async def test_a_closed_connection_leaves_the_queue() -> None:
    """The next connection takes its position."""
    it = scheduler()
    order: list[str] = []
    gone, other = FakeConnection("gone", order), FakeConnection("other", order)
    it.enqueue(gone)
    it.enqueue(other)
    it.forget(gone)
    it.forget(gone)
    await iterate()
    assert order == ["other"]


async def test_short_memory_means_small_reads() -> None:
    """From the next round on, as long as memory is short."""
    short = True
    it = scheduler(lambda: short)
    it.record_read(RECEIVE_BUFFER_BYTES, 1.0)
    await iterate()
    assert len(it.window) == SMALLEST_READ
    it.record_read(SMALLEST_READ, 1.0)
    short = False
    await iterate()
    assert len(it.window) == RECEIVE_BUFFER_BYTES


async def test_rounds_are_smaller_after_long_ones() -> None:
    """Half of the bytes after LONG_S, down to one usual read; twice as many after rounds of less than half of LONG_S;
    no change in between."""
    now_s = 1.0
    it = ReadScheduler(lambda: False, lambda: now_s)

    async def end_after(duration_s: float) -> int:
        """Return the window after a round of this duration."""
        nonlocal now_s
        it.record_read(USUAL_READ, now_s)
        now_s += duration_s
        await iterate()
        return len(it.window)

    round_bytes = ROUND_BYTES
    while round_bytes > USUAL_READ:
        round_bytes //= 2
        assert await end_after(LONG_S) == min(round_bytes, RECEIVE_BUFFER_BYTES)
    assert await end_after(1.0) == USUAL_READ
    assert await end_after(LONG_S * 0.9) == USUAL_READ
    assert await end_after(LONG_S * 0.4) == 2 * USUAL_READ
    it.record_read(2 * USUAL_READ - 1, now_s)
    assert len(it.window) == 2 * USUAL_READ
    it.record_read(1, now_s)
    assert len(it.window) == SMALLEST_READ


async def test_the_requests_of_a_round_wait_since_its_first_read() -> None:
    """The next round has a new start time."""
    it = scheduler()
    it.record_read(USUAL_READ, 1.0)
    it.record_read(10, 1.3)
    assert it.began_s == 1.0
    await iterate()
    it.record_read(10, 1.4)
    assert it.began_s == 1.4


async def test_a_round_with_a_queue_begins_with_its_own_first_read() -> None:
    """Queued connections do not count as waiting time."""
    it = scheduler()
    for number in range(40):
        it.enqueue(FakeConnection(f"{number}", []))
    it.record_read(SMALLEST_READ, 1.0)
    await iterate()
    assert it.statistics().queued
    it.record_read(USUAL_READ, 2.0)
    assert it.began_s == 2.0
    await iterate()
    it.record_stall(2.5)
    it.record_read(10, 3.0)
    assert it.began_s == 2.5


async def test_a_few_small_reads_share_no_start_time() -> None:
    """Tracking their rounds would cost as much as the reads; sixteen reads, or the bytes of a usual read, begin a
    round."""
    it = scheduler()
    it.record_read(USUAL_READ - 1, 0.1)
    it.record_read(1, 0.2)
    it.record_read(10, 0.3)
    assert it.began_s == 0.2
    await iterate()
    for number in range(16):
        it.record_read(10, 1.0 + number)
    assert it.began_s == 16.0
    it.record_read(10, 17.0)
    it.record_read(10, 18.0)
    assert it.began_s == 17.0
    await iterate()
    assert it.statistics().rounds == 2


async def test_all_requests_after_a_stall_have_waited_for_it() -> None:
    """Also after a small read, until the end of the round."""
    it = scheduler()
    it.record_read(10, 1.0)
    it.record_stall(1.0)
    it.record_read(10, 1.5)
    assert it.began_s == 1.0
    it.record_stall(1.5)  # as the round's first read has waited longest
    assert it.began_s == 1.0
    await iterate()
    it.record_read(10, 1.6)
    assert it.began_s == 1.6
