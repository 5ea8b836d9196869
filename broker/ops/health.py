"""HTTP pages: /healthz (the process is alive), /readyz (the broker can do its work), /metrics.

    /healthz    200 whenever the event loop responds; it runs no checks, so that a full disk or a lost name server
                never makes a supervisor restart a daemon that a restart does not repair
    /readyz     200 if every check passes, else 503; the body lists every check either way:
                {"ready":false,"checks":{"registered":"no name server has answered yet","store":"ok"}}

If `metricsPromExporterPort` is not set and its default is in use, the pages use the next free port, so that a second
broker can start on one host. The log shows the address.

The pages run in the daemon's event loop. uvicorn serves them on a socket that is bound here, so that a port in use is
reported before anything else starts. A check is a callable that returns None if it passes, or the reason why not.
`metrics_page.py` produces /metrics, and `page_auth.py` restricts it to accounts. The other pages stay open: probes of
supervisors have no account. With TLS the pages use the certificate of the broker's ports (`secured_pages.py`).
"""

import asyncio
import errno
import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from skylarkmq.broker.errors import StartError
from skylarkmq.broker.ops.http_connections import REQUEST_S, bounded_protocol
from skylarkmq.broker.ops.page_auth import PageAccounts, protected
from skylarkmq.broker.ops.secured_pages import secured_protocol
from skylarkmq.broker.remoting.tls import ServerTls

PASSED: Final = "ok"
BACKLOG: Final = 128
LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # the wildcards
IDLE_S: Final = 5  # of a kept-alive connection; scrapers connect less often
OTHER_PORTS: Final = 100  # that are tried if the default port is in use
GRACE_S: Final = 1  # for responses in progress when the daemon stops

Check = Callable[[], str | None]

log = logging.getLogger(__name__)


class HealthStatistics(msgspec.Struct, frozen=True):
    """Requests served since the start."""

    requests: int


class HealthServer:
    """Serves the pages on one address."""

    def __init__(
        self,
        host: str,
        port: int,
        checks: Mapping[str, Check],
        metrics: ASGIApp | None = None,
        request_s: float = REQUEST_S,
        permitted: PageAccounts | None = None,
        tls: ServerTls | None = None,
        other_ports: int = 0,
    ) -> None:
        self._other_ports = other_ports
        self._tls = tls
        self._request_s = request_s
        self._host = host
        self._port = port
        self._checks = checks
        self._metrics = metrics if metrics is None or permitted is None else protected(metrics, permitted)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<HealthServer {self._host}:{self._port} {'serving' if self._serving else 'stopped'}>"

    def statistics(self) -> HealthStatistics:
        """Return the current totals."""
        return HealthStatistics(requests=self._server.server_state.total_requests if self._server else 0)

    async def start(self) -> int:
        """Start serving, and return the port: that of the constructor, one of the `other_ports` ports after it if it is
        in use, or the kernel's choice for port 0. Raises StartError if it cannot bind."""
        listener = first_listening_socket(self._host, self._port, self._other_ports)
        self._port = listener.getsockname()[1]
        protocol: Any = bounded_protocol(request_s=self._request_s)
        if self._tls is not None:
            protocol = secured_protocol(protocol, self._tls)
        self._server = _Server(
            uvicorn.Config(
                application(self._checks, self._metrics),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]), name="health pages")
        log.info("health pages url=%s", self._url("/readyz"))
        return self._port

    def _url(self, path: str) -> str:
        """Return the address of a page for a client on this machine."""
        host = LOOPBACK_OF.get(self._host, self._host)
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._port}{path}"

    async def stop(self) -> None:
        """Stop listening, and finish the responses in progress."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        await self._serving
        self._serving = None


def application(checks: Mapping[str, Check], metrics: ASGIApp | None = None) -> Starlette:
    """Return the pages as an ASGI application; without `metrics` there is no /metrics page."""

    async def healthz(_request: Request) -> Response:
        return as_json({"alive": True}, 200)

    async def readyz(_request: Request) -> Response:
        results = {name: check() or PASSED for name, check in checks.items()}
        ready = all(result == PASSED for result in results.values())
        return as_json({"ready": ready, "checks": results}, 200 if ready else 503)

    routes = [Route("/healthz", healthz), Route("/readyz", readyz)]
    if metrics is not None:
        routes.append(Route("/metrics", metrics, methods=["GET"]))
    return Starlette(routes=routes)


def as_json(body: Mapping[str, object], status: int) -> Response:
    return Response(
        json.dumps(body) + "\n", status, media_type="application/json", headers={"cache-control": "no-store"}
    )


def first_listening_socket(host: str, port: int, other_ports: int) -> socket.socket:
    """Return a socket that listens on the port, or on the first free one of the `other_ports` ports after it. Raises
    StartError if it cannot bind."""
    for candidate in range(port, port + other_ports):
        try:
            return listening_socket(host, candidate)
        except PortInUse as error:
            log.warning("%s; port %d is tried, since the port is not set", error, candidate + 1)
    return listening_socket(host, port + other_ports)


class PortInUse(StartError):
    """Another program listens on the port."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address. Raises StartError if it cannot bind, PortInUse if that is the
    reason."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        where = f"health pages: port {port} on {host}"
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"{where} is in use (metricsPromExporterPort)") from None
        raise StartError(f"{where} cannot be bound: {error.strerror} (metricsPromExporterPort)") from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the daemon handles signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
