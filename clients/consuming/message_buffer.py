"""Messages that wait for the application: received by the readers of all queues, taken one by one.

One taker is woken at a time, and wakes the next one if there is still something when it has taken its message: a
handler that never waits takes all there is in one go, and nobody else is woken for nothing.

A message counts against the limits from its arrival until it is finished, so a reader whose queue has enough of them
does not pull (`QueueReader.has_room`). Messages of a queue that was given up are passed over when their turn comes.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

import msgspec

from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.protocol.message import MessageExt


class Sink(Protocol):
    """Where readers put what they received."""

    def __len__(self) -> int:
        """Messages that wait."""

    def put(self, deliveries: Iterable["Delivery"]) -> None:
        """Add messages of one queue."""

    async def settle(self, progress: Progress) -> None:
        """Wait until another row of messages of the same queue may begin."""


class Delivery(msgspec.Struct, eq=False):
    """One message on its way through the application."""

    message: MessageExt
    progress: Progress
    failures: int = 0

    def finish(self) -> None:
        """Done: the offset may advance over this message."""
        self.progress.finish(self.message.queue_offset)


class Inbox:
    """First in, first out."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._is_waking = False
        self.closed = False

    def __repr__(self) -> str:
        return f"<Inbox {len(self._deliveries)} waiting>"

    def __len__(self) -> int:
        return len(self._deliveries)

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Add to the end."""
        self._deliveries.extend(deliveries)
        self._wake()

    async def settle(self, progress: Progress) -> None:
        """At once: the order in which messages are worked on is nobody's concern here."""

    def put_back(self, delivery: Delivery) -> None:
        """Return what was taken: it is next."""
        self._deliveries.appendleft(delivery)
        self._wake()

    def take_nowait(self) -> Delivery | None:
        """The next message, if there is one, and the inbox is open."""
        while self._deliveries and not self.closed:
            delivery = self._deliveries.popleft()
            if not delivery.progress.dropped:
                return delivery
        return None

    async def take(self) -> Delivery | None:
        """The next message, as soon as there is one; None when the inbox is closed."""
        while not self.closed:
            delivery = self.take_nowait()
            if delivery is not None:
                return delivery
            await self._news()
            if len(self._deliveries) > 1:
                self._wake()
        return None

    async def _news(self) -> None:
        taker = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        try:
            await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():
                self._is_waking = False
                self._wake()  # it was this taker's turn: somebody else's now
            raise
        self._is_waking = False

    async def iterate(self, taken: Callable[[MessageExt, float], None] | None = None) -> AsyncIterator[MessageExt]:
        """Every message; each is finished when the next one is asked for, and goes back if none is. `taken` hears of
        each, with the time (Unix, s) since when it was waited for.
        """
        begun_s = time.time() if taken else 0.0
        while (delivery := await self.take()) is not None:
            if taken is not None:
                taken(delivery.message, begun_s)
            try:
                yield delivery.message
            except GeneratorExit:
                self.put_back(delivery)
                raise
            delivery.finish()
            begun_s = time.time() if taken else 0.0

    def close(self) -> None:
        """Let nobody wait any more; what was not taken is dropped."""
        self.closed = True
        self._deliveries.clear()
        while self._takers:
            self._is_waking = False
            self._wake()

    def forked(self) -> None:
        """Drop everything, in the child of a fork: takers and messages are the parent's."""
        self.closed = True
        self._deliveries.clear()
        self._takers.clear()

    def _wake(self) -> None:
        """Wake one taker, unless one is on its way."""
        while self._takers and not self._is_waking:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                self._is_waking = True
