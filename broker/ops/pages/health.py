"""HTTP pages: /healthz (the process is alive), /readyz (the broker can do its work), /metrics.

    /healthz    200 whenever the event loop responds; it runs no checks, so that a full disk or a lost name server
                never makes a supervisor restart a daemon that a restart does not repair
    /readyz     200 if every check passes, else 503; the body lists every check either way:
                {"ready":false,"checks":{"registered":"no name server has answered yet","store":"ok"}}

If `metricsPromExporterPort` is not set and its default is in use, the pages use the next free port, so that a second
broker can start on one host. The log shows the address.

The pages run in the daemon's event loop (`page_server.py`). A check is a callable that returns None if it passes, or
the reason why not. `metrics_page.py` produces /metrics, and `page_auth.py` restricts it to accounts. The other pages
stay open: probes of supervisors have no account.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from skylarkmq.broker.ops.pages.page_auth import PageAccounts, protected
from skylarkmq.broker.ops.pages.page_server import PagesAddress, PageServer
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.http_connections import REQUEST_S

PASSED: Final = "ok"
OTHER_PORTS: Final = 100  # that are tried if the default port is in use

Check = Callable[[], str | None]


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
        metrics = metrics if metrics is None or permitted is None else protected(metrics, permitted)
        address = PagesAddress("health pages", host, port, "metricsPromExporterPort", "/readyz", other_ports)
        self._server = PageServer(application(checks, metrics), address, request_s=request_s, tls=tls)

    def __repr__(self) -> str:
        return f"<HealthServer {self._server!r}>"

    def statistics(self) -> HealthStatistics:
        """Return the current totals."""
        return HealthStatistics(requests=self._server.requests)

    async def start(self) -> int:
        """Start serving, and return the port: the constructor's port, one of the `other_ports` ports after it if it is
        in use, or the kernel's choice for port 0. Raises StartError if it cannot bind."""
        return await self._server.start()

    async def stop(self) -> None:
        """Stop listening, and finish the responses in progress."""
        await self._server.stop()


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
