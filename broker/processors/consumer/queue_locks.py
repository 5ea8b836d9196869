"""Queues that members of a group lock to consume them in order: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

The answer to 41 names the queues that the client holds now; who gets none may ask again. Queues that this broker does
not have are never held, so that a lock is kept only for a queue that there is. This broker has no replicas
to ask, so `lockInStrictMode` and `onlyThisBroker` change nothing. Source: docs/formats.md, "Queue locks".
"""

from collections.abc import Callable

from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.broker.metadata.topics import TopicTable, queues_of
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.protocol.bodies.locks import LockedQueues, LockRequest
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand


class QueueLockProcessor:
    """Gives and takes locks. `now_ms` is a steady clock."""

    def __init__(self, locks: QueueLocks, topics: TopicTable, now_ms: Callable[[], int]) -> None:
        self._locks = locks
        self._topics = topics
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<QueueLockProcessor {self._locks!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Request 41."""
        asked = LockRequest.decode_request(command.body)
        there = filter(self._has_queue, asked.mq_set)
        held = self._locks.lock(asked.consumer_group, asked.client_id, there, self._now_ms())
        return RemotingCommand.response(body=LockedQueues(held).encode())

    def _has_queue(self, queue: MessageQueue) -> bool:
        topic = self._topics.find(queue.topic)
        return topic is not None and 0 <= queue.queue_id < queues_of(topic)

    def unlock(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Request 42."""
        asked = LockRequest.decode_request(command.body)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return RemotingCommand.response()
