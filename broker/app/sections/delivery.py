"""Background delivery: messages that are not stored in their topic at once, and messages that the broker makes itself.

    deferral    defers messages: rewrites them to an internal topic on their way into the log
    puts        stores messages of the broker itself
    delay       delivers from the queues of the delay levels
    timers      deliver at the requested time
    endings     commit and roll back transactions; transaction_checks sends checks for the open ones

A slave delivers nothing. It accepts no message, so it only keeps the files of the timers and the delay offsets like its
master's (broker/ha/tables/tables.py).

`broker/app/daemon.py` starts these parts after the tables and before requests are accepted, and stops them after the
last request.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.app.sections.registering import Pools, Serves, register
from skylarkmq.broker.app.sections.table_files import Kept
from skylarkmq.broker.app.sections.tables import Tables
from skylarkmq.broker.base.clocks import Clock
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.deferral import TIMER_REQUESTS, Defer, Deferral, RequestedDelays
from skylarkmq.broker.delivery.delay.delivery import DelayDelivery
from skylarkmq.broker.delivery.delay.offsets import DelayOffsetTable
from skylarkmq.broker.delivery.internal_puts import InternalPuts
from skylarkmq.broker.delivery.timer.admission import TimerConfig
from skylarkmq.broker.delivery.timer.timers import Timers, TimersConfig
from skylarkmq.broker.delivery.transactions.checks import TransactionChecks
from skylarkmq.broker.delivery.transactions.ending import Endings
from skylarkmq.broker.delivery.transactions.progress import Progress
from skylarkmq.broker.delivery.transactions.recheck import Recheck
from skylarkmq.broker.delivery.transactions.transactions import Transactions, TransactionsConfig
from skylarkmq.broker.ha.config import BrokerRole
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.metadata.consumer_offsets import ConsumerOffsetTable
from skylarkmq.broker.processors.admin.delay_offset import DelayOffsetProcessor
from skylarkmq.broker.processors.admin.slave_tables import SlaveTablesProcessor
from skylarkmq.broker.processors.end_transaction import EndTransactionProcessor
from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.store.files.config import parse_delay_levels
from skylarkmq.broker.store.files.errors import LoadStopped, StoreError
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.bodies.offsets import DelayOffsets
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import PropertyName

DELAY_OFFSETS_FILE: Final = "delayOffset.json"


class TransactionEnds:
    """The parts that end and check the transactions of one store. `steady_ms` is never set."""

    def __init__(
        self,
        transactions: Transactions,
        store: MessageStore,
        puts: InternalPuts,
        defer: Defer,
        offsets: ConsumerOffsetTable,
        sessions: ClientSessions,
        now_ms: Clock,
        steady_ms: Clock,
    ) -> None:
        self.endings = Endings(store, puts, transactions, defer, now_ms)
        self.recheck = Recheck(store, puts, transactions)
        self.progress = Progress(offsets)
        self.checks = TransactionChecks(store, transactions, self.progress, sessions.producers_to, now_ms, steady_ms)

    def __repr__(self) -> str:
        return f"<TransactionEnds {self.checks!r}>"


class DeliveryConfig(NamedTuple):
    """Settings of background delivery. Times in ms, sizes in bytes."""

    delays_ms: Sequence[int]  # of the delay levels, level 1 first
    is_slave: bool
    transactions: TransactionsConfig
    timers: TimersConfig
    flush_delay_offset_interval: int
    max_message_size: int


class BackgroundDelivery:
    """The parts of one broker. `now_ms` returns Unix time, `steady_ms` a clock that is never set."""

    def __init__(
        self,
        config: DeliveryConfig,
        tables: Tables,
        store: MessageStore,
        arrivals: Arrivals,
        now_ms: Clock,
        steady_ms: Clock,
    ) -> None:
        self._tables = tables
        self._store = store
        self._delivers = not config.is_slave
        self.puts = InternalPuts(store)
        self.transactions = Transactions(config.transactions)
        self.requested_delays = RequestedDelays()
        self.timers = Timers(config.timers, store, now_ms, requested=self.requested_delays)
        fast_defers = dict.fromkeys(TIMER_REQUESTS, self.timers.admission.defer_fast)
        self.deferral = Deferral(
            config.delays_ms,
            self.timers.admission.defer,
            self.transactions.half,
            {**fast_defers, PropertyName.TRANSACTION_PREPARED: self.transactions.defer_half_fast},
            self.timers.admission.check,
            self.requested_delays,
        )
        ends = TransactionEnds(
            self.transactions,
            store,
            self.puts,
            self.deferral.defer,
            tables.offsets,
            tables.sessions,
            now_ms,
            steady_ms,
        )
        self.endings, self.recheck, self.transaction_checks = ends.endings, ends.recheck, ends.checks
        self.delay_offsets = DelayOffsetTable(config.flush_delay_offset_interval, now_ms)
        self.delay = DelayDelivery(store, self.delay_offsets, config.delays_ms, now_ms)
        arrivals.watch(SystemTopic.SCHEDULE, self.delay.arrived)
        arrivals.watch(SystemTopic.TIMER, self.timers.arrived)

    def __repr__(self) -> str:
        return f"<BackgroundDelivery {self.delay!r} {self.transactions!r}>"

    def attach(self) -> None:
        """Follow deletions of topics."""
        self._tables.topics.on_delete(self.forget_topic)

    def kept(self) -> list[Kept]:
        """Return the tables that are loaded before the start and saved when they change."""
        return [Kept(self.delay_offsets, DELAY_OFFSETS_FILE, DelayOffsets.decode)]

    def load(self, should_stop: Callable[[], bool]) -> None:
        """Open the files of the timers. Raises StoreError if they cannot be used, LoadStopped once `should_stop`
        returns True.

        This may take a while. It may run in a thread as long as the event loop does not use the store.
        """

        def check_stop() -> None:
            if should_stop():
                raise LoadStopped

        try:
            self.timers.load(check_stop)
        except LoadStopped:
            self.close()
            raise
        except (StoreError, OSError) as error:
            self.close()
            raise StoreError(f"timers cannot be opened: {error}") from error

    def close(self) -> None:
        """Close what `load` has opened, if `start` was not called."""
        self.timers.files.close()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to deliver, except on a slave."""
        if not self._delivers:
            return
        self.timers.start(loop)
        self.delay.start(loop)
        self.transaction_checks.start(loop)

    async def stop(self) -> None:
        """Stop to deliver; the tables then contain all progress."""
        if self._delivers:
            await self.transaction_checks.stop()
        await self.timers.stop()
        if self._delivers:
            await self.delay.stop()

    def step(self, now_ms: int) -> None:
        """Save changed tables, and start the transaction checks that are due."""
        if self._delivers:
            self.transaction_checks.step(now_ms)
        self.timers.step(now_ms)
        self.delay_offsets.step(now_ms, self._store.flushed_offset)

    def forget_topic(self, topic: str) -> None:
        """Remove the state of a deleted topic."""
        self.requested_delays.forget_topic(topic)
        self.timers.forget_topic(topic)
        self.transactions.forget_topic(topic)

    def runtime(self) -> dict[str, object]:
        """Return the rows of these parts in the runtime information."""
        levels: dict[str, object] = {
            f"scheduleMessageOffset_{level}": f"{offset},{end}"
            for level, (offset, end) in self.delay.progress().items()
        }
        return levels | self.timers.runtime()


