"""Outbound connections: one per address, opened on demand, kept open, and shared by all callers of that address.

They are ordinary connections (`selector.py`) in a selector of their own. Requests of the other side find an empty
processor table and get REQUEST_CODE_NOT_SUPPORTED (3); stopping the server does not close them. A connection whose peer
does not respond in time is closed: the peer hangs, or the network path is broken without an error. Outbound connections
use TLS if there is a context for it. Requests are signed if there are credentials for it.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import RemotingStatistics, Selector
from skylarkmq.broker.remoting.tls import ReloadingContext, reason_of
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.signature import Signer

CONNECT_TIMEOUT_S: Final = 3.0

log = logging.getLogger(__name__)


class Outbound:
    """Keeps the connections. Addresses are texts: `10.0.0.1:9876`, `namesrv.example:9876`, `[::1]:9876`."""

    def __init__(
        self,
        config: RemotingConfig,
        tls: ReloadingContext | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        signer: Signer | None = None,
    ) -> None:
        self._tls = tls
        self._signer = signer
        self._connect_timeout_s = connect_timeout_s
        self._selector = Selector(Dispatcher(), config)
        self._selector.registry.on_close(self._lost)
        self._connections: dict[str, Connection] = {}
        self._attempts: dict[str, asyncio.Task[Connection]] = {}
        self._close_listeners: list[Callable[[str], None]] = []

    def __repr__(self) -> str:
        return f"<Outbound {len(self._connections)} connections>"

    def statistics(self) -> RemotingStatistics:
        """Return the current figures of these connections."""
        return self._selector.statistics()

    def on_close(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with the address of each closed connection, whichever side closed it."""
        self._close_listeners.append(callback)

    async def connect(self, address: str) -> Connection:
        """Return the connection to `address`. Raises OSError (also TimeoutError) if it cannot be opened."""
        connection = self._connections.get(address)
        if connection is not None and not connection.closed:
            return connection
        attempt = self._attempts.get(address)
        if attempt is None:
            attempt = self._attempts[address] = asyncio.ensure_future(self._open(address))
            attempt.add_done_callback(lambda _: self._attempts.pop(address))
        return await asyncio.shield(attempt)

    async def _open(self, address: str) -> Connection:
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        tls = None if self._tls is None else self._tls.latest()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(self._selector.new_connection, host, port, ssl=tls)
        except TimeoutError as error:
            raise TimeoutError(f"no connection to {address} within {self._connect_timeout_s:g} s") from error
        except (ssl.SSLError, ConnectionResetError) as error:  # the latter from servers without TLS
            raise OSError(f"no TLS with {address}: {reason_of(error)}") from error
        self._connections[address] = connection
        return connection

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Connect if necessary, send a request and return its response. Raises OSError if no response arrives in
        time."""
        connection = await self.connect(address)
        if self._signer is not None:
            self._signer.sign(command)
        try:
            return await connection.invoke(command, timeout_s)
        except TimeoutError as error:
            connection.abort()
            raise TimeoutError(f"no response from {address} within {timeout_s:g} s") from error

    async def stop(self) -> None:
        """Cancel attempts and close every connection."""
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for connection in list(self._connections.values()):
            connection.close()

    def _lost(self, connection: Connection) -> None:
        for address in [known for known, ours in self._connections.items() if ours is connection]:
            del self._connections[address]
            for callback in self._close_listeners:
                callback(address)


def split_address(address: str) -> tuple[str, int]:
    """Return (host, port) of `host:port` or `[IPv6]:port`. Raises ValueError for other texts."""
    host, colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"an address must be host:port, not {address!r}")
    return host, int(port)
