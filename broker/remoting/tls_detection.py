"""TLS detection: the protocol of an accepted connection until its first byte shows whether the peer speaks TLS.

A TLS client begins with a handshake record, 0x16. A plain client begins with the length of a frame, whose first byte
is 0 or 1. A connection that has sent nothing yet is registered, counted, limited and closed when idle like any other.
It can be closed earlier only if the maximum number of connections is reached and a new one arrives.

The first read is in the shared receive buffer and is passed on as it is. After it the detector is dropped, so a plain
connection has no further cost.
"""

import asyncio
import logging
from typing import cast

from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.connection_registry import ConnectionRegistry
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.remoting.tls_transport import TlsTransport
from skylarkmq.protocol.frame import TLS_HANDSHAKE

log = logging.getLogger(__name__)


class TlsDetector(asyncio.BufferedProtocol):
    """The first protocol of an accepted connection."""

    __slots__ = ("_connection", "_registry", "_tls", "_transport")

    def __init__(self, connection: Connection, registry: ConnectionRegistry[Connection], tls: ServerTls) -> None:
        self._connection = connection
        self._registry = registry
        self._tls = tls

    def __repr__(self) -> str:
        return f"<TlsDetector {self._connection!r}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)
        self._registry.expect_first_bytes(self._connection)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the first read: choose the protocol and hand the connection over."""
        self._registry.first_bytes_received(self._connection)
        tls, connection, transport = self._tls, self._connection, self._transport
        speaks_tls = connection.get_buffer(-1)[0] == TLS_HANDSHAKE
        refusal = tls.refusal(speaks_tls=speaks_tls)
        if refusal is not None:
            tls.refused += 1
            log.info("closing connection peer=%s reason=%s", connection.peer, refusal)
            connection.abort()
            return
        protocol: Connection | TlsTransport = connection
        if speaks_tls and tls.context is not None:
            protocol = TlsTransport(transport, connection, tls, tls.context.current)
        transport.set_protocol(protocol)
        protocol.buffer_updated(nbytes)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Do nothing: nothing has been written."""

    def resume_writing(self) -> None:
        """Do nothing: nothing has been written."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
