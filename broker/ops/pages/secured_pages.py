"""TLS for the pages: the TLS transport of the broker's ports (`tls_transport.py`) below uvicorn's HTTP protocol.

    socket -> SecuredHTTP -> TlsTransport -> SecuredHTTP -> uvicorn's protocol

uvicorn's own TLS waits up to a minute for a handshake, and does not count connections before its end. Here a
connection counts from its first moment on, and its handshake has the time limit of a request. The subject of a verified
client certificate is part of each request (`scope["certificate_subject"]`).
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.remoting.tls_transport import TlsTransport
from skylarkmq.http_connections import BoundedHTTP

BUFFER_BYTES: Final = 16 * 1024
CERTIFICATE_SUBJECT: Final = "certificate_subject"


class SecuredHTTP(asyncio.BufferedProtocol):
    """One connection: the protocol of its socket until TLS takes over, then the receiver of decrypted data."""

    def __init__(self, http: BoundedHTTP, tls: ServerTls, context: ssl.SSLContext) -> None:
        self._http = http
        self._tls = tls
        self._context = context
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self.peer = "?"
        self.certificate_subject: str | None = None
        http.app = self._with_subject(http.app)

    def __repr__(self) -> str:
        return f"<SecuredHTTP {self.peer}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the handshake."""
        raw = cast(asyncio.Transport, transport)
        self.peer = str(raw.get_extra_info("peername"))
        raw.set_protocol(TlsTransport(raw, self, self._tls, self._context))

    def secured(self, transport: asyncio.Transport) -> None:
        """Use this transport from now on."""
        self._http.connection_made(transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the interface of asyncio)
        """Return the buffer for the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle decrypted data."""
        self._http.data_received(bytes(self._buffer[:nbytes]))

    def pause_writing(self) -> None:
        """Pause the response."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Continue the response."""
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection."""
        self._http.connection_lost(exc)

    def _with_subject(self, app: Any) -> ASGIApp:
        async def with_subject(scope: Scope, receive: Receive, send: Send) -> None:
            await app({**scope, CERTIFICATE_SUBJECT: self.certificate_subject}, receive, send)

        return with_subject


def secured_protocol(http_protocol: type[BoundedHTTP], tls: ServerTls) -> Callable[..., SecuredHTTP]:
    """Return a factory of connections that speak HTTP over TLS; `tls` must have a certificate."""
    assert tls.context is not None
    context = tls.context

    def connection(**options: Any) -> SecuredHTTP:
        return SecuredHTTP(http_protocol(**options), tls, context.current)

    return connection
