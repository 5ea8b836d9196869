"""The connections of a client: one per address, opened when first asked for, opened again after they broke.

Whoever asks for an address that is not connected waits for the same attempt. Attempts at one address keep a growing
distance (`backoff_min_s`, doubling to `backoff_max_s`); a success resets it. `greet` runs on each fresh connection
before anyone else gets it: a broker takes the connection for the client's identity, so its first request must be the
heartbeat.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from skylarkmq.clients.connection.connection import Connection, ConnectionStatistics, Handler
from skylarkmq.clients.connection.fork_safety import made_before_fork, register
from skylarkmq.clients.errors import ClientClosed, ConnectFailed
from skylarkmq.clients.settings import ClientSettings

log = logging.getLogger(__name__)

Greet = Callable[[Connection], Awaitable[None]]


class Backoff(msgspec.Struct):
    """When an address may be tried again."""

    failures: int = 0
    not_before_s: float = 0.0

    def failed(self, now_s: float, settings: ClientSettings) -> float:
        """Count a failure; return the pause that follows it, in seconds."""
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
        """The figures of each open connection."""
        return tuple(connection.statistics() for connection in self._open.values())

    def current(self, address: str) -> Connection | None:
        """The open connection to `address`, if there is one."""
        return self._open.get(address)

    def addresses(self) -> list[str]:
        """The addresses that are connected now."""
        return list(self._open)

    async def get(self, address: str) -> Connection:
        """The connection to `address`, opened if need be. ConnectFailed, ConnectionLost."""
        connection = self._open.get(address)
        if connection is not None:
            return connection
        if self._is_inherited:
            raise made_before_fork("this client")
        if self._closed:
            raise ClientClosed(f"this client is stopped, and connects to {address} no more", broker=address)
        opening = self._opening.get(address)
        if opening is None:
            opening = asyncio.create_task(self._connect(address), name=f"connect/{address}")
            self._opening[address] = opening
            opening.add_done_callback(lambda task: self._opened(address, task))
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Close every connection, after what was queued on it has been written."""
        self._closed = True
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections = list(self._open.values())
        await asyncio.gather(*(connection.close_gracefully() for connection in connections))

    def forked(self) -> None:
        """Connect no more, in the child of a fork; connections give up their sockets themselves."""
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
                f"no connection to {address}: {reason}. Check that it runs and that this is its address.",
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
            return  # told to those who wait
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
