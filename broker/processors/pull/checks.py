"""Whether a pull may be served, and what it wants of its queue: RocketMQ's checks, in its order, with its remarks.

    broker -> group -> topic -> queue -> subscription -> filter

What a consumer wants of a topic stands in its request, if the flag SUBSCRIPTION says so, or came with its group's
heartbeat. Refusals are RequestErrors; those for want of permission also say on whose account, in the answer's ext field
`forbiddenType`. Source: docs/formats.md, "Pull".
"""

from functools import lru_cache
from typing import Final, NoReturn

import msgspec

from skylarkmq.broker.metadata.client_sessions import ClientSessions, Subscription
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.processors.pull.retry_filter import RetriedTest
from skylarkmq.broker.remoting.connection import Connection
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
    """What pulling depends on."""

    broker_ip: str  # as it stands in remarks
    broker_permission: int = Permission.READ_WRITE
    lite_pull_message_enable: bool = True  # 361 may be asked
    long_polling_enable: bool = True  # a parked pull waits as long as it said
    short_polling_time_mills: int = 1_000  # else this long
    slave_read_enable: bool = False  # who lags behind what is in memory is told to ask another replica
    disk_fall_recorded: bool = True  # note how far behind the log's end each group reads
    enable_property_filter: bool = False  # subscriptions by SQL92 expressions
    filter_support_retry: bool = False  # they hold for what the group sent back, too


NOT_PARSED: Final = "parse the consumer's subscription failed"
MOST_KEPT: Final = 4_096
"""Characters of a tag expression that a pull brings; longer ones are taken apart each time."""

_TAG_TYPES: Final = frozenset((None, "", TAG))
_READ: Final = Permission.READ
_SUBSCRIPTION: Final = PullSysFlag.SUBSCRIPTION
_LITE_PULL: Final = RequestCode.LITE_PULL_MESSAGE


class ForbiddenType:
    """On whose account a pull is forbidden."""

    BROKER: Final = 1
    GROUP: Final = 2
    TOPIC: Final = 3
    BROADCASTING: Final = 4
    SUBSCRIPTION: Final = 5


class PullForbidden(RequestError):
    """NO_PERMISSION, with its `ForbiddenType` (None: it has none)."""

    def __init__(self, forbidden_type: int | None, remark: str) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.forbidden_type = forbidden_type


class AdmittedPull(msgspec.Struct, frozen=True, gc=False):
    """A pull that may be served; `matches` tests tags codes or properties, None takes every message."""

    topic: TopicConfig
    group: SubscriptionGroupConfig
    matches: Wanted | None


class PullChecks:
    """Admits pulls."""

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
        """Check by other settings from now on."""
        self._config = config

    def admit(self, connection: Connection, command: RemotingCommand, header: PullMessageHeader) -> AdmittedPull:
        """The pull with what it needs; RequestError if it may not be served."""
        config = self._config
        if not config.broker_permission & _READ or command.code == _LITE_PULL:
            self._check_broker(command)
        group = self._groups.find(header.consumer_group)
        if group is None or not group.consume_enable:
            group = self._group(header)
        topic = self._topics.find(header.topic)
        if topic is None or not topic.perm & _READ or not 0 <= header.queue_id < topic.read_queue_nums:
            self._refuse_topic(topic, connection, header)
        is_own = header.sys_flag & _SUBSCRIPTION
        if is_own:
            subscription = requested_subscription(header.subscription, header.expression_type)
        else:
            subscription = self._registered_subscription(group, header)
        if subscription.data.expression_type not in _TAG_TYPES:
            return AdmittedPull(topic, group, self._expression(subscription, is_own=bool(is_own)))
        if config.filter_support_retry and topic.topic_name.startswith(RETRY_PREFIX):
            return AdmittedPull(topic, group, subscription.matches or self._retried(topic.topic_name))
        return AdmittedPull(topic, group, subscription.matches)

    def _expression(self, subscription: Subscription, *, is_own: bool) -> PropertyTest | None:
        """The test of a subscription that is no tag expression."""
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

    def _retried(self, retry_topic: str) -> PropertyTest | None:
        """What the group selects of the messages that it sent back."""
        members = self._sessions.consumer_group(retry_topic.removeprefix(RETRY_PREFIX))
        return None if members is None else RetriedTest.of(members.subscriptions)

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

    def _refuse_topic(self, topic: TopicConfig | None, connection: Connection, header: PullMessageHeader) -> NoReturn:
        name = header.topic
        if topic is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! {FAQ}")
        if not topic.perm & _READ:
            raise PullForbidden(ForbiddenType.TOPIC, f"the topic[{name}] pulling message is forbidden")
        remark = (
            f"queueId[{header.queue_id}] is illegal, topic:[{name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.peer}]"
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
    """What a request itself asks for; RequestError(SUBSCRIPTION_PARSE_FAILED) for an expression that is none."""
    if expression_type in _TAG_TYPES:
        is_usual = not expression or len(expression) <= MOST_KEPT
        return _requested_tags(expression) if is_usual else _requested_tags.__wrapped__(expression)
    if not expression:
        raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, NOT_PARSED)
    return Subscription.of(SubscriptionData(sub_string=expression, expression_type=expression_type or ""))


@lru_cache(maxsize=4096)
def _requested_tags(expression: str | None) -> Subscription:
    if expression and not expression.replace("||", ""):
        raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, NOT_PARSED)
    return Subscription.of(subscribe("", expression, 0))
