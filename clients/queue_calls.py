"""What a consumer asks brokers about queues, as typed calls.

A queue's master answers, or another member of its broker where there is none. Errors are those of `Client.ask`, with
NoRoute for a topic or broker that no route leads to. Source: docs/formats.md, "Pull", "Queues", "Groups".
"""

from typing import Final

import msgspec

from clients.client import Client
from clients.errors import BrokerError
from protocol.bodies.heartbeat import ConsumerIdList, SubscriptionData
from protocol.bodies.message_queue import MessageQueue
from protocol.codes import PullSysFlag, RequestCode, ResponseCode
from protocol.command import RemotingCommand
from protocol.headers.consumer import ConsumerGroupHeader, QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from protocol.headers.fields import Header
from protocol.headers.pull import PullMessageHeader
from protocol.headers.queue import OffsetResponseHeader, QueueHeader, SearchOffsetHeader

MASTER: Final = 0


class Pull(msgspec.Struct, frozen=True):
    """What one pull wants. `commit_offset` None: nothing is committed by the way. Seconds, bytes."""

    queue: MessageQueue
    offset: int
    subscription: SubscriptionData
    with_subscription: bool  # the broker shall not look for the subscription among the heartbeats
    commit_offset: int | None
    max_messages: int
    max_bytes: int
    suspend_s: float
    timeout_s: float
    broker_id: int = MASTER

    def header(self, group: str) -> PullMessageHeader:
        """The request's header."""
        commits = self.commit_offset is not None and self.broker_id == MASTER
        sys_flag = PullSysFlag.SUSPEND
        sys_flag |= PullSysFlag.COMMIT_OFFSET if commits else 0
        sys_flag |= PullSysFlag.SUBSCRIPTION if self.with_subscription else 0
        return PullMessageHeader(
            consumer_group=group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=self.offset,
            max_msg_nums=self.max_messages,
            sys_flag=sys_flag,
            commit_offset=self.commit_offset or 0,
            suspend_timeout_millis=int(self.suspend_s * 1000),
            sub_version=self.subscription.sub_version,
            subscription=self.subscription.sub_string if self.with_subscription else None,
            expression_type=self.subscription.expression_type,
            max_msg_bytes=self.max_bytes,
            bname=self.queue.broker_name,
        )


class QueueCalls:
    """The calls of one consumer group."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group

    def __repr__(self) -> str:
        return f"<QueueCalls {self._group}>"

    async def pull(self, pull: Pull) -> RemotingCommand:
        """The answer to a pull, whatever its code; it may take as long as the broker was allowed to hold it."""
        queue = pull.queue
        route = await self._client.routes.find(queue.topic)
        connection = await self._client.brokers.get(route.address(queue.broker_name, pull.broker_id))
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, pull.header(self._group))
        return await connection.invoke(request, pull.timeout_s)

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """The group's offset, None if the broker knows none."""
        header = QueryConsumerOffsetHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Make `offset` the group's."""
        header = UpdateConsumerOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        await self._ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset that the queue still has."""
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first offset stored at or after a time."""
        header = SearchOffsetHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
        )
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def members(self, topic: str) -> list[str]:
        """The client ids of the group, as a broker of `topic` knows them."""
        route = await self._client.routes.find(topic)
        address = route.address(min(route.brokers))
        header = ConsumerGroupHeader(consumer_group=self._group)
        answer = await self._client.ask(address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, topic=topic)
        return ConsumerIdList.decode(answer.body).consumer_id_list

    async def _offset(self, queue: MessageQueue, code: int, header: Header) -> int:
        return (await self._ask(queue, code, header)).header(OffsetResponseHeader).offset

    async def _ask(self, queue: MessageQueue, code: int, header: Header) -> RemotingCommand:
        route = await self._client.routes.find(queue.topic)
        return await self._client.ask(route.address(queue.broker_name), code, header, topic=queue.topic)
