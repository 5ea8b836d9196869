"""The parts of a broker, and which of them each one depends on.

No decision about messages is made here; every rule is in the part that it belongs to. The parts do nothing until
`broker/app/daemon.py` starts them, which defines the order in which parts start, step and stop.
"""

import asyncio
import logging
import os
import random

from skylarkmq.broker.app.sections.addresses import address_text
from skylarkmq.broker.app.sections.administration import Administration, AdministrationConfig, Figures, Waits
from skylarkmq.broker.app.sections.consumption import Consumption, ConsumptionConfig, notices_config, pull_config
from skylarkmq.broker.app.sections.delivery import Background
from skylarkmq.broker.app.sections.derived_sends import DerivedSends, DerivedSendsConfig, recall_config
from skylarkmq.broker.app.sections.monitoring import counters_of, identity_of
from skylarkmq.broker.app.sections.pools import pools_of
from skylarkmq.broker.app.sections.production import Production, ProductionConfig, send_config
from skylarkmq.broker.app.sections.registering import Serves, register
from skylarkmq.broker.app.sections.registration import embedded_address, registration_of
from skylarkmq.broker.app.sections.replication import classic_slave, link_parts, master_parts
from skylarkmq.broker.app.sections.security import AccessControl
from skylarkmq.broker.app.sections.tables import Tables, groups_config, offsets_config, topics_config
from skylarkmq.broker.base.clocks import steady_ms, wall_ms
from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.base.protected_keys import ALWAYS
from skylarkmq.broker.config.keys import BROKER_KEYS, EMBEDDED_NAMESRV_KEYS, SHOWN_TOO
from skylarkmq.broker.config.live import LiveSettings, RemoteSettings
from skylarkmq.broker.config.sections import DaemonConfig, Loaded
from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.counters.throughput import Throughput
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.delivery.queue_locks import QueueLocks
from skylarkmq.broker.ha.config import BrokerRole
from skylarkmq.broker.ha.link.member import LinkedLog
from skylarkmq.broker.ha.status import Replicates, ReplicationStatus
from skylarkmq.broker.ha.tables.following import CopiedLog, Following
from skylarkmq.broker.ha.tables.master_calls import MasterCalls
from skylarkmq.broker.ha.tables.tables import SlaveTables
from skylarkmq.broker.metadata.saver import Saver
from skylarkmq.broker.namesrv.config_requests import ConfigRequests
from skylarkmq.broker.namesrv.registration import Registrar, RegistrationTiming
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.ops.loop_lag import LoopLag
from skylarkmq.broker.ops.metrics.broker import Observed, scrape_of
from skylarkmq.broker.ops.pages.console import ConsoleBackend
from skylarkmq.broker.ops.pages.health import Check
from skylarkmq.broker.ops.pages.metrics_page import MetricsPage, page_of
from skylarkmq.broker.processors.admin.config import ConfigProcessor
from skylarkmq.broker.processors.admin.consume_stats import Identity
from skylarkmq.broker.processors.admin.delay_offset import DelayOffsetProcessor
from skylarkmq.broker.processors.admin.ha_status import HaStatusProcessor
from skylarkmq.broker.processors.admin.runtime import RuntimeConfig, StoreTimes
from skylarkmq.broker.processors.admin.slave_tables import SlaveTablesProcessor
from skylarkmq.broker.processors.consumer.queue_locks import QueueLockProcessor
from skylarkmq.broker.processors.end_transaction import EndTransactionProcessor
from skylarkmq.broker.processors.slave_refusals import SlaveRefusals
from skylarkmq.broker.remoting.admission import PoolStatistics
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.outbound import Outbound
from skylarkmq.broker.remoting.tls import ServerTls, client_context
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.message_id import UniqueIds

log = logging.getLogger(__name__)


