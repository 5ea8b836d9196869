"""Walks over many queues for one answer: what is not in memory is waited for, and nobody else waits for the walk.

A walk reads one thing after the other with `read`; each time that it has used up a slice, everybody else has a turn.
What it reads may change meanwhile: it takes copies of tables first, and an answer is not of one moment. `in_slices` is
the same for what needs no disk, such as the pieces of a long answer.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, TypeVar

from skylarkmq.broker.delivery.cold_read_retry import with_cold_read_retry
from skylarkmq.broker.store.message_store import MessageStore

SLICE_S: Final = 0.0005

T = TypeVar("T")


class Walk:
    """One walk. Make it where it begins."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._began_s = monotonic()

    def __repr__(self) -> str:
        return f"<Walk {self._store!r}>"

    async def read(self, lookup: Callable[[], T]) -> T:
        """What `lookup` returns, once all of it is in memory."""
        if monotonic() - self._began_s > SLICE_S:
            await asyncio.sleep(0)
            self._began_s = monotonic()
        return await with_cold_read_retry(self._store, lookup)


async def in_slices(items: Iterable[T]) -> list[T]:
    """All of `items`; while they are made, everybody else has a turn after each slice."""
    made = []
    began_s = monotonic()
    for item in items:
        made.append(item)
        if monotonic() - began_s > SLICE_S:
            await asyncio.sleep(0)
            began_s = monotonic()
    return made
