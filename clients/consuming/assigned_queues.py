"""The queues that one consumer reads: a reader and a task for each, and the offsets to be committed.

A queue is adopted and released as a whole. Releasing commits how far it came, and drops what is still under way: the
next owner gets it again. In an orderly group a message that a handler works on is waited for first, and the lock is
given back last.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from skylarkmq.clients.connection.background_tasks import Background
from skylarkmq.clients.consuming.offset_tracker import Progress
from skylarkmq.clients.consuming.queue_locks import QueueLocks
from skylarkmq.clients.consuming.queue_puller import OffsetStore, QueueReader
from skylarkmq.clients.errors import ClientError
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)

MakeReader = Callable[[MessageQueue, SubscriptionData, int | None], QueueReader]
"""(queue, subscription, offset to start at; None: the committed one) -> reader."""


class OwnedQueues:
    """Readers by queue. `settle` waits until a queue may change hands, `locks` are those of an orderly group."""

    def __init__(
        self,
        group: str,
        offsets: OffsetStore,
        make_reader: MakeReader,
        settle: Callable[[Progress], Awaitable[None]],
        locks: QueueLocks | None = None,
    ) -> None:
        self._offsets = offsets
        self._make_reader = make_reader
        self._settle = settle
        self._locks = locks
        self._readers: dict[MessageQueue, tuple[QueueReader, asyncio.Task[None]]] = {}
        self._leaving: dict[MessageQueue, QueueReader] = {}
        self._background = Background(group)

    def __repr__(self) -> str:
        return f"<OwnedQueues {len(self._readers)} queues>"

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, queue: object) -> bool:
        """Whether it is read, or not quite given up."""
        return queue in self._readers or queue in self._leaving

    def queues(self) -> tuple[MessageQueue, ...]:
        """What is owned now, sorted."""
        return tuple(sorted(self._readers))

    def readers(self) -> list[QueueReader]:
        """Their readers."""
        return [reader for reader, _ in self._readers.values()]

    def reader(self, queue: MessageQueue) -> QueueReader | None:
        """The reader of a queue that is owned."""
        return self._readers[queue][0] if queue in self._readers else None

    def is_behind(self, queue: MessageQueue, offset: int) -> bool:
        """Whether what was finished here ends before `offset`; also where nothing was begun."""
        reader = self.reader(queue) or self._leaving.get(queue)
        return reader is None or reader.progress is None or reader.progress.commit_offset() < offset

    def unfinished(self) -> int:
        """Messages received and not finished, over all queues."""
        return self.cached()[0]

    def cached(self) -> tuple[int, int]:
        """Messages received and not finished, and their bytes, over all queues."""
        rows = [reader.progress for reader in self.readers() if reader.progress is not None]
        return sum(row.unfinished for row in rows), sum(row.unfinished_bytes for row in rows)

    def adopt(
        self, queue: MessageQueue, subscription: SubscriptionData, start_at: int | None = None, pause_s: float = 0.0
    ) -> None:
        """Begin to read after `pause_s`; a queue that is read already begins anew, at `start_at`, paused if it was."""
        was_paused = self._drop(queue)
        reader = self._make_reader(queue, subscription, start_at)
        reader.paused = was_paused
        self._readers[queue] = (reader, self._background.spawn(f"read/{queue}", reader.run(pause_s)))

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Stop to read, and commit."""
        await asyncio.gather(*(self._release(queue, commit=True) for queue in list(queues)))

    async def forget(self, queues: Iterable[MessageQueue]) -> None:
        """Stop to read what may be another member's already: nothing is committed."""
        await asyncio.gather(*(self._release(queue, commit=False) for queue in list(queues)))

    async def move(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset` in a queue that is read now, and make it the group's."""
        entry = self._readers.get(queue)
        if entry is None:
            return
        reader, task = entry
        task.cancel()
        reader.drop()
        if reader.progress is not None:
            await self._settle(reader.progress)
        if self._readers.get(queue) is not entry:
            return  # it went to somebody else meanwhile
        self.adopt(queue, reader.subscription, offset)
        await self._commit(self._readers[queue][0], offset)

    async def commit(self) -> None:
        """Commit what is new of every queue; what fails is logged, and tried again the next time."""
        due = [(reader, reader.commit_offset()) for reader in self.readers() if self._may_commit(reader.queue)]
        await asyncio.gather(*(self._commit(reader, offset) for reader, offset in due if offset is not None))

    async def stop_reading(self) -> None:
        """No more pulls; what was received can still be finished and committed."""
        await self._background.stop()

    async def _release(self, queue: MessageQueue, *, commit: bool) -> None:
        if queue not in self._readers:
            return
        reader, task = self._readers.pop(queue)
        self._leaving[queue] = reader
        try:
            task.cancel()
            if self._locks is not None and reader.progress is not None:
                await self._settle(reader.progress)
            offset = reader.commit_offset() if commit and self._may_commit(queue) else None
            reader.drop()
            if offset is not None:
                await self._commit(reader, offset)
            if self._locks is not None:
                await self._locks.release([queue])
        finally:
            del self._leaving[queue]
        log.info("released queue=%s offset=%s", queue, offset)

    def _may_commit(self, queue: MessageQueue) -> bool:
        """A queue without its lock may be another member's, who began before what was handled here."""
        return self._locks is None or self._locks.holds(queue)

    def _drop(self, queue: MessageQueue) -> bool:
        """Forget a reader; whether it was there and paused."""
        if queue not in self._readers:
            return False
        reader, task = self._readers.pop(queue)
        reader.drop()
        task.cancel()
        return reader.paused

    async def _commit(self, reader: QueueReader, offset: int) -> None:
        try:
            await self._offsets.commit(reader.queue, offset)
            reader.committed = offset
        except ClientError as error:
            log.warning("offset not committed queue=%s offset=%d error=%s", reader.queue, offset, error)
