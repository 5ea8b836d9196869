"""An opening: an accepted connection until its first byte tells whether its peer speaks TLS.

A TLS client begins with a handshake record, 0x16. A plain one begins with the length of a frame, whose first byte is 0
or 1. Whoever says nothing yet is neither, and is left alone: it is one of the connections from the start, counted,
limited and closed when idle like the others. Only when there are as many as there may be, it makes room for a new one.

The first read is in the buffer that all connections share, so it is handed on as it is; behind it the opening is
forgotten, and a plain connection is as if there had been none.
"""

import asyncio
import logging
from typing import Final, cast

from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.remoting.tls_transport import TlsTransport

TLS_HANDSHAKE: Final = 0x16

log = logging.getLogger(__name__)


class TlsDetector(asyncio.BufferedProtocol):
    """Stands before a connection that has not read anything."""

    __slots__ = ("_connection", "_selector", "_tls", "_transport")

    def __init__(self, selector: Selector, tls: ServerTls) -> None:
        self._selector = selector
        self._connection = Connection(selector)
        self._tls = tls

    def __repr__(self) -> str:
        return f"<TlsDetector {self._connection!r}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)
        self._selector.expect_first_bytes(self._connection)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """The first read: decide, and step aside."""
        self._selector.first_bytes_received(self._connection)
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
        """Nothing has been written."""

    def resume_writing(self) -> None:
        """Nothing has been written."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
