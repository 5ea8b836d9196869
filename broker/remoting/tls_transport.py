"""TLS between a socket and a connection: a protocol for the socket's transport, a transport for the connection.

    socket -> get_buffer, buffer_updated -> incoming -> OpenSSL -> the same buffer -> Connection.buffer_updated
    socket <- write                      <- outgoing <- OpenSSL <- write           <- Connection

OpenSSL works on two memory buffers, so nothing here blocks: after each step `outgoing` contains the bytes to send. The
buffers never shrink, so they get at most one TLS record at a time: a connection uses about 20 KiB while it is idle and
at most 100 KiB.
The connection is unaffected: it gets whole reads in the shared buffer, and its backlog is what waits in the socket's
transport, to the byte. Decrypted data is passed on as it arrives; after a read that filled the buffer, other
connections are served first.

A handshake must finish within HANDSHAKE_TIMEOUT_S. One that fails, is too slow or is aborted is not unusual: it is
logged and counted, and the connection is closed with the TLS alert that states the reason.
"""

import asyncio
import logging
import ssl
from typing import Any, Final, Protocol

from skylarkmq.broker.remoting.tls import ServerTls, reason_of, verified_subject

HANDSHAKE_TIMEOUT_S: Final = 10.0  # as in Netty
PIECE_BYTES: Final = 16 * 1024
"""The size of one TLS record: at most so much is put into OpenSSL's buffers at a time, since they never shrink."""

log = logging.getLogger(__name__)


class SecuredConnection(Protocol):
    """The part of the connection that the TLS transport needs."""

    peer: str
    certificate_subject: str | None

    def secured(self, transport: asyncio.Transport) -> None:
        """Use this transport from now on."""

    def get_buffer(self, size_hint: int) -> memoryview:
        """Return the buffer for the next read."""

    def buffer_updated(self, size: int) -> None:
        """Handle `size` bytes of the buffer."""

    def pause_writing(self) -> None:
        """Note that output waits to be written."""

    def resume_writing(self) -> None:
        """Note that all output is written."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection is closed."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The server side of one TLS connection; it becomes the protocol of `raw`, the socket's transport."""

    def __init__(
        self, raw: asyncio.Transport, connection: SecuredConnection, tls: ServerTls, context: ssl.SSLContext
    ) -> None:
        super().__init__()
        self._raw = raw
        self._connection = connection
        self._tls = tls
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._engine = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._loop = asyncio.get_running_loop()
        self._buffer = connection.get_buffer(-1)
        self._filled = 0
        self._reading = True
        self._established = False
        self._deadline: asyncio.TimerHandle | None = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self.abort_handshake)
        connection.secured(self)

    def __repr__(self) -> str:
        return f"<TlsTransport {self._connection.peer} {self._engine.version() or 'handshake'}>"

    # --------------------------------------------------------------------------------- called by the socket's transport

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = self._connection.get_buffer(sizehint)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle one read: decrypt it and pass the data on."""
        if nbytes == len(self._buffer) and self._reading:
            self._raw.pause_reading()
            self._loop.call_soon(self._resume_if_reading)
        self._decrypt_read(memoryview(bytes(self._buffer[:nbytes])))  # a copy: decrypted data goes into the buffer

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the peer closed the connection" if exc is None else str(exc))
        self._connection.connection_lost(exc)

    # ---------------------------------------------------------------------------------------------------- the handshake

    def _advance_handshake(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        try:
            self._engine.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            self._send()  # the alert
            self._fail(reason_of(error))
            self._raw.close()
            return False
        self._send()
        self._end_handshake()
        self._established = True
        self._connection.certificate_subject = verified_subject(self._engine)
        self._tls.established += 1
        log.debug("tls established peer=%s version=%s", self._connection.peer, self._engine.version())
        return True

    def abort_handshake(self) -> None:
        """Close a connection whose handshake takes too long."""
        self._fail(f"not completed within {HANDSHAKE_TIMEOUT_S:g} s")
        self._raw.abort()

    def _fail(self, reason: str) -> None:
        """Count and log a failed handshake, once."""
        if self._end_handshake():
            self._tls.failed += 1
            log.info("tls handshake failed peer=%s reason=%s", self._connection.peer, reason)

    def _end_handshake(self) -> bool:
        """Cancel the timeout; return whether the handshake was in progress."""
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()
        return deadline is not None

    # -------------------------------------------------------------------------------------------------- both directions

    def _decrypt_read(self, data: memoryview) -> None:
        """Decrypt received data and pass it to the connection, at most a buffer at a time."""
        ended = False
        try:
            for at in range(0, len(data), PIECE_BYTES):
                self._incoming.write(data[at : at + PIECE_BYTES])
                if self._established or self._advance_handshake():
                    self._decrypt()
                if self._raw.is_closing():
                    return
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            log.info("closing connection, TLS error peer=%s reason=%s", self._connection.peer, reason_of(error))
            self._raw.abort()
            return
        self._deliver()
        self._send()  # such as key updates
        if ended:
            self.close()  # the peer sends no more and gets no more responses

    def _decrypt(self) -> None:
        """Decrypt complete records into the buffer. Raises SSLZeroReturnError at the end of the stream."""
        while not self._raw.is_closing():
            buffer = self._buffer
            if self._filled == len(buffer):
                self._deliver()
                continue
            try:
                got = self._engine.read(len(buffer) - self._filled, buffer[self._filled :])
            except ssl.SSLWantReadError:
                return
            if not got:
                raise ssl.SSLZeroReturnError
            self._filled += int(got)

    def _deliver(self) -> None:
        filled, self._filled = self._filled, 0
        if filled:
            self._connection.buffer_updated(filled)
            self._buffer = self._connection.get_buffer(-1)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send data."""
        rest = memoryview(data)
        while rest and not self._raw.is_closing():
            rest = rest[self._engine.write(rest[:PIECE_BYTES]) :]
            self._send()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _resume_if_reading(self) -> None:
        if self._reading and not self._raw.is_closing():
            self._raw.resume_reading()

    # ----------------------------------------------------------------------------------------- called by the connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return `ssl_object` and `sslcontext` of this connection, other values from the socket's transport."""
        if name == "ssl_object":
            return self._engine
        return self._engine.context if name == "sslcontext" else self._raw.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._raw.is_closing()

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        self._raw.resume_reading()

    def close(self) -> None:
        """Send the closing alert and the remaining data, then close."""
        if self._established and not self._raw.is_closing():
            try:
                self._engine.unwrap()
            except ssl.SSLError:
                pass  # the peer's closing alert is not awaited
            self._send()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()
