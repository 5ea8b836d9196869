"""The topic table: the topics of this broker, their numbers of queues, and their permissions.

The table is stored in `config/topics.json`, and is part of the registration with name servers and of the response to
GET_ALL_TOPIC_CONFIG (21). Holders of a copy compare DataVersions. So every change of the table increments its version
and then calls the listeners (the saver of the file, the registration). Several changes in a row cause several calls;
the listeners combine them.

Topics are created in four ways. The broker creates its own at the start. A send to an unknown topic creates it from a
template that has the INHERIT bit (TBW102, unless auto-creation is off). The `%RETRY%` and `%DLQ%` topics of a group are
created at its first heartbeat and its first dead letter. An operator creates all others. A topic in the file takes
precedence over one that is created at the start, so that an operator's queue counts are kept. If a process is killed,
the log may have messages of a topic that is not in the file yet; the next start restores the topic.

Sources: docs/reference/wire.md, "System topics", "Topic auto-creation"; docs/reference/disk.md, "State files".
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from skylarkmq.broker.metadata.limits import Creations, Limits
from skylarkmq.protocol.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, Permission, ResponseCode, SystemTopic, is_reserved_topic
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.message import is_storable_topic

log = logging.getLogger(__name__)

UNIT: Final = 1
UNIT_SUB: Final = 2
"""Bits of a topic's `topic_sys_flag`: created by a unit-mode producer, by a unit-mode consumer (retry topics)."""

_encode: Final = msgspec.json.Encoder(order="sorted").encode


SCHEDULE_QUEUES: Final = 18
"""Queues of the schedule topic for any number of levels; a level above has a queue that the topic does not list."""


class TopicsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The names of cluster and broker, and the topics that are created at the start."""

    cluster_name: str
    broker_name: str
    broker_permission: int = Permission.READ_WRITE  # restricts the permissions of every topic in routes
    default_topic_queue_nums: int = 8  # queues of TBW102, the maximum for an auto-created topic
    auto_create_topic_enable: bool = True  # whether TBW102 is a template
    trace_topic: str | None = None  # created at the start, for message traces; None: created by the first trace
    has_timers: bool = True  # whether there is a timer topic


class TopicsStatistics(msgspec.Struct, frozen=True):
    """The number of topics; `version` counts the changes."""

    topics: int
    version: int


class TopicTable:
    """Topics by name. `clock` returns Unix ms, for versions. `creations` counts new topics; None: they are not
    counted."""

    def __init__(
        self,
        config: TopicsConfig,
        clock: Callable[[], int],
        limits: Limits | None = None,
        creations: Creations | None = None,
    ) -> None:
        self._config = config
        self._limits = limits = limits or Limits()
        self._queues = 0  # of all topics
        limits.topics.used = lambda: len(self._topics)
        limits.queues.used = lambda: self._queues
        self.permission = config.broker_permission
        """The permissions of the broker as a whole; only `permit` changes them."""
        self._clock = clock
        self._topics: dict[str, TopicConfig] = {}
        self._listeners: list[Callable[[], None]] = []
        self._delete_listeners: list[Callable[[str], None]] = []
        self._own = {topic.topic_name: topic for topic in _topics_at_start(config)}
        self.version = DataVersion()
        self._creations = creations

    def __repr__(self) -> str:
        return f"<TopicTable topics={len(self._topics)} version={self.version.counter}>"

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._topics.values())

    def permit(self, permission: int) -> None:
        """Set the permissions of the broker as a whole; name servers are updated as after any change."""
        if permission != self.permission:
            self.permission = permission
            self._changed()

    def allow_auto_creation(self, *, allowed: bool) -> None:
        """Turn the creation of topics from TBW102 on or off."""
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
        """Call `listener` with the name of each deleted topic."""
        self._delete_listeners.append(listener)

    def load(self, data: bytes | None) -> None:
        """Load topics.json (None: a new store) and add the broker's own topics. Raises BodyError."""
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
        """Return the topic. It belongs to the table: change it with `update` only."""
        return self._topics.get(name)

    def is_system(self, name: str) -> bool:
        """Return whether the topic is RocketMQ's or the broker's own, so that operators may not change it."""
        return is_reserved_topic(name) or name in self._own

    def create_from_template(self, name: str, template: str, queues: int, *, sys_flag: int = 0) -> TopicConfig | None:
        """Create the topic for a send to an unknown topic; None if `template` does not exist or permit it."""
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
        """Return the `%RETRY%` or `%DLQ%` topic of a group, created if it does not exist.

        Raises RequestError(SYSTEM_ERROR) if no message can be stored under that name: it is too long, or the group was
        created by a version that did not check names.
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
        """Create again the topics that have messages and that a killed process had not saved.

        `needed`: by topic, the number of queues of its messages. Only topics that a send or a group created can be lost
        this way, because operators wait for the file. A topic created by a send gets the queues of the template, if
        these are more, so that producers that have its route can continue.
        """
        template = self._topics.get(SystemTopic.AUTO_CREATE)
        inherited = template.write_queue_nums if template is not None and template.perm & Permission.INHERIT else 0
        for name, queues in needed.items():
            count = queues if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else max(queues, inherited)
            count = min(count, self._limits.queues_per_topic.most)
            log.warning("topic restored, it has messages and was not saved topic=%s queues=%d", name, count)
            self._put(TopicConfig(name, count, count, Permission.READ_WRITE))

    def update(self, topic: TopicConfig) -> bool:
        """Create or replace a topic for an operator; False if nothing changes. Raises RequestError at a limit."""
        if self._topics.get(topic.topic_name) == topic:
            return False
        self._check_growth([topic])
        log.info("topic updated %s", topic)
        self._put(topic)
        return True

    def update_all(self, topics: Sequence[TopicConfig]) -> list[TopicConfig]:
        """Create or replace all of the topics or none. Returns the changed ones. Raises RequestError at a limit."""
        self._check_growth(topics)
        return [topic for topic in topics if self.update(topic)]

    def _check_growth(self, topics: Sequence[TopicConfig]) -> None:
        """Raise RequestError if these topics, or their queues, would exceed the limits, or the quota of an account."""
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
        if new and self._creations is not None:
            self._creations.check([topic.topic_name for topic in topics if topic.topic_name not in self._topics])

    def delete(self, name: str) -> bool:
        """Remove a topic; False if it did not exist."""
        topic = self._topics.pop(name, None)
        if topic is None:
            return False
        self._queues -= queues_of(topic)
        log.info("topic deleted topic=%s", name)
        for listener in self._delete_listeners:
            listener(name)
        self._changed()
        return True

    def follow(self, master: TopicConfigSerializeWrapper) -> list[str]:
        """Take over the table of a master with its version; return the topics that exist no more.

        No limit applies: the master has admitted its topics. Invalid names are left out."""
        if self.version == master.data_version:
            return []
        gone = [name for name in self._topics if name not in master.topic_config_table]
        known = master.topic_config_table.items()
        self._topics = {name: topic for name, topic in known if is_storable_topic(name)}
        self._queues = sum(map(queues_of, self._topics.values()))
        self.version = master.data_version
        for name in gone:
            for on_delete in self._delete_listeners:
                on_delete(name)
        self._notify()
        log.info("topics copied from the master topics=%d deleted=%d", len(self._topics), len(gone))
        return gone

    def registration_body(self) -> bytes:
        """Return a RegisterBrokerBody for name servers: all topics, with permissions restricted to the broker's."""
        limit = self.permission
        topics = self._topics
        if limit != Permission.READ_WRITE:
            topics = {name: msgspec.structs.replace(topic, perm=topic.perm & limit) for name, topic in topics.items()}
        return b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % self._wrapper(topics)

    def encode(self) -> bytes:
        """Return the table as topics.json, a TopicConfigSerializeWrapper."""
        return self._wrapper(self._topics)

    def statistics(self) -> TopicsStatistics:
        """Return the current figures."""
        return TopicsStatistics(topics=len(self._topics), version=self.version.counter)

    def _wrapper(self, topics: dict[str, TopicConfig]) -> bytes:
        return b'{"dataVersion":%b,"topicConfigTable":%b}' % (_encode(self.version), _encode(topics))

    def _put(self, topic: TopicConfig) -> None:
        known = self._topics.get(topic.topic_name)
        self._queues += queues_of(topic) - (0 if known is None else queues_of(known))
        self._topics[topic.topic_name] = topic
        if known is None and self._creations is not None:
            self._creations.note(topic.topic_name)
        self._changed()

    def _changed(self) -> None:
        self.version = self.version.next(self._clock())
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


def queues_of(topic: TopicConfig) -> int:
    """Return how many queues a topic has; all that can be read or written may have messages."""
    return max(topic.read_queue_nums, topic.write_queue_nums, 0)


def _topics_at_start(config: TopicsConfig) -> Iterator[TopicConfig]:
    """Yield the topics that the broker creates for itself; numbers of read and write queues are equal."""
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
