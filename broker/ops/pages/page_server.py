"""A server of pages in the daemon's event loop: the health pages, and the console.

uvicorn serves an ASGI application on a socket that is bound here, so that a port in use is reported before anything
else starts. Connections and requests are limited (`http_connections.py`); with TLS they use the certificate of the
broker's ports (`secured_pages.py`).
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

import uvicorn
from starlette.types import ASGIApp

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.ops.pages.secured_pages import secured_protocol
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.http_connections import REQUEST_S, bounded_protocol

BACKLOG: Final = 128
LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # the wildcards
IDLE_S: Final = 5  # of a kept-alive connection; scrapers connect less often
GRACE_S: Final = 1  # for responses in progress when the daemon stops

log = logging.getLogger(__name__)


class PagesAddress(NamedTuple):
    """Where pages are served.

    `name` and `setting` (the setting of the port) are for messages, `path` for the address in the log. `other_ports`:
    how many ports after this one are tried if it is in use.
    """

    name: str
    host: str
    port: int
    setting: str
    path: str = "/"
    other_ports: int = 0

    def url(self, *, is_secure: bool) -> str:
        """Return the address for a browser on this machine."""
        host = LOOPBACK_OF.get(self.host, self.host)
        scheme = "https" if is_secure else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}{self.path}"


class PageServer:
    """Serves one application on one address. `lifespan`: "on" if the application has parts that start and stop."""

    def __init__(
        self,
        app: ASGIApp,
        address: PagesAddress,
        *,
        request_s: float = REQUEST_S,
        tls: ServerTls | None = None,
        lifespan: Literal["on", "off"] = "off",
    ) -> None:
        self._app = app
        self._address = address
        self._request_s = request_s
        self._tls = tls
        self._lifespan: Literal["on", "off"] = lifespan
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        name, host, port = self._address[:3]
        return f"<PageServer {name} {host}:{port} {'serving' if self._serving else 'stopped'}>"

    @property
    def requests(self) -> int:
        """Return the number of requests served since the start."""
        return self._server.server_state.total_requests if self._server else 0

    async def start(self) -> int:
        """Start serving, and return the port: the port of the address, one of the `other_ports` ports after it if it is
        in use, or the kernel's choice for port 0. Raises StartError if it cannot bind."""
        listener = first_listening_socket(self._address)
        self._address = self._address._replace(port=listener.getsockname()[1])
        protocol: Any = bounded_protocol(request_s=self._request_s)
        if self._tls is not None:
            protocol = secured_protocol(protocol, self._tls)
        self._server = _Server(
            uvicorn.Config(
                self._app,
                http=protocol,
                ws="none",
                lifespan=self._lifespan,
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name=self._address.name)
        log.info("%s url=%s", self._address.name, self._address.url(is_secure=self._tls is not None))
        return self._address.port

    async def stop(self) -> None:
        """Stop listening, and finish the responses in progress."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        await self._serving
        self._serving = None


class PortInUse(StartError):
    """Another program listens on the port."""


def first_listening_socket(address: PagesAddress) -> socket.socket:
    """Return a socket that listens on the port, or on the first free one of the `other_ports` ports after it. Raises
    StartError if it cannot bind."""
    last = address.port + address.other_ports
    for candidate in range(address.port, last):
        try:
            return listening_socket(address._replace(port=candidate))
        except PortInUse as error:
            log.warning("%s; port %d is tried, since the port is not set", error, candidate + 1)
    return listening_socket(address._replace(port=last))


def listening_socket(address: PagesAddress) -> socket.socket:
    """Return a socket that listens on the address. Raises StartError if it cannot bind, PortInUse if that is the
    reason."""
    name, host, port, setting = address[:4]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        where = f"{name}: port {port} on {host}"
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"{where} is in use ({setting})") from None
        raise StartError(f"{where} cannot be bound: {error.strerror} ({setting})") from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the daemon handles signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
