"""Requests of operators and tests, in sections, each with its own module beside this one:

    admin.brokers         the brokers of a cluster; state, settings, statistics and files of one broker
    admin.topic_config    topics: configuration, routes, queues, offsets and statistics
    admin.group_config    consumer groups: configuration, members, and the state that a member reports
    admin.offsets         progress of groups, commits, resets and copies of offsets
    admin.messages        messages by id, key, time, queue and offset; their traces and consumption
    admin.access          users, policies and accounts of one broker
    admin.name_servers    settings, keys and values, write permission of brokers

The calls that applications and tests need most have shortcuts:

    async with connect("host:9876") as mq, mq.admin() as admin:
        await admin.create_topic("Orders", queues=8)
        await admin.reset_offsets("billing", "Orders", datetime(2024, 5, 1, tzinfo=UTC))
        async for message in admin.messages_between("Orders", since, until): ...

Requests that concern all brokers go to all masters, one after the other. An error of one is raised; the requests before
it have been executed. Offsets and times of queues have `MessageQueue`s as keys. Source: docs/reference/wire.md,
"Topics", "Groups", "Statistics of topics and groups", "Queries".
"""

from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from functools import cached_property
from typing import Unpack

from skylarkmq.clients.sdk.admin.access import Access
from skylarkmq.clients.sdk.admin.brokers import Brokers
from skylarkmq.clients.sdk.admin.group_config import GroupConfigs
from skylarkmq.clients.sdk.admin.messages import Messages
from skylarkmq.clients.sdk.admin.name_servers import NameServerAdmin
from skylarkmq.clients.sdk.admin.offsets import Offsets
from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.admin.topic_config import TopicConfigs
from skylarkmq.clients.sdk.connection.options import StandaloneOptions, check_options, lists_options
from skylarkmq.clients.sdk.connection.participant import Participant
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.stats import OffsetWrapper, TopicOffset
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import Permission
from skylarkmq.protocol.message import MessageExt


