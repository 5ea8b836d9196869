"""/metrics: a scrape over HTTP, in the format and encoding that the scraper requests.

    Accept: application/openmetrics-text    OpenMetrics, otherwise Prometheus's text format
    Accept-Encoding: gzip                   compressed piece by piece

A scrape is complete before its first byte is sent, so a slow scraper holds nothing but the text. At most
MAX_CONCURRENT_SCRAPES are in progress, from the request until the last byte is sent; further ones get 503. While the
store is being loaded in another thread, its tables change during reads: scrapes get 503 with the reason.
"""

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from prometheus_client.exposition import choose_encoder, gzip_accepted
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from skylarkmq.broker.ops.scrape import Scrape

MAX_CONCURRENT_SCRAPES: Final = 16
GZIP: Final = 16 + zlib.MAX_WBITS
FASTEST_LEVEL: Final = 1
CHUNK_BYTES: Final = 64 * 1024

log = logging.getLogger(__name__)


def page_of(
    exporter: str, make_scrape: Callable[[], Scrape], why_not: Callable[[], str | None] = lambda: None
) -> "MetricsPage | None":
    """Return the page for a value of `metricsExporterType`; None: it is turned off."""
    if exporter == "DISABLE":
        return None
    if exporter != "PROM":
        log.warning("metricsExporterType=%s is not supported, metrics are served on /metrics", exporter)
    return MetricsPage(make_scrape(), why_not)


class MetricsPage:
    """The page as an ASGI application. `why_not` returns why no metrics can be read yet; None once they can."""

    def __init__(self, scrape: Scrape, why_not: Callable[[], str | None] = lambda: None) -> None:
        self._scrape = scrape
        self._why_not = why_not
        self._in_progress = 0

    def __repr__(self) -> str:
        return f"<MetricsPage in_progress={self._in_progress}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = "too many scrapes at once" if self._in_progress >= MAX_CONCURRENT_SCRAPES else self._why_not()
        if refusal:
            unavailable = PlainTextResponse(f"{refusal}\n", HTTPStatus.SERVICE_UNAVAILABLE)
            await unavailable(scope, receive, send)
            return
        self._in_progress += 1
        try:
            headers, pieces = await self._response(Request(scope).headers)
            await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": raw_headers(headers)})
            for chunk in chunks(pieces):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._in_progress -= 1

    async def _response(self, requested: Headers) -> tuple[dict[str, str], list[bytes]]:
        """Return headers and body of the response."""
        encode, content_type = choose_encoder(requested.get("accept", ""))
        headers = {"content-type": content_type, "vary": "accept, accept-encoding", "cache-control": "no-store"}
        if gzip_accepted(requested.get("accept-encoding", "")):
            compressor = zlib.compressobj(FASTEST_LEVEL, wbits=GZIP)
            pieces = await self._scrape.pieces(encode, compressor.compress)
            pieces.append(compressor.flush())
            headers["content-encoding"] = "gzip"
        else:
            pieces = await self._scrape.pieces(encode)
        headers["content-length"] = str(sum(map(len, pieces)))
        return headers, pieces


def raw_headers(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Return headers in ASGI's form."""
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def chunks(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the pieces joined to larger ones, each of which is written before the next is made."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)
