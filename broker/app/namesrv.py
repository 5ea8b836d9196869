"""A stand-alone name server: its parts, connected, and their start and stop.

The parts are the server, its access control with quotas, its settings at run time, the audit log and the pages. The
name server in a broker's process is one of the parts of the broker (`broker/app/sections/registration.py`).
"""

import asyncio
import logging
import socket
from contextlib import AsyncExitStack

from skylarkmq.broker.app.host.service_manager import READY, STOPPING, notify
from skylarkmq.broker.app.live_fields import live_namesrv
from skylarkmq.broker.app.sections.security import NamesrvAccess
from skylarkmq.broker.app.sections.usage import audit_log_of
from skylarkmq.broker.app.startup import listen, start_health
from skylarkmq.broker.base.clocks import wall_ms
from skylarkmq.broker.base.protected_keys import ALWAYS
from skylarkmq.broker.config.keys import NAMESRV_KEYS
from skylarkmq.broker.config.live import LiveSettings, RemoteSettings
from skylarkmq.broker.config.sections import Loaded, NamesrvDaemonConfig
from skylarkmq.broker.namesrv.config_requests import ConfigRequests
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.ops.metrics.namesrv import NamesrvObserved, namesrv_scrape_of
from skylarkmq.broker.ops.pages.health import HealthServer
from skylarkmq.broker.ops.pages.metrics_page import MetricsPage, page_of
from skylarkmq.broker.remoting.tls import ServerTls

log = logging.getLogger(__name__)


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


class NamesrvParts:
    """The parts of one name server. Raises StartError for unusable files."""

    def __init__(self, loaded: Loaded[NamesrvDaemonConfig]) -> None:
        self._config = config = loaded.config
        self.settings = settings = LiveSettings(loaded, wall_ms)
        self.tls = ServerTls(config.tls)
        self.audit = audit_log_of(config.audit)
        self.access = NamesrvAccess(config, self.audit)
        self.server = NameServer(config.namesrv, config.remoting, tls=self.tls, may_open=self.access.quotas.may_open)
        self.access.quotas.attach(self.server.remoting.selector)
        self._use_gate()
        settings.subscribe(live_namesrv(config.namesrv), self.server.configure)
        settings.subscribe(lambda config: config.quotas, self.access.quotas.configure)
        settings.subscribe(lambda config: config.quotas, lambda _: self._use_gate())
        if self.audit is not None:
            settings.subscribe(lambda config: config.audit.audit_sample_one_in, self.audit.sample)
        black_list = (*ALWAYS, *config.namesrv.config_black_list)
        remote = RemoteSettings(settings, NAMESRV_KEYS, {}, lambda: black_list)
        self.server.serve(ConfigRequests(remote).handlers())

    def __repr__(self) -> str:
        return f"<NamesrvParts {self.server!r}>"

    def _use_gate(self) -> None:
        self.server.remoting.dispatcher.guard = self.access.new_gate()

    def health(self) -> HealthServer:
        """Return the pages: health, and metrics unless they are turned off."""
        ops = self._config.ops
        return HealthServer(
            ops.host,
            ops.port,
            self.server.checks(),
            self._metrics_page(),
            permitted=self.access.page_accounts,
            tls=self.tls if ops.metrics_tls else None,
        )

    def _metrics_page(self) -> MetricsPage | None:
        config = self._config
        node = f"{socket.gethostname()}:{config.namesrv.listen_port}"
        observed = NamesrvObserved(
            server=self.server.remoting,
            pools=self.server.pool_statistics,
            checks=self.server.checks(),
            open_listeners=self.access.exposure.is_open,
            exposed_files=lambda: len(self.access.secret_files.exposed()),
            refused_registrations=lambda: self.server.refused,
            refusals=self.access.refusals,
            quotas=self.access.quotas.quotas,
            audit=self.audit,
        )
        return page_of(config.ops.metrics_exporter_type, lambda: namesrv_scrape_of(config.ops, node, observed))
