"""Checks of a pull, in RocketMQ's order and with its remarks, and the filter that the pull uses.

    broker -> group -> topic -> queue -> subscription -> filter

The subscription is in the request if the flag SUBSCRIPTION is set; otherwise it came with the group's heartbeat. A
refused pull raises RequestError. If a permission is missing, the response's ext field `forbiddenType` names which.
Source: docs/reference/wire.md, "Pull".
"""

from functools import lru_cache
from typing import Final, NoReturn

import msgspec

from skylarkmq.broker.metadata.client_sessions import ClientSessions, Subscription
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.processors.pull.retry_filter import RetryTopicFilter
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.store.read.property_filters import PropertyTest, Wanted
from skylarkmq.protocol.bodies.heartbeat import TAG, SubscriptionData
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import FAQ, RETRY_PREFIX, Permission, PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.headers.pull import PullMessageHeader


class PullConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of pulls."""

    broker_ip: str  # in remarks
    broker_permission: int = Permission.READ_WRITE
    lite_pull_message_enable: bool = True  # allow LITE_PULL_MESSAGE (361)
    long_polling_enable: bool = True  # a parked pull waits for the time in its request
    short_polling_time_mills: int = 1_000  # if not: for this time
    is_slave: bool = False
    slave_read_enable: bool = False  # a slave serves pulls; consumers that read from disk are sent to another replica
    disk_fall_recorded: bool = True  # record how many bytes each group is behind the end of the log
    enable_property_filter: bool = False  # allow SQL92 subscriptions
    filter_support_retry: bool = False  # apply them to the messages that the group sent back, too


NOT_PARSED: Final = "parse the consumer's subscription failed"
MAX_CACHED_LENGTH: Final = 4_096
"""Maximum length in characters of a tag expression whose parsed form is cached."""

_TAG_TYPES: Final = frozenset((None, "", TAG))
_READ: Final = Permission.READ
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION
_LITE_PULL: Final = RequestCode.LITE_PULL_MESSAGE


class ForbiddenType:
    """Which permission forbids a pull."""

    BROKER: Final = 1
    GROUP: Final = 2
    TOPIC: Final = 3
    BROADCASTING: Final = 4
    SUBSCRIPTION: Final = 5


class PullForbidden(RequestError):
    """NO_PERMISSION with its `ForbiddenType`, or None."""

    def __init__(self, forbidden_type: int | None, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


class AdmittedPull(msgspec.Struct, frozen=True, gc=False):
    """A pull that may be served. `matches` tests tags codes or properties; None accepts every message."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    matches: Wanted | None


