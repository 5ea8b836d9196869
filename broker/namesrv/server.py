"""The name server: a listening address, the route table, the KV configuration, and the scan for silent brokers.

It runs by itself (`mqnamesrv`) or in a broker's process. In both cases it has its own port and its own tables. Name
servers are independent of each other: every broker registers with each. A broker is removed as soon as its connection
is closed, and when it has been silent for too long.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.namesrv.kv_config import KVConfig, KVConfigStatistics
from skylarkmq.broker.namesrv.processors import NamesrvProcessors, described
from skylarkmq.broker.namesrv.registration_conflicts import RouteLimits
from skylarkmq.broker.namesrv.route_table import RouteTable, RouteTableStatistics
from skylarkmq.broker.remoting.admission import PoolStatistics
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import ClientChannel, RequestSource
from skylarkmq.broker.remoting.selector import RemotingStatistics
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.protocol.codes import RequestCode

FIRST_SCAN_S: Final = 0.005

log = logging.getLogger(__name__)


class NameServerStatistics(msgspec.Struct, frozen=True):
    """Figures of the parts."""

    routes: RouteTableStatistics
    kv: KVConfigStatistics
    remoting: RemotingStatistics


def monotonic_ms() -> int:
    """Return the ms of a clock that cannot be set."""
    return time.monotonic_ns() // 1_000_000


class NameServer:
    """A name server; it starts once."""

    def __init__(
        self,
        config: NamesrvConfig,
        remoting: RemotingConfig,
        now_ms: Callable[[], int] = monotonic_ms,
        tls: ServerTls | None = None,
        may_open: Callable[[RequestSource], bool] | None = None,
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._scan_timer: asyncio.TimerHandle | None = None
        self.routes = RouteTable[ClientChannel](
            forget_unlisted_topics=config.delete_topic_with_broker_registration, limits=_limits(config)
        )
        self.kv = KVConfig(config.kv_config_path, config.max_kv_config_bytes)
        self.remoting = RemotingServer(remoting, tls, may_open)
        self.remoting.selector.registry.on_close(self._connection_lost)
        self._processors = NamesrvProcessors(config, self.routes, self.kv, now_ms)
        self._processors.register(self.remoting.dispatcher)

    def serve(self, handlers: Mapping[RequestCode, Processor]) -> None:
        """Register more request handlers, which need parts outside of the name server."""
        for code, handler in handlers.items():
            self.remoting.dispatcher.register([code], handler, self._processors.pool)

    def configure(self, config: NamesrvConfig) -> None:
        """Use other settings from now on; addresses and file names must not change."""
        self._config = config
        self.routes.forget_unlisted_topics = config.delete_topic_with_broker_registration
        self.routes.limits = _limits(config)
        self.kv.max_bytes = config.max_kv_config_bytes
        self._processors.configure(config)

    def __repr__(self) -> str:
        return f"<NameServer {self.routes!r} {self.remoting!r}>"

    def statistics(self) -> NameServerStatistics:
        """Return the current figures."""
        return NameServerStatistics(
            routes=self.routes.statistics(),
            kv=self.kv.statistics(),
            remoting=self.remoting.selector.statistics(),
        )

    def checks(self) -> dict[str, Callable[[], str | None]]:
        """Return the health checks; each returns a problem, or None."""
        return {"listening": lambda: None if self.remoting.is_listening else "the port is not open"}

    def pool_statistics(self) -> list[PoolStatistics]:
        """Return the figures of its pools."""
        now_s = asyncio.get_running_loop().time()
        return [pool.statistics(now_s) for pool in self._processors.pools]

    @property
    def refused(self) -> dict[str, int]:
        """Return the registrations refused since the start, by reason."""
        now = self.routes.statistics()
        return {"host": now.refused_hosts, "size": now.refused_sizes, "first": now.refused}

    async def start(self, host: str, port: int) -> int:
        """Load the configuration and listen; return the port. Raises StartError or OSError."""
        self.kv.load()
        bound = await self.remoting.start(host, port)
        self._scan_timer = asyncio.get_running_loop().call_later(FIRST_SCAN_S, self._scan)
        return bound

    async def stop(self) -> None:
        """Finish admitted requests, then close every connection."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
        await self.remoting.stop(lambda: self.remoting.dispatcher.waiting)

    def expire_brokers(self) -> None:
        """Remove brokers that were silent for too long, and close their connections."""
        for broker, channel in self.routes.expire(self._now_ms()):
            log.warning("broker expired %s peer=%s", described(broker), channel.peer)
            channel.close()

    def _scan(self) -> None:
        self.expire_brokers()
        interval_s = self._config.scan_not_active_broker_interval / 1000
        self._scan_timer = asyncio.get_running_loop().call_later(interval_s, self._scan)

    def _connection_lost(self, channel: ClientChannel) -> None:
        stopping = not self.remoting.selector.registry.accepting
        for broker in self.routes.connection_lost(channel):
            log.log(
                logging.DEBUG if stopping else logging.WARNING,
                "broker removed, connection closed %s peer=%s",
                described(broker),
                channel.peer,
            )


def _limits(config: NamesrvConfig) -> RouteLimits:
    return RouteLimits(
        config.max_route_brokers, config.max_route_addresses, config.max_route_topics, config.max_route_queues
    )
