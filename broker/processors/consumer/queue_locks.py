"""Queue locks for ordered consumption: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).

The response to 41 names the queues that the client has locked now; a client may retry the others. A queue that this
broker does not have is never locked. This broker has no replicas to ask, so `lockInStrictMode` and `onlyThisBroker`
change nothing. Source: docs/reference/wire.md, "Queue locks".
"""

from collections.abc import Callable

from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.broker.metadata.topics import TopicTable, queues_of
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.bodies.locks import LockedQueues, LockRequest
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand


class QueueLockProcessor:
    """Grants and releases queue locks. `now_ms` is a steady clock."""

    def __init__(self, locks: QueueLocks, topics: TopicTable, now_ms: Callable[[], int]) -> None:
        self._locks = locks
        self._topics = topics
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<QueueLockProcessor {self._locks!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve LOCK_BATCH_MQ (41)."""
        request = LockRequest.decode_request(command.body)
        existing = filter(self._has_queue, request.mq_set)
        locked = self._locks.lock(request.consumer_group, request.client_id, existing, self._now_ms())
        return RemotingCommand.response(body=LockedQueues(locked).encode())

    def _has_queue(self, queue: MessageQueue) -> bool:
        topic = self._topics.find(queue.topic)
        return topic is not None and 0 <= queue.queue_id < queues_of(topic)

    def unlock(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve UNLOCK_BATCH_MQ (42)."""
        request = LockRequest.decode_request(command.body)
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return RemotingCommand.response()