class PullChecks:
    """Checks pulls."""

    def __init__(
        self, config: PullConfig, topics: TopicTable, groups: SubscriptionGroups, sessions: ClientSessions
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._sessions = sessions

    def __repr__(self) -> str:
        return f"<PullChecks {self._config}>"

    def configure(self, config: PullConfig) -> None:
        """Apply new settings to the requests that follow."""
        self._config = config

    def admit(self, source: RequestSource, command: RemotingCommand, header: PullMessageHeader) -> AdmittedPull:
        """Return what a pull needs to be served. Raises RequestError if it may not be served."""
        config = self._config
        if not config.broker_permission & _READ or command.code == _LITE_PULL:
            self._check_broker(command)
        group = self._groups.find(header.consumer_group)
        if group is None or not group.consume_enable:
            group = self._group(header)
        topic = self._topics.find(header.topic)
        if topic is None or not topic.perm & _READ or not 0 <= header.queue_id < topic.read_queue_nums:
            self._refuse_topic(topic, source, header)
        is_own = header.sys_flag & _SUBSCRIPTION
        if is_own:
            subscription = requested_subscription(header.subscription, header.expression_type)
        else:
            subscription = self._registered_subscription(group, header)
        if subscription.data.expression_type not in _TAG_TYPES:
            return AdmittedPull(topic, group, self._expression(subscription, is_own=bool(is_own)))
        if config.filter_support_retry and topic.topic_name.startswith(RETRY_PREFIX):
            return AdmittedPull(topic, group, subscription.matches or self._retry_filter(topic.topic_name))
        return AdmittedPull(topic, group, subscription.matches)

    def _expression(self, subscription: Subscription, *, is_own: bool) -> PropertyTest | None:
        """Return the property test of a SQL92 subscription. Raises RequestError if it is off or invalid."""
        fault = subscription.fault
        if fault is not None and not is_own:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise RequestError(ResponseCode.FILTER_DATA_NOT_EXIST, f"{remark} {fault}")
        if not self._config.enable_property_filter:
            remark = f"The broker does not support consumer to filter message by {subscription.data.expression_type}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark)
        if fault is not None:
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{NOT_PARSED}: {fault}")
        return subscription.sql

    def _retry_filter(self, retry_topic: str) -> PropertyTest | None:
        """Return the filter for the messages that a group sent back; None if it has no SQL92 subscription."""
        members = self._sessions.consumer_group(retry_topic.removeprefix(RETRY_PREFIX))
        return None if members is None else RetryTopicFilter.of(members.subscriptions)

    def _check_broker(self, command: RemotingCommand) -> None:
        config = self._config
        if not config.broker_permission & _READ:
            raise PullForbidden(ForbiddenType.BROKER, f"the broker[{config.broker_ip}] pulling message is forbidden")
        if command.code == _LITE_PULL and not config.lite_pull_message_enable:
            raise PullForbidden(None, f"the broker[{config.broker_ip}] for lite pull consumer is forbidden")

    def _group(self, header: PullMessageHeader) -> SubscriptionGroupConfig:
        name = header.consumer_group
        group = self._groups.find_or_create(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist, {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise PullForbidden(ForbiddenType.GROUP, f"subscription group no permission, {name}")
        return group

    def _refuse_topic(self, topic: TopicConfig | None, source: RequestSource, header: PullMessageHeader) -> NoReturn:
        name = header.topic
        if topic is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}")
        if not topic.perm & _READ:
            raise PullForbidden(ForbiddenType.TOPIC, f"the topic[{name}] pulling message is forbidden")
        remark = (
            f"queueId[{header.queue_id}] is illegal, topic:[{name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{source.peer}]"
        )
        raise RequestError(ResponseCode.INVALID_PARAMETER, remark)

    def _registered_subscription(self, group: SubscriptionGroupConfig, header: PullMessageHeader) -> Subscription:
        name, topic = header.consumer_group, header.topic
        members = self._sessions.consumer_group(name)
        if members is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if members.is_broadcast and not group.consume_broadcast_enable:
            remark = f"the consumer group[{name}] can not consume by broadcast way"
            raise PullForbidden(ForbiddenType.BROADCASTING, remark)
        if not self._groups.may_read(name, topic):
            remark = f"the consumer group[{name}] is forbidden for topic[{topic}]"
            raise PullForbidden(ForbiddenType.SUBSCRIPTION, remark)
        subscription = members.subscriptions.get(topic)
        if subscription is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.data.sub_version < header.sub_version:
            raise RequestError(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription


def requested_subscription(expression: str | None, expression_type: str | None) -> Subscription:
    """Return the subscription in a request. Raises RequestError(SUBSCRIPTION_PARSE_FAILED) if it is invalid."""
    if expression_type in _TAG_TYPES:
        is_usual = not expression or len(expression) <= MAX_CACHED_LENGTH
        return _requested_tags(expression) if is_usual else _requested_tags.__wrapped__(expression)
    if not expression:
        raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, NOT_PARSED)
    return Subscription.of(SubscriptionData(sub_string=expression, expression_type=expression_type or ""))


@lru_cache(maxsize=4096)
def _requested_tags(expression: str | None) -> Subscription:
    if expression and not expression.replace("||", ""):
        raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, NOT_PARSED)
    return Subscription.of(subscribe("", expression, 0))
