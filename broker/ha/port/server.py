"""The port for replicas (`haListenPort`): accepts connections and hands them over by their first byte.

    0x00–0x15, 0x17–0x3F   a slave of RocketMQ's classic replication: the first byte of an offset
    0xF3                   Skylark's replication link: the first byte of PREFACE
    0x16                   the same over TLS: the first byte of a handshake
    others                 closed

A classic slave may be silent for 5 seconds before its first report, so the port never waits for a greeting of its own.

The port serves the whole log, and classic replication has no authentication. So only `haAllowedNetworks` may connect,
and at most `haMaxConnections` at a time. A new connection above that replaces one that has sent nothing for
`haSendHeartbeatInterval`; without such a connection, the new one is closed. Connections that send nothing are closed
after `haHousekeepingInterval`.

A connection that was handed over to the link no longer counts here: the link has limits of its own.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from skylarkmq.broker.base.address_ranges import is_within
from skylarkmq.broker.ha.classic.frames import MAX_OFFSET
from skylarkmq.broker.ha.config import ReplicationConfig
from skylarkmq.broker.ha.link.frames import PREFACE
from skylarkmq.broker.ha.refused import Refused
from skylarkmq.protocol.frame import TLS_HANDSHAKE

FIRST_BYTES_OF_LINK: Final = frozenset({PREFACE[0], TLS_HANDSHAKE})
LAST_OF_OFFSETS: Final = (MAX_OFFSET - 1) >> 56
BACKLOG: Final = 64

LinkAccept = Callable[[asyncio.Transport, bytes], None]
"""Takes over a connection and its first bytes."""

log = logging.getLogger(__name__)


class Classic(Protocol):
    """The master of classic slaves."""

    @property
    def connections(self) -> int:
        """The number of its connections."""

    def accept(self, transport: asyncio.Transport, first: bytes) -> None:
        """Serve the slave of a connection."""

    def step(self) -> None:
        """Run what is due."""

    def close(self) -> None:
        """Close all connections."""


class HaServer:
    """The port. `classic`: None refuses classic slaves; `link`: None refuses Skylark's link."""

    def __init__(
        self,
        config: ReplicationConfig,
        classic: Classic | None,
        link: LinkAccept | None = None,
        refused: Refused | None = None,
    ) -> None:
        self._config = config
        self._classic = classic
        self._link = link
        self.refused = refused or Refused()
        self._silent: dict[_Arrival, None] = {}  # connections without a first byte, oldest first
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<HaServer silent={len(self._silent)} classic={self._classic!r}>"

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port. Raises OSError if binding fails."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Arrival(self), host, port, backlog=BACKLOG)
        bound: int = self._server.sockets[0].getsockname()[1]
        networks = ";".join(map(str, self._config.ha_allowed_networks))
        log.info("listening for replicas host=%s port=%d networks=%s", host, bound, networks)
        return bound

    async def stop(self) -> None:
        """Stop listening, and close all connections except those of the link."""
        if self._server is not None:
            self._server.close()
        for arrival in tuple(self._silent):
            arrival.transport.abort()
        if self._classic is not None:
            self._classic.close()

    def step(self) -> None:
        """Run what is due: the end of silent connections, and the step of the classic master."""
        limit_s = self._config.ha_housekeeping_interval / 1000
        now_s = asyncio.get_running_loop().time()
        for arrival in tuple(self._silent):
            if now_s - arrival.opened_s <= limit_s:
                break
            self._refuse(arrival, "silent", f"nothing was sent for {self._config.ha_housekeeping_interval} ms")
        if self._classic is not None:
            self._classic.step()

    # -------------------------------------------------------------------------------------------- calls of a connection

    def arrived(self, arrival: "_Arrival") -> None:
        """Admit or close a new connection."""
        self._silent[arrival] = None
        if not is_within(arrival.host, self._config.ha_allowed_networks):
            self._refuse(arrival, "network", "not in haAllowedNetworks")
        elif self._connections > self._config.ha_max_connections:
            self._refuse(self._replaceable(arrival), "limit", "haMaxConnections is reached")

    def first_bytes(self, arrival: "_Arrival", data: bytes) -> None:
        """Hand a connection over."""
        self.gone(arrival)
        first = data[0]
        if first in FIRST_BYTES_OF_LINK:
            if self._link is None:
                self._refuse(arrival, "link", "this broker has no replication link; expected with haPeers")
            else:
                self._link(arrival.transport, data)
        elif first > LAST_OF_OFFSETS:
            self._refuse(arrival, "frame", f"begins with 0x{first:02x}, which no replica does")
        elif self._classic is None:
            self._refuse(arrival, "classic", "RocketMQ's slaves cannot copy from a broker with haPeers")
        else:
            self._classic.accept(arrival.transport, data)

    def gone(self, arrival: "_Arrival") -> None:
        """Forget a connection without a first byte."""
        self._silent.pop(arrival, None)

    @property
    def _connections(self) -> int:
        return len(self._silent) + (0 if self._classic is None else self._classic.connections)

    def _replaceable(self, arrival: "_Arrival") -> "_Arrival":
        """Return the connection to close for a new one: the oldest silent one, or the new one."""
        oldest = next(iter(self._silent))
        silent_s = arrival.opened_s - oldest.opened_s
        return oldest if silent_s > self._config.ha_send_heartbeat_interval / 1000 else arrival

    def _refuse(self, arrival: "_Arrival", kind: str, reason: str) -> None:
        self.gone(arrival)
        self.refused.note(kind, arrival.host, f"reason={reason}")
        arrival.transport.abort()


class _Arrival(asyncio.Protocol):
    """A connection until its first byte."""

    transport: asyncio.Transport

    def __init__(self, server: HaServer) -> None:
        self._server = server
        self.host = "?"
        self.opened_s = asyncio.get_running_loop().time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.host = cast("tuple[str, int]", transport.get_extra_info("peername", ("?", 0)))[0]
        self._server.arrived(self)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self._server.first_bytes(self, data)

    def connection_lost(self, _exc: Exception | None) -> None:
        self._server.gone(self)
