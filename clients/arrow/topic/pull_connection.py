"""A blocking connection for pulls: many requests are written at once; responses are received into one reused buffer.

    buffer   | responses already returned | unparsed responses | part of a frame | free |
             0                            _parsed                                _filled

The position of a response's body in `buffer` is valid until `rewind`, which moves the unparsed bytes to the front. Only
one task at a time uses a connection, so no locks or wake-ups are needed; `receive` takes all bytes that the kernel has.

The asyncio SDK is not used here: each read of its protocol creates a bytes object, and bodies in many objects would
have to be joined for Arrow (docs/decisions/0009-spark-reads-by-blocking-sockets.md).
"""

import socket
import ssl
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from skylarkmq.clients.sdk.base.settings import TlsSettings
from skylarkmq.clients.sdk.connection.tls import tls_context
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import MAX_FRAME_BYTES
from skylarkmq.protocol.serialize import decode_command

BUFFER_BYTES: Final = 4 << 20
LEAST_ROOM: Final = 512 * 1024
"""A buffer with less free space counts as full: more than a response of 256 KiB needs."""

_PREFIX: Final = Struct(">iI").unpack_from
_HEADER_LENGTH: Final = 0x00FF_FFFF


class PullResponse(msgspec.Struct):
    """A response, and the position of its body in the connection's buffer."""

    command: RemotingCommand
    body: tuple[int, int]


class PullConnection:
    """A connection to `address` (`host:port`).

    Raises OSError (which includes ssl.SSLError) if it cannot be opened in time.
    """

    def __init__(self, address: str, tls: TlsSettings | None, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self.buffer)
        self._filled = self._parsed = 0
        self._opaque = 0
        connected = socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected if tls is None else _context(tls).wrap_socket(connected, server_hostname=host)

    def __repr__(self) -> str:
        return f"<PullConnection {self.address} {self._filled} of {len(self.buffer)} bytes>"

    @property
    def is_full(self) -> bool:
        """Whether the bodies should be processed, and the buffer rewound, before the next `receive`."""
        return len(self.buffer) - self._filled < LEAST_ROOM

    @property
    def view(self) -> memoryview:
        """Return the part of the buffer with returned responses; not valid after `rewind`."""
        return self._view[: self._parsed]

    def next_opaque(self) -> int:
        """Return the opaque of the next request."""
        self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        return self._opaque

    def send(self, frames: bytes) -> None:
        """Send whole frames. Raises OSError."""
        self._socket.sendall(frames)

    def receive(self) -> Iterator[PullResponse]:
        """Wait for bytes, and yield the responses that they complete. Raises OSError, TimeoutError, ProtocolError."""
        count = self._socket.recv_into(self._view[self._filled :])
        if not count:
            raise ConnectionError(f"{self.address} closed the connection")
        self._filled += count
        while self._filled - self._parsed >= 8:
            length, word = _PREFIX(self.buffer, self._parsed)
            end = self._parsed + 4 + length
            body = self._parsed + 8 + (word & _HEADER_LENGTH)
            if not body <= end or length > MAX_FRAME_BYTES:
                raise ProtocolError(f"{self.address} sent an invalid frame: length {length}, header word {word}")
            if end > self._filled:
                break
            header = self._view[self._parsed + 8 : body]
            self._parsed = end
            command = decode_command((word >> 24, header, memoryview(b"")))
            if command is not None:
                yield PullResponse(command, (body, end))

    def rewind(self) -> None:
        """Discard the returned responses; the buffer grows if the incomplete frame needs more space."""
        rest = bytes(self._view[self._parsed : self._filled])
        needed = 4 + _PREFIX(rest)[0] if len(rest) >= 8 else 0
        if needed + LEAST_ROOM > len(self.buffer):
            self.buffer = bytearray(needed + LEAST_ROOM)
            self._view = memoryview(self.buffer)
        self._view[: len(rest)] = rest
        self._parsed, self._filled = 0, len(rest)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@lru_cache(maxsize=4)
def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = tls_context(tls)
    assert context is not None
    return context
