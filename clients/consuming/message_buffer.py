"""The message buffer of a consumer: messages from all queues, waiting for the application.

At most one waiting taker is woken at a time. It wakes the next one if there are messages left after it has taken its
own. So a handler that never waits takes all messages without a wake-up of the other takers.

A message counts against the limits from its arrival until its acknowledgement. A puller whose queue has reached a limit
does not pull (`QueuePuller.has_capacity`). Messages of a revoked queue, and messages that were acknowledged after they
were put back, are skipped.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol

import msgspec

from skylarkmq.clients.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.errors import ClientError
from skylarkmq.protocol.message import MessageExt


class Sink(Protocol):
    """Where pullers put the messages that they receive."""

    def __len__(self) -> int:
        """Return the number of waiting messages."""

    def put(self, deliveries: Iterable["Delivery"]) -> None:
        """Add messages of one queue."""

    async def settle(self, tracker: OffsetTracker) -> None:
        """Wait until no handler works on a message of this queue that may not be overtaken."""

    def next_offset(self, tracker: OffsetTracker) -> int | None:
        """Return the offset of the first waiting message of a queue; None if there is none."""


class Delivery(msgspec.Struct, eq=False):
    """One message on its way through the application. `failures` counts redeliveries within this process.

    `error` is set if the body cannot be read: such a message is never passed to a handler.
    """

    message: MessageExt
    tracker: OffsetTracker
    failures: int = 0
    finished: bool = False
    error: ClientError | None = None

    def finish(self) -> None:
        """Let the committed offset advance over this message."""
        self.finished = True
        self.tracker.finish(self.message.queue_offset)


class MessageBuffer:
    """A FIFO buffer."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._is_waking = False
        self.closed = False

    def __repr__(self) -> str:
        return f"<MessageBuffer {len(self._deliveries)} waiting>"

    def __len__(self) -> int:
        return len(self._deliveries)

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """Add messages at the end."""
        self._deliveries.extend(deliveries)
        self._wake()

    async def settle(self, tracker: OffsetTracker) -> None:
        """Return at once: these messages may be handled in any order."""

    def next_offset(self, tracker: OffsetTracker) -> int | None:
        """Return the offset of the first waiting message of a queue; None if there is none."""
        waiting = (delivery for delivery in self._deliveries if delivery.tracker is tracker and not delivery.finished)
        return min((delivery.message.queue_offset for delivery in waiting), default=None)

    def put_back(self, delivery: Delivery) -> None:
        """Add a message at the front: it is taken next."""
        if self.closed:
            return
        self._deliveries.appendleft(delivery)
        self._wake()

    def take_nowait(self) -> Delivery | None:
        """Return the next message; None if there is none, or the buffer is closed."""
        while self._deliveries and not self.closed:
            delivery = self._deliveries.popleft()
            if not (delivery.tracker.dropped or delivery.finished):
                return delivery
        return None

    async def take(self) -> Delivery | None:
        """Wait for the next message and return it; None once the buffer is closed."""
        while not self.closed:
            delivery = self.take_nowait()
            if delivery is not None:
                return delivery
            await self._arrival()
            if len(self._deliveries) > 1:
                self._wake()
        return None

    async def _arrival(self) -> None:
        taker = asyncio.get_running_loop().create_future()
        self._takers.append(taker)
        try:
            await taker
        except asyncio.CancelledError:
            if taker.done() and not taker.cancelled():
                self._is_waking = False
                self._wake()  # this taker was woken and is canceled: wake another one
            raise
        self._is_waking = False

    def close(self) -> None:
        """Wake all takers, and drop the messages that were not taken."""
        self.closed = True
        self._deliveries.clear()
        while self._takers:
            self._is_waking = False
            self._wake()

    def forked(self) -> None:
        """Drop everything, in the child of a fork: takers and messages belong to the parent."""
        self.closed = True
        self._deliveries.clear()
        self._takers.clear()

    def _wake(self) -> None:
        """Wake one taker, unless a woken one has not run yet."""
        while self._takers and not self._is_waking:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                self._is_waking = True
