"""Requests of operators and tests: topics, groups, offsets, messages.

    async with connect("host:9876") as mq, mq.admin() as admin:
        await admin.create_topic("Orders", queues=8)
        await admin.reset_offsets("billing", "Orders", datetime(2024, 5, 1, tzinfo=UTC))
        async for message in admin.messages_between("Orders", since, until): ...

Sections have the requests of operators that applications seldom need, each with its own module beside this one:

    admin.brokers         state, settings, statistics and files of one broker
    admin.messages        messages by id, key, queue and offset; their traces and consumption
    admin.access          users, policies and accounts of one broker
    admin.name_servers    settings, keys and values, write permission of brokers

Requests that concern all brokers go to all masters, one after the other. An error of one is raised; the requests before
it have been executed. Offsets and times of queues have `MessageQueue`s as keys. Source: docs/reference/wire.md,
"Topics", "Groups", "Statistics of topics and groups", "Queries".
"""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, Unpack

from skylarkmq.clients.sdk.admin.access import Access
from skylarkmq.clients.sdk.admin.brokers import Brokers
from skylarkmq.clients.sdk.admin.group_config import GroupConfigs
from skylarkmq.clients.sdk.admin.messages import TOOLS_GROUP, KeyQuery, Messages
from skylarkmq.clients.sdk.admin.name_servers import NameServerAdmin
from skylarkmq.clients.sdk.admin.offsets import Offsets
from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.admin.topic_config import TopicConfigs
from skylarkmq.clients.sdk.base.arguments import check_group, check_offset, check_queue, check_type, time_ms
from skylarkmq.clients.sdk.base.errors import BrokerError, NoRoute, invalid_response, reading_response
from skylarkmq.clients.sdk.connection.options import StandaloneOptions, check_options
from skylarkmq.clients.sdk.connection.participant import Participant
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.clients.sdk.messages.stored_messages import inflate_or_keep, restore_topic
from skylarkmq.protocol.bodies.client_state import ResetOffsets
from skylarkmq.protocol.bodies.cluster import ClusterInfo, TopicList
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.codes import Permission, RequestCode, SystemTopic
from skylarkmq.protocol.decimals import INT64_MAX
from skylarkmq.protocol.headers.client_calls import ResetOffsetHeader
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader, DeleteGroupHeader
from skylarkmq.protocol.headers.stats import ConsumeStatsHeader
from skylarkmq.protocol.headers.topic import CreateTopicHeader, TopicHeader
from skylarkmq.protocol.message import MessageExt

_READ_MESSAGES: Final = 32


