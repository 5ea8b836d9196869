"""Sections of a broker: parts that work together, wired in one place for the broker and for tests.

    Tables          topics, subscription groups, committed offsets and client sessions, with their limits
    Consumption     pulls, client sessions, committed offsets and queries
    Production      sends with their checks and responses, and backpressure while the disk is too slow
    DerivedSends    retries of messages that consumers send back, replies to requests, and recalls of timed messages
    Administration  requests of operators about topics, groups, clients and offsets, and statistics

`broker/app/parts.py` makes the sections of a broker from its configuration. Tests make single sections over a store,
with a clock and timers that they advance. `register` adds the processors of a section to a dispatcher, `attach` its
callbacks.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.counters.stats_windows import StatsWindows
from skylarkmq.broker.counters.throughput import Counters, Throughput
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.delivery.calls.group_notifications import Callbacks, GroupNotifications
from skylarkmq.broker.delivery.calls.request_reply import Replies
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.delivery.internal_puts import InternalPuts
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable, OffsetsConfig
from skylarkmq.broker.metadata.limits import Limits, LimitsConfig
from skylarkmq.broker.metadata.subscription_groups import GroupsConfig, SubscriptionGroups
from skylarkmq.broker.metadata.topics import TopicsConfig, TopicTable
from skylarkmq.broker.processors.admin.cleanup import CleanupProcessor
from skylarkmq.broker.processors.admin.client_relays import ClientRelayProcessor
from skylarkmq.broker.processors.admin.clients import ClientsProcessor
from skylarkmq.broker.processors.admin.consume_stats import ConsumeStatsProcessor, Identity
from skylarkmq.broker.processors.admin.counters import sources_of, system_puts
from skylarkmq.broker.processors.admin.group import GroupProcessor
from skylarkmq.broker.processors.admin.reset_offset import ResetOffsetProcessor
from skylarkmq.broker.processors.admin.runtime import RuntimeConfig, RuntimeProcessor, StoreTimes
from skylarkmq.broker.processors.admin.topic import TopicProcessor, Wait
from skylarkmq.broker.processors.admin.topic_stats import TopicStatsProcessor
from skylarkmq.broker.processors.consumer.client_manage import ClientManageConfig, ClientManageProcessor
from skylarkmq.broker.processors.consumer.offsets import ConsumerOffsetProcessor
from skylarkmq.broker.processors.consumer.send_back import SendBackProcessor
from skylarkmq.broker.processors.pull.checks import PullChecks, PullConfig
from skylarkmq.broker.processors.pull.processor import PullProcessor
from skylarkmq.broker.processors.query import QueryProcessor
from skylarkmq.broker.processors.send.checks import SendChecks, SendConfig
from skylarkmq.broker.processors.send.disk_backpressure import SendBackpressure
from skylarkmq.broker.processors.send.messages import SendMessages
from skylarkmq.broker.processors.send.processor import SendProcessor
from skylarkmq.broker.processors.send.recall import RecallConfig, RecallProcessor
from skylarkmq.broker.processors.send.reply import ReplyProcessor
from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.processors.send.retention import TopicRetention
from skylarkmq.broker.processors.send.stored_properties import PropertyCompletion
from skylarkmq.broker.remoting.admission import Pool, PoolStatistics
from skylarkmq.broker.remoting.dispatch import Dispatcher, Processor
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.codes import RequestCode

Clock = Callable[[], int]
"""Returns a time in ms."""
Pools = Mapping[str, Pool]
"""Pools by name."""

OWN_POOLS: Final = {
    RequestCode.LITE_PULL_MESSAGE: "lite_pull",
    RequestCode.HEART_BEAT: "heartbeat",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "admin",
}
"""Requests with another pool than the other requests of their processor."""


class Serves(Protocol):
    """A processor."""

    def handlers(self) -> dict[RequestCode, Processor]:
        """Return the handler for each request code that it serves."""


def register(dispatcher: Dispatcher, pools: Pools, processors: Iterable[tuple[str, Serves]]) -> None:
    """Register processors, each with the name of the pool that admits its requests."""
    for name, processor in processors:
        for code, handler in processor.handlers().items():
            dispatcher.register([code], handler, pools[OWN_POOLS.get(code, name)])


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


class ConsumptionConfig(NamedTuple):
    """Settings of consumption. `max_query_messages`: the most that a query by unique key returns."""

    pull: PullConfig
    clients: ClientManageConfig
    max_query_messages: int


class Consumption:
    """The requests of consumers. `loop` runs the notifications of groups; `steady_ms` is never set."""

    def __init__(
        self,
        config: ConsumptionConfig,
        tables: Tables,
        store: MessageStore,
        arrivals: Arrivals,
        latencies: Latencies,
        rights: MessageRights,
        loop: Callbacks,
        steady_ms: Clock,
    ) -> None:
        topics, groups, offsets, sessions = tables.topics, tables.groups, tables.offsets, tables.sessions
        self._tables = tables
        self._arrivals = arrivals
        checks = PullChecks(config.pull, topics, groups, sessions)
        self.pulls = PullProcessor(config.pull, checks, store, offsets, arrivals, latencies)
        self.notices = GroupNotifications(loop, sessions)
        self.clients = ClientManageProcessor(
            config.clients, sessions, groups, topics, self.notices, rights, steady_ms, tables.limits
        )
        self.offsets = ConsumerOffsetProcessor(offsets, groups, topics, store)
        self.queries = QueryProcessor(store, config.max_query_messages, rights)

    def __repr__(self) -> str:
        return f"<Consumption {self.pulls!r} {self.clients!r}>"

    def register(self, dispatcher: Dispatcher, pools: Pools) -> None:
        """Register the processors."""
        processors: tuple[tuple[str, Serves], ...] = (
            ("pull", self.pulls),
            ("query", self.queries),
            ("client_manage", self.clients),
            ("consumer_manage", self.offsets),
        )
        register(dispatcher, pools, processors)
        for code, run_handler in self.pulls.run_handlers().items():
            dispatcher.register_run([code], run_handler, pools["pull"])

    def attach(self, selector: Selector) -> None:
        """Follow closed connections, and changes of topics and groups."""
        topics, groups, pulls = self._tables.topics, self._tables.groups, self.pulls
        selector.on_close(self._arrivals.forget)
        selector.on_close(self.clients.connection_closed)
        topics.on_change(lambda: pulls.fall_behind.keep_existing(topics.find))
        topics.on_change(pulls.invalidate)
        groups.on_change(pulls.invalidate)
        topics.on_delete(pulls.deliveries.remove_topic)
        groups.on_delete(pulls.deliveries.remove_group)
        groups.on_delete(pulls.fall_behind.remove_group)


class ProductionConfig(NamedTuple):
    """Settings of production."""

    send: SendConfig
    max_message_size: int  # bytes
    cluster_name: str
    broker_name: str
    region_id: str
    trace_on: bool
    store_host: bytes


class Production:
    """The requests of producers.

    `is_orderly`: whether a group consumes in order; `new_unique_key` returns a key for a message without one; `now_ms`
    returns Unix time; `refusals` counts refusals by quotas.
    """

    def __init__(
        self,
        config: ProductionConfig,
        tables: Tables,
        store: MessageStore,
        deferral: Deferral,
        put_latency: PutLatency,
        pool: Pool,
        is_orderly: Callable[[str], bool],
        new_unique_key: Callable[[], str],
        now_ms: Clock,
        refusals: Refusals,
    ) -> None:
        self._store = store
        self._pool = pool
        completion = PropertyCompletion(config.cluster_name, new_unique_key)
        retention = TopicRetention(store.stored_bytes, refusals)
        self.checks = SendChecks(config.send, tables.topics, tables.groups, is_orderly, now_ms, retention)
        self.messages = SendMessages(completion, config.max_message_size, deferral.defer, now_ms, deferral.defer_fast)
        self.responses = SendResponses(
            config.region_id,
            trace_on=config.trace_on,
            store_host=config.store_host,
            broker_name=config.broker_name,
        )
        self.sends = SendProcessor(self.checks, self.messages, store, self.responses, pool, put_latency)
        self.backpressure: SendBackpressure

    def __repr__(self) -> str:
        return f"<Production {self.sends!r}>"

    def register(self, dispatcher: Dispatcher) -> None:
        """Register the processor of sends, which writes at the end of a batch, and dispatches after the responses."""
        for code, handler in self.sends.handlers().items():
            dispatcher.register([code], handler, self._pool)
        for code, run_handler in self.sends.run_handlers().items():
            dispatcher.register_run([code], run_handler, self._pool)
        dispatcher.at_run_end(self.sends.end_run)
        dispatcher.at_batch_end(self.sends.finish_iteration)
        dispatcher.after_responses(self.sends.run_after_responses)

    def attach(self, dispatcher: Dispatcher, selector: Selector) -> None:
        """Send responses when the store has decided, and pause producers while the flush is too far behind."""
        self._store.after_each_flush(selector.flush_responses)
        self.backpressure = SendBackpressure(self._store, self._pool, dispatcher.reopen, selector.resume_paused_reads)


class DerivedSendsConfig(NamedTuple):
    """Settings of derived sends. `address`: of this broker, for the clients that get replies."""

    send: SendConfig
    recall: RecallConfig
    address: str
    are_replies_stored: bool


class DerivedSends:
    """Requests that make the broker store a message of its own: a retry, a reply, or a recall.

    `puts` stores the messages, `deferral` delays retries and recalls; `now_ms` returns Unix time.
    """

    def __init__(
        self,
        config: DerivedSendsConfig,
        tables: Tables,
        production: Production,
        store: MessageStore,
        puts: InternalPuts,
        deferral: Deferral,
        calls: ClientCalls,
        rights: MessageRights,
        now_ms: Clock,
    ) -> None:
        topics, groups = tables.topics, tables.groups
        self._tables = tables
        self.replies = Replies(tables.sessions, calls, config.address, now_ms)
        self.send_backs = SendBackProcessor(config.send, topics, groups, store, puts, deferral.defer, rights, now_ms)
        self.reply_sends = ReplyProcessor(
            *(production.checks, production.messages, puts, production.responses, self.replies),
            are_stored=config.are_replies_stored,
        )
        self.recalls = RecallProcessor(config.recall, topics, deferral.defer, puts, now_ms)

    def __repr__(self) -> str:
        return f"<DerivedSends {self.replies!r}>"

    def register(self, dispatcher: Dispatcher, pools: Pools) -> None:
        """Register the processors."""
        processors = (("send", self.send_backs), ("reply", self.reply_sends), ("send", self.recalls))
        register(dispatcher, pools, processors)

    def attach(self) -> None:
        """Follow deletions of topics and groups."""
        self._tables.topics.on_delete(self.send_backs.sent_back.remove_topic)
        self._tables.groups.on_delete(self.send_backs.sent_back.remove_group)


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
            *(name, topics, groups, sessions, offsets, store, arrivals, waits.offsets),
            by_broker=config.resets_by_broker,
        )
        self._processors: tuple[Serves, ...] = (
            *(self.runtime, self.topics, self.resets),
            GroupProcessor(groups, offsets, waits.groups, waits.offsets),
            TopicStatsProcessor(name, topics, sessions, store, self.windows),
            ConsumeStatsProcessor(config.identity, topics, groups, sessions, offsets, store, self.windows, now_ms),
            ClientsProcessor(sessions, lambda seen_ms: now_ms() - steady_ms() + seen_ms),
            ClientRelayProcessor(name, sessions, topics, groups, store, calls),
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


def counters_of(store: MessageStore, pulls: PullProcessor) -> Counters:
    """Return the totals that throughput is computed from."""
    pulled = pulls.statistics()
    return Counters(store.statistics().log.messages, pulled.found, pulled.missed, pulled.messages, system_puts(store))
