"""Cleanup on request: CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC (316), DELETE_EXPIRED_COMMITLOG (329).

306 and 329 only start the cleanup; it proceeds in steps after the response is written. Source: docs/reference/disk.md,
"Retention".
"""

import logging
from collections.abc import Awaitable

from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)


class CleanupProcessor:
    """Starts cleanup of one store."""

    def __init__(self, topics: TopicTable, store: MessageStore) -> None:
        self._topics = topics
        self._store = store

    def __repr__(self) -> str:
        return f"<CleanupProcessor {self._store.manual_cleanup!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.walk_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.remove_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_due_segments,
        }

    def walk_queues(self, source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve CLEAN_EXPIRED_CONSUMEQUEUE (306)."""
        log.info("queue cleanup started by request peer=%s", source.peer)
        self._store.manual_cleanup.walk_queues()
        return RemotingCommand.response()

    def delete_due_segments(self, source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        """Serve DELETE_EXPIRED_COMMITLOG (329)."""
        log.info("deletion of due segments started by request peer=%s", source.peer)
        self._store.manual_cleanup.delete_due_segments()
        return RemotingCommand.response()

    def remove_unused_topics(
        self, source: RequestSource, _command: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand]:
        """Serve CLEAN_UNUSED_TOPIC (316). A slave removes nothing: its table may lack a topic that the master has
        created, and it removes the queues of deleted topics when it compares the tables."""
        if self._store.replica is not None:
            return RemotingCommand.response()
        log.info("removal of queues without a topic started by request peer=%s", source.peer)
        return self._remove_unused_topics()

    async def _remove_unused_topics(self) -> RemotingCommand:
        for topic in sorted(self._store.manual_cleanup.topics()):
            if self._topics.find(topic) is None and not self._topics.is_system(topic):
                await self._store.delete_topic(topic)
        return RemotingCommand.response()
