"""Messages that the broker itself puts into the log, for who can wait: retries, decided transactions, replies.

    status = await puts.put(append)

Requests of one read each run in a task of their own; what they put within one turn of the loop is written by one
write at its end. Under SYNC_FLUSH a put ends when the flush has passed it, unless its `wait_flush` is off. A task never
runs while a read is being served, so the batch of a read is never split; a reader that commits on the way finds these
messages among its own, and they are decided by that.

What is put here belongs to the broker: body and properties must outlast the turn, so no views into a receive buffer.
Source: docs/formats.md, "Append path", "Put results".
"""

import asyncio
from collections.abc import Sequence

import msgspec

from broker.store.append import Append, PutStatus
from broker.store.message_store import MessageStore


class InternalPutsStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: messages put, and those of them that the store refused."""

    puts: int
    refused: int


STORED = frozenset((PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT))
"""A message with one of these is in the log, and will be seen."""


class InternalPuts:
    """Puts into one store. Only for the tasks of its event loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._turn: asyncio.Future[None] | None = None  # done when what was put in this turn is written
        self._puts = 0
        self._refused = 0

    def __repr__(self) -> str:
        return f"<InternalPuts puts={self._puts} refused={self._refused}>"

    def statistics(self) -> InternalPutsStatistics:
        """The figures now."""
        return InternalPutsStatistics(self._puts, self._refused)

    async def put(self, append: Append) -> PutStatus:
        """Put one message; how that ended (docs/formats.md, "Put results")."""
        (status,) = await self.put_each((append,))
        return status

    async def put_each(self, appends: Sequence[Append]) -> list[PutStatus]:
        """Put some messages, in order and in the same write unless a segment ends between them; each has its own end.

        One that has its status already, because a diversion refused it, is passed over.
        """
        for append in appends:
            if append.status is PutStatus.PENDING:
                self._store.put(append)
        return await self._ended(appends)

    async def put_together(self, appends: Sequence[Append]) -> list[PutStatus]:
        """The same, but all of them or none, contiguous in the log."""
        self._store.put_batch(appends)
        return await self._ended(appends)

    async def _ended(self, appends: Sequence[Append]) -> list[PutStatus]:
        if _is_any_pending(appends):
            await asyncio.shield(self._written())
        if _is_any_pending(appends):
            await self._settled()
        self._puts += len(appends)
        self._refused += sum(append.status not in STORED for append in appends)
        return [append.status for append in appends]

    def _written(self) -> "asyncio.Future[None]":
        """Done when this turn's batch is written."""
        if self._turn is None:
            loop = asyncio.get_running_loop()
            self._turn = loop.create_future()
            loop.call_soon(self._end_turn, self._turn)
        return self._turn

    def _end_turn(self, turn: "asyncio.Future[None]") -> None:
        self._turn = None
        try:
            self._store.commit()
        finally:
            turn.set_result(None)

    async def _settled(self) -> None:
        """Wait until everything that is written is decided."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.when_settled(lambda: None if settled.done() else settled.set_result(None))
        await settled


def _is_any_pending(appends: Sequence[Append]) -> bool:
    return any(append.status is PutStatus.PENDING for append in appends)
