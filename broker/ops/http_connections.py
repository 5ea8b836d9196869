"""Connections of the health pages: how many there may be, and how long each may take.

uvicorn bounds requests, not connections, and waits for the end of a request for ever. A peer that opens connections and
says nothing, half a request, or reads no response would use up the descriptors that the store and clients need. So a
request has REQUEST_S to come, its response RESPONSE_S to leave, and of more than MOST connections the oldest is closed:
a probe that comes always gets through.
"""

import asyncio
import logging
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST: Final = 64
REQUEST_S: Final = 5.0
RESPONSE_S: Final = 30.0
LOG_EVERY_S: Final = 1.0

log = logging.getLogger(__name__)


class BoundedHTTP(H11Protocol):
    """uvicorn's protocol with a deadline for each request. `open` is ordered by age."""

    open: dict["BoundedHTTP", None]
    request_s: float = REQUEST_S
    _logged_s: float = -LOG_EVERY_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._deadline = self.loop.call_later(self.request_s, self._check)
        self._began_s = self.loop.time()
        self.open[self] = None
        if len(self.open) > MOST:
            next(iter(self.open))._give_up("too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self.open.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """The next request has as long as the first one."""
        self._deadline.cancel()
        if not self.transport.is_closing():
            self._began_s = self.loop.time()
            self._deadline = self.loop.call_later(self.request_s, self._check)
        super().on_response_complete()

    def _check(self) -> None:
        """The time for a request is over; a response that is under way has more."""
        left_s = RESPONSE_S - (self.loop.time() - self._began_s)
        cycle = cast(RequestResponseCycle | None, self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete and left_s > 0:
            self._deadline = self.loop.call_later(left_s, self._check)
        else:
            self._give_up("its request or response took too long")

    def _give_up(self, reason: str) -> None:
        now_s = self.loop.time()
        if now_s - type(self)._logged_s >= LOG_EVERY_S:
            type(self)._logged_s = now_s
            log.info("closing health connection peer=%s reason=%s open=%d", self.client, reason, len(self.open))
        self.open.pop(self, None)
        self.transport.abort()


def bounded_protocol(**members: Any) -> type[BoundedHTTP]:
    """A protocol class whose connections are counted apart from those of other servers."""
    return type("BoundedHTTP", (BoundedHTTP,), {"open": {}, **members})
