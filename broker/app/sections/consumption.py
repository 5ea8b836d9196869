"""The requests of consumers: pulls, client sessions, committed offsets, queue locks and queries."""

from collections.abc import Callable
from typing import NamedTuple

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.app.sections.registering import Pools, Serves, register
from skylarkmq.broker.app.sections.tables import Tables
from skylarkmq.broker.base.clocks import Clock
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.group_notifications import Callbacks, GroupNotifications
from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.broker.ha.config import BrokerRole
from skylarkmq.broker.processors.consumer.client_manage import ClientManageConfig, ClientManageProcessor
from skylarkmq.broker.processors.consumer.offsets import ConsumerOffsetProcessor
from skylarkmq.broker.processors.consumer.queue_locks import QueueLockProcessor
from skylarkmq.broker.processors.pull.checks import PullChecks, PullConfig
from skylarkmq.broker.processors.pull.processor import PullProcessor
from skylarkmq.broker.processors.query import QueryProcessor
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.store.message_store import MessageStore


class ConsumptionConfig(NamedTuple):
    """Settings of consumption.

    `max_query_messages`: the most that a query by unique key returns. `max_lock_ms`: how long a queue lock lasts
    without a renewal.
    """

    pull: PullConfig
    clients: ClientManageConfig
    max_query_messages: int
    max_lock_ms: int


class Consumption:
    """The requests of consumers.

    `deliveries` counts the messages that groups receive. `loop` runs the notifications of groups. `steady_ms` is never
    set. `has_master`, for a slave: returns whether its master is known.
    """

    def __init__(
        self,
        config: ConsumptionConfig,
        tables: Tables,
        store: MessageStore,
        arrivals: Arrivals,
        deliveries: DeliveryCounters,
        latencies: Latencies,
        rights: MessageRights,
        loop: Callbacks,
        steady_ms: Clock,
        has_master: Callable[[], bool],
    ) -> None:
        topics, groups, offsets, sessions = tables.topics, tables.groups, tables.offsets, tables.sessions
        self._tables = tables
        self._arrivals = arrivals
        self._steady_ms = steady_ms
        checks = PullChecks(config.pull, topics, groups, sessions)
        self.pulls = PullProcessor(config.pull, checks, store, offsets, arrivals, latencies, deliveries, has_master)
        self.notices = GroupNotifications(loop, sessions)
        self.clients = ClientManageProcessor(
            config.clients, sessions, groups, topics, self.notices, rights, steady_ms, tables.limits
        )
        self.offsets = ConsumerOffsetProcessor(offsets, groups, topics, store)
        self.queries = QueryProcessor(store, config.max_query_messages, rights)
        self.queue_locks = QueueLocks(config.max_lock_ms, limits=tables.limits)
        self._lock_requests = QueueLockProcessor(self.queue_locks, topics, steady_ms)

    def __repr__(self) -> str:
        return f"<Consumption {self.pulls!r} {self.clients!r}>"

    def register(self, dispatcher: Dispatcher, pools: Pools) -> None:
        """Register the processors."""
        processors: tuple[tuple[str, Serves], ...] = (
            ("pull", self.pulls),
            ("query", self.queries),
            ("client_manage", self.clients),
            ("consumer_manage", self.offsets),
            ("admin", self._lock_requests),
        )
        register(dispatcher, pools, processors)
        for code, run_handler in self.pulls.run_handlers().items():
            dispatcher.register_run([code], run_handler, pools["pull"])

    def attach(self, selector: Selector) -> None:
        """Follow closed connections, and changes of topics and groups."""
        topics, groups, pulls = self._tables.topics, self._tables.groups, self.pulls
        selector.registry.on_close(self._arrivals.forget)
        selector.registry.on_close(self.clients.channel_closed)
        topics.on_change(lambda: pulls.fall_behind.keep_existing(topics.find))
        topics.on_change(pulls.invalidate)
        groups.on_change(pulls.invalidate)
        topics.on_delete(pulls.deliveries.remove_topic)
        groups.on_delete(pulls.deliveries.remove_group)
        groups.on_delete(pulls.fall_behind.remove_group)
        groups.on_delete(self.queue_locks.remove_group)

    def is_orderly(self, group: str) -> bool:
        """Return whether a group consumes in order: it holds queue locks."""
        return self.queue_locks.is_orderly(group, self._steady_ms())

    def step(self, now_ms: int) -> None:
        """Remove clients and locks that have expired. `now_ms` is that of `steady_ms`."""
        self.clients.step(now_ms)
        self.queue_locks.step(now_ms)


def consumption_config(config: DaemonConfig) -> ConsumptionConfig:
    """Return the settings of consumption."""
    return ConsumptionConfig(
        pull_config(config),
        notices_config(config),
        config.store.default_query_max_num,
        config.broker.rebalance_lock_max_live_time,
    )


def pull_config(config: DaemonConfig) -> PullConfig:
    """Return the settings for the checks of pulls, and for long polling."""
    broker = config.broker
    return PullConfig(
        broker_ip=config.listen.advertised_ip,
        broker_permission=broker.broker_permission,
        lite_pull_message_enable=broker.lite_pull_message_enable,
        long_polling_enable=broker.long_polling_enable,
        short_polling_time_mills=broker.short_polling_time_mills,
        is_slave=config.replication.broker_role is BrokerRole.SLAVE,
        slave_read_enable=broker.slave_read_enable,
        disk_fall_recorded=config.store.disk_fall_recorded,
        enable_property_filter=broker.enable_property_filter,
        filter_support_retry=broker.filter_support_retry,
    )


def notices_config(config: DaemonConfig) -> ClientManageConfig:
    """Return how groups are notified of their members, and which filters they may use."""
    broker = config.broker
    return ClientManageConfig(
        real_time_notify_consumer_change=broker.real_time_notify_consumer_change,
        notify_consumer_ids_changed_enable=broker.notify_consumer_ids_changed_enable,
        enable_property_filter=broker.enable_property_filter,
    )
