"""The queues that one consumer reads: a puller and a task for each, and the offsets to commit.

A queue is adopted and released as a whole. A release commits its offset and drops messages that are in flight: the next
owner of the queue receives them. In an orderly group the release first waits for the message that a handler works on,
and unlocks the queue at the end.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.background_tasks import Background
from skylarkmq.clients.sdk.consuming.offset_tracker import OffsetTracker
from skylarkmq.clients.sdk.consuming.queue_locks import QueueLocks
from skylarkmq.clients.sdk.consuming.queue_puller import OffsetStore, QueuePuller
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)

MakePuller = Callable[[MessageQueue, SubscriptionData, int | None], QueuePuller]
"""(queue, subscription, offset to start at; None: the committed one) -> puller."""


class AssignedQueues:
    """Pullers by queue. `settle` waits until a queue may change hands; `locks` are those of an orderly group.
    `commits_on_release` False: only the application commits."""

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
        self._pullers: dict[MessageQueue, tuple[QueuePuller, asyncio.Task[None]]] = {}
        self._leaving: dict[MessageQueue, QueuePuller] = {}
        self._background = Background(group)
        self.commits_on_release = True

    def __repr__(self) -> str:
        return f"<AssignedQueues {len(self._pullers)} queues>"

    def __len__(self) -> int:
        return len(self._pullers)

    def __contains__(self, queue: object) -> bool:
        """Return whether the queue is read, or is being released."""
        return queue in self._pullers or queue in self._leaving

    def queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues that are read, sorted."""
        return tuple(sorted(self._pullers))

    def pullers(self) -> list[QueuePuller]:
        """Return the pullers of all queues that are read."""
        return [puller for puller, _ in self._pullers.values()]

    def puller(self, queue: MessageQueue) -> QueuePuller | None:
        """Return the puller of a queue; None if the queue is not read."""
        return self._pullers[queue][0] if queue in self._pullers else None

    def is_behind(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether the acknowledged messages of this consumer end before `offset`; True if it has read none."""
        puller = self.puller(queue) or self._leaving.get(queue)
        return puller is None or puller.tracker is None or puller.tracker.commit_offset() < offset

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
        *,
        is_waiting: bool = False,
    ) -> None:
        """Begin to read a queue after `pause_s`. A queue that is read already restarts at `start_at`, paused if it was.

        `is_waiting`: pull nothing before `let_pull`.
        """
        former = self._drop(queue)
        puller = self._make_puller(queue, subscription, start_at)
        puller.paused = former is not None and former.paused
        puller.is_waiting = former.is_waiting if former is not None else is_waiting
        self._pullers[queue] = (puller, self._background.spawn(f"read/{queue}", puller.run(pause_s)))

    def let_pull(self, queues: Iterable[MessageQueue]) -> None:
        """Begin to pull from queues that were adopted with `is_waiting`."""
        for queue in queues:
            puller = self.puller(queue)
            if puller is not None:
                puller.let_pull()

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading these queues, and commit their offsets, unless only the application commits."""
        await asyncio.gather(*(self._release(queue, commit=self.commits_on_release) for queue in list(queues)))

    async def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading queues that another member may own already: no offset is committed."""
        await asyncio.gather(*(self._release(queue, commit=False) for queue in list(queues)))

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` in a queue that is read, and commit this offset."""
        entry = self._pullers.get(queue)
        if entry is None:
            return
        puller, task = entry
        task.cancel()
        puller.drop()
        if puller.tracker is not None:
            await self._settle(puller.tracker)
        if self._pullers.get(queue) is not entry:
            return  # the queue was revoked meanwhile
        self.adopt(queue, puller.subscription, offset)
        await self._commit(self._pullers[queue][0], offset)

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
        if queue not in self._pullers:
            return
        puller, task = self._pullers.pop(queue)
        self._leaving[queue] = puller
        try:
            task.cancel()
            if self._locks is not None and puller.tracker is not None:
                await self._settle(puller.tracker)
            offset = puller.commit_offset() if commit and self._may_commit(queue) else None
            puller.drop()
            if offset is not None:
                await self._commit(puller, offset)
            if self._locks is not None:
                await self._locks.release([queue])
        finally:
            del self._leaving[queue]
        log.info("released queue=%s offset=%s", queue, offset)

    def _may_commit(self, queue: MessageQueue) -> bool:
        """Return False if the lock of the queue is invalid: it may belong to another member, which began earlier."""
        return self._locks is None or self._locks.holds(queue)

    def _drop(self, queue: MessageQueue) -> QueuePuller | None:
        """Drop the puller of a queue, and return it."""
        if queue not in self._pullers:
            return None
        puller, task = self._pullers.pop(queue)
        puller.drop()
        task.cancel()
        return puller

    async def _commit(self, puller: QueuePuller, offset: int) -> None:
        try:
            await self._commit_one(puller, offset)
        except ClientError as error:
            log.warning("offset not committed queue=%s offset=%d error=%s", puller.queue, offset, error)

    async def _commit_one(self, puller: QueuePuller, offset: int) -> None:
        await self._offsets.commit(puller.queue, offset)
        puller.committed = offset
