"""The requests of a consumer about queues, as typed calls.

The master of a queue's broker responds, or another member of the broker if there is no master. All raise the errors of
`Client.request`, and NoRoute if a topic or broker has no route. Source: docs/reference/wire.md, "Pull", "Queues",
"Groups".
"""

from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute, invalid_response, reading_response
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.consuming.pull_requests import PullRequests
from skylarkmq.protocol.bodies.heartbeat import CheckClientRequestBody, ConsumerIdList, SubscriptionData
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import (
    ConsumerGroupHeader,
    QueryConsumerOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.pull import PullMessageHeader, PullMessageResponseHeader
from skylarkmq.protocol.headers.queue import OffsetResponseHeader, QueueHeader, SearchOffsetHeader
from skylarkmq.protocol.message import MessageExt
from skylarkmq.protocol.record import decode

MASTER: Final = 0
MAX_MEMBERS: Final = 10_000
"""Limit of the members of a group. The time and memory of allocation rules grow with it."""
LEAST_OFFSET: Final = -1
"""Brokers of RocketMQ return -1 for a queue that has no such offset."""
_PULL_CODES: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class Pulled(msgspec.Struct, frozen=True):
    """The result of one pull: messages as they are stored, where to continue, and the bounds of the queue.

    `code`: SUCCESS (0), PULL_NOT_FOUND (19), PULL_RETRY_IMMEDIATELY (20) or PULL_OFFSET_MOVED (21).
    """

    code: int
    messages: list[MessageExt]
    next_offset: int
    min_offset: int
    max_offset: int


class QueueCalls:
    """The requests of one consumer group. `route_topic`: the topic whose route has the brokers; default: the queue's
    own. A light topic (LMQ) has no route."""

    def __init__(self, client: Client, group: str, route_topic: str | None = None) -> None:
        self._client = client
        self._group = group
        self._route_topic = route_topic

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
        """Return the pull requests of the group for a queue."""
        return PullRequests(self._group, queue, subscription, settings, with_subscription=with_subscription)

    async def pull(
        self, pulls: PullRequests, offset: int, commit_offset: int | None, broker_id: int = MASTER
    ) -> RemotingCommand:
        """Return the response to a pull, whatever its code. The broker may hold the pull for `suspend_s`.

        The pull also commits `commit_offset`, unless it is None, or the broker is not the master.
        """
        queue = pulls.queue
        routes, brokers = self._client.routes, self._client.brokers
        route = routes.known(queue.topic) or await routes.find(queue.topic)
        address = route.address(queue.broker_name, broker_id)
        connection = brokers.current(address) or await brokers.get(address)
        commits = commit_offset if broker_id == MASTER else None
        dialect = connection.dialect
        return await connection.exchange(
            RequestCode.PULL_MESSAGE, lambda opaque: pulls.frame(offset, commits, opaque, dialect), pulls.timeout_s
        )

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the committed offset; None if the broker has none: it responds QUERY_NOT_FOUND (22), or -1."""
        header = QueryConsumerOffsetHeader(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
        )
        try:
            offset = await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return offset if offset >= 0 else None

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit `offset` for the group."""
        header = UpdateConsumerOffsetHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            bname=queue.broker_name,
        )
        await self._request(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def min_offset(self, queue: MessageQueue) -> int:
        """Return the first offset that the queue still has."""
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, header)

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name)
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, header)

    async def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at or after a time (Unix, ms)."""
        header = SearchOffsetHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, bname=queue.broker_name
        )
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def read(self, queue: MessageQueue, offset: int, count: int) -> tuple[list[MessageExt], int | None]:
        """Return up to `count` messages from `offset` on, and the offset to continue at; None at the queue's end."""
        pulled = await self.pull_now(queue, offset, count)
        return pulled.messages, pulled.next_offset if pulled.next_offset > offset else None

    async def pull_now(self, queue: MessageQueue, offset: int, count: int, expression: str = "*") -> Pulled:
        """Return up to `count` messages from `offset` on that have one of the tags in `expression`, without waiting."""
        header = PullMessageHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription=expression,
            bname=queue.broker_name,
        )
        connection = await self._client.brokers.get(await self._address(queue))
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        response = await connection.invoke(request, self._client.settings.request_timeout_s)
        if response.code not in _PULL_CODES:
            raise BrokerError.of(request.code, response.code, response.remark, queue.broker_name, queue.topic)
        with reading_response(request.code, f"broker {queue.broker_name}", queue.topic):
            messages = decode(response.body) if response.code == ResponseCode.SUCCESS else []
            found = response.header(PullMessageResponseHeader)
        return Pulled(response.code, messages, found.next_begin_offset, found.min_offset, found.max_offset)

    async def members(self, topic: str) -> list[str]:
        """Return the client ids of the group, at most MAX_MEMBERS, as a broker of `topic` lists them."""
        route = await self._client.routes.find(topic)
        if not route.brokers:
            raise NoRoute(f"the route of topic {topic} names no broker. Check its registration.", topic=topic)
        address = route.address(min(route.brokers))
        header = ConsumerGroupHeader(consumer_group=self._group)
        code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
        response = await self._client.request(address, code, header, topic=topic)
        with reading_response(code, address, topic):
            members = ConsumerIdList.decode(response.body).consumer_id_list
        if len(members) > MAX_MEMBERS:
            raise invalid_response(
                code, address, f"{len(members)} members of a group, the limit is {MAX_MEMBERS}", topic
            )
        return members

    async def check(self, subscription: SubscriptionData) -> None:
        """Have every broker of the topic check an expression (CHECK_CLIENT_CONFIG, 46). Raises BrokerError if one of
        them rejects it."""
        topic = subscription.topic
        route = await self._client.routes.find(topic)
        body = CheckClientRequestBody(self._client.client_id, self._group, subscription_data=subscription).encode()
        for broker_name in route.brokers:
            address = route.address(broker_name)
            await self._client.request(address, RequestCode.CHECK_CLIENT_CONFIG, body=body, topic=topic)

    async def _offset(self, queue: MessageQueue, code: int, header: Header) -> int:
        response = await self._request(queue, code, header)
        broker = f"broker {queue.broker_name}"
        with reading_response(code, broker, queue.topic):
            offset = response.header(OffsetResponseHeader).offset
        if offset < LEAST_OFFSET:
            raise invalid_response(code, broker, f"the offset {offset} of queue {queue.queue_id}", queue.topic)
        return offset

    async def _request(self, queue: MessageQueue, code: int, header: Header) -> RemotingCommand:
        return await self._client.request(await self._address(queue), code, header, topic=queue.topic)

    async def _address(self, queue: MessageQueue) -> str:
        route = await self._client.routes.find(self._route_topic or queue.topic)
        return route.address(queue.broker_name)
