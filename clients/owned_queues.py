"""The queues that one consumer reads: a reader and a task for each, and the offsets to be committed.

A queue is adopted and released as a whole. Releasing commits how far it came, and drops what is still under way: the
next owner gets it again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from clients.background import Background
from clients.errors import ClientError
from clients.queue_calls import QueueCalls
from clients.queue_reader import QueueReader
from protocol.bodies.heartbeat import SubscriptionData
from protocol.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)

MakeReader = Callable[[MessageQueue, SubscriptionData, int | None], QueueReader]
"""(queue, subscription, offset to start at; None: the committed one) -> reader."""


class OwnedQueues:
    """Readers by queue."""

    def __init__(self, group: str, calls: QueueCalls, make_reader: MakeReader) -> None:
        self._calls = calls
        self._make_reader = make_reader
        self._readers: dict[MessageQueue, tuple[QueueReader, asyncio.Task[None]]] = {}
        self._background = Background(group)

    def __repr__(self) -> str:
        return f"<OwnedQueues {len(self._readers)} queues>"

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, queue: object) -> bool:
        return queue in self._readers

    def queues(self) -> tuple[MessageQueue, ...]:
        """What is owned now, sorted."""
        return tuple(sorted(self._readers))

    def unfinished(self) -> int:
        """Messages received and not finished, over all queues."""
        return sum(reader.progress.unfinished for reader, _ in self._readers.values() if reader.progress is not None)

    def adopt(
        self, queue: MessageQueue, subscription: SubscriptionData, start_at: int | None = None, pause_s: float = 0.0
    ) -> None:
        """Begin to read after `pause_s`; a queue that is read already begins anew, at `start_at`."""
        self._drop(queue)
        reader = self._make_reader(queue, subscription, start_at)
        self._readers[queue] = (reader, self._background.spawn(f"read/{queue}", reader.run(pause_s)))

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Stop to read, and commit."""
        due = []
        for queue in list(queues):
            reader, _ = self._readers[queue]
            due.append((reader, reader.commit_offset()))
            self._drop(queue)
            log.info("released queue=%s offset=%s", queue, due[-1][1])
        await self._commit_all(due)

    async def commit(self) -> None:
        """Commit what is new of every queue; what fails is logged, and tried again the next time."""
        await self._commit_all([(reader, reader.commit_offset()) for reader, _ in self._readers.values()])

    async def stop_reading(self) -> None:
        """No more pulls; what was received can still be finished and committed."""
        await self._background.stop()

    def _drop(self, queue: MessageQueue) -> None:
        if queue in self._readers:
            reader, task = self._readers.pop(queue)
            reader.drop()
            task.cancel()

    async def _commit_all(self, due: Iterable[tuple[QueueReader, int | None]]) -> None:
        await asyncio.gather(*(self._commit(reader, offset) for reader, offset in due if offset is not None))

    async def _commit(self, reader: QueueReader, offset: int) -> None:
        try:
            await self._calls.commit(reader.queue, offset)
            reader.committed = offset
        except ClientError as error:
            log.warning("offset not committed queue=%s offset=%d error=%s", reader.queue, offset, error)
