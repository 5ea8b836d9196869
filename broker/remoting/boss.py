"""The boss: listens, accepts connections and hands them to the selector; closes idle connections; stops in order.

An event loop accepts one connection per iteration and listening socket. With many new connections or long iterations
the last ones would wait for minutes. So the same listening socket is registered several times.

The first byte of a connection shows whether it speaks TLS (`tls_detection.py`). The scan for idle connections also
checks for new certificates.

A stop is graceful. New connections are refused first. Admitted requests get their responses, and those are written, for
up to `grace_s` seconds. Then all connections are closed.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.remoting.config import RemotingConfig, TlsConfig, TlsMode
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.remoting.tls_detection import TlsDetector

BACKLOG: Final = 1024
ACCEPTED_PER_ITERATION: Final = 8
IDLE_SCAN_S: Final = 5.0
STOP_POLL_S: Final = 0.005

log = logging.getLogger(__name__)


class RemotingServer:
    """A listening address, its selector and its processor table. `may_open`: see `ConnectionRegistry`."""

    def __init__(
        self,
        config: RemotingConfig,
        tls: ServerTls | None = None,
        may_open: Callable[[Connection], bool] | None = None,
    ) -> None:
        self.tls = tls or ServerTls(TlsConfig(mode=TlsMode.DISABLED))
        self.dispatcher = Dispatcher()
        self.selector = Selector(self.dispatcher, config, may_open)
        self._servers: list[asyncio.Server] = []
        self._idle_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RemotingServer {self._servers and self._servers[0].sockets} {self.selector!r}>"

    @property
    def is_listening(self) -> bool:
        """Return whether clients can connect: `start` has succeeded, and `stop` was not called."""
        return bool(self._servers) and self.selector.registry.accepting

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port, which was chosen by the kernel if `port` is 0. Raises OSError if binding fails."""
        bound = await self.listen_also(host, port)
        self._scan_idle()
        return bound

    async def listen_also(self, host: str, port: int) -> int:
        """Serve the same requests on another port. Raises OSError if binding fails."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._open, host, port, backlog=BACKLOG)
        self._servers.append(server)
        for listening in server.sockets * (ACCEPTED_PER_ITERATION - 1):
            same = socket.socket(fileno=os.dup(listening.fileno()))
            self._servers.append(await loop.create_server(self._open, sock=same, backlog=BACKLOG))
        bound: int = server.sockets[0].getsockname()[1]
        log.info("listening host=%s port=%d", host, bound)
        return bound

    def _open(self) -> TlsDetector:
        return TlsDetector(self.selector.new_connection(), self.selector.registry, self.tls)

    async def stop(self, pending: Callable[[], int], grace_s: float = 3.0) -> None:
        """Stop accepting, wait until `pending()` admitted requests have responses, then close all connections.

        On return every connection is closed and the close callbacks have run.
        """
        registry, writes = self.selector.registry, self.selector.pending_writes
        registry.accepting = False
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for server in self._servers:
            server.close()
        await _until(lambda: not pending() and not writes.backlog_bytes, grace_s)
        for connection in list(registry.connections):
            connection.close()
            if connection.backlog_bytes:
                connection.abort()  # its peer does not read
        await _until(lambda: not registry.connections, grace_s)
        writes.close()
        log.info("stopped listening unanswered=%d", pending())

    def _scan_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self.selector.registry.close_idle(loop.time())
        self.tls.reload_certificates()
        self._idle_timer = loop.call_later(IDLE_SCAN_S, self._scan_idle)


async def _until(done: Callable[[], bool], at_most_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + at_most_s
    while not done() and loop.time() < deadline:  # noqa: ASYNC110 (a stop is rare, and the condition has no event)
        await asyncio.sleep(STOP_POLL_S)
