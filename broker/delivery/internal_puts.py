"""Puts of messages that the broker itself creates: retries, decided transactions, replies. They are awaited.

    status = await puts.put(append)

The requests of one read run in tasks of their own. The messages that they put in one event-loop iteration are collected
and go into the log at its end, together and with one write. So no batch is open while other code runs. This matters
because all messages of a batch get the time at which it began as their store time, and a message that a later read
brings must not get a store time from before it was sent. Under SYNC_FLUSH a put completes when the flush has covered
it, and with copies on other machines when it is copied, unless its `wait_flush` is off.

Body and properties of an append must outlast the iteration, so they must not be views into a receive buffer.
Source: docs/reference/disk.md, "Append path", "Put results".
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.message_store import MessageStore


class InternalPutsStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: messages put, and those that the store rejected."""

    puts: int
    refused: int


STORED: Final = frozenset(
    (
        PutStatus.PUT_OK,
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    )
)
"""A message with one of these statuses is in the log, and becomes visible."""


class InternalPuts:
    """Puts into one store, for the tasks of its event loop."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._collected: list[tuple[Callable[[], None], asyncio.Future[None]]] = []  # puts of this iteration
        self._puts = 0
        self._refused = 0

    def __repr__(self) -> str:
        return f"<InternalPuts puts={self._puts} refused={self._refused}>"

    def statistics(self) -> InternalPutsStatistics:
        """Return the current figures."""
        return InternalPutsStatistics(self._puts, self._refused)

    async def put(self, append: Append) -> PutStatus:
        """Put one message and return its status (docs/reference/disk.md, "Put results")."""
        (status,) = await self.put_each((append,))
        return status

    async def put_each(self, appends: Sequence[Append]) -> list[PutStatus]:
        """Put messages in order, in the same write unless a segment ends between them, and return their statuses.

        A message whose status is already set, because a deferral rejected it, is not put.
        """
        return await self._ended(appends, partial(self._put_each, appends))

    async def put_together(self, appends: Sequence[Append]) -> list[PutStatus]:
        """Put all of the messages or none, contiguous in the log, and return their statuses."""
        return await self._ended(appends, partial(self._store.put_batch, appends))

    def _put_each(self, appends: Sequence[Append]) -> None:
        for append in appends:
            if append.status is PutStatus.PENDING:
                self._store.put(append)

    async def _ended(self, appends: Sequence[Append], put: Callable[[], None]) -> list[PutStatus]:
        if _is_any_pending(appends):
            await self._at_end_of_iteration(put)
        if _is_any_pending(appends):
            await self._settled()
        self._puts += len(appends)
        self._refused += sum(append.status not in STORED for append in appends)
        return [append.status for append in appends]

    def _at_end_of_iteration(self, put: Callable[[], None]) -> "asyncio.Future[None]":
        """Return a future that is done when the messages are written; it raises the exception of `put`."""
        loop = asyncio.get_running_loop()
        if not self._collected:
            loop.call_soon(self._put_collected)
        written: asyncio.Future[None] = loop.create_future()
        self._collected.append((put, written))
        return written

    def _put_collected(self) -> None:
        collected, self._collected = self._collected, []
        put = []
        for add, written in collected:
            try:
                add()
            except Exception as error:  # noqa: BLE001 (raised in the task that awaits it)
                _finish(written, error)
            else:
                put.append(written)
        try:
            self._store.commit()
        finally:
            for written in put:
                _finish(written)

    async def _settled(self) -> None:
        """Wait until the status of everything written is decided."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.flush.when_settled(lambda: None if settled.done() else settled.set_result(None))
        await settled


def _is_any_pending(appends: Sequence[Append]) -> bool:
    return any(append.status is PutStatus.PENDING for append in appends)


def _finish(written: "asyncio.Future[None]", error: Exception | None = None) -> None:
    if written.done():
        return  # the waiting task was canceled
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(error)
