"""The parts of a broker: its sections, made in the order in which they need each other, and connected.

No decision about messages is made here; every rule is in the part that it belongs to. The parts do nothing until
`broker/app/daemon.py` starts them, which defines the order in which parts start, step and stop.
"""

import asyncio

from skylarkmq.broker.app.sections.administration import Administration, Figures, administration_config, waits_of
from skylarkmq.broker.app.sections.consumption import Consumption, consumption_config
from skylarkmq.broker.app.sections.delivery import BackgroundDelivery, DeliveryRequests, delivery_config
from skylarkmq.broker.app.sections.derived_sends import DerivedSends, derived_sends_config
from skylarkmq.broker.app.sections.monitoring import Measurements, Monitored, Pages
from skylarkmq.broker.app.sections.pools import pools_of
from skylarkmq.broker.app.sections.production import Production, production_config, unique_keys
from skylarkmq.broker.app.sections.registering import register
from skylarkmq.broker.app.sections.registration import Registration
from skylarkmq.broker.app.sections.replication import Replication
from skylarkmq.broker.app.sections.security import AccessControl
from skylarkmq.broker.app.sections.settings import config_processor
from skylarkmq.broker.app.sections.table_files import TableFiles
from skylarkmq.broker.app.sections.tables import Tables, tables_config
from skylarkmq.broker.app.sections.usage import UsageControl
from skylarkmq.broker.base.clocks import steady_ms, wall_ms
from skylarkmq.broker.base.errors import DaemonEnded
from skylarkmq.broker.config.live import LiveSettings
from skylarkmq.broker.config.sections import DaemonConfig, Loaded
from skylarkmq.broker.counters.delivery_counters import DeliveryCounters
from skylarkmq.broker.delivery.arrivals import Arrivals
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.tls import ServerTls, client_context
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.protocol.disk import CONFIG_DIRECTORY


class Parts:
    """All parts of a broker, which belong to the running event loop. `settings`: the configuration at run time.

    Raises StartError for unusable files, and for settings that contradict each other.
    """

    def __init__(self, config: DaemonConfig, settings: LiveSettings[DaemonConfig] | None = None) -> None:
        self.settings = settings or LiveSettings(Loaded(config), wall_ms)
        self.loop = loop = asyncio.get_running_loop()
        self.failure: asyncio.Future[DaemonEnded] = loop.create_future()
        """Done once the daemon has to end, with the reason."""
        self.tls = ServerTls(config.tls)
        client_tls = client_context(config.outbound_tls, config.tls.mode)
        self.deliveries = DeliveryCounters()
        self.usage = UsageControl(config.quotas, config.audit, self.deliveries.bytes)
        self.server = RemotingServer(config.remoting, self.tls, self.usage.counted.may_open)
        self.pools = pools_of(config)
        self.arrivals = Arrivals(loop, self.pools["pull"])
        self.store = MessageStore(
            config.store, wall_ms, self.arrivals.arrived, topics=self.arrivals.topics, steady_ms=steady_ms
        )
        self.files = TableFiles(config.store.store_path_root_dir / CONFIG_DIRECTORY)
        self.tables = Tables(tables_config(config), wall_ms, self.usage.created)
        self.access = AccessControl(config, self.usage, self.files.saved)
        self.registration = Registration(
            config, self.tables.topics, self.tls, client_tls, self.access.signer, self.usage.namesrv.may_open
        )
        self.replication = Replication(config, self.store, self.tls, client_tls, self._fail)
        self.calls = ClientCalls()
        self._make_consumption(config)
        self._make_production(config)
        self._make_administration(config)
        self.pages = Pages(self.settings, self._monitored(), client_tls)
        self._register()
        self._attach()

    def __repr__(self) -> str:
        return f"<Parts {self.store!r} {self.server!r}>"

    def _make_consumption(self, config: DaemonConfig) -> None:
        latencies = self.server.dispatcher.latencies
        self.consumption = Consumption(
            consumption_config(config),
            self.tables,
            self.store,
            self.arrivals,
            self.deliveries,
            latencies,
            self.access.message_rights,
            self.loop,
            steady_ms,
            self.replication.has_master,
        )
        self.measurements = Measurements(self.store, self.consumption.pulls, self.pools, latencies, self.loop)

    def _make_production(self, config: DaemonConfig) -> None:
        rights, latencies = self.access.message_rights, self.server.dispatcher.latencies
        deferred = delivery_config(config)
        self.delivery = BackgroundDelivery(deferred, self.tables, self.store, self.arrivals, wall_ms, steady_ms)
        self.delivery_requests = DeliveryRequests(
            deferred, self.delivery, self.pools["end_transaction"], latencies, rights
        )
        self.production = Production(
            production_config(config),
            self.tables,
            self.store,
            self.delivery.deferral,
            self.measurements.put_times,
            self.pools["send"],
            self.consumption.is_orderly,
            unique_keys(config.listen.advertised_ip, wall_ms),
            wall_ms,
            self.usage.refusals,
        )
        self.derived_sends = DerivedSends(
            derived_sends_config(config),
            self.tables,
            self.production,
            self.store,
            self.delivery.puts,
            self.delivery.deferral,
            self.calls,
            rights,
            wall_ms,
        )

    def _make_administration(self, config: DaemonConfig) -> None:
        self.administration = Administration(
            administration_config(config, wall_ms()),
            self.tables,
            self.store,
            self.arrivals,
            self.deliveries,
            self.calls,
            self.access.message_rights,
            waits_of(self.files, self.tables.offsets, self.registration.registrar.register_now),
            self._figures(),
            wall_ms,
            steady_ms,
        )

    def _figures(self) -> Figures:
        return Figures(
            self.measurements.traffic,
            self.derived_sends.send_backs.sent_back,
            self.measurements.pool_statistics,
            self.measurements.store_times,
            [self.delivery.runtime],
        )

    def _monitored(self) -> Monitored:
        return Monitored(
            server=self.server,
            store=self.store,
            arrivals=self.arrivals,
            calls=self.calls,
            files=self.files,
            tables=self.tables,
            consumption=self.consumption,
            derived_sends=self.derived_sends,
            administration=self.administration,
            delivery=self.delivery,
            replication=self.replication,
            registration=self.registration,
            access=self.access,
            usage=self.usage,
            measurements=self.measurements,
        )

    def _register(self) -> None:
        """Register all processors with their pools."""
        dispatcher, pools = self.server.dispatcher, self.pools
        register(dispatcher, pools, [("admin", config_processor(self.settings, self.registration))])
        self.access.register(dispatcher, pools)
        self.consumption.register(dispatcher, pools)
        self.production.register(dispatcher)
        self.derived_sends.register(dispatcher, pools)
        self.delivery_requests.register(dispatcher, pools)
        self.administration.register(dispatcher, pools)
        self.replication.register(dispatcher, pools, self.production.sends.refusal)

    def _attach(self) -> None:
        """Connect the sections: they follow closed connections, and changes of tables and settings."""
        dispatcher, selector, name_server = self.server.dispatcher, self.server.selector, self.registration.name_server
        self.registration.attach()
        self.consumption.attach(selector)
        self.production.attach(dispatcher, selector)
        self.derived_sends.attach()
        self.administration.attach()
        self.delivery.attach()
        self.access.attach(dispatcher, name_server)
        self.usage.attach(selector, name_server, self.tables, self.arrivals)

    def follow(self) -> None:
        """Make the parts of a slave. Call it once the store is loaded."""
        self.replication.follow(self.registration, self.tables, self.delivery)

    def _fail(self, reason: DaemonEnded) -> None:
        if not self.failure.done():
            self.failure.set_result(reason)