class Admin(Participant):
    """Requests of an operator, made for no group. Its options: `skylarkmq.options.StandaloneOptions`.

    Each call raises InvalidArgument, BrokerError, NoRoute, InvalidResponse, or an error of the transport. `timeout_s`
    limits a whole call; the default is `ClientSettings.call_timeout_s` (30 s).
    """

    @lists_options
    def __init__(self, **options: Unpack[StandaloneOptions]) -> None:
        check_options(options, StandaloneOptions, "Admin")
        super().__init__(options)
        self._requests = AdminRequests(self.client, self._within)

    def __repr__(self) -> str:
        return f"<Admin {self.client}>"

    @cached_property
    def brokers(self) -> Brokers:
        """The brokers of a cluster; state, settings, statistics and files of one broker."""
        return Brokers(self._requests)

    @cached_property
    def messages(self) -> Messages:
        """Messages by id, key, time, queue and offset; their traces and consumption."""
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
        """Topics on brokers and in name servers: configuration, routes, queues, offsets and statistics."""
        return TopicConfigs(self._requests)

    @cached_property
    def group_config(self) -> GroupConfigs:
        """Consumer groups, and the clients of groups."""
        return GroupConfigs(self._requests)

    @cached_property
    def offsets(self) -> Offsets:
        """Progress of consumer groups, commits, resets and copies of offsets."""
        return Offsets(self._requests)

    async def _join(self) -> None:
        """An Admin belongs to no group."""

    async def _leave(self) -> None:
        """An Admin belongs to no group."""

    # ------------------------------------------------------------------------------------------------------ shortcuts

    async def cluster(self, *, timeout_s: float | None = None) -> ClusterInfo:
        """Return all registered brokers. The same as `brokers.cluster`."""
        return await self.brokers.cluster(timeout_s=timeout_s)

    async def masters(self, cluster: str | None = None, *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the address of each broker's master, by broker name. The same as `brokers.masters`."""
        return await self.brokers.masters(cluster, timeout_s=timeout_s)

    async def broker_addresses(
        self, cluster: str | None = None, *, timeout_s: float | None = None
    ) -> dict[str, dict[int, str]]:
        """Return all addresses by broker id, by broker name. The same as `brokers.addresses`."""
        return await self.brokers.addresses(cluster, timeout_s=timeout_s)

    async def topics(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of all topics, also those of retries and the system: `topic_config.names`, sorted."""
        return sorted(await self.topic_config.names(timeout_s=timeout_s))

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
        """Create a topic on each broker, or change it. The same as `topic_config.create`."""
        await self.topic_config.create(topic, queues, perm=perm, order=order, brokers=brokers, timeout_s=timeout_s)

    async def delete_topic(self, topic: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic, with its messages and offsets. The same as `topic_config.delete`."""
        await self.topic_config.delete(topic, timeout_s=timeout_s)

    async def queues(self, topic: str, *, timeout_s: float | None = None) -> tuple[MessageQueue, ...]:
        """Return the readable queues of a topic. The same as `topic_config.queues`."""
        return await self.topic_config.queues(topic, timeout_s=timeout_s)

    async def topic_offsets(self, topic: str, *, timeout_s: float | None = None) -> dict[MessageQueue, TopicOffset]:
        """Return the first and the next offset of each queue, with times. The same as `topic_config.offsets`."""
        return await self.topic_config.offsets(topic, timeout_s=timeout_s)

    async def groups(self, *, timeout_s: float | None = None) -> dict[str, SubscriptionGroupConfig]:
        """Return all consumer groups by name. The same as `group_config.groups`."""
        return await self.group_config.groups(timeout_s=timeout_s)

    async def create_group(
        self, config: SubscriptionGroupConfig, brokers: Iterable[str] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Create a consumer group on each broker, or change it. The same as `group_config.create`."""
        await self.group_config.create(config, brokers, timeout_s=timeout_s)

    async def delete_group(self, group: str, *, offsets: bool = True, timeout_s: float | None = None) -> None:
        """Delete a consumer group, and with `offsets` its offsets. The same as `group_config.delete_on_masters`."""
        await self.group_config.delete_on_masters(group, offsets=offsets, timeout_s=timeout_s)

    async def members(self, group: str, *, timeout_s: float | None = None) -> ConsumerConnection:
        """Return the members of a group and their subscriptions. The same as `group_config.members`."""
        return await self.group_config.members(group, timeout_s=timeout_s)

    async def group_offsets(
        self, group: str, topic: str | None = None, *, timeout_s: float | None = None
    ) -> dict[MessageQueue, OffsetWrapper]:
        """Return the committed offset of a group for each queue of a topic. The same as `offsets.of_group`."""
        return await self.offsets.of_group(group, topic, timeout_s=timeout_s)

    async def lag(self, group: str, topic: str, *, timeout_s: float | None = None) -> int:
        """Return how many messages of a topic the group has not acknowledged. The same as `offsets.lag`."""
        return await self.offsets.lag(group, topic, timeout_s=timeout_s)

    async def set_offset(self, group: str, queue: MessageQueue, offset: int, *, timeout_s: float | None = None) -> None:
        """Commit an offset for a group; running members keep their positions. The same as `offsets.commit`."""
        await self.offsets.commit(group, queue, offset, timeout_s=timeout_s)

    async def reset_offsets(
        self, group: str, topic: str, to: datetime | None = None, *, timeout_s: float | None = None
    ) -> dict[MessageQueue, int]:
        """Move a group, and its running members, to a time; None: to the end. The same as `offsets.reset_to`."""
        return await self.offsets.reset_to(group, topic, to, timeout_s=timeout_s)

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
        """Return the messages with a key or message id, in the order of store times. The same as `messages.of_key`."""
        return await self.messages.of_key(topic, key, since=since, until=until, limit=limit, timeout_s=timeout_s)

    async def message_of_id(self, offset_msg_id: str, *, timeout_s: float | None = None) -> MessageExt:
        """Return the message with this offset id, as in a `SendResult`. The same as `messages.of_id`."""
        return await self.messages.of_id(offset_msg_id, timeout_s=timeout_s)

    def messages_between(
        self, topic: str, since: datetime, until: datetime, *, timeout_s: float | None = None
    ) -> AsyncIterator[MessageExt]:
        """Yield the messages that were stored in [since, until), queue by queue. The same as `messages.between`."""
        return self.messages.between(topic, since, until, timeout_s=timeout_s)

    async def earliest(self, queue: MessageQueue, *, timeout_s: float | None = None) -> datetime | None:
        """Return the store time of the first message of a queue. The same as `messages.earliest`."""
        return await self.messages.earliest(queue, timeout_s=timeout_s)
