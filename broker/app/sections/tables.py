"""The tables that most processors use: topics, subscription groups, committed offsets and client sessions, with their
limits.
"""

from skylarkmq.broker.base.clocks import Clock
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.metadata.limits import Limits, LimitsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig, SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicsConfig, TopicTable


class Tables:
    """The tables that most processors use. `now_ms` returns Unix time."""

    def __init__(
        self, limits: LimitsConfig, topics: TopicsConfig, groups: GroupsConfig, offsets: OffsetsConfig, now_ms: Clock
    ) -> None:
        self.limits = Limits(limits)
        self.topics = TopicTable(topics, now_ms, self.limits)
        self.groups = SubscriptionGroups(groups, now_ms, self.limits)
        self.offsets = ConsumerOffsetTable(offsets, now_ms, self.limits)
        self.sessions = ClientSessions()

    def __repr__(self) -> str:
        return f"<Tables {self.topics!r} {self.groups!r}>"


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
