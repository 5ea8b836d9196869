"""Limits of HTTP connections to the health pages and to the consoles of brokers and mqadmin: their number, and the time
of a request.

uvicorn limits requests, not connections, and waits for the rest of a request forever. A peer that opens connections and
sends nothing, sends half a request, or reads no response could use up the file descriptors that the store and clients
need. So a request must arrive within REQUEST_S, and its response must be read within RESPONSE_S. Beyond MAX_CONNECTIONS
the oldest connection is closed, so that a new probe is always served. Each server has its own connections.
"""

import asyncio
import logging
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MAX_CONNECTIONS: Final = 64
REQUEST_S: Final = 5.0
RESPONSE_S: Final = 30.0
LOG_EVERY_S: Final = 1.0

log = logging.getLogger(__name__)


class BoundedHTTP(H11Protocol):
    """uvicorn's protocol with a deadline for each request. `open` is ordered by age, oldest first."""

    open: dict["BoundedHTTP", None]
    request_s: float = REQUEST_S
    _logged_s: float = -LOG_EVERY_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.request_s, self._check)
        self._began_s = self.loop.time()
        self.open[self] = None
        if len(self.open) > MAX_CONNECTIONS:
            next(iter(self.open))._abort("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self.open.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Start the deadline of the next request on this connection."""
        self._deadline.cancel()
        if not self.transport.is_closing():
            self._began_s = self.loop.time()
            self._deadline = self.loop.call_later(self.request_s, self._check)
        super().on_response_complete()

    def _check(self) -> None:
        """Close the connection after its deadline, or extend the deadline while a response is being written."""
        left_s = RESPONSE_S - (self.loop.time() - self._began_s)
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete and left_s > 0:
            self._deadline = self.loop.call_later(left_s, self._check)
        else:
            self._abort("its request or response took too long")

    def _abort(self, reason: str) -> None:
        now_s = self.loop.time()
        if now_s - type(self)._logged_s >= LOG_EVERY_S:
            type(self)._logged_s = now_s
            log.info("closing page connection peer=%s reason=%s open=%d", self.client, reason, len(self.open))
        self.open.pop(self, None)
        self.transport.abort()


def bounded_protocol(**members: Any) -> type[BoundedHTTP]:
    """Return a protocol class that counts its connections separately from other servers."""
    return type("BoundedHTTP", (BoundedHTTP,), {"open": {}, **members})