class Parts:
    """All parts of a broker, wired. `settings`: the configuration at run time."""

    def __init__(self, config: DaemonConfig, settings: LiveSettings[DaemonConfig] | None = None) -> None:
        self._config = config
        self.settings = settings or LiveSettings(Loaded(config), wall_ms)
        self._savers: dict[str, Saver] = {}
        broker = config.broker
        self.tls = ServerTls(config.tls)
        self.server = RemotingServer(config.remoting, self.tls)
        self.tables = tables = Tables(
            config.limits, topics_config(config), groups_config(config), offsets_config(config), wall_ms
        )
        self.limits, self.topics, self.groups = tables.limits, tables.topics, tables.groups
        self.offsets, self.sessions = tables.offsets, tables.sessions
        self.calls = ClientCalls()
        self.queue_locks = QueueLocks(broker.rebalance_lock_max_live_time, limits=self.limits)
        self.pools = pools_of(config)
        self.arrivals = Arrivals(asyncio.get_running_loop(), self.pools["pull"])
        self.store = MessageStore(
            config.store, wall_ms, self.arrivals.arrived, topics=self.arrivals.topics, steady_ms=steady_ms
        )
        self._outbound_tls = client_context(config.outbound_tls, config.tls.mode)
        self.failure: asyncio.Future[DaemonEnded] = asyncio.get_running_loop().create_future()
        """Done once the daemon has to end, with the reason."""
        self.master = master_parts(config, self.store)
        self.link = link_parts(config, self.store, self.tls, self._outbound_tls, self._fail)
        self.replication: Replicates | None = None
        if self.link is not None:
            self.replication = self.link.member
        elif self.master is not None:
            self.replication = self.master.master
        self.background = Background(config, self.store, self.arrivals, self.sessions, self.offsets, wall_ms, steady_ms)
        self.access = AccessControl(config, self._saved)
        self.outbound = Outbound(config.remoting, self._outbound_tls, signer=self.access.signer)
        self.name_server = None
        if config.namesrv is not None:
            self.name_server = NameServer(config.namesrv, config.remoting, tls=self.tls)
        self.registrar = Registrar(
            self.outbound,
            self._name_servers(),
            registration_of(config),
            self.topics.registration_body,
            RegistrationTiming.every(broker.register_name_server_period),
        )
        self.usage = self.access.usage
        self.usage.on_change(self._use_gate)
        if self.name_server is not None:
            self.usage.namesrv.attach(self.name_server.remoting.selector)
        self.traffic = Throughput(lambda: counters_of(self.store, self.pulls))
        self.put_times = PutLatency(self.server.dispatcher.latencies)
        self.loop_lag = LoopLag(asyncio.get_running_loop())
        self.is_slave = config.replication.broker_role is BrokerRole.SLAVE
        self.following: Following | None = None
        self._wire()

    def _wire(self) -> None:
        """Create the processors, and register them with their pools."""
        dispatcher, selector = self.server.dispatcher, self.server.selector
        self.consumption = self._consumption()
        self.pulls, self.clients = self.consumption.pulls, self.consumption.clients
        self.notices, self.queries = self.consumption.notices, self.consumption.queries
        self.production = self._production()
        self.derived_sends = self._derived_sends()
        self.send_backs, self.recalls = self.derived_sends.send_backs, self.derived_sends.recalls
        self.replies, self.reply_sends = self.derived_sends.replies, self.derived_sends.reply_sends
        self.administration = self._administration()
        self.windows, self.runtime = self.administration.windows, self.administration.runtime
        self.topic_requests, self.resets = self.administration.topics, self.administration.resets
        self.ends = self._end_transaction_processor()
        processors: tuple[tuple[str, Serves], ...] = (
            ("end_transaction", self.ends),
            ("admin", QueueLockProcessor(self.queue_locks, self.topics, steady_ms)),
            ("admin", DelayOffsetProcessor(self.background.delay_offsets)),
            ("admin", SlaveTablesProcessor(self.background.timers)),
            ("admin", HaStatusProcessor(self.replication_status, lambda: self.store.max_physical_offset)),
            ("admin", self._config_processor()),
            *self.access.processors(),
        )
        register(dispatcher, self.pools, processors)
        self.consumption.register(dispatcher, self.pools)
        self.production.register(dispatcher)
        self.derived_sends.register(dispatcher, self.pools)
        self.administration.register(dispatcher, self.pools)
        if self.is_slave:
            register(dispatcher, self.pools, [("send", SlaveRefusals(self.production.sends.refusal))])
        dispatcher.at_batch_end(self.ends.finish_iteration)
        self.topics.on_change(self.registrar.changed)
        self.consumption.attach(selector)
        self.production.attach(dispatcher, selector)
        self.derived_sends.attach()
        self.administration.attach()
        self.usage.attach(selector, self.tables, self.arrivals, self.pulls.deliveries)
        self.topics.on_delete(self.background.forget_topic)
        self.groups.on_delete(self.queue_locks.remove_group)

    def _fail(self, reason: DaemonEnded) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)

    def _use_gate(self) -> None:
        self.server.dispatcher.guard = self.access.new_gate()
        if self.name_server is not None:
            self.name_server.remoting.dispatcher.guard = self.access.new_namesrv_gate()

    def prepare_following(self) -> None:
        """Make the parts of a slave; its store is loaded."""
        config, replication, background = self._config, self._config.replication, self.background
        replica = self.store.replica
        if replica is None:
            return
        tables = SlaveTables(
            *(self.topics, self.groups, self.offsets, background.delay_offsets, background.timers, self.store),
            config.store.store_path_root_dir,
        )
        calls = MasterCalls(self.outbound)
        log: CopiedLog = classic_slave(config, replica, calls) if self.link is None else LinkedLog(self.link.member)
        address = replication.ha_master_address
        following = Following(log, calls, address, lambda: replica.end, tables, self.outbound, self.registrar)
        self.following = self.replication = following
        self.pulls.has_master = lambda: following.has_master

    def _consumption(self) -> Consumption:
        config = ConsumptionConfig(
            pull_config(self._config), notices_config(self._config), self._config.store.default_query_max_num
        )
        loop, latencies = asyncio.get_running_loop(), self.server.dispatcher.latencies
        rights = self.access.message_rights
        return Consumption(config, self.tables, self.store, self.arrivals, latencies, rights, loop, steady_ms)

    def _administration(self) -> Administration:
        config, boot_ms = self._config, wall_ms()
        identity = identity_of(config, boot_ms)
        return Administration(
            AdministrationConfig(
                config.broker.broker_cluster_name,
                Identity(identity.name, identity.address),
                RuntimeConfig(
                    store_path=config.store.store_path_root_dir,
                    boot_ms=boot_ms,
                    start_accept_ms=config.broker.start_accept_send_request_time_stamp,
                ),
                config.broker.use_server_side_reset_offset,
            ),
            self.tables,
            self.store,
            self.arrivals,
            self.pulls.deliveries,
            self.calls,
            Waits(self._topics_saved, self._groups_saved, self._offsets_saved, self.registrar.register_now),
            Figures(
                *(self.traffic, self.send_backs.sent_back, self._pool_statistics, self._store_times),
                [self.background.runtime],
            ),
            wall_ms,
            steady_ms,
        )

    def _production(self) -> Production:
        config, broker = self._config, self._config.broker
        unique_ids = UniqueIds(config.listen.advertised_ip, os.getpid(), random.getrandbits(32))
        return Production(
            ProductionConfig(
                send_config(config),
                config.store.max_message_size,
                broker.broker_cluster_name,
                broker.broker_name,
                broker.region_id,
                broker.trace_on,
                config.store.store_host,
            ),
            self.tables,
            self.store,
            self.background.deferral,
            self.put_times,
            self.pools["send"],
            self._is_orderly,
            lambda: unique_ids.next(wall_ms()),
            wall_ms,
            self.usage.refusals,
        )

    def _derived_sends(self) -> DerivedSends:
        config, background = self._config, self.background
        return DerivedSends(
            DerivedSendsConfig(
                send_config(config),
                recall_config(config),
                address_text(config.listen.advertised_ip, config.listen.port),
                config.broker.store_reply_message_enable,
            ),
            self.tables,
            self.production,
            self.store,
            background.puts,
            background.deferral,
            self.calls,
            self.access.message_rights,
            wall_ms,
        )

    def _end_transaction_processor(self) -> EndTransactionProcessor:
        return EndTransactionProcessor(
            self.background.endings,
            self.background.recheck,
            self.pools["end_transaction"],
            self.server.dispatcher.latencies,
            self._config.store.max_message_size,
            self.access.message_rights,
        )

    def _config_processor(self) -> ConfigProcessor:
        remote = RemoteSettings(self.settings, BROKER_KEYS, SHOWN_TOO, self._black_list)
        if self.name_server is not None:
            namesrv_remote = RemoteSettings(self.settings, EMBEDDED_NAMESRV_KEYS, {}, self._black_list)
            self.name_server.serve(ConfigRequests(namesrv_remote).handlers())
        return ConfigProcessor(remote, self.registrar.register_now)

    def _black_list(self) -> tuple[str, ...]:
        return *ALWAYS, *self.settings.config.broker.config_black_list

    def _is_orderly(self, group: str) -> bool:
        return self.queue_locks.is_orderly(group, steady_ms())

    async def _saved(self, file: str) -> None:
        await self._savers[file].saved()

    async def _groups_saved(self) -> None:
        await self._saved("subscriptionGroup.json")

    async def _offsets_saved(self) -> None:
        self.offsets.save()
        await self._saved("consumerOffset.json")

    async def _topics_saved(self) -> None:
        await self._saved("topics.json")

    def _name_servers(self) -> tuple[str, ...]:
        """Return the addresses of the name servers of this broker."""
        config = self._config
        return config.broker.namesrv_addresses if config.namesrv is None else (embedded_address(config.namesrv),)

    def console_backend(self) -> ConsoleBackend:
        """Return what the console needs of this broker."""
        config, tls = self._config, self._outbound_tls
        return ConsoleBackend(
            name_servers=";".join(self._name_servers()),
            tls=None if tls is None else tls.current,
            accounts=self.access.console_accounts,
            host=config.console.host,
            is_secure=config.console.tls,
            broker_name=config.broker.broker_name,
            settings=lambda: self.settings.effective(BROKER_KEYS),
        )

    # ---------------------------------------------------------------------------------------------------------- figures

    def _store_times(self) -> StoreTimes:
        return StoreTimes(self.put_times.statistics(), self.pulls.statistics().longest_get_ms)

    def _pool_statistics(self) -> list[PoolStatistics]:
        now_s = asyncio.get_running_loop().time()
        return [pool.statistics(now_s) for pool in self.pools.values()]

    def replication_status(self) -> ReplicationStatus | None:
        """Return the state of replication; None without it."""
        return None if self.replication is None else self.replication.status()

    def metrics_page(self) -> MetricsPage | None:
        """Return the page /metrics; None: it is turned off."""
        config = self._config
        observed = Observed(
            server=self.server,
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
            sessions=self.sessions,
            store=self.store,
            store_path=config.store.store_path_root_dir,
            replication=self.replication_status,
            deliveries=self.pulls.deliveries,
            traffic=self.traffic,
            arrivals=self.arrivals,
            loop_lag=self.loop_lag,
            permission=lambda: self.topics.permission,
            topic_times=self.topic_requests.times,
            pools=self._pool_statistics,
            checks=self.checks(),
            limits=self.limits,
            open_listeners=self.access.exposure.is_open,
            exposed_files=lambda: len(self.access.secret_files.exposed()),
            refused_registrations=lambda: {} if self.name_server is None else self.name_server.refused,
            runtime=self.runtime.table,
            heartbeats=lambda: self.clients.statistics().heartbeats,
            calls=self.calls,
            replies=self.replies,
            plain_acl=self.access.plain_acl,
            auth=self.access.auth,
            delay=self.background.delay,
            delays_requested=self.background.deferral.requested,
            timers=self.background.timers,
            transactions=self.background.transactions,
            transaction_checks=self.background.transaction_checks,
            refusals=self.usage.refusals,
            quotas=[self.usage.quotas, self.usage.namesrv.quotas],
            audit=self.usage.audit,
            now_ms=wall_ms,
        )
        identity = identity_of(config, self.runtime.boot_ms)
        return page_of(
            config.ops.metrics_exporter_type, lambda: scrape_of(config.ops, identity, observed), self._opening
        )

    # ----------------------------------------------------------------------------------------------------------- health

    def _opening(self) -> str | None:
        """Return why no request can be served yet: the store is being loaded; None once it is loaded."""
        if "topics.json" in self._savers:
            return None
        progress = self.store.load_progress
        return f"the store is being opened, {progress}" if progress else "the store is being opened"

    def _replication_problem(self) -> str | None:
        status = self.replication_status()
        return status.blocked or None if status is not None else None

    def checks(self) -> dict[str, Check]:
        """Return the health checks; each returns a problem, or None."""
        return {
            "recovered": self._opening,
            "store": lambda: self.store.refusal_reasons() or None,
            "timers": lambda: self.background.timers.files.problem or None,
            "replication": self._replication_problem,
            "registered": lambda: None if self.registrar.registered else "no name server has this broker's topics",
        }
