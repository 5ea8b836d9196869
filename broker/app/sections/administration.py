"""The requests of operators about topics, groups, clients and offsets, and statistics."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.app.sections.addresses import advertised_address
from skylarkmq.broker.app.sections.registering import Pools, Serves, register
from skylarkmq.broker.app.sections.table_files import TableFiles
from skylarkmq.broker.app.sections.tables import GROUPS_FILE, OFFSETS_FILE, TOPICS_FILE, Tables
from skylarkmq.broker.base.clocks import Clock
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.counters.stats_windows import StatsWindows
from skylarkmq.broker.counters.throughput import Throughput
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.processors.admin.cleanup import CleanupProcessor
from skylarkmq.broker.processors.admin.client_relays import ClientRelayProcessor
from skylarkmq.broker.processors.admin.clients import ClientsProcessor
from skylarkmq.broker.processors.admin.consume_stats import ConsumeStatsProcessor, Identity
from skylarkmq.broker.processors.admin.counters import sources_of
from skylarkmq.broker.processors.admin.group import GroupProcessor
from skylarkmq.broker.processors.admin.reset_offset import ResetOffsetProcessor
from skylarkmq.broker.processors.admin.runtime import RuntimeConfig, RuntimeProcessor, StoreTimes
from skylarkmq.broker.processors.admin.topic import TopicProcessor, Wait
from skylarkmq.broker.processors.admin.topic_stats import TopicStatsProcessor
from skylarkmq.broker.remoting.admission import PoolStatistics
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.store.message_store import MessageStore


class AdministrationConfig(NamedTuple):
    """Settings of administration. `resets_by_broker`: offsets are reset by the broker, else by members of the group."""

    cluster_name: str
    identity: Identity
    runtime: RuntimeConfig
    resets_by_broker: bool


class Waits(NamedTuple):
    """Functions that wait until changes of a table are on disk, or until topics are `announced` to the name servers."""

    topics: Wait
    groups: Wait
    offsets: Wait
    announced: Wait


class Figures(NamedTuple):
    """Sources of statistics. `others` return further rows of the runtime information."""

    traffic: Throughput
    sent_back: DeliveryCounters
    pools: Callable[[], Iterable[PoolStatistics]]
    times: Callable[[], StoreTimes]
    others: Iterable[Callable[[], Mapping[str, object]]] = ()


def waits_of(files: TableFiles, offsets: ConsumerOffsetTable, announced: Wait) -> Waits:
    """Return the waits for the files of the tables."""

    async def offsets_saved() -> None:
        offsets.save()
        await files.saved(OFFSETS_FILE)

    return Waits(partial(files.saved, TOPICS_FILE), partial(files.saved, GROUPS_FILE), offsets_saved, announced)


class Administration:
    """The requests of operators. `now_ms` returns Unix time, `steady_ms` a clock that is never set."""

    def __init__(
        self,
        config: AdministrationConfig,
        tables: Tables,
        store: MessageStore,
        arrivals: Arrivals,
        deliveries: DeliveryCounters,
        calls: ClientCalls,
        rights: MessageRights,
        waits: Waits,
        figures: Figures,
        now_ms: Clock,
        steady_ms: Clock,
    ) -> None:
        topics, groups, offsets, sessions = tables.topics, tables.groups, tables.offsets, tables.sessions
        name = config.identity.name
        self._tables = tables
        self.windows = StatsWindows(
            sources_of(config.cluster_name, store, deliveries, figures.sent_back, figures.traffic)
        )
        self.runtime = RuntimeProcessor(
            config.runtime, store, figures.traffic, figures.pools, figures.times, now_ms, figures.others
        )
        self.topics = TopicProcessor(topics, offsets, store, waits.topics, waits.announced)
        self.resets = ResetOffsetProcessor(
            name,
            topics,
            groups,
            sessions,
            offsets,
            store,
            arrivals,
            waits.offsets,
            by_broker=config.resets_by_broker,
        )
        self._processors: tuple[Serves, ...] = (
            self.runtime,
            self.topics,
            self.resets,
            GroupProcessor(groups, offsets, waits.groups, waits.offsets),
            TopicStatsProcessor(name, topics, sessions, store, self.windows),
            ConsumeStatsProcessor(config.identity, topics, groups, sessions, offsets, store, self.windows, now_ms),
            ClientsProcessor(sessions, lambda seen_ms: now_ms() - steady_ms() + seen_ms),
            ClientRelayProcessor(name, sessions, topics, groups, store, calls, rights),
            CleanupProcessor(topics, store),
        )

    def __repr__(self) -> str:
        return f"<Administration {self.windows!r}>"

    def register(self, dispatcher: Dispatcher, pools: Pools) -> None:
        """Register the processors."""
        register(dispatcher, pools, (("admin", processor) for processor in self._processors))

    def attach(self) -> None:
        """Follow deletions of topics and groups."""
        self._tables.topics.on_delete(self.windows.remove_topic)
        self._tables.groups.on_delete(self.windows.remove_group)

    def step(self, now_ms: int) -> None:
        """Count what is due. `now_ms` is that of `steady_ms`."""
        self.windows.step(now_ms)


def administration_config(config: DaemonConfig, boot_ms: int) -> AdministrationConfig:
    """Return the settings of administration. `boot_ms`: Unix time of the start."""
    return AdministrationConfig(
        config.broker.broker_cluster_name,
        Identity(config.broker.broker_name, advertised_address(config)),
        RuntimeConfig(
            store_path=config.store.store_path_root_dir,
            boot_ms=boot_ms,
            start_accept_ms=config.broker.start_accept_send_request_time_stamp,
        ),
        config.broker.use_server_side_reset_offset,
    )
