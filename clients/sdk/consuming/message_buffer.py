"""The message buffer of a consumer: messages from all queues, waiting for the application.

At most one waiting taker is woken at a time. It wakes the next one if there are messages left after it has taken its
own. So a handler that never waits takes all messages without a wake-up of the other takers.

A message counts against the limits from its arrival until its acknowledgment. A puller whose queue has reached a limit
does not pull (`QueuePuller.has_capacity`). Messages of a revoked queue, and messages that were acknowledged after they
were put back, are skipped.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage


class Sink(Protocol):
    """Where pullers put the messages that they receive."""

    def __len__(self) -> int:
        """Return the number of waiting messages."""

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """Add messages of one queue."""

    async def settle(self, tracker: OffsetTracker) -> None:
        """Wait until no handler works on a message of this queue that may not be overtaken."""

    def next_offset(self, tracker: OffsetTracker) -> int | None:
        """Return the offset of the first waiting message of a queue, or None."""


class MessageBuffer:
    """A FIFO buffer."""

    def __init__(self) -> None:
        self._messages: deque[ReceivedMessage] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._is_waking = False
        self.closed = False

    def __repr__(self) -> str:
        return f"<MessageBuffer {len(self._messages)} waiting>"

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """Add messages at the end."""
        self._messages.extend(messages)
        self._wake()

    async def settle(self, tracker: OffsetTracker) -> None:
        """Return at once: these messages may be handled in any order."""

    def next_offset(self, tracker: OffsetTracker) -> int | None:
        """Return the offset of the first waiting message of a queue, or None."""
        waiting = (message for message in self._messages if message.tracker is tracker and not message.finished)
        return min((message.queue_offset for message in waiting), default=None)

    def put_back(self, message: ReceivedMessage) -> None:
        """Add a message at the front: it is taken next."""
        if self.closed:
            return
        self._messages.appendleft(message)
        self._wake()

    def take_nowait(self) -> ReceivedMessage | None:
        """Return the next message; None if no message waits or the buffer is closed."""
        while self._messages and not self.closed:
            message = self._messages.popleft()
            if not (message.tracker.dropped or message.finished):
                return message
        return None

    async def take(self) -> ReceivedMessage | None:
        """Wait for the next message and return it; None once the buffer is closed."""
        while not self.closed:
            message = self.take_nowait()
            if message is not None:
                return message
            await self._arrival()
            if len(self._messages) > 1:
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
        self._messages.clear()
        while self._takers:
            self._is_waking = False
            self._wake()

    def forked(self) -> None:
        """Drop everything, in the child of a fork: takers and messages belong to the parent."""
        self.closed = True
        self._messages.clear()
        self._takers.clear()

    def _wake(self) -> None:
        """Wake one taker, unless a woken one has not run yet."""
        while self._takers and not self._is_waking:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                self._is_waking = True
