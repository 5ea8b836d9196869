"""Slices: other work runs while a long response is built."""

import asyncio
from collections.abc import Iterator
from itertools import count, pairwise

import pytest

from skylarkmq.broker.processors.admin import queue_walk
from skylarkmq.broker.processors.admin.queue_walk import in_slices


async def test_other_tasks_run_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """They run after each slice; all items are returned in order."""
    ticks = count()
    monkeypatch.setattr(queue_walk, "monotonic", lambda: next(ticks) * queue_walk.SLICE_S / 10)
    counts: list[int] = []
    made: list[int] = []

    async def others() -> None:
        while True:
            counts.append(len(made))
            await asyncio.sleep(0)

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    task = asyncio.ensure_future(others())
    assert await in_slices(items()) == list(range(100))
    task.cancel()
    assert len(counts) >= 9
    assert max(after - before for before, after in pairwise(counts)) <= 11


async def test_a_short_walk_does_not_yield() -> None:
    """A response within one slice is built at once."""
    making = in_slices([1, 2])
    with pytest.raises(StopIteration) as end:
        making.send(None)
    assert end.value.value == [1, 2]