class Admin(Participant):
    """Requests of an operator, made for no group. Its options: `skylarkmq.options.StandaloneOptions`.

    Each call raises InvalidArgument, BrokerError, NoRoute, InvalidResponse, or an error of the transport. `timeout_s`
    limits a whole call; the default is `ClientSettings.call_timeout_s` (30 s).
    """

    def __init__(self, **options: Unpack[StandaloneOptions]) -> None:
        check_options(options, StandaloneOptions, "Admin")
        super().__init__(options)
        self._queues = QueueCalls(self.client, TOOLS_GROUP)
        self._requests = AdminRequests(self.client, self._within)

    def __repr__(self) -> str:
        return f"<Admin {self.client}>"

    @cached_property
    def brokers(self) -> Brokers:
        """Requests to one broker: its state, settings, statistics and files."""
        return Brokers(self._requests)

    @cached_property
    def messages(self) -> Messages:
        """Messages by id, key, queue and offset; their traces and consumption."""
        return Messages(self._requests)

    @cached_property
    def access(self) -> Access:
        """Users, policies and accounts of one broker."""
        return Access(self._requests)

    @cached_property
    def name_servers(self) -> NameServerAdmin:
        """Requests to name servers: settings, keys and values, write permission of brokers."""
        return NameServerAdmin(self._requests)

    @cached_property
    def topic_config(self) -> TopicConfigs:
        """Topics on brokers and in name servers: configuration, routes, groups and statistics."""
        return TopicConfigs(self._requests)

    @cached_property
    def group_config(self) -> GroupConfigs:
        """Consumer groups, and the clients of groups."""
        return GroupConfigs(self._requests)

    @cached_property
    def offsets(self) -> Offsets:
        """Progress of consumer groups, resets and copies of offsets."""
        return Offsets(self._requests)

    async def _join(self) -> None:
        """An Admin belongs to no group."""

    async def _leave(self) -> None:
        """An Admin belongs to no group."""

    # --------------------------------------------------------------------------------------------- brokers and topics

    async def cluster(self, *, timeout_s: float | None = None) -> ClusterInfo:
        """Return all registered brokers."""
        async with self._within(timeout_s, "cluster"):
            return await self._requests.cluster()

    async def masters(self, cluster: str | None = None, *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the address of each broker's master, by broker name. NoRoute if there is no such cluster."""
        if cluster is not None:
            check_type("cluster", cluster, str)
        async with self._within(timeout_s, "masters"):
            return await self._requests.masters(cluster)

    async def broker_addresses(
        self, cluster: str | None = None, *, timeout_s: float | None = None
    ) -> dict[str, dict[int, str]]:
        """Return all addresses by broker id, 0 for the master, by broker name. NoRoute if there is no such cluster."""
        if cluster is not None:
            check_type("cluster", cluster, str)
        async with self._within(timeout_s, "broker_addresses"):
            return await self._requests.broker_addresses(cluster)

    async def topics(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of all topics, sorted: also those of retries, dead letters and the system."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        async with self._within(timeout_s, "topics"):
            body = await self.client.routes.name_servers.request(code)
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
        timeout_s: float | None = None,
    ) -> None:
        """Create a topic with this number of queues on each broker, or change it. `brokers`: names; default: all."""
        check_type("topic", topic, str)
        check_type("queues", queues, int)
        check_type("perm", perm, int)
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
        async with self._within(timeout_s, "create_topic"):
            for address in await self._requests.master_addresses(brokers):
                await self.client.request(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, topic=topic)

    async def delete_topic(self, topic: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic, with its messages and offsets."""
        check_type("topic", topic, str)
        header = TopicHeader(topic=topic)
        async with self._within(timeout_s, "delete_topic"):
            for address in await self._requests.master_addresses():
                await self.client.request(address, RequestCode.DELETE_TOPIC_IN_BROKER, header, topic=topic)
            await self.client.routes.name_servers.request_each(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def queues(self, topic: str, *, timeout_s: float | None = None) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic."""
        check_type("topic", topic, str)
        async with self._within(timeout_s, "queues"):
            return (await self.client.routes.reload(topic)).subscribe_queues

    async def topic_offsets(self, topic: str, *, timeout_s: float | None = None) -> dict[MessageQueue, TopicOffset]:
        """Return the first and the next offset of each queue, and the time of its last message."""
        check_type("topic", topic, str)
        table: dict[MessageQueue, TopicOffset] = {}
        header = TopicHeader(topic=topic)
        async with self._within(timeout_s, "topic_offsets"):
            for address in await self._requests.addresses_of(topic):
                stats = await self._requests.read(TopicStatsTable, address, RequestCode.GET_TOPIC_STATS_INFO, header)
                table |= stats.offset_table
        return dict(sorted(table.items()))

    # --------------------------------------------------------------------------------------------------------- groups

    async def groups(self, *, timeout_s: float | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Return all consumer groups by name; for a group on several brokers, the configuration of the last one."""
        table: dict[str, SubscriptionGroupConfig] = {}
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        async with self._within(timeout_s, "groups"):
            for address in await self._requests.master_addresses():
                table |= (await self._requests.read(SubscriptionGroupWrapper, address, code)).subscription_group_table
        return dict(sorted(table.items()))

    async def create_group(
        self, config: SubscriptionGroupConfig, brokers: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Create a consumer group on each broker, or change it. `brokers`: names; default: all."""
        check_type("config", config, SubscriptionGroupConfig)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        async with self._within(timeout_s, "create_group"):
            for address in await self._requests.master_addresses(brokers):
                await self.client.request(address, code, body=config.encode())

    async def delete_group(self, group: str, *, offsets: bool = True, timeout_s: float | None = None) -> None:
        """Delete a consumer group, and with `offsets` its committed offsets."""
        check_type("group", group, str)
        flag = str(offsets).lower()
        header = DeleteGroupHeader(group_name=group, clean_offset=flag, remove_offset=flag)
        async with self._within(timeout_s, "delete_group"):
            for address in await self._requests.master_addresses():
                await self.client.request(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def members(self, group: str, *, timeout_s: float | None = None) -> ConsumerConnection:
        """Return the members of a group and their subscriptions, from the first broker that has members.

        BrokerError if no broker has any.
        """
        check_type("group", group, str)
        failure: BrokerError | None = None
        code, header = RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerGroupHeader(consumer_group=group)
        async with self._within(timeout_s, "members"):
            for address in await self._requests.master_addresses():
                try:
                    return await self._requests.read(ConsumerConnection, address, code, header)
                except BrokerError as error:
                    failure = error
        raise failure or NoRoute("no broker is registered. Check that one runs, and the name server of its settings.")

    # -------------------------------------------------------------------------------------------------------- offsets

    async def group_offsets(
        self, group: str, topic: str | None = None, *, timeout_s: float | None = None
    ) -> dict[MessageQueue, OffsetWrapper]:
        """Return the committed offset of a group, and the next offset of the broker, for each queue of a topic.

        `topic` None: of all topics in which the group has offsets; if it has members, of those that they subscribe to.
        """
        check_group(group)
        if topic is not None:
            check_type("topic", topic, str)
        table: dict[MessageQueue, OffsetWrapper] = {}
        header = ConsumeStatsHeader(consumer_group=group, topic=topic)
        async with self._within(timeout_s, "group_offsets"):
            requests = self._requests
            for address in await (requests.master_addresses() if topic is None else requests.addresses_of(topic)):
                table |= (
                    await requests.read(ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header)
                ).offset_table
        return dict(sorted(table.items()))

    async def lag(self, group: str, topic: str, *, timeout_s: float | None = None) -> int:
        """Return how many messages of a topic the group has not acknowledged."""
        offsets = await self.group_offsets(group, topic, timeout_s=timeout_s)
        return sum(row.broker_offset - row.consumer_offset for row in offsets.values())

    async def set_offset(self, group: str, queue: MessageQueue, offset: int, *, timeout_s: float | None = None) -> None:
        """Commit an offset for a group. Running members keep their positions: see `reset_offsets`.

        After `reset_offsets` the broker ignores commits, also this one, until a member of the group pulls from the
        queue; this holds for RocketMQ 5.3, too. To move such a group once more, use `offsets.reset_queue`.
        """
        check_group(group)
        check_queue(queue)
        check_offset(offset)
        async with self._within(timeout_s, "set_offset"):
            await QueueCalls(self.client, group).commit(queue, offset)

    async def reset_offsets(
        self, group: str, topic: str, to: datetime | None = None, *, timeout_s: float | None = None
    ) -> dict[MessageQueue, int]:
        """Move a group, and its running members, to the first message stored at or after `to`; None: to the end.

        Returns the new offsets.
        """
        check_group(group)
        check_type("topic", topic, str)
        timestamp = -1 if to is None else time_ms("to", to)
        header = ResetOffsetHeader(group=group, topic=topic, timestamp=timestamp, is_force="true")
        table: dict[MessageQueue, int] = {}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        async with self._within(timeout_s, "reset_offsets"):
            for address in await self._requests.addresses_of(topic):
                table |= (await self._requests.read(ResetOffsets, address, code, header)).offset_table
        return dict(sorted(table.items()))

    # ------------------------------------------------------------------------------------------------------- messages

    async def messages_of_key(
        self,
        topic: str,
        key: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 64,
        timeout_s: float | None = None,
    ) -> list[MessageExt]:
        """Return the messages that have `key` among their KEYS or as message id, in the order of their store times.

        At most `limit` from each broker.
        """
        check_type("limit", limit, int)
        since_ms = 0 if since is None else time_ms("since", since)
        until_ms = INT64_MAX if until is None else time_ms("until", until)
        query = KeyQuery(limit=limit, since_ms=since_ms, until_ms=until_ms)
        found = await self.messages.with_key_or_id(topic, key, query, timeout_s=timeout_s)
        return [restore_topic(message) for message in sorted(found, key=lambda message: message.store_timestamp)]

    async def message_of_id(self, offset_msg_id: str, *, timeout_s: float | None = None) -> MessageExt:
        """Return the message with this offset id (`SendResult.offset_msg_id`)."""
        return restore_topic(await self.messages.at(offset_msg_id, timeout_s=timeout_s))

    async def messages_between(
        self, topic: str, since: datetime, until: datetime, *, timeout_s: float | None = None
    ) -> AsyncIterator[MessageExt]:
        """Yield the messages that were stored in [since, until), queue by queue. `timeout_s` limits each request."""
        check_type("topic", topic, str)
        since_ms, until_ms = time_ms("since", since), time_ms("until", until)
        for queue in await self.queues(topic, timeout_s=timeout_s):
            async with self._within(timeout_s, "messages_between"):
                offset: int | None = await self._queues.offset_at(queue, since_ms)
            while offset is not None:
                async with self._within(timeout_s, "messages_between"):
                    messages, offset = await self._queues.read(queue, offset, _READ_MESSAGES)
                for message in messages:
                    if message.store_timestamp >= until_ms:
                        offset = None
                        break
                    yield await _readable(message)

    async def earliest(self, queue: MessageQueue, *, timeout_s: float | None = None) -> datetime | None:
        """Return the store time of the first message of a queue; None if the queue is empty."""
        check_queue(queue)
        async with self._within(timeout_s, "earliest"):
            messages, _ = await self._queues.read(queue, await self._queues.min_offset(queue), 1)
        if not messages:
            return None
        try:
            return datetime.fromtimestamp(messages[0].store_timestamp / 1000, UTC)
        except (ValueError, OverflowError, OSError) as error:
            reason = f"a store time of {messages[0].store_timestamp} ms"
            raise invalid_response(RequestCode.PULL_MESSAGE, queue.broker_name, reason, queue.topic) from error


async def _readable(message: MessageExt) -> MessageExt:
    await inflate_or_keep(message)
    return restore_topic(message)
