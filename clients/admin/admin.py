"""What operators and tests ask: topics, groups, offsets, messages.

    async with Admin(namesrv="host:9876") as admin:
        await admin.create_topic("Orders", queues=8)
        await admin.reset_offsets("billing", "Orders", datetime(2024, 5, 1, tzinfo=UTC))
        async for message in admin.messages_between("Orders", since, until): ...

What concerns every broker is asked of all masters, one after the other; an error of one is raised, and those before it
have done their part. Offsets and times of queues are those of `MessageQueue`s. Source: docs/formats.md, "Topics",
"Groups", "Statistics of topics and groups", "Queries".
"""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from typing import Final, TypeVar, Unpack

from skylarkmq.clients.connection.participant import Participant
from skylarkmq.clients.connection.topic_route import MASTER, checked_cluster
from skylarkmq.clients.consuming.queue_calls import QueueCalls
from skylarkmq.clients.consuming.stored_messages import inflate_or_keep, restore_topic
from skylarkmq.clients.errors import BrokerError, NoRoute, invalid_response, reading_response
from skylarkmq.clients.options import StandaloneOptions, check_options
from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.client_state import ResetOffsets
from skylarkmq.protocol.bodies.cluster import ClusterInfo, TopicList
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.codes import Permission, RequestCode, ResponseCode, SystemTopic
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES
from skylarkmq.protocol.headers.client_calls import ResetOffsetHeader
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader, DeleteGroupHeader
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.queue import QueryMessageHeader, ViewMessageHeader
from skylarkmq.protocol.headers.stats import ConsumeStatsHeader
from skylarkmq.protocol.headers.topic import CreateTopicHeader, TopicHeader
from skylarkmq.protocol.message import MessageExt, PropertyName
from skylarkmq.protocol.message_id import decode_offset_id
from skylarkmq.protocol.record import decode

B = TypeVar("B", bound=Body)

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
MAX_FOUND_BYTES: Final = 100 * 1024 * 1024
"""Of the bodies of one query by key, inflated."""
_FOREVER_MS: Final = 2**63 - 1
_READ_AT_ONCE: Final = 32
_UNIQUE: Final = PropertyName.UNIQ_KEY


