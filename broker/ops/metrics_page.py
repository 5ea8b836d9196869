"""/metrics: a scrape over HTTP, in the format and the encoding that the scraper asks for.

    Accept: application/openmetrics-text    OpenMetrics, else Prometheus's text format
    Accept-Encoding: gzip                   compressed, piece by piece as well

A scrape is made whole before its first byte leaves, so a scraper that reads slowly holds nothing but the text. At
most MOST_AT_ONCE are under way, from the request until the last byte was taken; more are told to come back later.
"""

import zlib
from http import HTTPStatus
from typing import Final

from prometheus_client.exposition import choose_encoder, gzip_accepted
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from broker.ops.scrape import Scrape

MOST_AT_ONCE: Final = 16
GZIP: Final = 16 + zlib.MAX_WBITS
QUICK: Final = 1


class MetricsPage:
    """The page as an ASGI application."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape
        self._under_way = 0

    def __repr__(self) -> str:
        return f"<MetricsPage under_way={self._under_way}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if self._under_way >= MOST_AT_ONCE:
            busy = PlainTextResponse("too many scrapes at once\n", HTTPStatus.SERVICE_UNAVAILABLE)
            await busy(scope, receive, send)
            return
        self._under_way += 1
        try:
            response = await self._answer(Request(scope))
            await response(scope, receive, send)
        finally:
            self._under_way -= 1

    async def _answer(self, request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        headers = {"content-type": content_type, "vary": "accept, accept-encoding", "cache-control": "no-store"}
        if not gzip_accepted(request.headers.get("accept-encoding", "")):
            return Response(b"".join(await self._scrape.pieces(encode)), headers=headers)
        compressor = zlib.compressobj(QUICK, wbits=GZIP)
        pieces = await self._scrape.pieces(encode, compressor.compress)
        pieces.append(compressor.flush())
        return Response(b"".join(pieces), headers=headers | {"content-encoding": "gzip"})
