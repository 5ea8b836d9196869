"""The message buffer of an orderly consumer: an inbox for each queue, and one message of each inbox at a time.

    puller -> put -> inbox of its queue -> take: an inbox that no worker has -> its first message -> put_back

A worker takes an inbox, handles one message, and puts the inbox back. The inbox is then queued after all others that
have messages. An inbox can be put back with a pause, if its first message is to be handled again. `settle` waits until
no worker has the inbox of a queue, and keeps workers away from then on: the next owner of the queue must not be
overtaken by a handler that still runs here.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from enum import Enum

import msgspec

from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.received_message import ReceivedMessage


class InboxState(Enum):
    """Where an inbox is."""

    IDLE = "idle"
    """It has no message, or is not queued yet."""
    QUEUED = "queued"
    """It waits for a worker, or pauses before it waits again."""
    TAKEN = "taken"
    """A worker has it."""


class QueueInbox(msgspec.Struct, eq=False):
    """The messages of one queue. `settled` is set when a worker puts the inbox back."""

    tracker: OffsetTracker
    messages: deque[ReceivedMessage]
    state: InboxState = InboxState.IDLE
    settled: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class QueueInboxes:
    """The inboxes of one consumer, served in FIFO order."""

    def __init__(self) -> None:
        self._inboxes: dict[OffsetTracker, QueueInbox] = {}
        self._queued: asyncio.Queue[QueueInbox | None] = asyncio.Queue()
        self._waiting = 0
        self.closed = False

    def __repr__(self) -> str:
        return f"<QueueInboxes {len(self._inboxes)} inboxes, {self._waiting} messages waiting>"

    def __len__(self) -> int:
        """Return the number of waiting messages."""
        return self._waiting

    def put(self, messages: Iterable[ReceivedMessage]) -> None:
        """Add messages at the ends of their inboxes."""
        for message in messages:
            tracker = message.tracker
            if self.closed or tracker.dropped:
                continue
            inbox = self._inboxes.get(tracker)
            if inbox is None:
                inbox = self._inboxes[tracker] = QueueInbox(tracker, deque())
            inbox.messages.append(message)
            self._waiting += 1
            self._enqueue(inbox)

    def next_offset(self, tracker: OffsetTracker) -> int | None:
        """Return the offset of the first unfinished message of a queue, or None."""
        inbox = self._inboxes.get(tracker)
        return inbox.messages[0].queue_offset if inbox is not None and inbox.messages else None

    async def take(self) -> QueueInbox | None:
        """Wait for an inbox with a message to handle and return it; None once the inboxes are closed."""
        while not self.closed:
            inbox = await self._queued.get()
            if inbox is None:
                break
            if inbox.messages and not inbox.tracker.dropped and inbox.tracker in self._inboxes:
                inbox.state = InboxState.TAKEN
                return inbox
            inbox.state = InboxState.IDLE
            self._forget(inbox)
        self._queued.put_nowait(None)  # for the next taker
        return None

    def finish_first(self, inbox: QueueInbox) -> None:
        """Acknowledge the first message of a taken inbox."""
        self._waiting -= 1
        inbox.messages.popleft().finish()

    def put_back(self, inbox: QueueInbox, pause_s: float = 0.0) -> None:
        """Let workers take the inbox again, after a pause."""
        inbox.state = InboxState.IDLE
        inbox.settled.set()
        if self._inboxes.get(inbox.tracker) is not inbox:
            self._forget(inbox)
        elif pause_s > 0:
            inbox.state = InboxState.QUEUED
            asyncio.get_running_loop().call_later(pause_s, self._queued.put_nowait, inbox)
        elif inbox.messages:
            self._enqueue(inbox)
        else:
            del self._inboxes[inbox.tracker]

    async def settle(self, tracker: OffsetTracker) -> None:
        """Wait until no worker has the inbox of this queue. No worker takes it from now on."""
        inbox = self._inboxes.pop(tracker, None)
        if inbox is None:
            return
        if inbox.state is InboxState.TAKEN:
            inbox.settled.clear()
            await inbox.settled.wait()
        self._forget(inbox)

    def close(self) -> None:
        """Let workers take no more inboxes."""
        self.closed = True
        self._queued.put_nowait(None)

    def _enqueue(self, inbox: QueueInbox) -> None:
        if inbox.state is InboxState.IDLE:
            inbox.state = InboxState.QUEUED
            self._queued.put_nowait(inbox)

    def _forget(self, inbox: QueueInbox) -> None:
        """Drop the messages of a revoked queue: they belong to another member."""
        self._waiting -= len(inbox.messages)
        inbox.messages.clear()
        if self._inboxes.get(inbox.tracker) is inbox:
            del self._inboxes[inbox.tracker]
