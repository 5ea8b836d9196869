"""The figures of a broker, and the pages that show them: metrics, health checks, and the values for the console.

Measurements  measured all the time: throughput, durations of puts, and the lag of the event loop
Pages         read the figures of all other sections on request
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from skylarkmq.broker.app.sections.addresses import advertised_address
from skylarkmq.broker.app.sections.administration import Administration
from skylarkmq.broker.app.sections.consumption import Consumption
from skylarkmq.broker.app.sections.delivery import BackgroundDelivery
from skylarkmq.broker.app.sections.derived_sends import DerivedSends
from skylarkmq.broker.app.sections.registration import Registration
from skylarkmq.broker.app.sections.replication import Replication
from skylarkmq.broker.app.sections.security import AccessControl
from skylarkmq.broker.app.sections.table_files import TableFiles
from skylarkmq.broker.app.sections.tables import Tables
from skylarkmq.broker.app.sections.usage import UsageControl
from skylarkmq.broker.base.clocks import wall_ms
from skylarkmq.broker.config.keys import BROKER_KEYS
from skylarkmq.broker.config.live import LiveSettings
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.counters.throughput import Counters, Throughput
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.ops.loop_lag import LoopLag
from skylarkmq.broker.ops.metrics.broker import Identity, Observed, scrape_of
from skylarkmq.broker.ops.pages.console import ConsoleBackend
from skylarkmq.broker.ops.pages.health import Check
from skylarkmq.broker.ops.pages.metrics_page import MetricsPage, page_of
from skylarkmq.broker.processors.admin.counters import system_puts
from skylarkmq.broker.processors.admin.runtime import StoreTimes
from skylarkmq.broker.processors.pull.processor import PullProcessor
from skylarkmq.broker.remoting.admission import Pool, PoolStatistics
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.request_latency import Latencies
from skylarkmq.broker.remoting.tls import ReloadingContext
from skylarkmq.broker.store.message_store import MessageStore


class Measurements:
    """What is measured all the time. `loop` is the broker's event loop."""

    def __init__(
        self,
        store: MessageStore,
        pulls: PullProcessor,
        pools: Mapping[str, Pool],
        latencies: Latencies,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._pulls = pulls
        self._pools = pools
        self._loop = loop
        self.traffic = Throughput(lambda: counters_of(store, pulls))
        self.put_times = PutLatency(latencies)
        self.loop_lag = LoopLag(loop)

    def __repr__(self) -> str:
        return f"<Measurements {self.traffic!r} {self.loop_lag!r}>"

    def step(self, now_ms: int, unix_ms: int) -> None:
        """Take the samples that are due. `now_ms` is a clock that is never set, `unix_ms` is Unix time."""
        self.traffic.step(now_ms, unix_ms)
        self.put_times.step(now_ms)

    def store_times(self) -> StoreTimes:
        """Return the durations of puts, and of the longest read of a queue."""
        return StoreTimes(self.put_times.statistics(), self._pulls.statistics().longest_get_ms)

    def pool_statistics(self) -> list[PoolStatistics]:
        """Return the figures of each pool."""
        now_s = self._loop.time()
        return [pool.statistics(now_s) for pool in self._pools.values()]


class Monitored(NamedTuple):
    """The sections whose figures the pages show."""

    server: RemotingServer
    store: MessageStore
    arrivals: Arrivals
    calls: ClientCalls
    files: TableFiles
    tables: Tables
    consumption: Consumption
    derived_sends: DerivedSends
    administration: Administration
    delivery: BackgroundDelivery
    replication: Replication
    registration: Registration
    access: AccessControl
    usage: UsageControl
    measurements: Measurements


class Pages:
    """The pages of one broker. `client_tls`: for the connections of the console to name servers and brokers."""

    def __init__(
        self, settings: LiveSettings[DaemonConfig], monitored: Monitored, client_tls: ReloadingContext | None
    ) -> None:
        self._config = settings.config
        self._settings = settings
        self._of = monitored
        self._client_tls = client_tls

    def __repr__(self) -> str:
        return f"<Pages {list(self.checks())}>"

    def checks(self) -> dict[str, Check]:
        """Return the health checks; each returns a problem, or None."""
        of = self._of
        return {
            "recovered": self._opening,
            "store": lambda: of.store.flags.reasons() or None,
            "timers": lambda: of.delivery.timers.files.problem or None,
            "replication": of.replication.problem,
            "registered": lambda: (
                None if of.registration.registrar.registered else "no name server has this broker's topics"
            ),
        }

    def _opening(self) -> str | None:
        """Return why no request can be served yet: the store is being loaded; None once it is loaded."""
        if self._of.files.are_open:
            return None
        progress = self._of.store.load_progress
        return f"the store is being opened, {progress}" if progress else "the store is being opened"

    def console_backend(self) -> ConsoleBackend:
        """Return the values that the console needs of this broker."""
        config, tls = self._config, self._client_tls
        return ConsoleBackend(
            name_servers=";".join(self._of.registration.addresses),
            tls=None if tls is None else tls.current,
            accounts=self._of.access.console_accounts,
            host=config.console.host,
            is_secure=config.console.tls,
            broker_name=config.broker.broker_name,
            settings=lambda: self._settings.effective(BROKER_KEYS),
        )

    def metrics_page(self) -> MetricsPage | None:
        """Return the page /metrics; None: it is turned off."""
        ops, identity = self._config.ops, identity_of(self._config, self._of.administration.runtime.boot_ms)
        observed = self._observed()
        return page_of(ops.metrics_exporter_type, lambda: scrape_of(ops, identity, observed), self._opening)

    def _observed(self) -> Observed:
        of, tables, delivery, usage = self._of, self._of.tables, self._of.delivery, self._of.usage
        access, name_server = self._of.access, self._of.registration.name_server
        return Observed(
            server=of.server,
            topics=tables.topics,
            groups=tables.groups,
            offsets=tables.offsets,
            sessions=tables.sessions,
            store=of.store,
            store_path=self._config.store.store_path_root_dir,
            replication=of.replication.status,
            deliveries=of.consumption.pulls.deliveries,
            traffic=of.measurements.traffic,
            arrivals=of.arrivals,
            loop_lag=of.measurements.loop_lag,
            permission=lambda: tables.topics.permission,
            topic_times=of.administration.topics.times,
            pools=of.measurements.pool_statistics,
            checks=self.checks(),
            limits=tables.limits,
            open_listeners=access.exposure.is_open,
            exposed_files=lambda: len(access.secret_files.exposed()),
            refused_registrations=lambda: {} if name_server is None else name_server.refused,
            runtime=of.administration.runtime.table,
            heartbeats=lambda: of.consumption.clients.statistics().heartbeats,
            calls=of.calls,
            replies=of.derived_sends.replies,
            plain_acl=access.plain_acl,
            auth=access.auth,
            delay=delivery.delay,
            delays_requested=delivery.requested_delays.by_topic,
            timers=delivery.timers,
            transactions=delivery.transactions,
            transaction_checks=delivery.transaction_checks,
            refusals=usage.refusals,
            quotas=[usage.quotas, usage.namesrv.quotas],
            audit=usage.audit,
            now_ms=wall_ms,
        )


def identity_of(config: DaemonConfig, boot_ms: int) -> Identity:
    """Return the broker's identity for the labels of its metrics."""
    return Identity(
        cluster=config.broker.broker_cluster_name,
        name=config.broker.broker_name,
        address=advertised_address(config),
        boot_ms=boot_ms,
    )


def counters_of(store: MessageStore, pulls: PullProcessor) -> Counters:
    """Return the totals that throughput is computed from."""
    pulled = pulls.statistics()
    return Counters(store.statistics().log.messages, pulled.found, pulled.missed, pulled.messages, system_puts(store))
