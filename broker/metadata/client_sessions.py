"""Client sessions: the members of producer and consumer groups by channel, and the groups' subscriptions.

A member is identified by its channel (`ClientChannel`: its connection). A client id on a second channel is a second
member until the first closes; another client id on the same channel replaces the previous one. Members join by a
heartbeat. They leave when they unregister, when their channel closes, or when their heartbeats stop.

All members of a consumer group should have the same subscriptions. The broker uses the subscription table of the group,
which every heartbeat updates: it adds new topics, removes topics that the heartbeat does not contain, and replaces
subscriptions that have a newer version. New or removed topics, and a new member, change the assignment of queues, so
all members must be notified. The methods here return True or the group in this case; the caller sends notifications.

Members with different subscriptions remove each other's topics with each heartbeat, and each gets only a part of its
messages. This is a mistake of the operator, or a temporary state while a new release of the application is rolled out.
It is logged as a warning, once per WARNING_INTERVAL_MS and group.

A version 2 heartbeat has a fingerprint of the subscriptions and may omit them; the group stores the last fingerprint.
Source: docs/reference/wire.md, "Heartbeat".
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from skylarkmq.broker.metadata.expressions import compile_expression
from skylarkmq.broker.remoting.request_source import ClientChannel
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import ConsumerData, ConsumerIdList, SubscriptionData
from skylarkmq.protocol.filters.sql92.filter import Sql92Filter
from skylarkmq.protocol.filters.tag import TagFilter, is_tag_type

EXPIRY_MS: Final = 120_000
WARNING_INTERVAL_MS: Final = 60_000

log = logging.getLogger(__name__)


class ClientMember(msgspec.Struct, eq=False):
    """One client in one group. `seen_ms` is the time of its last heartbeat, in ms of any steady clock."""

    channel: ClientChannel
    client_id: str
    language: str
    version: int
    seen_ms: int
    subscribed: frozenset[tuple[str, str, str]] = frozenset()  # topic, type and expression of each subscription
    may_send: Callable[[str], bool] | None = None  # of a producer: whether it may send to a topic; None: to all

    def take_over(self, other: "ClientMember") -> None:
        """Take the client id, language, version, time and rights of another heartbeat on this channel."""
        if self.client_id != other.client_id:
            log.warning("client id changed peer=%s from=%s to=%s", self.channel.peer, self.client_id, other.client_id)
        self.client_id, self.language, self.version = other.client_id, other.language, other.version
        self.seen_ms, self.may_send = other.seen_ms, other.may_send


class Subscription(msgspec.Struct, frozen=True, eq=False):
    """A subscription of a group to a topic, and its test: `matches` for tags codes (None: every message), `sql` for
    properties. `fault`: the reason why a required `sql` is missing."""

    data: SubscriptionData
    matches: Callable[[int], bool] | None
    sql: Sql92Filter | None = None
    fault: str | None = None

    @classmethod
    def of(cls, data: SubscriptionData) -> "Subscription":
        """Return the subscription with its test, which all pulls share."""
        if not is_tag_type(data.expression_type):
            return cls(data, None, *compile_expression(data.expression_type, data.sub_string))
        tags = TagFilter.of(data)
        return cls(data, None if tags.everything else tags.matches_hash)


class ConsumerGroup(msgspec.Struct, eq=False):
    """A consumer group with at least one member."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: dict[str, Subscription] = {}
    members: dict[ClientChannel, ClientMember] = {}
    fingerprint: int | None = None
    warned_ms: int | None = None  # when different subscriptions were last logged
    ids: bytes | None = None  # the cached body for GET_CONSUMER_LIST_BY_GROUP (38), until the members change

    @property
    def is_broadcast(self) -> bool:
        """Return whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    def encoded_ids(self) -> bytes:
        """Return a ConsumerIdList of the members, cached because all members of a large group request it together."""
        if self.ids is None:
            self.ids = ConsumerIdList(self.client_ids()).encode()
        return self.ids

    def client_ids(self) -> list[str]:
        """Return the client ids of the members, in the order in which they joined."""
        return [member.client_id for member in self.members.values()]

    def member(self, client_id: str) -> ClientMember | None:
        """Return the member with that client id; of several, the one that joined last."""
        return next((each for each in reversed(self.members.values()) if each.client_id == client_id), None)


class SessionsStatistics(msgspec.Struct, frozen=True):
    """Groups with members, and members of all groups."""

    producer_groups: int
    producers: int
    consumer_groups: int
    consumers: int


class ClientSessions:
    """Producers and consumers by group."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[ClientChannel, ClientMember]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._produces: dict[ClientChannel, set[str]] = {}
        self._producer_ids: dict[ClientChannel, str] = {}
        self._producers_by_id: dict[str, dict[ClientChannel, None]] = {}
        self._consumes: dict[ClientChannel, set[str]] = {}

    def __repr__(self) -> str:
        return f"<ClientSessions producer_groups={len(self._producers)} consumer_groups={len(self._consumers)}>"

    def statistics(self) -> SessionsStatistics:
        """Return the current figures."""
        return SessionsStatistics(
            producer_groups=len(self._producers),
            producers=sum(map(len, self._producers.values())),
            consumer_groups=len(self._consumers),
            consumers=sum(len(group.members) for group in self._consumers.values()),
        )

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """Return the group, if it has members."""
        return self._consumers.get(name)

    def consumer_groups(self) -> Iterable[ConsumerGroup]:
        """Return all consumer groups that have members."""
        return self._consumers.values()

    def producer_groups(self) -> Iterable[str]:
        """Return all producer groups that have members."""
        return self._producers.keys()

    def producers(self, group: str) -> Mapping[ClientChannel, ClientMember]:
        """Return the members of the group; empty if it has none."""
        return self._producers.get(group, {})

    def producers_to(self, group: str, topic: str) -> list[ClientChannel]:
        """Return the channels of the producers of a group that may send to a topic."""
        members = self.producers(group).values()
        return [member.channel for member in members if member.may_send is None or member.may_send(topic)]

    def producer(self, client_id: str) -> ClientChannel | None:
        """Return the channel of the producer with that client id; of several, the one that joined last."""
        return next(reversed(self._producers_by_id.get(client_id, {})), None)

    def groups_with(self, channel: ClientChannel, consumers: Iterable[str], producers: Iterable[str]) -> int:
        """Return how many groups the channel would be a member of after joining these."""
        consumed = self._consumes.get(channel, set()).union(consumers)
        return len(consumed) + len(self._produces.get(channel, set()).union(producers))

    # ---------------------------------------------------------------------------------------------------------- join

    def join_producers(self, group: str, member: ClientMember) -> None:
        """Add or refresh a member of a producer group, for a heartbeat that contains the group."""
        channel, client_id = member.channel, member.client_id
        _refresh(self._producers.setdefault(group, {}), member)
        self._produces.setdefault(channel, set()).add(group)
        if self._producer_ids.get(channel) != client_id:
            self._forget_producer_id(channel)
            self._producer_ids[channel] = client_id
            self._producers_by_id.setdefault(client_id, {})[channel] = None

    def join_consumers(self, data: ConsumerData, member: ClientMember, fingerprint: int = 0) -> bool:
        """Add or refresh a member of a consumer group and apply its subscriptions, for a heartbeat.

        Returns True if all members must be notified.
        """
        group = self._group(data)
        is_new = self._refresh_consumer(group, member)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprint = fingerprint or group.fingerprint
        _compare_subscriptions(group, member, data.subscription_data_set)
        topics_changed = _merge(group.subscriptions, data.subscription_data_set)
        return is_new or topics_changed

    def refresh_consumers(self, data: ConsumerData, member: ClientMember) -> bool:
        """Do the same for a heartbeat without subscriptions."""
        return self._refresh_consumer(self._group(data), member)

    def is_other_fingerprint(self, group: str, fingerprint: int, *, without_subscriptions: bool) -> bool:
        """Return whether the client must send its subscriptions: they differ from the group's subscriptions in this
        broker.

        Also True if the client omitted them and the broker has none because it was restarted.
        """
        known = self._consumers.get(group)
        if known is None or known.fingerprint is None:
            return without_subscriptions
        return known.fingerprint != fingerprint

    def _group(self, data: ConsumerData) -> ConsumerGroup:
        group = self._consumers.get(data.group_name)
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroup(
                name=data.group_name, consume_type=data.consume_type, message_model=data.message_model
            )
        return group

    def _refresh_consumer(self, group: ConsumerGroup, member: ClientMember) -> bool:
        self._consumes.setdefault(member.channel, set()).add(group.name)
        known = group.members.get(member.channel)
        if known is None or known.client_id != member.client_id:
            group.ids = None
        return _refresh(group.members, member)

    # --------------------------------------------------------------------------------------------------------- leave

    def leave_producers(self, group: str, channel: ClientChannel) -> None:
        """Remove a member from a producer group, for a request to unregister."""
        members = self._producers.get(group)
        if members is not None and members.pop(channel, None) is not None:
            _forget(self._produces, channel, group)
            if channel not in self._produces:
                self._forget_producer_id(channel)
            if not members:
                del self._producers[group]

    def _forget_producer_id(self, channel: ClientChannel) -> None:
        client_id = self._producer_ids.pop(channel, None)
        if client_id is not None:
            channels = self._producers_by_id[client_id]
            del channels[channel]
            if not channels:
                del self._producers_by_id[client_id]

    def leave_consumers(self, group_name: str, channel: ClientChannel) -> ConsumerGroup | None:
        """Remove a member from a consumer group. Returns the group (which may be empty now) if it was a member."""
        group = self._consumers.get(group_name)
        if group is None or group.members.pop(channel, None) is None:
            return None
        group.ids = None
        _forget(self._consumes, channel, group_name)
        if not group.members:
            del self._consumers[group_name]
        return group

    def closed(self, channel: ClientChannel) -> list[ConsumerGroup]:
        """Remove a closed channel. Returns the consumer groups of which it was a member."""
        for name in list(self._produces.get(channel, ())):
            self.leave_producers(name, channel)
        left = [self.leave_consumers(name, channel) for name in list(self._consumes.get(channel, ()))]
        return [group for group in left if group is not None]

    def expired(self, now_ms: int) -> list[ClientChannel]:
        """Return the channels without a recent heartbeat for one of their groups; the caller must close them."""
        limit = now_ms - EXPIRY_MS
        tables = [*self._producers.values(), *(group.members for group in self._consumers.values())]
        expired = {member.channel for members in tables for member in members.values() if member.seen_ms < limit}
        return list(expired)


