"""Slices: everybody else has turns while a long answer is made."""

import asyncio
from collections.abc import Iterator
from itertools import count, pairwise

import pytest

from skylarkmq.broker.processors.admin import queue_walk
from skylarkmq.broker.processors.admin.queue_walk import in_slices


async def test_others_have_turns_while_items_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each slice; nothing is left out, and the order stays."""
    ticks = count()
    monkeypatch.setattr(queue_walk, "monotonic", lambda: next(ticks) * queue_walk.SLICE_S / 10)
    turns: list[int] = []
    made: list[int] = []

    async def others() -> None:
        while True:
            turns.append(len(made))
            await asyncio.sleep(0)

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    task = asyncio.ensure_future(others())
    assert await in_slices(items()) == list(range(100))
    task.cancel()
    assert len(turns) >= 9
    assert max(after - before for before, after in pairwise(turns)) <= 11


async def test_what_is_short_takes_no_turn() -> None:
    """An answer within one slice is made at once."""
    making = in_slices([1, 2])
    with pytest.raises(StopIteration) as end:
        making.send(None)
    assert end.value.value == [1, 2]
