"""The types that `Admin` and its sections take and return, besides the types of `skylarkmq` itself.

    from skylarkmq.admin_types import SubscriptionGroupConfig, UserInfo

Names of types and members are RocketMQ's where they are bodies of its protocol.
"""

from skylarkmq.clients.sdk.admin.access import Access, PlainAccount, PlainAclVersions
from skylarkmq.clients.sdk.admin.brokers import Brokers
from skylarkmq.clients.sdk.admin.group_config import GroupConfigs
from skylarkmq.clients.sdk.admin.message_tracks import MessageTrack, TrackType
from skylarkmq.clients.sdk.admin.messages import KeyQuery, Messages
from skylarkmq.clients.sdk.admin.name_servers import NameServerAdmin
from skylarkmq.clients.sdk.admin.offsets import Offsets, Rollback
from skylarkmq.clients.sdk.admin.topic_config import TopicConfigs
from skylarkmq.clients.sdk.consuming.queue_calls import Pulled
from skylarkmq.clients.sdk.telemetry.trace_events import TraceEvent
from skylarkmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from skylarkmq.protocol.bodies.client_state import (
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    PopProcessQueueInfo,
    ProcessQueueInfo,
)
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType, MessageModel, TopicFilterType
from skylarkmq.protocol.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.bodies.stats import (
    BrokerStatsData,
    ConsumeQueueData,
    ConsumeQueueUnits,
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    StatsItem,
    TopicOffset,
    TopicStatsTable,
)
from skylarkmq.protocol.bodies.subscription_group import (
    SimpleSubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from skylarkmq.protocol.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper

__all__ = [
    "Access",
    "AclInfo",
    "BrokerData",
    "BrokerStatsData",
    "Brokers",
    "ClientConnection",
    "ClusterInfo",
    "ConsumeDirectlyResult",
    "ConsumeFromWhere",
    "ConsumeQueueData",
    "ConsumeQueueUnits",
    "ConsumeStats",
    "ConsumeStatsList",
    "ConsumeStatus",
    "ConsumeType",
    "ConsumerConnection",
    "ConsumerRunningInfo",
    "DataVersion",
    "GroupConfigs",
    "HAClientInfo",
    "HAConnectionInfo",
    "HARuntimeInfo",
    "KeyQuery",
    "MessageModel",
    "MessageTrack",
    "Messages",
    "NameServerAdmin",
    "OffsetWrapper",
    "Offsets",
    "PlainAccount",
    "PlainAclVersions",
    "PolicyEntryInfo",
    "PolicyInfo",
    "PopProcessQueueInfo",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerInfo",
    "ProducerTable",
    "Pulled",
    "QueueData",
    "Rollback",
    "SimpleSubscriptionData",
    "StatsItem",
    "SubscriptionData",
    "SubscriptionGroupConfig",
    "SubscriptionGroupWrapper",
    "TopicConfig",
    "TopicConfigSerializeWrapper",
    "TopicConfigs",
    "TopicFilterType",
    "TopicOffset",
    "TopicRouteData",
    "TopicStatsTable",
    "TraceEvent",
    "TrackType",
    "UserInfo",
]
