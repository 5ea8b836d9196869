"""The queues that one consumer reads: a puller and a task for each, and the offsets to commit.

A queue is adopted and released as a whole (its states: clients/sdk/consuming/queue_state.py). A release commits its
offset and drops messages that are in flight: the next owner of the queue receives them. In an orderly group the release
first waits for the message that a handler works on, and unlocks the queue at the end. Until then the queue is LEAVING,
and is not adopted again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.background_tasks import Background
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.queue_locks import QueueLocks
from skylarkmq.clients.sdk.consuming.queue_puller import OffsetStore, QueuePuller
from skylarkmq.clients.sdk.consuming.queue_state import Assignment, InvalidChange, QueueEvent, QueueState
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)

MakePuller = Callable[[Assignment, SubscriptionData, int | None], QueuePuller]
"""(assignment, subscription, offset to start at; None: the committed one) -> puller."""


class Reader(NamedTuple):
    """The puller of a queue, and the task in which it runs. A seek or a reset of the offset replaces both."""

    puller: QueuePuller
    task: asyncio.Task[None]

    @property
    def assignment(self) -> Assignment:
        """The queue and its state, which survives a replacement of the reader."""
        return self.puller.assignment


class AssignedQueues:
    """The queues that are read, and those that are leaving. `settle` waits until a queue may change hands; `locks` are
    the queue locks of an orderly group. `commits_on_release` False: only the application commits."""

    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        make_puller: MakePuller,
        settle: Callable[[OffsetTracker], Awaitable[None]],
        locks: QueueLocks | None = None,
    ) -> None:
        self._offsets = offsets
        self._make_puller = make_puller
        self._settle = settle
        self._locks = locks
        self._readers: dict[MessageQueue, Reader] = {}
        self._leaving = 0  # readers whose state is LEAVING
        self._background = Background(group)
        self.commits_on_release = True

    def __repr__(self) -> str:
        return f"<AssignedQueues {len(self)} queues, {self._leaving} leaving>"

    def __len__(self) -> int:
        """Return the number of queues that are read."""
        return len(self._readers) - self._leaving

    def __contains__(self, queue: object) -> bool:
        """Return whether the queue is read, or is being released."""
        return queue in self._readers

    def queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues that are read, sorted."""
        return tuple(sorted(reader.assignment.queue for reader in self._owned()))

    def pullers(self) -> list[QueuePuller]:
        """Return the pullers of all queues that are read."""
        return [reader.puller for reader in self._owned()]

    def puller(self, queue: MessageQueue) -> QueuePuller | None:
        """Return the puller of a queue; None if the queue is not read."""
        reader = self._reader(queue)
        return None if reader is None else reader.puller

    def is_behind(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether the acknowledged messages of this consumer end before `offset`; True if it has read none."""
        reader = self._readers.get(queue)
        tracker = None if reader is None else reader.puller.tracker
        return tracker is None or tracker.commit_offset() < offset

    def unfinished(self) -> int:
        """Return the number of messages of all queues that are received and not acknowledged."""
        return self.cached()[0]

    def cached(self) -> tuple[int, int]:
        """Return the number of messages of all queues that are received and not acknowledged, and their bytes."""
        trackers = [puller.tracker for puller in self.pullers() if puller.tracker is not None]
        return sum(each.unfinished for each in trackers), sum(each.unfinished_bytes for each in trackers)

    def adopt(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        start_at: int | None = None,
        pause_s: float = 0.0,
        state: QueueState = QueueState.READING,
    ) -> None:
        """Begin to read a queue after `pause_s`. A queue that is read already restarts at `start_at`, in its state.

        `state` ASSIGNED: pull nothing before `let_pull`.
        """
        former = self._readers.get(queue)
        if former is not None:
            if not former.assignment.state.is_owned:
                raise InvalidChange(f"{queue} is {former.assignment.state.value}: it cannot be adopted yet")
            former.puller.drop()
            former.task.cancel()
        assignment = Assignment(queue, state) if former is None else former.assignment
        puller = self._make_puller(assignment, subscription, start_at)
        self._readers[queue] = Reader(puller, self._background.spawn(f"read/{queue}", puller.run(pause_s)))

    def let_pull(self, queues: Iterable[MessageQueue]) -> None:
        """Begin to pull from queues that were adopted as ASSIGNED."""
        for queue in queues:
            reader = self._reader(queue)
            if reader is not None:
                reader.assignment.change(QueueEvent.READ)

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading these queues, and commit their offsets, unless only the application commits."""
        await asyncio.gather(*(self._release(queue, commit=self.commits_on_release) for queue in list(queues)))

    async def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading queues that another member may own already: no offset is committed."""
        await asyncio.gather(*(self._release(queue, commit=False) for queue in list(queues)))

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` in a queue that is read, and commit this offset."""
        reader = self._reader(queue)
        if reader is None:
            return
        puller, task = reader
        task.cancel()
        puller.drop()
        if puller.tracker is not None:
            await self._settle(puller.tracker)
        if self._reader(queue) is not reader:
            return  # the queue was revoked meanwhile
        self.adopt(queue, puller.subscription, offset)
        await self._commit(self._readers[queue].puller, offset)

    async def commit(self) -> None:
        """Commit the changed offsets of all queues. Errors are logged, and the next call repeats the commit."""
        await asyncio.gather(*(self._commit(puller, offset) for puller, offset in self._due()))

    async def commit_now(self) -> None:
        """Commit the changed offsets of all queues. Raises the first error, after all queues were tried."""
        due = self._due()
        results = await asyncio.gather(
            *(self._commit_one(puller, offset) for puller, offset in due), return_exceptions=True
        )
        for result in results:
            if result is not None:
                raise result

    async def commit_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit these offsets. Raises the first error."""
        for queue, offset in offsets.items():
            await self._offsets.commit(queue, offset)

    async def stop_reading(self) -> None:
        """Stop all pulls. Received messages can still be acknowledged and committed."""
        await self._background.stop()

    def _due(self) -> list[tuple[QueuePuller, int]]:
        offsets = [(puller, puller.commit_offset()) for puller in self.pullers() if self._may_commit(puller.queue)]
        return [(puller, offset) for puller, offset in offsets if offset is not None]

    async def _release(self, queue: MessageQueue, *, commit: bool) -> None:
        reader = self._reader(queue)
        if reader is None:
            return
        puller = reader.puller
        reader.assignment.change(QueueEvent.LEAVE)
        self._leaving += 1
        try:
            reader.task.cancel()
            if self._locks is not None and puller.tracker is not None:
                await self._settle(puller.tracker)
            offset = puller.commit_offset() if commit and self._may_commit(queue) else None
            puller.drop()
            if offset is not None:
                await self._commit(puller, offset)
            if self._locks is not None:
                await self._locks.release([queue])
        finally:
            reader.assignment.change(QueueEvent.RELEASE)
            self._leaving -= 1
            del self._readers[queue]
        log.info("released queue=%s offset=%s", queue, offset)

    def _may_commit(self, queue: MessageQueue) -> bool:
        """Return False if the lock of the queue is invalid: it may belong to another member, which began earlier."""
        return self._locks is None or self._locks.holds(queue)

    def _owned(self) -> Iterator[Reader]:
        return (reader for reader in self._readers.values() if reader.assignment.state.is_owned)

    def _reader(self, queue: MessageQueue) -> Reader | None:
        """Return the reader of a queue that is read; None for one that is leaving."""
        reader = self._readers.get(queue)
        return reader if reader is not None and reader.assignment.state.is_owned else None

    async def _commit(self, puller: QueuePuller, offset: int) -> None:
        try:
            await self._commit_one(puller, offset)
        except ClientError as error:
            log.warning("offset not committed queue=%s offset=%d error=%s", puller.queue, offset, error)

    async def _commit_one(self, puller: QueuePuller, offset: int) -> None:
        await self._offsets.commit(puller.queue, offset)
        puller.committed = offset
