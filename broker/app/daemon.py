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

from skylarkmq.broker.access.created_names import decode as decode_created_names
from skylarkmq.broker.app.config_reload import subscribe_parts
from skylarkmq.broker.app.host.idle_states import IdleStateInhibitor
from skylarkmq.broker.app.host.service_manager import READY, STOPPING, notify
from skylarkmq.broker.app.namesrv import NamesrvParts
from skylarkmq.broker.app.parts import Parts
from skylarkmq.broker.app.sections.delivery import Kept
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
from skylarkmq.broker.config.sections import DaemonConfig, Loaded, NamesrvDaemonConfig
from skylarkmq.broker.metadata.saver import Saver
from skylarkmq.broker.ops.pages.console import ConsoleFactory, console_server
from skylarkmq.broker.ops.pages.health import OTHER_PORTS, HealthServer
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.protocol.bodies.offsets import ConsumerOffsets
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import TopicConfigSerializeWrapper

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
        await _first_of(stop, broker.failure)
    finally:
        notify(STOPPING, "stopping")
        unsaved = await _stop(broker)
    if broker.failure.done():
        raise broker.failure.result()
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


async def serve_namesrv(loaded: Loaded[NamesrvDaemonConfig], stop: asyncio.Event) -> None:
    """Run a stand-alone name server until `stop` is set. Raises StartError if it cannot start."""
    parts, config = NamesrvParts(loaded), loaded.config
    async with AsyncExitStack() as running:
        if parts.audit is not None:
            parts.audit.start()
            running.push_async_callback(parts.audit.stop)
        if config.ops.port:
            await start_health(parts.health(), running)
        await listen(parts.server.start, config.namesrv.bind_address, config.namesrv.listen_port, "listenPort")
        running.push_async_callback(parts.server.stop)
        log.info("ready name_server_port=%d", config.namesrv.listen_port)
        notify(READY, f"ready, port {config.namesrv.listen_port}")
        await stop.wait()
        notify(STOPPING, "stopping")


