"""Rounds: windows, the line, and who waited since when; the loop's turns are real, its time is told."""

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


class Heard:
    """A connection that only notes when it may go on."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order

    def try_resume_reading(self) -> None:
        self._order.append(self._name)


def rounds(is_short: Callable[[], bool] = lambda: False, now_s: float = 1.0) -> ReadScheduler:
    return ReadScheduler(is_short, lambda: now_s)


async def turn() -> None:
    """One turn of the loop."""
    await asyncio.sleep(0)


async def test_a_read_that_fills_the_window_stands_in_line() -> None:
    """One byte less and there is nothing more to read."""
    it = rounds()
    assert len(it.window) == RECEIVE_BUFFER_BYTES
    assert not it.note(RECEIVE_BUFFER_BYTES - 1, 1.0)
    assert it.note(RECEIVE_BUFFER_BYTES, 1.0)


async def test_a_round_that_brought_its_bytes_reads_in_small_pieces() -> None:
    """The byte that makes ROUND_BYTES full closes the window to SMALLEST_READ, until the next round."""
    it = rounds()
    for _ in range(ROUND_BYTES // RECEIVE_BUFFER_BYTES - 1):
        it.note(RECEIVE_BUFFER_BYTES, 1.0)
    it.note(RECEIVE_BUFFER_BYTES - 1, 1.0)
    assert len(it.window) == RECEIVE_BUFFER_BYTES
    it.note(1, 1.0)
    assert len(it.window) == SMALLEST_READ
    assert not it.note(SMALLEST_READ - 1, 1.0)
    assert it.note(SMALLEST_READ, 1.0)
    await turn()
    assert len(it.window) == RECEIVE_BUFFER_BYTES


async def test_the_line_is_let_in_first_come_first_served() -> None:
    """With many in line, as many a round as share its bytes by usual reads; with few, all with more."""
    it = rounds()
    order: list[str] = []
    names = [f"{number}" for number in range(67)]
    for name in names:
        it.enqueue(Heard(name, order))
    assert it.statistics().queued == 67
    await turn()
    assert (order, len(it.window)) == (names[:32], USUAL_READ)
    await turn()
    assert (order, len(it.window)) == (names[:64], USUAL_READ)
    await turn()
    assert (order, len(it.window)) == (names, RECEIVE_BUFFER_BYTES)
    await turn()
    figures = it.statistics()
    assert (figures.queued, figures.filled, figures.rounds) == (0, 67, 3)


async def test_nobody_stands_in_line_twice() -> None:
    """A connection that was let go on from elsewhere keeps its one place."""
    it = rounds()
    order: list[str] = []
    heard = Heard("a", order)
    it.enqueue(heard)
    it.enqueue(heard)
    await turn()
    await turn()
    assert order == ["a"]


async def test_who_is_gone_leaves_the_line() -> None:
    """Its place is the next one's."""
    it = rounds()
    order: list[str] = []
    gone, other = Heard("gone", order), Heard("other", order)
    it.enqueue(gone)
    it.enqueue(other)
    it.forget(gone)
    it.forget(gone)
    await turn()
    assert order == ["other"]


async def test_short_memory_means_small_reads() -> None:
    """From the next round on, for as long as it is short."""
    short = True
    it = rounds(lambda: short)
    it.note(RECEIVE_BUFFER_BYTES, 1.0)
    await turn()
    assert len(it.window) == SMALLEST_READ
    it.note(SMALLEST_READ, 1.0)
    short = False
    await turn()
    assert len(it.window) == RECEIVE_BUFFER_BYTES


async def test_rounds_that_take_long_bring_less() -> None:
    """Half of the bytes after LONG_S, down to one usual read; twice as many again after rounds of less than half of
    LONG_S; in between nothing changes."""
    now_s = 1.0
    it = ReadScheduler(lambda: False, lambda: now_s)

    async def end_after(took_s: float) -> int:
        """The window behind a round that took so long."""
        nonlocal now_s
        it.note(USUAL_READ, now_s)
        now_s += took_s
        await turn()
        return len(it.window)

    round_bytes = ROUND_BYTES
    while round_bytes > USUAL_READ:
        round_bytes //= 2
        assert await end_after(LONG_S) == min(round_bytes, RECEIVE_BUFFER_BYTES)
    assert await end_after(1.0) == USUAL_READ
    assert await end_after(LONG_S * 0.9) == USUAL_READ
    assert await end_after(LONG_S * 0.4) == 2 * USUAL_READ
    it.note(2 * USUAL_READ - 1, now_s)
    assert len(it.window) == 2 * USUAL_READ
    it.note(1, now_s)
    assert len(it.window) == SMALLEST_READ


async def test_the_last_of_a_round_has_waited_for_all_others() -> None:
    """A round's requests wait since its first read; the next round begins anew."""
    it = rounds()
    it.note(USUAL_READ, 1.0)
    it.note(10, 1.3)
    assert it.began_s == 1.0
    await turn()
    it.note(10, 1.4)
    assert it.began_s == 1.4


async def test_a_round_behind_a_line_begins_with_its_own_first_read() -> None:
    """Those who stand in line are none of its wait."""
    it = rounds()
    for number in range(40):
        it.enqueue(Heard(f"{number}", []))
    it.note(SMALLEST_READ, 1.0)
    await turn()
    assert it.statistics().queued
    it.note(USUAL_READ, 2.0)
    assert it.began_s == 2.0
    await turn()
    it.stalled(2.5)
    it.note(10, 3.0)
    assert it.began_s == 2.5


async def test_a_few_small_reads_are_no_round() -> None:
    """Telling their rounds apart would cost as much as they do; sixteen begin one, or as many bytes as a usual read."""
    it = rounds()
    it.note(USUAL_READ - 1, 0.1)
    it.note(1, 0.2)
    it.note(10, 0.3)
    assert it.began_s == 0.2
    await turn()
    for number in range(16):
        it.note(10, 1.0 + number)
    assert it.began_s == 16.0
    it.note(10, 17.0)
    it.note(10, 18.0)
    assert it.began_s == 17.0
    await turn()
    assert it.statistics().rounds == 2


async def test_after_a_stall_everybody_has_waited_for_it() -> None:
    """Also behind a small read, until the round is over."""
    it = rounds()
    it.note(10, 1.0)
    it.stalled(1.0)
    it.note(10, 1.5)
    assert it.began_s == 1.0
    it.stalled(1.5)  # as the round's first read has waited longest
    assert it.began_s == 1.0
    await turn()
    it.note(10, 1.6)
    assert it.began_s == 1.6
