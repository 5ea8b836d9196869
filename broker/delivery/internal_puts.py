"""Messages that the broker itself puts into the log, for who can wait: retries, decided transactions, replies.

    status = await puts.put(append)

Requests of one read each run in a task of their own; what they put within one turn of the loop gathers, and goes into
the log at its end, in one go and by one write. So no batch is open while anything else runs: all messages of one are
stamped with the time at which it began, and what a read brings later must not be stored as of before it was sent.
Under SYNC_FLUSH a put ends when the flush has passed it, unless its `wait_flush` is off.

What is put here belongs to the broker: body and properties must outlast the turn, so no views into a receive buffer.
Source: docs/formats.md, "Append path", "Put results".
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore


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
        self._turn: list[tuple[Callable[[], None], asyncio.Future[None]]] = []  # what is put at its end, who waits
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
        return await self._ended(appends, partial(self._put_each, appends))

    async def put_together(self, appends: Sequence[Append]) -> list[PutStatus]:
        """The same, but all of them or none, contiguous in the log."""
        return await self._ended(appends, partial(self._store.put_batch, appends))

    def _put_each(self, appends: Sequence[Append]) -> None:
        for append in appends:
            if append.status is PutStatus.PENDING:
                self._store.put(append)

    async def _ended(self, appends: Sequence[Append], put: Callable[[], None]) -> list[PutStatus]:
        if _is_any_pending(appends):
            await self._at_end_of_turn(put)
        if _is_any_pending(appends):
            await self._settled()
        self._puts += len(appends)
        self._refused += sum(append.status not in STORED for append in appends)
        return [append.status for append in appends]

    def _at_end_of_turn(self, put: Callable[[], None]) -> "asyncio.Future[None]":
        """Done when it is written, or raises what `put` does."""
        loop = asyncio.get_running_loop()
        if not self._turn:
            loop.call_soon(self._end_turn)
        written: asyncio.Future[None] = loop.create_future()
        self._turn.append((put, written))
        return written

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, []
        put = []
        for add, written in turn:
            try:
                add()
            except Exception as error:  # noqa: BLE001 (raised by who waits for it)
                _finish(written, error)
            else:
                put.append(written)
        try:
            self._store.commit()
        finally:
            for written in put:
                _finish(written)

    async def _settled(self) -> None:
        """Wait until everything that is written is decided."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.when_settled(lambda: None if settled.done() else settled.set_result(None))
        await settled


def _is_any_pending(appends: Sequence[Append]) -> bool:
    return any(append.status is PutStatus.PENDING for append in appends)


def _finish(written: "asyncio.Future[None]", error: Exception | None = None) -> None:
    if written.done():
        return  # nobody waits any more
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
