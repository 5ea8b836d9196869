"""/metrics: a scrape over HTTP, in the format and the encoding that the scraper asks for.

    Accept: application/openmetrics-text    OpenMetrics, else Prometheus's text format
    Accept-Encoding: gzip                   compressed, piece by piece as well

A scrape is made whole before its first byte leaves, so a scraper that reads slowly holds nothing but the text. At
most MOST_AT_ONCE are under way, from the request until the last byte was taken; more are told to come back later.
While the store is loaded in another thread, its tables change under a reader: scrapes get 503 with the reason.
"""

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

MOST_AT_ONCE: Final = 16
GZIP: Final = 16 + zlib.MAX_WBITS
QUICK: Final = 1
CHUNK_BYTES: Final = 64 * 1024


class MetricsPage:
    """The page as an ASGI application. `why_not` returns why nothing can be read yet, None once it can."""

    def __init__(self, scrape: Scrape, why_not: Callable[[], str | None] = lambda: None) -> None:
        self._scrape = scrape
        self._why_not = why_not
        self._under_way = 0

    def __repr__(self) -> str:
        return f"<MetricsPage under_way={self._under_way}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = "too many scrapes at once" if self._under_way >= MOST_AT_ONCE else self._why_not()
        if refusal:
            unavailable = PlainTextResponse(f"{refusal}\n", HTTPStatus.SERVICE_UNAVAILABLE)
            await unavailable(scope, receive, send)
            return
        self._under_way += 1
        try:
            headers, pieces = await self._answer(Request(scope).headers)
            await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": raw(headers)})
            for chunk in chunks(pieces):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._under_way -= 1

    async def _answer(self, asked: Headers) -> tuple[dict[str, str], list[bytes]]:
        """Headers and body of the answer."""
        encode, content_type = choose_encoder(asked.get("accept", ""))
        headers = {"content-type": content_type, "vary": "accept, accept-encoding", "cache-control": "no-store"}
        if gzip_accepted(asked.get("accept-encoding", "")):
            compressor = zlib.compressobj(QUICK, wbits=GZIP)
            pieces = await self._scrape.pieces(encode, compressor.compress)
            pieces.append(compressor.flush())
            headers["content-encoding"] = "gzip"
        else:
            pieces = await self._scrape.pieces(encode)
        headers["content-length"] = str(sum(map(len, pieces)))
        return headers, pieces


def raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI has them."""
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def chunks(pieces: Sequence[bytes]) -> Iterator[bytes]:
    """The pieces in larger ones, each of which is written before the next is made."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)