class DeliveryRequests:
    """The requests that end transactions, and those of a slave for its master's progress. `ends` writes at the end of a
    batch."""

    def __init__(
        self,
        config: DeliveryConfig,
        delivery: BackgroundDelivery,
        pool: Pool,
        latencies: Latencies,
        rights: MessageRights,
    ) -> None:
        self.ends = EndTransactionProcessor(
            delivery.endings, delivery.recheck, pool, latencies, config.max_message_size, rights
        )
        self._offsets = DelayOffsetProcessor(delivery.delay_offsets)
        self._tables = SlaveTablesProcessor(delivery.timers)

    def __repr__(self) -> str:
        return f"<DeliveryRequests {self.ends!r}>"

    def register(self, dispatcher: Dispatcher, pools: Pools) -> None:
        """Register the processors."""
        processors: tuple[tuple[str, Serves], ...] = (
            ("end_transaction", self.ends),
            ("admin", self._offsets),
            ("admin", self._tables),
        )
        register(dispatcher, pools, processors)
        dispatcher.at_batch_end(self.ends.finish_iteration)


def delivery_config(config: DaemonConfig) -> DeliveryConfig:
    """Return the settings of background delivery."""
    return DeliveryConfig(
        parse_delay_levels(config.store.message_delay_level),
        config.replication.broker_role is BrokerRole.SLAVE,
        transactions_config(config),
        timers_config(config),
        config.broker.flush_delay_offset_interval,
        config.store.max_message_size,
    )


def transactions_config(config: DaemonConfig) -> TransactionsConfig:
    """Return whether transactions are enabled, and the times of transaction checks."""
    broker = config.broker
    return TransactionsConfig(
        broker_ip=config.listen.advertised_ip,
        broker_name=broker.broker_name,
        store_host=config.store.store_host,
        reject_transaction_message=broker.reject_transaction_message,
        transaction_time_out=broker.transaction_time_out,
        transaction_check_max=broker.transaction_check_max,
        transaction_check_interval=broker.transaction_check_interval,
        file_reserved_time=config.store.file_reserved_time,
    )


def timers_config(config: DaemonConfig) -> TimersConfig:
    """Return the settings of timers."""
    store = config.store
    return TimersConfig(
        root=store.store_path_root_dir,
        admission=timer_config(config),
        window_slots=store.timer_roll_window_slot,
        log_file_size=store.mapped_file_size_timer_log,
        flush_interval_ms=store.timer_flush_interval_ms,
    )


def timer_config(config: DaemonConfig) -> TimerConfig:
    """Return the limits of timer messages."""
    store = config.store
    return TimerConfig(
        is_enabled=store.timer_wheel_enable,
        precision_ms=store.timer_precision_ms,
        max_delay_ms=store.timer_max_delay_sec * 1000,
        congested=store.timer_congest_num_each_slot,
    )
