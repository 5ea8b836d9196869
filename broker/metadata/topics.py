"""The topic table: which topics this broker has, with how many queues, and what may be done with them.

The table is content of `config/topics.json`, of the registration with name servers and of the answer to 21. Whoever
keeps a copy compares DataVersions, so every change of the table changes its version, and then tells the listeners
(the file's saver, the registration); several changes in a row are several calls, and listeners gather them.

Topics come about in four ways: the broker makes its own at start; a send to an unknown topic makes one after a template
that has the INHERIT bit (TBW102, unless auto-creation is off); a group's `%RETRY%` and `%DLQ%` topics come with the
group's first heartbeat and first dead letter; an operator makes the rest. A topic from the file wins over one that is
made at start, so that an operator's queue counts survive. A process that is killed may leave messages of a topic that
is not in the file yet: the next start restores it.

Sources: docs/formats.md, "System topics", "Topic auto-creation", "State files".
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from skylarkmq.broker.metadata.limits import Limits
from skylarkmq.protocol.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, Permission, ResponseCode, SystemTopic, is_reserved_topic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import is_storable_topic

log = logging.getLogger(__name__)

UNIT: Final = 1
UNIT_SUB: Final = 2
"""Bits of a topic's `topic_sys_flag`: made by a unit-mode sender, by a unit-mode consumer (retry topics)."""

_encode: Final = msgspec.json.Encoder(order="sorted").encode


SCHEDULE_QUEUES: Final = 18
"""Of the schedule topic, however many levels there are: one beyond has its queue, which the topic does not tell of."""


class TopicsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Whose topics these are, and what they start with."""

    cluster_name: str
    broker_name: str
    broker_permission: int = Permission.READ_WRITE  # limits what routes say of every topic
    default_topic_queue_nums: int = 8  # queues of TBW102: most that an auto-created topic gets
    auto_create_topic_enable: bool = True  # whether TBW102 is a template
    trace_topic: str | None = None  # made at start, for clients that trace messages; without, a first trace makes it
    has_timers: bool = True  # whether there is a timer topic


class TopicsStatistics(msgspec.Struct, frozen=True):
    """The table at one moment; `version` counts its changes."""

    topics: int
    version: int


class TopicTable:
    """Topics by name. `clock` gives Unix ms, for versions."""

    def __init__(self, config: TopicsConfig, clock: Callable[[], int], limits: Limits | None = None) -> None:
        self._config = config
        self._limits = limits = limits or Limits()
        self._queues = 0  # of all topics
        limits.topics.used = lambda: len(self._topics)
        limits.queues.used = lambda: self._queues
        self.permission = config.broker_permission
        """What the broker as a whole permits; changed by `permit` only."""
        self._clock = clock
        self._topics: dict[str, TopicConfig] = {}
        self._listeners: list[Callable[[], None]] = []
        self._delete_listeners: list[Callable[[str], None]] = []
        self._own = {topic.topic_name: topic for topic in _topics_at_start(config)}
        self.version = DataVersion()

    def __repr__(self) -> str:
        return f"<TopicTable topics={len(self._topics)} version={self.version.counter}>"

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def permit(self, permission: int) -> None:
        """What the broker as a whole permits from now on; name servers hear of it as of any change."""
        if permission != self.permission:
            self.permission = permission
            self._changed()

    def allow_auto_creation(self, *, allowed: bool) -> None:
        """Let topics be made after TBW102 from now on, or not."""
        template = self._topics.get(SystemTopic.AUTO_CREATE)
        if template is None and allowed:
            count = self._config.default_topic_queue_nums
            self._put(_topic(SystemTopic.AUTO_CREATE, count, Permission.READ_WRITE | Permission.INHERIT))
        elif template is not None:
            bit = Permission.INHERIT if allowed else 0
            perm = template.perm & ~Permission.INHERIT | bit
            self.update(msgspec.structs.replace(template, perm=perm))

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def on_delete(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of every topic that is deleted."""
        self._delete_listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Take the content of topics.json (None: a new store) and add what the broker itself needs. BodyError."""
        if data is not None:
            wrapper = TopicConfigSerializeWrapper.decode(data)
            table = wrapper.topic_config_table
            self._topics.update((name, topic) for name, topic in table.items() if is_storable_topic(name))
            if invalid := [name for name in table if not is_storable_topic(name)]:
                log.warning("topics with invalid names are left out topics=%d first=%s", len(invalid), invalid[0])
            self.version = wrapper.data_version
        missing = [topic for topic in self._own.values() if topic.topic_name not in self._topics]
        self._topics.update((topic.topic_name, topic) for topic in missing)
        self._queues = sum(map(queues_of, self._topics.values()))
        template = self._topics.get(SystemTopic.AUTO_CREATE)
        if template is not None and not self._config.auto_create_topic_enable:
            template.perm &= ~Permission.INHERIT
        if missing:
            self._changed()
        log.info("topics loaded topics=%d version=%d", len(self._topics), self.version.counter)

    def find(self, name: str) -> TopicConfig | None:
        """The topic, which belongs to the table: change it by `update` only."""
        return self._topics.get(name)

    def is_system(self, name: str) -> bool:
        """Whether a topic is RocketMQ's or the broker's own, and so not an operator's to change."""
        return is_reserved_topic(name) or name in self._own

    def create_from_template(self, name: str, template: str, queues: int, *, sys_flag: int = 0) -> TopicConfig | None:
        """What a send to an unknown topic makes; None if `template` is no topic or lets nobody inherit."""
        model = self._topics.get(template)
        if model is None or not model.perm & Permission.INHERIT:
            return None
        count = max(0, min(queues, model.write_queue_nums))
        topic = TopicConfig(
            topic_name=name,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=model.perm & ~Permission.INHERIT,
            topic_filter_type=model.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        self._check_growth([topic])
        log.info("topic created topic=%s queues=%d template=%s", name, count, template)
        self._put(topic)
        return topic

    def create_for_group(self, name: str, queues: int = 1, *, sys_flag: int = 0, order: bool = False) -> TopicConfig:
        """A group's `%RETRY%` or `%DLQ%` topic, made if it is not there.

        RequestError(SYSTEM_ERROR) if no message can be stored under that name: it is too long, or the group was named
        so by a version that did not check names.
        """
        topic = self._topics.get(name)
        if topic is None:
            if not is_storable_topic(name):
                raise RequestError(ResponseCode.SYSTEM_ERROR, f"topic[{name}] not exist")
            topic = TopicConfig(name, queues, queues, Permission.READ_WRITE, topic_sys_flag=sys_flag, order=order)
            self._check_growth([topic])
            log.info("topic created topic=%s queues=%d", name, queues)
            self._put(topic)
        return topic

    def restore(self, needed: Mapping[str, int]) -> None:
        """Make topics again that have messages and that a killed process had not saved yet.

        `needed`: by topic, the queues that its messages lie in. Only topics that a send or a group made can be lost so,
        since operators wait for the file; a topic of a send gets the template's queues, if those are more, so that
        producers that know its route may go on.
        """
        template = self._topics.get(SystemTopic.AUTO_CREATE)
        inherited = template.write_queue_nums if template is not None and template.perm & Permission.INHERIT else 0
        for name, queues in needed.items():
            count = queues if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else max(queues, inherited)
            count = min(count, self._limits.queues_per_topic.most)
            log.warning("topic restored, it has messages and was not saved topic=%s queues=%d", name, count)
            self._put(TopicConfig(name, count, count, Permission.READ_WRITE))

    def update(self, topic: TopicConfig) -> bool:
        """Make or replace a topic as an operator wants it; False if it is so already. RequestError at a limit."""
        if self._topics.get(topic.topic_name) == topic:
            return False
        self._check_growth([topic])
        log.info("topic updated %s", topic)
        self._put(topic)
        return True

    def update_all(self, topics: Sequence[TopicConfig]) -> list[TopicConfig]:
        """Make or replace topics, all of them or none; those that were not so already. RequestError at a limit."""
        self._check_growth(topics)
        return [topic for topic in topics if self.update(topic)]

    def _check_growth(self, topics: Sequence[TopicConfig]) -> None:
        """Raise RequestError if these topics would have more queues, or be more topics, than the limits allow."""
        limits, queues, new = self._limits, 0, 0
        for topic in topics:
            known = self._topics.get(topic.topic_name)
            before, wanted = 0 if known is None else queues_of(known), queues_of(topic)
            if wanted > max(before, limits.queues_per_topic.most):
                raise limits.queues_per_topic.refusal(f"topic {topic.topic_name} with {wanted} queues")
            new += known is None
            queues += wanted - before
        if new and len(self._topics) + new > limits.topics.most:
            raise limits.topics.refusal(f"{new} more topics than {len(self._topics)}")
        if queues > 0 and self._queues + queues > limits.queues.most:
            raise limits.queues.refusal(f"{queues} more queues than {self._queues}")

    def delete(self, name: str) -> bool:
        """Forget a topic; False if there was none."""
        topic = self._topics.pop(name, None)
        if topic is None:
            return False
        self._queues -= queues_of(topic)
        log.info("topic deleted topic=%s", name)
        for listener in self._delete_listeners:
            listener(name)
        self._changed()
        return True

    def registration_body(self) -> bytes:
        """What name servers are told, a RegisterBrokerBody: every topic, within what the broker as a whole permits."""
        limit = self.permission
        topics = self._topics
        if limit != Permission.READ_WRITE:
            topics = {name: msgspec.structs.replace(topic, perm=topic.perm & limit) for name, topic in topics.items()}
        return b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % self._wrapper(topics)

    def encode(self) -> bytes:
        """The table as topics.json, a TopicConfigSerializeWrapper."""
        return self._wrapper(self._topics)

    def statistics(self) -> TopicsStatistics:
        """The table's figures now."""
        return TopicsStatistics(topics=len(self._topics), version=self.version.counter)

    def _wrapper(self, topics: dict[str, TopicConfig]) -> bytes:
        return b'{"dataVersion":%b,"topicConfigTable":%b}' % (_encode(self.version), _encode(topics))

    def _put(self, topic: TopicConfig) -> None:
        known = self._topics.get(topic.topic_name)
        self._queues += queues_of(topic) - (0 if known is None else queues_of(known))
        self._topics[topic.topic_name] = topic
        self._changed()

    def _changed(self) -> None:
        self.version = self.version.next(self._clock())
        for listener in self._listeners:
            listener()


def queues_of(topic: TopicConfig) -> int:
    """Return how many queues a topic has: its messages lie in those that can be read or written."""
    return max(topic.read_queue_nums, topic.write_queue_nums, 0)


def _topics_at_start(config: TopicsConfig) -> Iterator[TopicConfig]:
    """What a broker makes for itself: read and write queues are equal."""
    template = Permission.READ_WRITE | Permission.INHERIT
    if config.auto_create_topic_enable:
        yield _topic(SystemTopic.AUTO_CREATE, config.default_topic_queue_nums, template)
    yield _topic(config.cluster_name, 16, template)
    yield _topic(config.broker_name, 1, template)
    yield _topic(SystemTopic.BENCHMARK, 1024)
    yield _topic(SystemTopic.SCHEDULE, SCHEDULE_QUEUES)
    for name in (
        SystemTopic.SELF_TEST,
        SystemTopic.OFFSET_MOVED,
        SystemTopic.TRANSACTION_HALF,
        SystemTopic.TRANSACTION_OP,
        config.cluster_name + SystemTopic.REPLY_SUFFIX,
    ):
        yield _topic(name, 1)
    if config.trace_topic is not None:
        yield _topic(config.trace_topic, 1)
    if config.has_timers:
        yield _topic(SystemTopic.TIMER, 1)


def _topic(name: str, queues: int, perm: int = Permission.READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