def _refresh(members: dict[ClientChannel, ClientMember], member: ClientMember) -> bool:
    """Add or refresh a member. Returns True if its channel is new here."""
    known = members.get(member.channel)
    if known is None:
        members[member.channel] = member
        return True
    known.take_over(member)
    return False


def _compare_subscriptions(
    group: ConsumerGroup, reported: ClientMember, subscriptions: Iterable[SubscriptionData]
) -> None:
    """Store the subscriptions of a member, and log a warning if they differ from those of another one."""
    member = group.members[reported.channel]
    member.subscribed = frozenset((each.topic, each.expression_type, each.sub_string) for each in subscriptions)
    other = next((each for each in group.members.values() if each is not member and each.subscribed), None)
    if other is None or other.subscribed == member.subscribed:
        return
    if group.warned_ms is None or member.seen_ms - group.warned_ms >= WARNING_INTERVAL_MS:
        group.warned_ms = member.seen_ms
        log.warning(
            "members of a group have different subscriptions group=%s client=%s only=%s other=%s only=%s",
            group.name,
            member.client_id,
            _some(member.subscribed - other.subscribed),
            other.client_id,
            _some(other.subscribed - member.subscribed),
        )


def _some(subscribed: Iterable[tuple[str, str, str]]) -> str:
    """Return the first three in order, for a log line."""
    return ",".join(f"{topic}:{expression}" for topic, _, expression in sorted(subscribed)[:3])[:200] or "-"


def _merge(table: dict[str, Subscription], subscriptions: Iterable[SubscriptionData]) -> bool:
    """Apply a member's subscriptions to its group's subscriptions. Returns True if the set of topics changed."""
    named = {subscription.topic: subscription for subscription in subscriptions}
    before = table.keys() | ()
    for topic, subscription in named.items():
        known = table.get(topic)
        if known is None or known.data.sub_version < subscription.sub_version:
            table[topic] = made = Subscription.of(subscription)
            if made.fault is not None:
                log.warning("expression does not compile topic=%s error=%s", topic, made.fault)
    for topic in before - named.keys():
        del table[topic]
    return before != named.keys()


def _forget(groups_of: dict[ClientChannel, set[str]], channel: ClientChannel, group: str) -> None:
    groups = groups_of[channel]
    groups.discard(group)
    if not groups:
        del groups_of[channel]
