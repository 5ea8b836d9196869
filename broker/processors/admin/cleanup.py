"""Tidying up by hand: CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC (316), DELETE_EXPIRED_COMMITLOG (329).

306 and 329 only say that it is time; what goes, goes step by step behind the answer. Source: docs/formats.md,
"Retention".
"""

import logging
from collections.abc import Awaitable

from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand

log = logging.getLogger(__name__)


class TidyingProcessor:
    """Has one store tidied up."""

    def __init__(self, topics: TopicTable, store: MessageStore) -> None:
        self._topics = topics
        self._store = store

    def __repr__(self) -> str:
        return f"<TidyingProcessor {self._store.manual_cleanup!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """What this processor serves."""
        return {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.walk_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.remove_unused_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_due_segments,
        }

    def walk_queues(self, connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """Request 306."""
        log.info("queues are looked through by request peer=%s", connection.peer)
        self._store.manual_cleanup.walk_queues()
        return RemotingCommand.response()

    def delete_due_segments(self, connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        """Request 329."""
        log.info("due segments are deleted by request peer=%s", connection.peer)
        self._store.manual_cleanup.delete_due_segments()
        return RemotingCommand.response()

    def remove_unused_topics(self, connection: Connection, _command: RemotingCommand) -> Awaitable[RemotingCommand]:
        """Request 316."""
        log.info("queues without a topic are removed by request peer=%s", connection.peer)
        return self._remove_unused_topics()

    async def _remove_unused_topics(self) -> RemotingCommand:
        for topic in sorted(self._store.manual_cleanup.topics()):
            if self._topics.find(topic) is None and not self._topics.is_system(topic):
                await self._store.delete_topic(topic)
        return RemotingCommand.response()
