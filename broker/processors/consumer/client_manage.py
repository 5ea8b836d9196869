"""Client sessions: HEART_BEAT (34), UNREGISTER_CLIENT (35), CHECK_CLIENT_CONFIG (46), GET_CONSUMER_LIST_BY_GROUP (38),
and the push NOTIFY_CONSUMER_IDS_CHANGED (40) to the members of a group.

A heartbeat creates the group and its retry topic before it registers the member, because consumers query the route of
the retry topic at once. A heartbeat skips, without an error, a group that may not be created, and producer groups and
subscribed topics with invalid names.

Every member of a clustering group is notified when a member joins, leaves, expires or loses its connection, and when
the subscribed topics change. A joining member is notified first, before its response is written; when the others are:
`broker/delivery/calls/group_notifications.py`. Notifications can be turned off per group, except for closed
connections.

Source: docs/reference/wire.md, "Heartbeat", "Groups".
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.delivery.calls.group_notifications import GroupNotifications
from skylarkmq.broker.metadata.client_sessions import ClientMember, ClientSessions
from skylarkmq.broker.metadata.expressions import compile_expression
from skylarkmq.broker.metadata.limits import Limits
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import UNIT_SUB, TopicTable
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import ClientChannel, RequestSource
from skylarkmq.protocol.bodies.heartbeat import CheckClientRequestBody, ConsumerData, HeartbeatData
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import RETRY_PREFIX, LanguageCode, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.filters.tag import is_tag_type
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader, UnregisterClientHeader
from skylarkmq.protocol.message import is_group_name, is_storable_topic
from skylarkmq.protocol.msgpack_header import ANNOUNCED_AS, ANNOUNCED_BY

SCAN_INTERVAL_MS: Final = 10_000

log = logging.getLogger(__name__)


class ClientManageConfig(msgspec.Struct, frozen=True, kw_only=True):
    """When members are notified of changes, and which filters are allowed."""

    real_time_notify_consumer_change: bool = True  # notify at once
    notify_consumer_ids_changed_enable: bool = True  # notify at all
    enable_property_filter: bool = False  # allow SQL92 expressions


class ClientManageStatistics(msgspec.Struct, frozen=True):
    """Totals since the start."""

    heartbeats: int
    expired: int


class ClientManageProcessor:
    """Maintains the client sessions. `now_ms` is a steady clock; call `step` about once a second."""

    def __init__(
        self,
        config: ClientManageConfig,
        sessions: ClientSessions,
        groups: SubscriptionGroups,
        topics: TopicTable,
        notices: GroupNotifications,
        rights: MessageRights,
        now_ms: Callable[[], int],
        limits: Limits | None = None,
    ) -> None:
        self._config = config
        self._rights = rights
        self._limits = limits or Limits()
        self._notices = notices
        self.configure(config)
        self._sessions = sessions
        self._groups = groups
        self._topics = topics
        self._now_ms = now_ms
        self._next_scan_ms = 0
        self._heartbeats = 0
        self._expired = 0

    def configure(self, config: ClientManageConfig) -> None:
        """Apply new settings to the notifications that follow."""
        self._config = config
        self._notices.configure(
            is_on=config.notify_consumer_ids_changed_enable, at_once=config.real_time_notify_consumer_change
        )

    def __repr__(self) -> str:
        return f"<ClientManageProcessor heartbeats={self._heartbeats} {self._sessions!r}>"

    def statistics(self) -> ClientManageStatistics:
        """Return the current totals."""
        return ClientManageStatistics(heartbeats=self._heartbeats, expired=self._expired)

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that this processor serves."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
        }

    # ------------------------------------------------------------------------------------------------------ heartbeat

    def heartbeat(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve HEART_BEAT (34), versions 1 and 2."""
        heartbeat = HeartbeatData.decode_request(command.body)
        self._check_limits(source, heartbeat)
        self._heartbeats += 1
        changes, refusal = [], None
        for data in heartbeat.consumer_data_set:
            try:
                changes.append(self._register_consumers(source, command, heartbeat, data))
            except RequestError as error:  # this group cannot be created; the others of this client are registered
                refusal = error
        self._register_producers(source, command, heartbeat)
        if refusal is not None:
            raise refusal
        is_changed = any(changes) if heartbeat.heartbeat_fingerprint else True
        ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if is_changed else "false"}
        ext[ANNOUNCED_BY] = ANNOUNCED_AS
        return RemotingCommand.response(ext=ext)

    def _check_limits(self, source: RequestSource, heartbeat: HeartbeatData) -> None:
        """Raise RequestError, before anything is stored, if a client exceeds the limits for one client."""
        limits = self._limits
        limits.client_id.check(len(heartbeat.client_id), "characters of a client id")
        consumers, producers = heartbeat.consumer_data_set, heartbeat.producer_data_set
        limits.groups_per_client.check(len(consumers) + len(producers), "groups in a heartbeat")
        if consumers or producers:
            wanted = self._sessions.groups_with(
                source.client, (data.group_name for data in consumers), (data.group_name for data in producers)
            )
            limits.groups_per_client.check(wanted, "groups of a connection")
        for data in consumers:
            limits.subscriptions.check(len(data.subscription_data_set), f"subscriptions of group {data.group_name}")
            longest = max((len(each.sub_string) for each in data.subscription_data_set), default=0)
            limits.expression.check(longest, f"characters of an expression of group {data.group_name}")

    def _register_consumers(
        self, source: RequestSource, command: RemotingCommand, heartbeat: HeartbeatData, data: ConsumerData
    ) -> bool:
        """Register a member of a consumer group, and return whether the client should resend its subscriptions."""
        name = data.group_name
        group = self._groups.find_or_create(name)
        if group is None:
            return False
        if not all(is_storable_topic(each.topic) for each in data.subscription_data_set):
            valid = [each for each in data.subscription_data_set if is_storable_topic(each.topic)]
            data = msgspec.structs.replace(data, subscription_data_set=valid)
        self._make_retry_topic(group, data)
        fingerprint, without_sub = heartbeat.heartbeat_fingerprint, heartbeat.without_sub
        is_other = self._sessions.is_other_fingerprint(name, fingerprint, without_subscriptions=without_sub)
        member = self._member(source, command, heartbeat)
        if fingerprint and without_sub:
            has_changed = self._sessions.refresh_consumers(data, member)
        else:
            has_changed = self._sessions.join_consumers(data, member, fingerprint)
        members = self._sessions.consumer_group(name)
        if has_changed and members is not None and group.notify_consumer_ids_changed_enable:
            self._notices.changed(members, by=source.client)
        return is_other

    def _register_producers(self, source: RequestSource, command: RemotingCommand, heartbeat: HeartbeatData) -> None:
        names = [data.group_name for data in heartbeat.producer_data_set if is_group_name(data.group_name)]
        if not names:
            return
        rights = self._rights.rights_of(source, command)

        def may_send(topic: str) -> bool:
            return rights(topic, Action.PUB)

        for name in names:
            member = self._member(source, command, heartbeat)
            member.may_send = may_send
            self._sessions.join_producers(name, member)

    def _make_retry_topic(self, group: SubscriptionGroupConfig, data: ConsumerData) -> None:
        name = RETRY_PREFIX + group.group_name
        if self._topics.find(name) is None and is_storable_topic(name):
            subscribed = (self._topics.find(subscription.topic) for subscription in data.subscription_data_set)
            is_ordered = any(topic is not None and topic.order for topic in subscribed)
            sys_flag = UNIT_SUB if data.unit_mode else 0
            self._topics.create_for_group(name, group.retry_queue_nums, sys_flag=sys_flag, order=is_ordered)

    def _member(self, source: RequestSource, command: RemotingCommand, heartbeat: HeartbeatData) -> ClientMember:
        language = command.language_code
        if language is None:
            language = LanguageCode.OTHER
        return ClientMember(source.client, heartbeat.client_id, language.name, command.version, self._now_ms())

    # ---------------------------------------------------------------------------------------------------------- leave

    def unregister(self, source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve UNREGISTER_CLIENT (35)."""
        header = command.header(UnregisterClientHeader)
        if header.producer_group:
            self._sessions.leave_producers(header.producer_group, source.client)
        if header.consumer_group:
            members = self._sessions.leave_consumers(header.consumer_group, source.client)
            group = self._groups.find(header.consumer_group)
            if members is not None and (group is None or group.notify_consumer_ids_changed_enable):
                self._notices.changed(members)
        return RemotingCommand.response()

    def channel_closed(self, channel: ClientChannel) -> None:
        """Remove a client that is gone."""
        for group in self._sessions.closed(channel):
            self._notices.changed(group)

    def step(self, now_ms: int) -> None:
        """Disconnect expired clients, and send notifications that are due."""
        self._notices.step(now_ms)
        if now_ms >= self._next_scan_ms:
            self._next_scan_ms = now_ms + SCAN_INTERVAL_MS
            for channel in self._sessions.expired(now_ms):
                log.info("client expired peer=%s", channel.peer)
                self._expired += 1
                channel.abort()

    # --------------------------------------------------------------------------------------------------------- queries

    def consumer_list(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve GET_CONSUMER_LIST_BY_GROUP (38)."""
        name = command.header(ConsumerGroupHeader).consumer_group
        group = self._sessions.consumer_group(name)
        if group is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}")
        return RemotingCommand.response(body=group.encoded_ids())

    def check_config(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        """Serve CHECK_CLIENT_CONFIG (46): whether this broker supports an expression."""
        if command.body:
            subscription = CheckClientRequestBody.decode_request(command.body).subscription_data
            if subscription is not None and not is_tag_type(subscription.expression_type):
                self._check_expression(subscription.expression_type, subscription.sub_string)
        return RemotingCommand.response()

    def _check_expression(self, kind: str, expression: str) -> None:
        if not self._config.enable_property_filter:
            remark = f"The broker does not support consumer to filter message by {kind}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        _, fault = compile_expression(kind, expression)
        if fault is not None:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, fault)
