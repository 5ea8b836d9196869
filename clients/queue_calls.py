"""What a consumer asks brokers about queues, as typed calls.

A queue's master answers, or another member of its broker where there is none. Errors are those of `Client.ask`, with
NoRoute for a topic or broker that no route leads to. Source: docs/formats.md, "Pull", "Queues", "Groups".
"""

from typing import Final

from clients.client import Client
from clients.errors import BrokerError
from clients.pull_requests import PullRequests
from clients.settings import ConsumerSettings
from protocol.bodies.heartbeat import ConsumerIdList, SubscriptionData
from protocol.bodies.message_queue import MessageQueue
from protocol.codes import RequestCode, ResponseCode
from protocol.command import RemotingCommand
from protocol.headers.consumer import ConsumerGroupHeader, QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from protocol.headers.fields import Header
from protocol.headers.queue import OffsetResponseHeader, QueueHeader, SearchOffsetHeader

MASTER: Final = 0


class QueueCalls:
    """The calls of one consumer group."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group

    def __repr__(self) -> str:
        return f"<QueueCalls {self._group}>"

    def pulls_of(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        settings: ConsumerSettings,
        *,
        with_subscription: bool,
    ) -> PullRequests:
        """The pulls by which the group reads a queue."""
        return PullRequests(self._group, queue, subscription, settings, with_subscription=with_subscription)

    async def pull(
        self, pulls: PullRequests, offset: int, commit_offset: int | None, broker_id: int = MASTER
    ) -> RemotingCommand:
        """The answer to a pull, whatever its code; it may take as long as the broker was allowed to hold it.

        Offsets are committed on masters only. `commit_offset` None: nothing is.
        """
        queue = pulls.queue
        routes, brokers = self._client.routes, self._client.brokers
        route = routes.known(queue.topic) or await routes.find(queue.topic)
        address = route.address(queue.broker_name, broker_id)
        connection = brokers.current(address) or await brokers.get(address)
        commits = commit_offset if broker_id == MASTER else None
        return await connection.exchange(
            RequestCode.PULL_MESSAGE, lambda opaque: pulls.frame(offset, commits, opaque), pulls.timeout_s
        )

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
