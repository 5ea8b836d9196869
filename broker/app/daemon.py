"""The composition root: the order in which the parts of a broker (`broker/app/parts.py`) start, step and stop.

Start: health pages, store (loaded in a thread: startup.py), tables, background delivery, listening address, embedded
name server, registration; a stop requested meanwhile ends the start. Stop: no new connections are accepted, parked
pulls get a response, admitted requests are finished, the broker unregisters from the name servers, background delivery
ends, slaves get the end of the log, tables are saved, the log is flushed. If a step of the start fails, the parts
already started are stopped.

No decision about messages is made here; every rule is in the part that it belongs to.
"""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Final

from skylarkmq.broker.app.config_reload import subscribe_parts
from skylarkmq.broker.app.host.idle_states import IdleStateInhibitor
from skylarkmq.broker.app.host.service_manager import READY, STOPPING, notify
from skylarkmq.broker.app.parts import Parts
from skylarkmq.broker.app.sections.replication import LinkParts
from skylarkmq.broker.app.startup import (
    hold_off_collector,
    keep_cpus_awake,
    listen,
    load_beside,
    start_health,
    use_huge_pages,
    warn_if_unreachable,
)
from skylarkmq.broker.base.clocks import steady_ms, wall_ms
from skylarkmq.broker.base.errors import DaemonEnded, StartError, StartStopped
from skylarkmq.broker.config.live import LiveSettings
from skylarkmq.broker.config.sections import DaemonConfig, Loaded
from skylarkmq.broker.ops.pages.console import ConsoleFactory, console_server
from skylarkmq.broker.ops.pages.health import OTHER_PORTS, HealthServer
from skylarkmq.broker.store.files.errors import StoreError

STEP_S: Final = 0.1
VIP_CHANNEL_DISTANCE: Final = 2
DRAIN_S: Final = 3.0
"""How long a stop waits for slaves that lack the end of the log."""

log = logging.getLogger(__name__)


async def serve(
    loaded: Loaded[DaemonConfig], stop: asyncio.Event, console_factory: ConsoleFactory | None = None
) -> None:
    """Run a broker until `stop` is set.

    Raises StartError if it cannot start, and DaemonEnded if it has to end or cannot save its state at the end.
    """
    broker = Broker(loaded.config, LiveSettings(loaded, wall_ms), console_factory=console_factory)
    try:
        await broker.start(stop)
    except StartStopped:
        log.info("stopped before it was ready broker=%s", loaded.config.broker.broker_name)
        return
    notify(READY, f"ready, port {loaded.config.listen.port}")
    try:
        await _first_of(stop, broker.parts.failure)
    finally:
        notify(STOPPING, "stopping")
        unsaved = await _stop(broker)
    if broker.parts.failure.done():
        raise broker.parts.failure.result()
    if unsaved is not None:
        raise DaemonEnded(f"the last changes of tables or offsets are not saved: {unsaved}", may_restart=True)


async def _stop(broker: "Broker") -> OSError | None:
    """Stop all parts. Return why one could not save its state, which must not hide the reason of the stop."""
    try:
        await broker.stop()
    except OSError as error:
        log.error("state was not saved at the stop error=%s", error)
        return error
    return None


