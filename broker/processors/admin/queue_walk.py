"""Reads over many queues for one response, in slices, so that the event loop keeps serving other connections.

`QueueWalk.read` runs one lookup after another. It waits for data that is not in memory, and yields to the event loop
after each slice. Data may change during a walk: the caller copies tables first, and a response is no snapshot of one
moment. `in_slices` does the same for work that needs no disk, such as the pieces of a long response.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final, TypeVar

from skylarkmq.broker.delivery.cold_read_retry import looked_up
from skylarkmq.broker.store.message_store import MessageStore

SLICE_S: Final = 0.0005

T = TypeVar("T")


class QueueWalk:
    """One walk, whose first slice begins when it is made."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._began_s = monotonic()

    def __repr__(self) -> str:
        return f"<QueueWalk {self._store!r}>"

    async def read(self, lookup: Callable[[], T]) -> T:
        """Return the result of `lookup` once all its data is in memory."""
        if monotonic() - self._began_s > SLICE_S:
            await asyncio.sleep(0)
            self._began_s = monotonic()
        return await looked_up(self._store, lookup)


async def in_slices(items: Iterable[T]) -> list[T]:
    """Return all of `items`, yielding to the event loop after each slice."""
    made = []
    began_s = monotonic()
    for item in items:
        made.append(item)
        if monotonic() - began_s > SLICE_S:
            await asyncio.sleep(0)
            began_s = monotonic()
    return made
