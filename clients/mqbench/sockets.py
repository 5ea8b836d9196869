"""A load's connections: plain and TLS sockets with the same behavior."""

import socket
import ssl
from functools import lru_cache
from typing import Any

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.sdk.connection.tls import tls_context


class TlsSocket(ssl.SSLSocket):
    """Raises BlockingIOError like a plain socket. `pending()` bytes are buffered already and not reported by poll."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive like a plain socket."""
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Receive like a plain socket."""
        try:
            return super().recv_into(buffer, nbytes, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, data: Any, flags: int = 0) -> int:
        """Send like a plain socket."""
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None


def connect(broker: Broker, timeout_s: float = 5.0) -> socket.socket:
    """Return a socket to the broker, with a timeout for every operation. Raises OSError."""
    host, _, port = broker.address.rpartition(":")
    host = host.strip("[]")
    connected = socket.create_connection((host, int(port)), timeout=timeout_s)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tls = broker.security.tls
    if tls is None:
        return connected
    return _context(tls).wrap_socket(connected, server_hostname=host)


def connect_nonblocking(broker: Broker, receive_bytes: int | None = None) -> socket.socket:
    """Return a nonblocking socket to the broker. Raises OSError."""
    connected = connect(broker)
    if receive_bytes is not None:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connected.setblocking(False)
    return connected


@lru_cache(maxsize=4)
def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = tls_context(tls)
    assert context is not None
    context.sslsocket_class = TlsSocket
    return context
