"""The tables that most processors use: topics, subscription groups, committed offsets and client sessions, with their
limits.
"""

from typing import Final, NamedTuple

from skylarkmq.broker.access.created_names import CreatedNames
from skylarkmq.broker.app.sections.table_files import Kept
from skylarkmq.broker.base.clocks import Clock
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.metadata.limits import Limits, LimitsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig, SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicsConfig, TopicTable
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import TopicConfigSerializeWrapper

TOPICS_FILE: Final = "topics.json"
GROUPS_FILE: Final = "subscriptionGroup.json"
OFFSETS_FILE: Final = "consumerOffset.json"


class TablesConfig(NamedTuple):
    """Settings of the tables."""

    limits: LimitsConfig
    topics: TopicsConfig
    groups: GroupsConfig
    offsets: OffsetsConfig


class Tables:
    """The tables of one broker. `now_ms` returns Unix time. `created` counts the topics and groups that accounts
    create; None: they are not counted."""

    def __init__(self, config: TablesConfig, now_ms: Clock, created: CreatedNames | None = None) -> None:
        topics, groups = (None, None) if created is None else (created.topics, created.groups)
        self.limits = Limits(config.limits)
        self.topics = TopicTable(config.topics, now_ms, self.limits, topics)
        self.groups = SubscriptionGroups(config.groups, now_ms, self.limits, groups)
        self.offsets = ConsumerOffsetTable(config.offsets, now_ms, self.limits)
        self.sessions = ClientSessions()

    def __repr__(self) -> str:
        return f"<Tables {self.topics!r} {self.groups!r}>"

    def kept(self) -> list[Kept]:
        """Return the tables that are loaded before the start and saved when they change."""
        return [
            Kept(self.topics, TOPICS_FILE, TopicConfigSerializeWrapper.decode),
            Kept(self.groups, GROUPS_FILE, SubscriptionGroupWrapper.decode),
            Kept(self.offsets, OFFSETS_FILE, ConsumerOffsets.decode),
        ]

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists."""
        return self.topics.find(name) is not None

    def has_group(self, name: str) -> bool:
        """Return whether a subscription group exists."""
        return self.groups.find(name) is not None


def tables_config(config: DaemonConfig) -> TablesConfig:
    """Return the settings of the tables."""
    return TablesConfig(config.limits, topics_config(config), groups_config(config), offsets_config(config))


def topics_config(config: DaemonConfig) -> TopicsConfig:
    """Return the settings of the topic table."""
    broker = config.broker
    return TopicsConfig(
        cluster_name=broker.broker_cluster_name,
        broker_name=broker.broker_name,
        broker_permission=broker.broker_permission,
        default_topic_queue_nums=broker.default_topic_queue_nums,
        auto_create_topic_enable=broker.auto_create_topic_enable,
        trace_topic=broker.msg_trace_topic_name if broker.trace_topic_enable else None,
        has_timers=config.store.timer_wheel_enable,
    )


def groups_config(config: DaemonConfig) -> GroupsConfig:
    """Return the settings of subscription groups."""
    return GroupsConfig(auto_create_subscription_group=config.broker.auto_create_subscription_group)


def offsets_config(config: DaemonConfig) -> OffsetsConfig:
    """Return how often committed offsets are saved."""
    return OffsetsConfig(flush_consumer_offset_interval=config.broker.flush_consumer_offset_interval)
