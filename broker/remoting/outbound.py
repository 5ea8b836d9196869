"""Connections that we open: one for each address, made on demand, kept, and shared by all who talk to that address.

They are connections like those that others open (`selector.py`), in a selector of their own: requests of the other
side find an empty processor table and are answered 3, and stopping the server does not cut them. A connection whose
peer owes an answer for too long is given up: the peer is stuck, or the way to it is cut and nobody was told. They speak
TLS if there is a context for it.
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

CONNECT_TIMEOUT_S: Final = 3.0

log = logging.getLogger(__name__)


class Outbound:
    """Addresses are texts: `10.0.0.1:9876`, `namesrv.example:9876`, `[::1]:9876`."""

    def __init__(
        self,
        config: RemotingConfig,
        tls: ReloadingContext | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._selector = Selector(Dispatcher(), config)
        self._selector.on_close(self._lost)
        self._connections: dict[str, Connection] = {}
        self._attempts: dict[str, asyncio.Task[Connection]] = {}
        self._close_listeners: list[Callable[[str], None]] = []

    def __repr__(self) -> str:
        return f"<Outbound {len(self._connections)} connections>"

    def statistics(self) -> RemotingStatistics:
        """The figures of these connections now."""
        return self._selector.statistics()

    def on_close(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with each address whose connection is gone, whoever closed it."""
        self._close_listeners.append(callback)

    async def connect(self, address: str) -> Connection:
        """The connection to `address`; OSError (TimeoutError among them) if it cannot be had."""
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
                _, connection = await loop.create_connection(lambda: Connection(self._selector), host, port, ssl=tls)
        except TimeoutError as error:
            raise TimeoutError(f"no connection to {address} within {self._connect_timeout_s:g} s") from error
        except (ssl.SSLError, ConnectionResetError) as error:  # the latter from who knows no TLS
            raise OSError(f"no TLS with {address}: {reason_of(error)}") from error
        self._connections[address] = connection
        return connection

    async def invoke(self, address: str, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Connect if need be, send a request, wait for its answer; OSError if there is none in time."""
        connection = await self.connect(address)
        try:
            return await connection.invoke(command, timeout_s)
        except TimeoutError as error:
            connection.abort()
            raise TimeoutError(f"no answer from {address} within {timeout_s:g} s") from error

    async def stop(self) -> None:
        """Give up attempts and close every connection."""
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
    """(host, port) of `host:port` or `[IPv6]:port`; ValueError if it is neither."""
    host, colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"an address is host:port, not {address!r}")
    return host, int(port)
