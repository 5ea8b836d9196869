"""Checks of a send, in RocketMQ's order and with its remarks, and the topic that the message is stored in.

    start time -> broker and order topics -> name -> unknown topic -> queue -> retry topic

An unknown topic is created from the template topic that the producer names, if that template allows it. A message that
a client sends to a group's retry topic becomes a dead letter if it has reached the retry limit, or if the group
consumes in order: such a group stops at a failed message instead of receiving it later. The checks read the request
header only, not the message. Source: docs/reference/wire.md, "Send", "Retries and dead letters".
"""

import logging
import time
from collections.abc import Callable
from sys import intern
from typing import Final

import msgspec

from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import UNIT, UNIT_SUB, TopicTable
from skylarkmq.broker.processors.send.retention import ATTRIBUTE, TopicRetention
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.bodies.enums import TopicFilterType
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import DLQ_PREFIX, FAQ, RETRY_PREFIX, Permission, ResponseCode, is_internal_topic
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.fields import is_true
from skylarkmq.protocol.headers.send import SendMessageHeader
from skylarkmq.protocol.message import MAX_TOPIC_LENGTH, check_client_topic

MAX_RECONSUME_TIMES_VERSION: Final = 121
"""First client version whose maxReconsumeTimes is honored."""

_TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"

log = logging.getLogger(__name__)


class SendConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of sends."""

    broker_ip: str  # in remarks
    broker_permission: int = Permission.READ_WRITE
    start_accept_ms: int = 0  # startAcceptSendRequestTimeStamp


class SendChecks:
    """Checks the sends of one broker. `now_ms` gives Unix time; `is_orderly`: whether a group consumes in order."""

    def __init__(
        self,
        config: SendConfig,
        topics: TopicTable,
        groups: SubscriptionGroups,
        is_orderly: Callable[[str], bool],
        now_ms: Callable[[], int],
        retention: TopicRetention,
    ) -> None:
        self._config = config
        self._retention = retention
        self._find = topics.find
        self._topics = topics
        self._groups = groups
        self._is_orderly = is_orderly
        self._now_ms = now_ms
        self._start_accept_ms = config.start_accept_ms
        self.queues: dict[str, int] = {}
        """Topics whose sends need no checks, with the number of queues that such a send may name."""
        topics.on_change(self.queues.clear)

    def __repr__(self) -> str:
        return f"<SendChecks {self._topics!r}>"

    def configure(self, config: SendConfig) -> None:
        """Apply new settings to the requests that follow."""
        self._config = config
        self._start_accept_ms = config.start_accept_ms
        self.queues.clear()

    def topic_for(self, source: RequestSource, command: RemotingCommand, header: SendMessageHeader) -> TopicConfig:
        """Return the topic to store into. Raises RequestError if the message may not be sent."""
        if self._start_accept_ms:
            self._check_start_time()
        name = header.topic
        topic = self._find(name)
        if topic is None or len(name) > MAX_TOPIC_LENGTH or is_internal_topic(name):
            topic = self._unusual_topic(source, header)
        if topic.order:
            self._check_permission()
        queue_id = header.queue_id
        if queue_id >= topic.write_queue_nums and queue_id >= topic.read_queue_nums:
            remark = f"request queueId[{queue_id}] is illegal, {topic} Producer: {source.peer}"
            raise RequestError(ResponseCode.INVALID_PARAMETER, remark)
        if name[0] == "%" and name.startswith(RETRY_PREFIX) and not is_true(header.batch):
            return self._retry_topic(command, header, topic)
        self._retention.check(topic)
        if self._needs_no_checks(topic):
            self.queues[intern(name)] = max(topic.write_queue_nums, topic.read_queue_nums)
        return topic

    def _needs_no_checks(self, topic: TopicConfig) -> bool:
        """Return whether every send to this topic with an explicit queue passes all checks until the topics change."""
        is_single = topic.topic_filter_type is TopicFilterType.SINGLE_TAG
        is_unlimited = ATTRIBUTE not in topic.attributes
        return is_single and is_unlimited and not topic.order and topic.topic_name[0] != "%"

    def _check_start_time(self) -> None:
        if self._now_ms() < self._start_accept_ms:
            since = time.strftime(_TIME_FORMAT, time.localtime(self._start_accept_ms / 1000))
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {since}")

    def _check_permission(self) -> None:
        """Raise RequestError if the broker is not writable. Other than order topics are only left out of the routes
        then."""
        if not self._config.broker_permission & Permission.WRITE:
            remark = f"the broker[{self._config.broker_ip}] sending message is forbidden"
            raise RequestError(ResponseCode.NO_PERMISSION, remark)

    def _unusual_topic(self, source: RequestSource, header: SendMessageHeader) -> TopicConfig:
        """Return the topic for a name that may be invalid, reserved or unknown; create it if allowed."""
        name = header.topic
        check_client_topic(name)
        refuse_internal_topic(name)
        is_unit = is_true(header.unit_mode)
        if name.startswith(RETRY_PREFIX):
            return self._topics.create_for_group(name, sys_flag=UNIT_SUB if is_unit else 0)
        topic = self._topics.create_from_template(
            name, header.default_topic, header.default_topic_queue_nums, sys_flag=UNIT if is_unit else 0
        )
        if topic is None:
            log.info("send to unknown topic topic=%s template=%s peer=%s", name, header.default_topic, source.peer)
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!{FAQ}")
        return topic

    def _retry_topic(self, command: RemotingCommand, header: SendMessageHeader, topic: TopicConfig) -> TopicConfig:
        """Return the topic for a message that a client sends to a retry topic itself: the retry topic or the dead
        letter topic."""
        name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find_or_create(name)
        if group is None:
            remark = f"subscription group not exist, {name} {FAQ}"
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        limit = retry_limit(group, header.max_reconsume_times, command.version)
        if (header.reconsume_times or 0) > limit or self._is_orderly(name):
            return self._topics.create_for_group(DLQ_PREFIX + name)
        return topic


def refuse_internal_topic(name: str) -> None:
    """Raise RequestError(NO_PERMISSION) for a topic that only the broker itself writes to."""
    if is_internal_topic(name):
        raise RequestError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")


def retry_limit(group: SubscriptionGroupConfig, wanted: int | None, version: int) -> int:
    """Return how often a group retries a message. `wanted`: the client's limit, honored from a certain version on."""
    return group.retry_max_times if wanted is None or version < MAX_RECONSUME_TIMES_VERSION else wanted
