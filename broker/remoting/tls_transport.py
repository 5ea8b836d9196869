"""TLS between a socket and a connection: a protocol towards the one, a transport towards the other.

    socket -> get_buffer, buffer_updated -> incoming -> OpenSSL -> the same buffer -> Connection.buffer_updated
    socket <- write                      <- outgoing <- OpenSSL <- write           <- Connection

OpenSSL works on two memories, so that nothing here waits: what it wants to be sent is in `outgoing` after each step.
They keep the size that they once had, and so are never given more than a record at a time: a connection costs some 20
KiB while it is idle, and 100 at most.
The connection notices nothing: it gets whole reads in the buffer that all share, and what its peer has not taken is
what waits in the socket's transport, to the byte. Reading is handed on as it comes; one that filled the buffer lets
other connections have their turn first.

A handshake has HANDSHAKE_TIMEOUT_S. One that fails, is too slow or is given up is nothing unusual: a line in the log, a
count, and the connection is closed, with the alert that tells the peer why.
"""

import asyncio
import logging
import ssl
from typing import Any, Final, Protocol

from skylarkmq.broker.remoting.tls import ServerTls, reason_of

HANDSHAKE_TIMEOUT_S: Final = 10.0  # as Netty has it
PIECE_BYTES: Final = 16 * 1024
"""What passes through OpenSSL's memories at a time, a record's worth: they never shrink."""

log = logging.getLogger(__name__)


class SecuredConnection(Protocol):
    """What TLS wants of the connection in it."""

    peer: str

    def secured(self, transport: asyncio.Transport) -> None:
        """From now on this is the transport."""

    def get_buffer(self, size_hint: int) -> memoryview:
        """Where to put what was read."""

    def buffer_updated(self, size: int) -> None:
        """So much of the buffer was read."""

    def pause_writing(self) -> None:
        """Something waits to be written."""

    def resume_writing(self) -> None:
        """All was written."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The server's side of one TLS connection; `raw` is the socket's transport, of which it becomes the protocol."""

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
        self._deadline: asyncio.TimerHandle | None = self._loop.call_later(HANDSHAKE_TIMEOUT_S, self.give_up)
        connection.secured(self)

    def __repr__(self) -> str:
        return f"<TlsTransport {self._connection.peer} {self._engine.version() or 'handshake'}>"

    # ----------------------------------------------------------------------------------- the socket's transport calls

    def get_buffer(self, sizehint: int) -> memoryview:
        self._buffer = self._connection.get_buffer(sizehint)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """One read: what it completes is decrypted and handed on."""
        if nbytes == len(self._buffer) and self._reading:
            self._raw.pause_reading()
            self._loop.call_soon(self._read_on)
        self._take(memoryview(bytes(self._buffer[:nbytes])))  # the buffer takes what is decrypted

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the peer left" if exc is None else str(exc))
        self._connection.connection_lost(exc)

    # -------------------------------------------------------------------------------------------------- the handshake

    def _shake_hands(self) -> bool:
        """Go on with the handshake; whether it is done."""
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
        self._tls.established += 1
        log.debug("tls established peer=%s version=%s", self._connection.peer, self._engine.version())
        return True

    def give_up(self) -> None:
        """The handshake takes too long."""
        self._fail(f"not within {HANDSHAKE_TIMEOUT_S:g} s")
        self._raw.abort()

    def _fail(self, reason: str) -> None:
        """Note once that a handshake came to nothing."""
        if self._end_handshake():
            self._tls.failed += 1
            log.info("tls handshake failed peer=%s reason=%s", self._connection.peer, reason)

    def _end_handshake(self) -> bool:
        """Stop the clock; whether it was running."""
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()
        return deadline is not None

    # ----------------------------------------------------------------------------------------------------- both ways

    def _take(self, data: memoryview) -> None:
        """Decrypt what came, and give the connection what that makes, as much as the buffer holds at a time."""
        ended = False
        try:
            for at in range(0, len(data), PIECE_BYTES):
                self._incoming.write(data[at : at + PIECE_BYTES])
                if self._established or self._shake_hands():
                    self._decrypt()
                if self._raw.is_closing():
                    return
        except ssl.SSLZeroReturnError:
            ended = True
        except ssl.SSLError as error:
            log.info("closing connection, its TLS is broken peer=%s reason=%s", self._connection.peer, reason_of(error))
            self._raw.abort()
            return
        self._hand_on()
        self._send()  # keys change now and then
        if ended:
            self.close()  # the peer has said all, and gets no more answers either

    def _decrypt(self) -> None:
        """Add what is complete to the buffer. SSLZeroReturnError at the end of it all."""
        while not self._raw.is_closing():
            buffer = self._buffer
            if self._filled == len(buffer):
                self._hand_on()
                continue
            try:
                got = self._engine.read(len(buffer) - self._filled, buffer[self._filled :])
            except ssl.SSLWantReadError:
                return
            if not got:
                raise ssl.SSLZeroReturnError
            self._filled += int(got)

    def _hand_on(self) -> None:
        filled, self._filled = self._filled, 0
        if filled:
            self._connection.buffer_updated(filled)
            self._buffer = self._connection.get_buffer(-1)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        rest = memoryview(data)
        while rest and not self._raw.is_closing():
            rest = rest[self._engine.write(rest[:PIECE_BYTES]) :]
            self._send()

    def _send(self) -> None:
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def _read_on(self) -> None:
        if self._reading and not self._raw.is_closing():
            self._raw.resume_reading()

    # ------------------------------------------------------------------------------------------ the connection calls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`ssl_object` and `sslcontext` tell that this is TLS; the rest the socket's transport knows."""
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
        """Say that this was all, send what waits, and close."""
        if self._established and not self._raw.is_closing():
            try:
                self._engine.unwrap()
            except ssl.SSLError:
                pass  # the peer has not said so yet, and nobody waits for it
            self._send()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()
