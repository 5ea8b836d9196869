"""Committed offsets: QUERY_CONSUMER_OFFSET (14), UPDATE_CONSUMER_OFFSET (15).

On QUERY_NOT_FOUND (22) a consumer starts by its own setting, so this response decides whether a new group reads
old messages. For a group without an offset the broker returns 0 if the queue begins at 0, is empty, or does not exist
yet: only then can no message be lost that arrives while the group still assigns its queues. It returns 22 if the queue
begins later, or if its first message is so old that the group would have to read from disk.

A commit is accepted and ignored if the group has been reset and has not been notified yet. So is a commit for a queue
that the topic does not have, unless that queue already has an offset: the topic had more queues before.

Source: docs/reference/wire.md, "Consumer offsets", "Resetting offsets".
"""

from typing import Final

from skylarkmq.broker.delivery.cold_read_retry import serve_cold_reads
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable, queues_of
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import TRANSACTIONS_GROUP, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.consumer import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.queue import OffsetResponseHeader

NOT_ZERO: Final = "Not found, do not set to zero, maybe this group boot first"
NOT_FOUND: Final = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
RESET: Final = "Offset has been previously reset"


class ConsumerOffsetProcessor:
    """Returns and stores committed offsets."""

    def __init__(
        self, offsets: ConsumerOffsetTable, groups: SubscriptionGroups, topics: TopicTable, store: MessageStore
    ) -> None:
        self._offsets = offsets
        self._groups = groups
        self._topics = topics
        self._store = store

    def __repr__(self) -> str:
        return f"<ConsumerOffsetProcessor {self._offsets!r}>"

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: serve_cold_reads(self._store, self.query),
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
        }

    def query(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve QUERY_CONSUMER_OFFSET (14)."""
        header = command.header(QueryConsumerOffsetHeader)
        offset = self._offsets.committed(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            if header.set_zero_if_not_found is not None and not is_true(header.set_zero_if_not_found):
                raise RequestError(ResponseCode.QUERY_NOT_FOUND, NOT_ZERO)
            if not self._may_begin_at_zero(header.topic, header.queue_id):
                raise RequestError(ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)
            offset = 0
        return RemotingCommand.response(ext=OffsetResponseHeader(offset=offset))

    def _may_begin_at_zero(self, topic: str, queue_id: int) -> bool:
        if (self._store.min_offset(topic, queue_id) or 0) > 0:
            return False
        return not self._store.get(topic, queue_id, 0, 1).behind_memory

    def update(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve UPDATE_CONSUMER_OFFSET (15)."""
        header = command.header(UpdateConsumerOffsetHeader)
        group, topic = header.consumer_group, header.topic
        refuse_own_group(group, topic)
        if self._groups.find(group) is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        topic_config = self._topics.find(topic)
        if topic_config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if header.queue_id is None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"QueueId is null, topic is {topic}")
        if header.commit_offset is None:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"Offset is null, topic is {topic}")
        if self._offsets.is_reset(group, topic, header.queue_id):
            return RemotingCommand.response(remark=RESET)
        has_queue = 0 <= header.queue_id < queues_of(topic_config)
        is_kept = has_queue or self._offsets.committed(group, topic, header.queue_id) is not None
        if is_kept and not self._offsets.commit(group, topic, header.queue_id, header.commit_offset):
            raise self._offsets.refusal(group, topic, header.queue_id)
        return RemotingCommand.response()


def refuse_own_group(group: str, topic: str) -> None:
    """Raise RequestError(NO_PERMISSION) for the group whose offsets only the broker itself commits."""
    if group == TRANSACTIONS_GROUP:
        remark = f"the consumer group[{group}] is forbidden for topic[{topic}]"
        raise RequestError(ResponseCode.NO_PERMISSION, remark)
