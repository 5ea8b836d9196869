"""Assembles the metrics: the collectors, the values of common labels, and the metrics that are switched off."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector

from skylarkmq.broker.access.audit import AuditLog
from skylarkmq.broker.access.auth.control import AuthControl
from skylarkmq.broker.access.plain_acl.control import PlainAclControl
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.quotas import Quotas
from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.config.sections import OpsConfig
from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.counters.throughput import Throughput
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.delivery.calls.request_reply import Replies
from skylarkmq.broker.delivery.delay.delivery import DelayDelivery
from skylarkmq.broker.delivery.timer.timers import Timers
from skylarkmq.broker.delivery.transactions.checks import TransactionChecks
from skylarkmq.broker.delivery.transactions.transactions import Transactions
from skylarkmq.broker.ha.status import ReplicationStatus
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.metadata.limits import Limits
from skylarkmq.broker.metadata.subscription_groups import SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicTable
from skylarkmq.broker.ops.catalogue import CATALOGUE, Switch
from skylarkmq.broker.ops.collectors.access import AuthCollector, PlainAclCollector
from skylarkmq.broker.ops.collectors.broker import (
    CheckCollector,
    ExposureCollector,
    LimitCollector,
    RouteCollector,
    RuntimeCollector,
    TableCollector,
    TrafficCollector,
)
from skylarkmq.broker.ops.collectors.calls import CallCollector
from skylarkmq.broker.ops.collectors.clients import ClientCollector
from skylarkmq.broker.ops.collectors.delays import DelayCollector
from skylarkmq.broker.ops.collectors.groups import GroupCollector
from skylarkmq.broker.ops.collectors.process import ProcessCollector
from skylarkmq.broker.ops.collectors.replication import ReplicationCollector
from skylarkmq.broker.ops.collectors.requests import RequestCollector
from skylarkmq.broker.ops.collectors.storage import StorageCollector
from skylarkmq.broker.ops.collectors.timers import TimerCollector
from skylarkmq.broker.ops.collectors.topics import TopicCollector
from skylarkmq.broker.ops.collectors.transactions import TransactionCollector
from skylarkmq.broker.ops.collectors.usage import AuditCollector, QuotaCollector
from skylarkmq.broker.ops.loop_lag import LoopLag
from skylarkmq.broker.ops.pages.health import Check
from skylarkmq.broker.ops.scrape import Scrape
from skylarkmq.broker.ops.steps import Collector
from skylarkmq.broker.remoting.admission import PoolStatistics
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import VERSION, VERSION_NAME


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of the broker in labels."""

    cluster: str
    name: str
    address: str  # ip:port, as advertised
    boot_ms: int  # Unix time of the start


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The parts whose statistics are exported. `now_ms` gives Unix time, `runtime` the runtime information."""

    server: RemotingServer
    topics: TopicTable
    groups: SubscriptionGroups
    offsets: ConsumerOffsetTable
    sessions: ClientSessions
    store: MessageStore
    store_path: Path
    replication: Callable[[], ReplicationStatus | None]
    deliveries: DeliveryCounters
    traffic: Throughput
    arrivals: Arrivals
    loop_lag: LoopLag
    permission: Callable[[], int]
    topic_times: Mapping[tuple[bool, bool], Histogram]  # of TopicProcessor
    pools: Callable[[], Iterable[PoolStatistics]]
    checks: Mapping[str, Check]
    limits: Limits
    open_listeners: Mapping[str, bool]
    exposed_files: Callable[[], int]
    refused_registrations: Callable[[], Mapping[str, int]]  # by the embedded name server, by reason
    runtime: Callable[[], Mapping[str, str]]
    heartbeats: Callable[[], int]
    delay: DelayDelivery
    delays_requested: Mapping[str, Histogram]  # of RequestedDelays
    timers: Timers
    calls: ClientCalls
    replies: Replies
    plain_acl: PlainAclControl | None  # with aclEnable
    auth: AuthControl | None  # with authenticationEnabled
    transactions: Transactions
    transaction_checks: TransactionChecks
    refusals: Refusals
    quotas: Sequence[Quotas]  # of the broker's port and of its name server's
    audit: AuditLog | None
    now_ms: Callable[[], int]


def scrape_of(config: OpsConfig, identity: Identity, parts: Observed) -> Scrape:
    """Return the scrape of a broker."""

    async def fetch(cold: ColdRead) -> None:
        await parts.store.reader.fetch(cold)

    registry = CollectorRegistry()
    GCCollector(registry)
    return Scrape(
        collectors_of(parts),
        constants_of(identity),
        extra_labels(config),
        limit=config.metrics_otel_cardinality_limit,
        hidden=hidden_by(config),
        library=(PlatformCollector(registry=None), registry),
        fetch=fetch,
    )


def extra_labels(config: OpsConfig) -> dict[str, str]:
    """Return the labels of `metricsLabel`."""
    return dict(pair.split(":", 1) for pair in filter(None, config.metrics_label.split(",")))


def collectors_of(parts: Observed) -> list[Collector]:
    """Return every collector."""
    return [
        CheckCollector(parts.checks),
        RouteCollector(parts.refused_registrations),
        LimitCollector(parts.limits),
        ExposureCollector(parts.open_listeners, parts.exposed_files),
        TableCollector(parts.topics, parts.groups, parts.offsets, parts.permission, parts.topic_times),
        TrafficCollector(parts.traffic, parts.arrivals, parts.loop_lag, parts.heartbeats),
        ProcessCollector(),
        StorageCollector(parts.store, parts.store_path),
        ReplicationCollector(parts.replication),
        DelayCollector(parts.delay, parts.delays_requested),
        TimerCollector(parts.timers, parts.store, parts.now_ms),
        TransactionCollector(parts.transactions, parts.transaction_checks),
        RuntimeCollector(parts.runtime, parts.now_ms),
        RequestCollector(parts.server, parts.pools),
        ClientCollector(parts.sessions),
        CallCollector(parts.calls, parts.replies),
        PlainAclCollector(parts.plain_acl),
        QuotaCollector(parts.quotas, parts.refusals),
        AuditCollector(parts.audit),
        AuthCollector(parts.auth),
        TopicCollector(parts.topics, parts.groups, parts.store, parts.deliveries, time.monotonic),
        GroupCollector(parts.topics, parts.sessions, parts.offsets, parts.store, parts.now_ms),
    ]


def constants_of(identity: Identity) -> dict[str, str]:
    """Return the values of labels that are the same in all series."""
    return {
        "cluster": identity.cluster,
        "node_type": "broker",
        "node_id": identity.name,
        "storage_type": "local",
        "storage_medium": "disk",
        "protocol_type": "remoting",
        "brokerIP": identity.address,
        "broker": identity.name,
        "brokerHost": identity.name,
        "des": VERSION_NAME,
        "boottime": str(identity.boot_ms),
        "broker_version": str(VERSION),
    }


def hidden_by(config: OpsConfig) -> frozenset[str]:
    """Return the names of the metrics that are switched off."""
    is_on = {
        Switch.ALWAYS: True,
        Switch.CONNECTION: config.enable_connection_metrics,
        Switch.LAG_AND_DLQ: config.enable_lag_and_dlq_metrics,
        Switch.MESSAGE_STORE: config.enable_message_store_metrics,
        Switch.REMOTING: config.enable_remoting_metrics,
        Switch.REQUEST: config.enable_request_metrics,
        Switch.STATS: config.enable_stats_metrics,
        Switch.TRANSACTION: config.enable_transaction_metrics,
    }
    return frozenset(row.name for row in CATALOGUE.values() if not is_on[row.switch])
