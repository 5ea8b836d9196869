"""The boss: listens, accepts, and hands each connection to the selector; closes idle ones; stops in order.

An event loop accepts one connection a turn from each listening socket; while many come, or turns are long, the others
would wait for minutes. So there are several sockets, all of them the same one.

Whether a connection speaks TLS shows when it speaks (`opening.py`). A new certificate is looked for with idle ones.

Stopping is gentle: first the door closes (no new connections), requests that were admitted get their answers, and the
peers what was answered, for up to `grace_s`; then the connections are closed.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

from skylarkmq.broker.remoting.config import RemotingConfig, TlsConfig, TlsMode
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.remoting.tls_detection import Opening

BACKLOG: Final = 1024
ACCEPTED_A_TURN: Final = 8
IDLE_SCAN_S: Final = 5.0
STOP_POLL_S: Final = 0.005

log = logging.getLogger(__name__)


class RemotingServer:
    """A listening address, its selector and its processor table."""

    def __init__(self, config: RemotingConfig, tls: ServerTls | None = None) -> None:
        self.tls = tls or ServerTls(TlsConfig(mode=TlsMode.DISABLED))
        self.dispatcher = Dispatcher()
        self.selector = Selector(self.dispatcher, config)
        self._servers: list[asyncio.Server] = []
        self._idle_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<RemotingServer {self._servers and self._servers[0].sockets} {self.selector!r}>"

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (which differs from 0 when 0 was asked for). OSError if it cannot be had."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(self._open, host, port, backlog=BACKLOG)
        self._servers.append(server)
        for listening in server.sockets * (ACCEPTED_A_TURN - 1):
            same = socket.socket(fileno=os.dup(listening.fileno()))
            self._servers.append(await loop.create_server(self._open, sock=same, backlog=BACKLOG))
        self._scan_idle()
        bound: int = server.sockets[0].getsockname()[1]
        log.info("listening host=%s port=%d", host, bound)
        return bound

    def _open(self) -> Opening:
        return Opening(self.selector, self.tls)

    async def stop(self, held: Callable[[], int], grace_s: float = 3.0) -> None:
        """Close the door, wait until `held()` admitted requests are answered, close what is left.

        When this returns every connection is gone and whoever wanted to know has been told.
        """
        self.selector.accepting = False
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for server in self._servers:
            server.close()
        await _until(lambda: not held() and not self.selector.backlog_bytes, grace_s)
        for connection in list(self.selector.connections):
            connection.close()
            if connection.backlog_bytes:
                connection.abort()  # its peer does not read
        await _until(lambda: not self.selector.connections, grace_s)
        self.selector.transfer.close()
        log.info("stopped listening unanswered=%d", held())

    def _scan_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self.selector.close_idle(loop.time())
        self.tls.follow_files()
        self._idle_timer = loop.call_later(IDLE_SCAN_S, self._scan_idle)


async def _until(done: Callable[[], bool], at_most_s: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + at_most_s
    while not done() and loop.time() < deadline:  # noqa: ASYNC110 (stopping is rare, and what it asks has no event)
        await asyncio.sleep(STOP_POLL_S)
