"""The connections of a client: one per address, opened at the first use, and opened again after a failure.

Calls that need the same unconnected address wait for the same attempt. The interval between attempts at one address
grows (`backoff_min_s`, doubling up to `backoff_max_s`); a success resets it. `greet` runs on each new connection before
it is used for anything else, because a broker identifies the client by its heartbeat.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from skylarkmq.clients.sdk.base.errors import ClientClosed, ConnectFailed
from skylarkmq.clients.sdk.base.settings import ClientSettings
from skylarkmq.clients.sdk.connection.connection import Connection, ConnectionStatistics, Handler
from skylarkmq.clients.sdk.connection.fork_safety import made_before_fork, register

log = logging.getLogger(__name__)

Greet = Callable[[Connection], Awaitable[None]]


class Backoff(msgspec.Struct):
    """When the next attempt at an address is allowed."""

    failures: int = 0
    not_before_s: float = 0.0

    def failed(self, now_s: float, settings: ClientSettings) -> float:
        """Count a failure and return the pause before the next attempt, in seconds."""
        pause_s = min(settings.backoff_min_s * (1 << min(self.failures, 16)), settings.backoff_max_s)
        self.failures += 1
        self.not_before_s = now_s + pause_s
        return pause_s


class Connections:
    """Connections by address (`host:port`)."""

    def __init__(
        self,
        settings: ClientSettings,
        handlers: Mapping[int, Handler],
        greet: Greet | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._tls = tls
        self._handlers = handlers
        self._greet = greet
        self._open: dict[str, Connection] = {}
        self._opening: dict[str, asyncio.Task[Connection]] = {}
        self._backoff: dict[str, Backoff] = {}
        self._closed = False
        self._is_inherited = False
        self.on_connected: Callable[[str], None] = lambda _: None
        self.on_disconnected: Callable[[str, str], None] = lambda *_: None
        register(self.forked)

    def __repr__(self) -> str:
        return f"<Connections {len(self._open)} open, {len(self._opening)} opening>"

    def statistics(self) -> tuple[ConnectionStatistics, ...]:
        """Return the figures of each open connection."""
        return tuple(connection.statistics() for connection in self._open.values())

    def current(self, address: str) -> Connection | None:
        """Return the open connection to `address`, or None."""
        return self._open.get(address)

    def addresses(self) -> list[str]:
        """Return the connected addresses."""
        return list(self._open)

    async def get(self, address: str) -> Connection:
        """Return the connection to `address`; open it if necessary. ConnectFailed, ConnectionLost."""
        connection = self._open.get(address)
        if connection is not None:
            return connection
        if self._is_inherited:
            raise made_before_fork("this client")
        if self._closed:
            raise ClientClosed(f"this client is stopped and does not connect to {address}", broker=address)
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.create_task(self._connect(address), name=f"connect/{address}")
            self._opening[address] = opening
            opening.add_done_callback(lambda task: self._opened(address, task))
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Close every connection, after its queued requests are written."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections = list(self._open.values())
        await asyncio.gather(*(connection.close_gracefully() for connection in connections))

    def forked(self) -> None:
        """Refuse to connect, in the child of a fork. The connections give up their sockets themselves."""
        self._closed = self._is_inherited = True
        self._open.clear()
        self._opening.clear()

    async def _connect(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        backoff = self._backoff.setdefault(address, Backoff())
        await asyncio.sleep(max(0.0, backoff.not_before_s - loop.time()))
        try:
            connection = await self._open_connection(address)
        except (OSError, ValueError) as error:
            pause_s = backoff.failed(loop.time(), self._settings)
            reason = str(error) or type(error).__name__
            log.warning("connect failed peer=%s error=%s next_attempt_s=%.1f", address, reason, pause_s)
            raise ConnectFailed(
                f"no connection to {address}: {reason}. Check that the server runs and that the address is right.",
                broker=address,
            ) from error
        try:
            if self._greet is not None:
                await self._greet(connection)
        except BaseException:
            backoff.failed(loop.time(), self._settings)
            connection.close()
            raise
        del self._backoff[address]
        return connection

    async def _open_connection(self, address: str) -> Connection:
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._settings.connect_timeout_s):
            _, connection = await loop.create_connection(
                lambda: Connection(
                    address, self._handlers, self._ended, self._settings.max_in_flight, self._settings.credentials
                ),
                host.strip("[]"),
                int(port),
                ssl=self._tls,
            )
        return connection

    def _opened(self, address: str, task: asyncio.Task[Connection]) -> None:
        del self._opening[address]
        if task.cancelled() or task.exception() is not None:
            return  # the callers of `get` receive the exception
        connection = task.result()
        if self._closed:
            connection.close()
        elif not connection.closed:
            self._open[address] = connection
            log.info("connected peer=%s", address)
            self.on_connected(address)

    def _ended(self, connection: Connection) -> None:
        if self._open.get(connection.peer) is connection:
            del self._open[connection.peer]
            log.log(logging.INFO if self._closed else logging.WARNING, "disconnected peer=%s", connection.peer)
            self.on_disconnected(connection.peer, connection.reason)
