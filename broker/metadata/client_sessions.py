"""Client sessions: which connections speak for which producer and consumer groups, and what the groups subscribe to.

The connection is the identity. A client id on a second connection is a second member until the first closes; another
client id on the same connection replaces the former. Members come by heartbeat and go by unregistering, by the end of
their connection, or by silence.

All members of a consumer group should subscribe to the same; what counts is the group's subscription table, to which
every heartbeat is applied: a topic not seen before is added, one that is no longer named is removed, one with a newer
version replaces what was there. Only the first two, and a new member, change who has to consume what: then every member
has to hear of it. The methods here say so by returning True or the group; telling them is the caller's part.

Members that subscribe to different things take each other's topics away, heartbeat by heartbeat, and each gets only a
part of its messages. That is a mistake of whoever runs them, and it is what a group looks like while a new release of
its program goes round; so it is told by a warning, once per WARNING_INTERVAL_MS and group.

A heartbeat of the second kind carries a fingerprint of the subscriptions and may leave them out; the group remembers
the last fingerprint. Source: docs/formats.md, "Heartbeat".
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from skylarkmq.broker.metadata.expressions import compiled
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel
from skylarkmq.protocol.bodies.heartbeat import ConsumerData, ConsumerIdList, SubscriptionData
from skylarkmq.protocol.filters.sql92.filter import Sql92Filter
from skylarkmq.protocol.filters.tag import TagFilter, is_tag_type

EXPIRY_MS: Final = 120_000
WARNING_INTERVAL_MS: Final = 60_000

log = logging.getLogger(__name__)


class ClientMember(msgspec.Struct, eq=False):
    """One client in one group. `seen_ms` is the time of its last heartbeat, in ms of any steady clock."""

    connection: Connection
    client_id: str
    language: str
    version: int
    seen_ms: int
    wishes: frozenset[tuple[str, str, str]] = frozenset()  # topic, kind and expression of what it subscribes to

    def take_over(self, other: "ClientMember") -> None:
        """Become what the connection now says it is."""
        if self.client_id != other.client_id:
            log.warning(
                "client id changed peer=%s from=%s to=%s", self.connection.peer, self.client_id, other.client_id
            )
        self.client_id, self.language, self.version = other.client_id, other.language, other.version
        self.seen_ms = other.seen_ms


class Subscription(msgspec.Struct, frozen=True, eq=False):
    """One topic of a group, and the test that it stands for: `matches` of tags codes (None: every message), `sql` of
    properties. `fault`: why there is none of the latter where there should be one."""

    data: SubscriptionData
    matches: Callable[[int], bool] | None
    sql: Sql92Filter | None = None
    fault: str | None = None

    @classmethod
    def of(cls, data: SubscriptionData) -> "Subscription":
        """The subscription with its test, made once and used by every pull."""
        if not is_tag_type(data.expression_type):
            return cls(data, None, *compiled(data.expression_type, data.sub_string))
        tags = TagFilter.of(data)
        return cls(data, None if tags.everything else tags.matches_hash)


class ConsumerGroup(msgspec.Struct, eq=False):
    """A consumer group with at least one member."""

    name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscriptions: dict[str, Subscription] = {}
    members: dict[Connection, ClientMember] = {}
    fingerprint: int | None = None
    warned_ms: int | None = None  # when its members were last found to differ
    ids: bytes | None = None  # the answer to 38, until the members change

    @property
    def is_broadcast(self) -> bool:
        """Whether every member gets every message."""
        return self.message_model is MessageModel.BROADCASTING

    def encoded_ids(self) -> bytes:
        """A ConsumerIdList of the members; all of a large group ask for it at the same time."""
        if self.ids is None:
            self.ids = ConsumerIdList(self.client_ids()).encode()
        return self.ids

    def client_ids(self) -> list[str]:
        """Members by client id, in the order in which they joined."""
        return [member.client_id for member in self.members.values()]

    def member(self, client_id: str) -> ClientMember | None:
        """The member of that client id; of several, the one that joined last."""
        return next((each for each in reversed(self.members.values()) if each.client_id == client_id), None)


class SessionsStatistics(msgspec.Struct, frozen=True):
    """Groups with members, and members over all groups."""

    producer_groups: int
    producers: int
    consumer_groups: int
    consumers: int


class ClientSessions:
    """Producers and consumers by group."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[Connection, ClientMember]] = {}
        self._consumers: dict[str, ConsumerGroup] = {}
        self._produces: dict[Connection, set[str]] = {}
        self._producer_ids: dict[Connection, str] = {}
        self._producers_by_id: dict[str, dict[Connection, None]] = {}
        self._consumes: dict[Connection, set[str]] = {}

    def __repr__(self) -> str:
        return f"<ClientSessions producer_groups={len(self._producers)} consumer_groups={len(self._consumers)}>"

    def statistics(self) -> SessionsStatistics:
        """The table's figures now."""
        return SessionsStatistics(
            producer_groups=len(self._producers),
            producers=sum(map(len, self._producers.values())),
            consumer_groups=len(self._consumers),
            consumers=sum(len(group.members) for group in self._consumers.values()),
        )

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group, if it has members."""
        return self._consumers.get(name)

    def consumer_groups(self) -> Iterable[ConsumerGroup]:
        """Every consumer group that has members."""
        return self._consumers.values()

    def producer_groups(self) -> Iterable[str]:
        """Every producer group that has members."""
        return self._producers.keys()

    def producers(self, group: str) -> Mapping[Connection, ClientMember]:
        """The group's members; empty if it has none."""
        return self._producers.get(group, {})

    def producer(self, client_id: str) -> Connection | None:
        """The connection of the producer of that client id; of several, the one that came last."""
        return next(reversed(self._producers_by_id.get(client_id, {})), None)

    def groups_with(self, connection: Connection, consumers: Iterable[str], producers: Iterable[str]) -> int:
        """Return how many groups the connection would be a member of with these."""
        consumed = self._consumes.get(connection, set()).union(consumers)
        return len(consumed) + len(self._produces.get(connection, set()).union(producers))

    # ---------------------------------------------------------------------------------------------------------- join

    def join_producers(self, group: str, member: ClientMember) -> None:
        """A heartbeat names this producer group."""
        connection, client_id = member.connection, member.client_id
        _refresh(self._producers.setdefault(group, {}), member)
        self._produces.setdefault(connection, set()).add(group)
        if self._producer_ids.get(connection) != client_id:
            self._forget_producer_id(connection)
            self._producer_ids[connection] = client_id
            self._producers_by_id.setdefault(client_id, {})[connection] = None

    def join_consumers(self, data: ConsumerData, member: ClientMember, fingerprint: int = 0) -> bool:
        """A heartbeat names this consumer group and its subscriptions; True if all members have to hear of it."""
        group = self._group(data)
        is_new = self._refresh_consumer(group, member)
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        group.fingerprint = fingerprint or group.fingerprint
        _note_wishes(group, member, data.subscription_data_set)
        topics_changed = _merge(group.subscriptions, data.subscription_data_set)
        return is_new or topics_changed

    def refresh_consumers(self, data: ConsumerData, member: ClientMember) -> bool:
        """A heartbeat without subscriptions names this consumer group; True if all members have to hear of it."""
        return self._refresh_consumer(self._group(data), member)

    def is_other_fingerprint(self, group: str, fingerprint: int, *, without_subscriptions: bool) -> bool:
        """Whether the client should send its subscriptions (again): they differ from what this broker has of the group.

        That is also so when the client left them out and the broker, being restarted, has none.
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
        self._consumes.setdefault(member.connection, set()).add(group.name)
        known = group.members.get(member.connection)
        if known is None or known.client_id != member.client_id:
            group.ids = None
        return _refresh(group.members, member)

    # --------------------------------------------------------------------------------------------------------- leave

    def leave_producers(self, group: str, connection: Connection) -> None:
        """A client unregisters from a producer group."""
        members = self._producers.get(group)
        if members is not None and members.pop(connection, None) is not None:
            _forget(self._produces, connection, group)
            if connection not in self._produces:
                self._forget_producer_id(connection)
            if not members:
                del self._producers[group]

    def _forget_producer_id(self, connection: Connection) -> None:
        client_id = self._producer_ids.pop(connection, None)
        if client_id is not None:
            connections = self._producers_by_id[client_id]
            del connections[connection]
            if not connections:
                del self._producers_by_id[client_id]

    def leave_consumers(self, group_name: str, connection: Connection) -> ConsumerGroup | None:
        """A client unregisters from a consumer group; the group if it was a member, though perhaps the last one."""
        group = self._consumers.get(group_name)
        if group is None or group.members.pop(connection, None) is None:
            return None
        group.ids = None
        _forget(self._consumes, connection, group_name)
        if not group.members:
            del self._consumers[group_name]
        return group

    def closed(self, connection: Connection) -> list[ConsumerGroup]:
        """A connection is gone; the consumer groups that it was a member of."""
        for name in list(self._produces.get(connection, ())):
            self.leave_producers(name, connection)
        left = [self.leave_consumers(name, connection) for name in list(self._consumes.get(connection, ()))]
        return [group for group in left if group is not None]

    def silent(self, now_ms: int) -> list[Connection]:
        """Connections whose client has let one of its groups expire: they are to be closed, which removes them."""
        limit = now_ms - EXPIRY_MS
        tables = [*self._producers.values(), *(group.members for group in self._consumers.values())]
        silent = {member.connection for members in tables for member in members.values() if member.seen_ms < limit}
        return list(silent)


def _refresh(members: dict[Connection, ClientMember], member: ClientMember) -> bool:
    """Note a sign of life; True if this connection is new here."""
    known = members.get(member.connection)
    if known is None:
        members[member.connection] = member
        return True
    known.take_over(member)
    return False


def _note_wishes(group: ConsumerGroup, heard: ClientMember, subscriptions: Iterable[SubscriptionData]) -> None:
    """Remember what a member subscribes to, and compare it with what another one does."""
    member = group.members[heard.connection]
    member.wishes = frozenset((each.topic, each.expression_type, each.sub_string) for each in subscriptions)
    other = next((each for each in group.members.values() if each is not member and each.wishes), None)
    if other is None or other.wishes == member.wishes:
        return
    if group.warned_ms is None or member.seen_ms - group.warned_ms >= WARNING_INTERVAL_MS:
        group.warned_ms = member.seen_ms
        log.warning(
            "members of a group subscribe to different things group=%s client=%s only=%s other=%s only=%s",
            group.name,
            member.client_id,
            _some(member.wishes - other.wishes),
            other.client_id,
            _some(other.wishes - member.wishes),
        )


def _some(wishes: Iterable[tuple[str, str, str]]) -> str:
    """The first of them in order, for a line of the log."""
    return ",".join(f"{topic}:{expression}" for topic, _, expression in sorted(wishes)[:3])[:200] or "-"


def _merge(table: dict[str, Subscription], subscriptions: Iterable[SubscriptionData]) -> bool:
    """Apply a member's subscriptions to its group's; True if the set of topics changed."""
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


def _forget(groups_of: dict[Connection, set[str]], connection: Connection, group: str) -> None:
    groups = groups_of[connection]
    groups.discard(group)
    if not groups:
        del groups_of[connection]