async def _first_of(stop: asyncio.Event, failure: "asyncio.Future[DaemonEnded]") -> None:
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait((stopped, failure), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()


class Broker:
    """One broker: it starts its `parts` once and stops them once. `alone`: the broker owns the process and its garbage
    collector, and may use machine features that cost other processes CPU time. `console_factory` makes the console of
    `consolePort`."""

    def __init__(
        self,
        config: DaemonConfig,
        settings: LiveSettings[DaemonConfig] | None = None,
        *,
        alone: bool = True,
        console_factory: ConsoleFactory | None = None,
    ) -> None:
        self.parts = Parts(config, settings)
        self._config = config
        self._alone = alone
        self._console_factory = console_factory
        self._idle_state_inhibitor = IdleStateInhibitor(None, self.parts.server.selector.read_scheduler)
        subscribe_parts(self.parts.settings, self.parts)
        self._running = AsyncExitStack()
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Broker {self._config.broker.broker_name} port={self._config.listen.port}>"

    # --------------------------------------------------------------------------------------------------- start and stop

    async def start(self, stop: asyncio.Event | None = None) -> None:
        """Start all parts. Raises StartError if one cannot start; the others are stopped then.

        If `stop` is set before the broker is ready, the start ends with StartStopped.
        """
        stop = stop or asyncio.Event()
        self._log_start()
        warn_if_unreachable(self._config.listen)
        async with AsyncExitStack() as running:
            await self._start_health(running)
            self.parts.usage.start()
            running.push_async_callback(self.parts.usage.stop)
            await self._open_store(running, stop)
            self._open_tables(running)
            await self._serve_replicas(running)
            await self._start_deliveries(running, stop)
            if stop.is_set():
                raise StartStopped
            await self._serve_requests(running)
            self._step()
            running.callback(self._stop_stepping)
            self.parts.measurements.loop_lag.start()
            running.callback(self.parts.measurements.loop_lag.stop)
            await self.parts.registration.registrar.register_now()
            if self.parts.replication.following is not None:
                self.parts.replication.following.start()
                running.push_async_callback(self.parts.replication.following.stop)
            if self._config.console.port:
                await self._start_console(running)
            if self._alone:
                self._use_machine(running)
            self._running = running.pop_all()
        registered = self.parts.registration.registrar.registered
        log.info("ready port=%d registered=%s", self._config.listen.port, registered)

    async def stop(self) -> None:
        """Stop all parts in order."""
        await self._finish_requests()
        await self._running.aclose()
        log.info("stopped broker=%s", self._config.broker.broker_name)

    async def _finish_requests(self) -> None:
        """Accept no new connections, finish parked pulls and admitted requests, close the connections."""
        parts = self.parts
        if not parts.arrivals.is_closed:
            parts.arrivals.close()
            await parts.server.stop(lambda: sum(pool.pending for pool in parts.pools.values()))

    # ----------------------------------------------------------------------------------- the steps of a start, in order

    def _log_start(self) -> None:
        config, listen_config = self._config, self._config.listen
        log.info(
            "starting broker=%s cluster=%s store=%s advertised=%s bind=%s because=%s",
            config.broker.broker_name,
            config.broker.broker_cluster_name,
            config.store.store_path_root_dir,
            listen_config.advertised_host,
            listen_config.bind_host,
            listen_config.why,
        )

    async def _start_health(self, running: AsyncExitStack) -> None:
        ops, pages = self._config.ops, self.parts.pages
        if ops.port:
            health = HealthServer(
                ops.host,
                ops.port,
                pages.checks(),
                pages.metrics_page(),
                permitted=self.parts.access.page_accounts,
                other_ports=OTHER_PORTS if ops.port_may_move else 0,
                tls=self.parts.tls if ops.metrics_tls else None,
            )
            await start_health(health, running)

    async def _open_store(self, running: AsyncExitStack, stop: asyncio.Event) -> None:
        store, link = self.parts.store, self.parts.replication.link
        await load_beside(store if link is None else link.member, stop)
        running.callback(store.close)
        try:
            store.start(asyncio.get_running_loop())
        except (StoreError, OSError) as error:
            raise StartError(f"the store cannot be opened: {error}") from None
        self.parts.follow()
        if link is not None:
            link.member.start()
            running.callback(link.member.stop)
            await self._term_begun(link, stop)

    async def _term_begun(self, link: LinkParts, stop: asyncio.Event) -> None:
        """Wait until a leader has written its epoch record: no message may come before it."""
        failure = self.parts.failure
        begun = asyncio.ensure_future(link.member.begun())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((begun, stopped, failure), return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        stopped.cancel()
        if failure.done():
            raise failure.result()
        if stop.is_set():
            raise StartStopped

    def _open_tables(self, running: AsyncExitStack) -> None:
        """Load the tables, and make them agree with the store and with each other."""
        parts, tables = self.parts, self.parts.tables
        kept = (*tables.kept(), *parts.usage.kept(), *parts.delivery.kept(), *parts.access.kept())
        parts.files.open(kept, running)
        if not parts.replication.is_slave:
            tables.topics.restore(parts.store.lost_topics(tables.has_topic))
        parts.usage.created.keep_existing(tables.has_topic, tables.has_group)
        tables.limits.warn_if_above()

    async def _serve_replicas(self, running: AsyncExitStack) -> None:
        """Open the port for slaves, or for the followers of a link. It is closed after all that appends to the log, and
        once classic slaves have all of it."""
        address = (self._config.listen.bind_host, self._config.ha_port)
        link, master = self.parts.replication.link, self.parts.replication.master
        if link is not None and link.server is not None:
            await listen(link.server.start, *address, "haListenPort")
            running.push_async_callback(link.server.stop)
        if master is not None:
            await listen(master.server.start, *address, "haListenPort")
            running.push_async_callback(master.server.stop)
            running.push_async_callback(master.master.caught_up, DRAIN_S)

    async def _start_deliveries(self, running: AsyncExitStack, stop: asyncio.Event) -> None:
        delivery = self.parts.delivery
        await load_beside(delivery, stop)
        delivery.start(asyncio.get_running_loop())
        running.push_async_callback(delivery.stop)

    async def _serve_requests(self, running: AsyncExitStack) -> None:
        """Open the broker's own port and that of its name server, and begin to register."""
        parts, registration, listen_config = self.parts, self.parts.registration, self._config.listen
        parts.access.start(running)
        await listen(parts.server.start, listen_config.bind_host, listen_config.port, "listenPort")
        if parts.replication.master is not None:
            await self._open_vip_channel()
        running.push_async_callback(self._finish_requests)
        namesrv = self._config.namesrv
        if registration.name_server is not None and namesrv is not None:
            address = (namesrv.bind_address, namesrv.listen_port)
            await listen(registration.name_server.start, *address, "embeddedNamesrvPort")
            running.push_async_callback(registration.name_server.stop)
        running.push_async_callback(registration.outbound.stop)
        registration.registrar.start()
        running.push_async_callback(registration.registrar.stop)

    async def _open_vip_channel(self) -> None:
        """Serve requests on listenPort - 2, too: slaves of RocketMQ ask for the topics there (21), and nowhere else."""
        host, port = self._config.listen.bind_host, self._config.listen.port - VIP_CHANNEL_DISTANCE
        await listen(self.parts.server.listen_also, host, port, "listenPort - 2, for slaves of RocketMQ")

    async def _start_console(self, running: AsyncExitStack) -> None:
        backend = self.parts.pages.console_backend()
        server = console_server(self._config.console, self._console_factory, backend, self.parts.tls)
        await server.start()
        running.push_async_callback(server.stop)

    def _use_machine(self, running: AsyncExitStack) -> None:
        """Change the garbage collector, and use the features of the machine, until the stop."""
        hold_off_collector(running)
        use_huge_pages(running)
        if self._config.remoting.keep_cpus_awake:
            self._idle_state_inhibitor = keep_cpus_awake(self.parts.server.selector.read_scheduler, running)

    # ----------------------------------------------------------------------------------------------------------- clocks

    def _step(self) -> None:
        """Let every part do what is due. Intervals use the steady clock, so changes of the wall clock do not affect
        them."""
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self._step)
        parts, now_ms = self.parts, steady_ms()
        parts.store.step(now_ms)
        parts.measurements.step(now_ms, wall_ms())
        parts.tables.offsets.step(now_ms)
        parts.delivery.step(now_ms)
        parts.consumption.step(now_ms)
        parts.administration.step(now_ms)
        parts.access.secret_files.step(now_ms)
        parts.replication.step()
        self._idle_state_inhibitor.step()

    def _stop_stepping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
