"""Pages over HTTP: /healthz says that the process lives, /readyz that it can do its work, /metrics how it goes.

/healthz    200 whenever the event loop gets round to answering; it asks nothing, so that a full disk or a lost name
            server never makes a supervisor restart a daemon for which a restart is no cure
/readyz     200 if every check is fine, else 503; the body names each check either way:

            {"ready":false,"checks":{"registered":"no name server has answered yet","store":"ok"}}

The pages live in the daemon's own loop and are served by uvicorn on a socket that is bound here, so that a port in use
is told before anything else starts. A check is a plain callable: None means fine, a text says what is wrong.
What /metrics says is another module's business (`metrics_page.py`).
"""

import asyncio
import errno
import json
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from skylarkmq.broker.errors import StartError
from skylarkmq.broker.ops.http_connections import REQUEST_S, bounded_protocol

FINE: Final = "ok"
BACKLOG: Final = 128
IDLE_S: Final = 5  # of a kept-alive connection; scrapers come less often than that
GRACE_S: Final = 1  # for answers under way when the daemon stops

Check = Callable[[], str | None]

log = logging.getLogger(__name__)


class HealthStatistics(msgspec.Struct, frozen=True):
    """Pages asked for since the start."""

    requests: int


class HealthServer:
    """The pages on one address."""

    def __init__(
        self,
        host: str,
        port: int,
        checks: Mapping[str, Check],
        metrics: ASGIApp | None = None,
        request_s: float = REQUEST_S,
    ) -> None:
        self._request_s = request_s
        self._host = host
        self._port = port
        self._checks = checks
        self._metrics = metrics
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<HealthServer {self._host}:{self._port} {'serving' if self._serving else 'stopped'}>"

    def statistics(self) -> HealthStatistics:
        """The pages' figures now."""
        return HealthStatistics(requests=self._server.server_state.total_requests if self._server else 0)

    async def start(self) -> int:
        """Serve; returns the port (which differs from 0 when 0 was asked for). StartError if it cannot be had."""
        listener = listening(self._host, self._port)
        self._port = listener.getsockname()[1]
        self._server = _Server(
            uvicorn.Config(
                application(self._checks, self._metrics),
                http=bounded_protocol(request_s=self._request_s),
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
        log.info("health pages host=%s port=%d", self._host, self._port)
        return self._port

    async def stop(self) -> None:
        """Stop listening, finish the answers under way."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        await self._serving
        self._serving = None


def application(checks: Mapping[str, Check], metrics: ASGIApp | None = None) -> Starlette:
    """The pages as an ASGI application; without `metrics` there is no such page."""

    async def healthz(_request: Request) -> Response:
        return as_json({"alive": True}, 200)

    async def readyz(_request: Request) -> Response:
        answers = {name: check() or FINE for name, check in checks.items()}
        ready = all(answer == FINE for answer in answers.values())
        return as_json({"ready": ready, "checks": answers}, 200 if ready else 503)

    routes = [Route("/healthz", healthz), Route("/readyz", readyz)]
    if metrics is not None:
        routes.append(Route("/metrics", metrics, methods=["GET"]))
    return Starlette(routes=routes)


def as_json(body: Mapping[str, object], status: int) -> Response:
    return Response(
        json.dumps(body) + "\n", status, media_type="application/json", headers={"cache-control": "no-store"}
    )


def listening(host: str, port: int) -> socket.socket:
    """A socket on the address; StartError if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be had: {error.strerror}"
        raise StartError(f"health pages: port {port} on {host} {reason} (metricsPromExporterPort)") from None
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals belong to the daemon."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