class Admin(Participant):
    """Requests of an operator, made for no group. The options are those of `StandaloneOptions` (clients/options.py).

    Errors are BrokerError, NoRoute, InvalidResponse, and those of the transport.
    """

    def __init__(self, **options: Unpack[StandaloneOptions]) -> None:
        check_options(options, StandaloneOptions, "Admin")
        super().__init__(options)
        self._queues = QueueCalls(self.client, TOOLS_GROUP)

    def __repr__(self) -> str:
        return f"<Admin {self.client}>"

    async def _join(self) -> None:
        """There is nothing to join."""

    async def _leave(self) -> None:
        """There is nothing to leave."""

    # --------------------------------------------------------------------------------------------- brokers and topics

    async def cluster(self) -> ClusterInfo:
        """All brokers that are registered."""
        return checked_cluster(await self.client.routes.name_servers.ask(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def masters(self) -> dict[str, str]:
        """The address of each broker's master, by broker name."""
        table = (await self.cluster()).broker_addr_table
        return {name: data.broker_addrs[MASTER] for name, data in sorted(table.items()) if MASTER in data.broker_addrs}

    async def topics(self) -> list[str]:
        """The names of all topics, sorted, those of retries, dead letters and the system among them."""
        name_servers = self.client.routes.name_servers
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        body = await name_servers.ask(code)
        with reading_response(code, "a name server"):
            return sorted(TopicList.decode(body).topic_list)

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        *,
        perm: int = Permission.READ_WRITE,
        order: bool = False,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Make a topic with so many queues on each broker (names; None: on all), or change it."""
        header = CreateTopicHeader(
            topic=topic,
            default_topic=SystemTopic.AUTO_CREATE,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=str(order).lower(),
        )
        for address in await self._addresses(brokers):
            await self.client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, topic=topic)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic, with its messages and offsets."""
        for address in await self._addresses(None):
            await self.client.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic), topic=topic)
        header = TopicHeader(topic=topic)
        await self.client.routes.name_servers.tell_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be read. NoRoute."""
        return (await self.client.routes.reload(topic)).subscribe_queues

    async def topic_offsets(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """First and next offset of each queue, and the time of its last message."""
        table: dict[MessageQueue, TopicOffset] = {}
        for address in await self._addresses_of(topic):
            header = TopicHeader(topic=topic)
            stats = await self._asked(TopicStatsTable, address, RequestCode.GET_TOPIC_STATS_INFO, header)
            table |= stats.offset_table
        return dict(sorted(table.items()))

    # --------------------------------------------------------------------------------------------------------- groups

    async def groups(self) -> dict[str, SubscriptionGroupConfig]:
        """All consumer groups by name; of a group on several brokers, what the last one has."""
        table: dict[str, SubscriptionGroupConfig] = {}
        for address in await self._addresses(None):
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            table |= (await self._asked(SubscriptionGroupWrapper, address, code)).subscription_group_table
        return dict(sorted(table.items()))

    async def create_group(self, config: SubscriptionGroupConfig, brokers: Iterable[str] | None = None) -> None:
        """Make a group on each broker (names; None: on all), or change it."""
        for address in await self._addresses(brokers):
            await self.client.ask(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())

    async def delete_group(self, group: str, *, offsets: bool = True) -> None:
        """Delete a group, and its committed offsets."""
        flag = str(offsets).lower()
        header = DeleteGroupHeader(group_name=group, clean_offset=flag, remove_offset=flag)
        for address in await self._addresses(None):
            await self.client.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def members(self, group: str) -> ConsumerConnection:
        """Who consumes in a group, and what, as the first broker that has members knows it. BrokerError if none has."""
        failure: BrokerError | None = None
        for address in await self._addresses(None):
            header = ConsumerGroupHeader(consumer_group=group)
            try:
                return await self._asked(ConsumerConnection, address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
            except BrokerError as error:
                failure = error
        raise failure or NoRoute("no broker is registered. Check that one runs, and which name server it has.")

    # -------------------------------------------------------------------------------------------------------- offsets

    async def group_offsets(self, group: str, topic: str) -> dict[MessageQueue, OffsetWrapper]:
        """Where a group stands in each queue of a topic."""
        table: dict[MessageQueue, OffsetWrapper] = {}
        header = ConsumeStatsHeader(consumer_group=group, topic=topic)
        for address in await self._addresses_of(topic):
            table |= (await self._asked(ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header)).offset_table
        return dict(sorted(table.items()))

    async def lag(self, group: str, topic: str) -> int:
        """How many messages of a topic a group has not consumed."""
        offsets = await self.group_offsets(group, topic)
        return sum(row.broker_offset - row.consumer_offset for row in offsets.values())

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset in a group's name. Members that run go on where they are: see `reset_offsets`."""
        await QueueCalls(self.client, group).commit(queue, offset)

    async def reset_offsets(self, group: str, topic: str, to: datetime | None = None) -> dict[MessageQueue, int]:
        """Let a group go on at what was stored since `to`, or (None) at what will come; members that run, too.

        Returns the new offsets.
        """
        timestamp = -1 if to is None else int(to.timestamp() * 1000)
        header = ResetOffsetHeader(group=group, topic=topic, timestamp=timestamp, is_force="true")
        table: dict[MessageQueue, int] = {}
        for address in await self._addresses_of(topic):
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            table |= (await self._asked(ResetOffsets, address, code, header)).offset_table
        return dict(sorted(table.items()))

    # ------------------------------------------------------------------------------------------------------- messages

    async def messages_of_key(
        self, topic: str, key: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 64
    ) -> list[MessageExt]:
        """Messages with this among their KEYS, or as their message id, in the order of their store times."""
        found: list[MessageExt] = []
        header = QueryMessageHeader(
            topic=topic,
            key=key,
            max_num=limit,
            begin_timestamp=0 if since is None else int(since.timestamp() * 1000),
            end_timestamp=_FOREVER_MS if until is None else int(until.timestamp() * 1000),
        )
        for address in await self._addresses_of(topic):
            try:
                answer = await self.client.ask(address, RequestCode.QUERY_MESSAGE, header, topic=topic)
            except BrokerError as error:
                if error.code != ResponseCode.QUERY_NOT_FOUND:
                    raise
            else:  # the broker looks by hash only
                with reading_response(RequestCode.QUERY_MESSAGE, f"broker {address}", topic):
                    messages = decode(answer.body)
                found += [m for m in messages if key in m.keys or key == m.properties.get(_UNIQUE)]
        return await _inflated(sorted(found, key=lambda message: message.store_timestamp))

    async def message_of_id(self, offset_msg_id: str) -> MessageExt:
        """The message with this offset id (`SendResult.offset_msg_id`); ValueError if it is no such id."""
        ip, port, offset = decode_offset_id(offset_msg_id)
        address = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await self.client.ask(address, code, ViewMessageHeader(offset=offset))
        with reading_response(code, f"broker {address}"):
            messages = decode(answer.body)
        if not messages:
            raise invalid_response(code, f"broker {address}", "no message")
        return await _readable(messages[0])

    async def messages_between(self, topic: str, since: datetime, until: datetime) -> AsyncIterator[MessageExt]:
        """What was stored in [since, until), queue by queue."""
        until_ms = int(until.timestamp() * 1000)
        for queue in await self.queues(topic):
            offset: int | None = await self._queues.offset_at(queue, int(since.timestamp() * 1000))
            while offset is not None:
                messages, offset = await self._queues.read(queue, offset, _READ_AT_ONCE)
                for message in messages:
                    if message.store_timestamp >= until_ms:
                        offset = None
                        break
                    yield await _readable(message)

    async def earliest(self, queue: MessageQueue) -> datetime | None:
        """The store time of the first message that a queue still has."""
        messages, _ = await self._queues.read(queue, await self._queues.min_offset(queue), 1)
        if not messages:
            return None
        try:
            return datetime.fromtimestamp(messages[0].store_timestamp / 1000, UTC)
        except (ValueError, OverflowError, OSError) as error:
            reason = f"a store time of {messages[0].store_timestamp} ms"
            raise invalid_response(RequestCode.PULL_MESSAGE, queue.broker_name, reason, queue.topic) from error

    async def _asked(self, kind: type[B], address: str, code: int, header: Header | None = None) -> B:
        """Return the body of a broker's response. BrokerError, InvalidResponse, or an error of the transport."""
        answer = await self.client.ask(address, code, header, topic=getattr(header, "topic", None))
        with reading_response(code, f"broker {address}"):
            return kind.decode(answer.body)

    # ------------------------------------------------------------------------------------------------------ addresses

    async def _addresses(self, brokers: Iterable[str] | None) -> list[str]:
        masters = await self.masters()
        unknown = set(brokers or ()) - set(masters)
        if unknown or not masters:
            raise NoRoute(
                f"no master is registered of {sorted(unknown) or 'any broker'}. Registered: {sorted(masters)}."
            )
        return [address for name, address in masters.items() if brokers is None or name in brokers]

    async def _addresses_of(self, topic: str) -> list[str]:
        route = await self.client.routes.reload(topic)
        return [route.address(name) for name in sorted(route.brokers)]


async def _readable(message: MessageExt) -> MessageExt:
    await inflate_or_keep(message)
    return restore_topic(message)


async def _inflated(messages: list[MessageExt]) -> list[MessageExt]:
    """Inflate the bodies until they have MAX_FOUND_BYTES in all; further ones stay as stored (`MessageExt.payload`)."""
    total = 0
    for message in messages:
        await inflate_or_keep(message, min(MAX_PAYLOAD_BYTES, max(MAX_FOUND_BYTES - total, 0)))
        total += len(message.body)
    return [restore_topic(message) for message in messages]