class Broker(Parts):
    """One broker. It starts once and stops once. `alone`: the broker owns the process and its garbage collector, and
    may use machine features that cost other processes CPU time. `console_factory` makes the console of
    `consolePort`."""

    def __init__(
        self,
        config: DaemonConfig,
        settings: LiveSettings[DaemonConfig] | None = None,
        *,
        alone: bool = True,
        console_factory: ConsoleFactory | None = None,
    ) -> None:
        super().__init__(config, settings)
        self._alone = alone
        self._console_factory = console_factory
        self._idle_state_inhibitor = IdleStateInhibitor(None, self.server.selector)
        subscribe_parts(self.settings, self)
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
        warn_if_unreachable(listen_config)
        async with AsyncExitStack() as running:
            if config.ops.port:
                page = self.metrics_page()
                health = HealthServer(
                    *(config.ops.host, config.ops.port, self.checks(), page),
                    permitted=self.access.page_accounts,
                    other_ports=OTHER_PORTS if config.ops.port_may_move else 0,
                    tls=self.tls if config.ops.metrics_tls else None,
                )
                await start_health(health, running)
            self.usage.start()
            running.push_async_callback(self.usage.stop)
            await self._open_store(running, stop)
            self._open_tables(running)
            if not self.is_slave:
                self.topics.restore(self.store.lost_topics(lambda topic: self.topics.find(topic) is not None))
            self.usage.created.keep_existing(
                lambda topic: self.topics.find(topic) is not None, lambda group: self.groups.find(group) is not None
            )
            self.limits.warn_if_above()
            await self._serve_replicas(running)
            await self._start_deliveries(running, stop)
            if stop.is_set():
                raise StartStopped
            self.access.start(running)
            await listen(self.server.start, listen_config.bind_host, listen_config.port, "listenPort")
            if self.master is not None:
                await self._open_vip_channel()
            running.push_async_callback(self._finish_requests)
            if self.name_server is not None and config.namesrv is not None:
                address = (config.namesrv.bind_address, config.namesrv.listen_port)
                await listen(self.name_server.start, *address, "embeddedNamesrvPort")
                running.push_async_callback(self.name_server.stop)
            running.push_async_callback(self.outbound.stop)
            self.registrar.start()
            running.push_async_callback(self.registrar.stop)
            self._step()
            running.callback(self._stop_stepping)
            self.loop_lag.start()
            running.callback(self.loop_lag.stop)
            await self.registrar.register_now()
            if self.following is not None:
                self.following.start()
                running.push_async_callback(self.following.stop)
            if config.console.port:
                await self._start_console(running)
            if self._alone:
                hold_off_collector(running)
                use_huge_pages(running)
                if config.remoting.keep_cpus_awake:
                    self._idle_state_inhibitor = keep_cpus_awake(self.server.selector, running)
            self._running = running.pop_all()
        log.info("ready port=%d registered=%s", listen_config.port, self.registrar.registered)

    async def stop(self) -> None:
        """Stop all parts in order."""
        await self._finish_requests()
        await self._running.aclose()
        log.info("stopped broker=%s", self._config.broker.broker_name)

    async def _finish_requests(self) -> None:
        """Accept no new connections, finish parked pulls and admitted requests, close the connections."""
        if not self.arrivals.is_closed:
            self.arrivals.close()
            await self.server.stop(lambda: sum(pool.pending for pool in self.pools.values()))

    async def _start_console(self, running: AsyncExitStack) -> None:
        server = console_server(self._config.console, self._console_factory, self.console_backend(), self.tls)
        await server.start()
        running.push_async_callback(server.stop)

    async def _open_store(self, running: AsyncExitStack, stop: asyncio.Event) -> None:
        link = self.link
        await load_beside(self.store if link is None else link.member, stop)
        running.callback(self.store.close)
        try:
            self.store.start(asyncio.get_running_loop())
        except (StoreError, OSError) as error:
            raise StartError(f"the store cannot be opened: {error}") from None
        self.prepare_following()
        if link is not None:
            link.member.start()
            running.callback(link.member.stop)
            await self._term_begun(link, stop)

    async def _term_begun(self, link: LinkParts, stop: asyncio.Event) -> None:
        """Wait until a leader has written its epoch record: no message may come before it."""
        begun = asyncio.ensure_future(link.member.begun())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait((begun, stopped, self.failure), return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        stopped.cancel()
        if self.failure.done():
            raise self.failure.result()
        if stop.is_set():
            raise StartStopped

    async def _serve_replicas(self, running: AsyncExitStack) -> None:
        """Open the port for slaves, or for the followers of a link. It is closed after all that appends to the log, and
        once classic slaves have all of it."""
        address = (self._config.listen.bind_host, self._config.ha_port)
        if self.link is not None and self.link.server is not None:
            await listen(self.link.server.start, *address, "haListenPort")
            running.push_async_callback(self.link.server.stop)
        if self.master is not None:
            await listen(self.master.server.start, *address, "haListenPort")
            running.push_async_callback(self.master.server.stop)
            running.push_async_callback(self.master.master.caught_up, DRAIN_S)

    async def _open_vip_channel(self) -> None:
        """Serve requests on listenPort - 2, too: slaves of RocketMQ ask for the topics there (21), and nowhere else."""
        listen_config = self._config.listen
        port = listen_config.port - VIP_CHANNEL_DISTANCE
        await listen(self.server.listen_also, listen_config.bind_host, port, "listenPort - 2, for slaves of RocketMQ")

    async def _start_deliveries(self, running: AsyncExitStack, stop: asyncio.Event) -> None:
        await load_beside(self.background, stop)
        self.background.start(asyncio.get_running_loop())
        running.push_async_callback(self.background.stop)

    def _open_tables(self, running: AsyncExitStack) -> None:
        directory = self._config.store.store_path_root_dir / "config"
        kept: list[Kept] = [
            (self.topics, "topics.json", TopicConfigSerializeWrapper.decode),
            (self.groups, "subscriptionGroup.json", SubscriptionGroupWrapper.decode),
            (self.offsets, "consumerOffset.json", ConsumerOffsets.decode),
            (self.usage.created, "createdNames.json", decode_created_names),
            *self.background.kept(),
        ]
        try:
            for table, name, decode in kept:
                self._keep(running, name, Saver.open(table, directory / name, decode))
            for table, name, decode in self.access.kept():
                self._keep(running, name, Saver.open(table, directory / name, decode, is_secret=True))
        except StoreError as error:
            raise StartError(str(error)) from None

    def _keep(self, running: AsyncExitStack, name: str, saver: Saver) -> None:
        self._savers[name] = saver
        running.push_async_callback(saver.close)

    # ----------------------------------------------------------------------------------------------------------- clocks

    def _step(self) -> None:
        """Let every part do what is due. Intervals use the steady clock, so changes of the wall clock do not affect
        them."""
        self._timer = asyncio.get_running_loop().call_later(STEP_S, self._step)
        now_ms = steady_ms()
        self.store.step(now_ms)
        self.traffic.step(now_ms, wall_ms())
        self.put_times.step(now_ms)
        self.offsets.step(now_ms)
        self.background.step(now_ms)
        self.clients.step(now_ms)
        self.queue_locks.step(now_ms)
        self.windows.step(now_ms)
        self.access.secret_files.step(now_ms)
        if self.master is not None:
            self.master.server.step()
        if self.link is not None:
            self.link.member.step()
            if self.link.server is not None:
                self.link.server.step()
        self._idle_state_inhibitor.step()

    def _stop_stepping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
