"""A blocking connection for pulls: frames go out together, answers come into one buffer that is used again and again.

    buffer   | answers that were given out | answers not looked at yet | part of a frame | room |
             0                          _parsed                                       _filled

The body of an answer is told as its place in `buffer` and stays there until `rewind`, which moves what has not been
given out to the front. One task at a time has a connection, so there is nothing to share and nothing to wake: the read
call takes whatever the kernel has, and a wrong turn shows as an exception there.

Why not the asyncio SDK, which reads as well: each read of its protocol makes a bytes object, and bodies that lie in
many objects have to be joined before Arrow can take them (docs/decisions/0009-spark-reads-by-blocking-sockets.md).
"""

import socket
import ssl
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Final

import msgspec

from skylarkmq.clients.connection.tls import tls_context
from skylarkmq.clients.settings import TlsSettings
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import MAX_FRAME_BYTES
from skylarkmq.protocol.serialize import decode_command

BUFFER_BYTES: Final = 4 << 20
LEAST_ROOM: Final = 512 * 1024
"""A buffer with less room is taken for full: more than an answer of 256 KiB has."""

_PREFIX: Final = Struct(">iI").unpack_from
_HEADER_LENGTH: Final = 0x00FF_FFFF


class Answer(msgspec.Struct):
    """An answer and where its body stands in the connection's buffer."""

    command: RemotingCommand
    body: tuple[int, int]


class PullConnection:
    """A connection to `address` (`host:port`); OSError if there is none in time. ssl.SSLError is an OSError too."""

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
        """Whether the bodies should be taken, and the buffer rewound, before more is received."""
        return len(self.buffer) - self._filled < LEAST_ROOM

    @property
    def view(self) -> memoryview:
        """The buffer as far as answers were given out; not to be used behind `rewind`."""
        return self._view[: self._parsed]

    def next_opaque(self) -> int:
        """The number of the next request."""
        self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        return self._opaque

    def send(self, frames: bytes) -> None:
        """Send whole frames. OSError."""
        self._socket.sendall(frames)

    def receive(self) -> Iterator[Answer]:
        """Wait for bytes, and give out the answers that they complete. OSError, TimeoutError; ProtocolError."""
        count = self._socket.recv_into(self._view[self._filled :])
        if not count:
            raise ConnectionError(f"{self.address} closed the connection")
        self._filled += count
        while self._filled - self._parsed >= 8:
            length, word = _PREFIX(self.buffer, self._parsed)
            end = self._parsed + 4 + length
            body = self._parsed + 8 + (word & _HEADER_LENGTH)
            if not body <= end or length > MAX_FRAME_BYTES:
                raise ProtocolError(f"{self.address} sent what is no frame: length {length}, header word {word}")
            if end > self._filled:
                break
            header = self._view[self._parsed + 8 : body]
            self._parsed = end
            command = decode_command((word >> 24, header, memoryview(b"")))
            if command is not None:
                yield Answer(command, (body, end))

    def rewind(self) -> None:
        """Forget what was given out; the buffer grows if the frame that has begun needs that."""
        rest = bytes(self._view[self._parsed : self._filled])
        needed = 4 + _PREFIX(rest)[0] if len(rest) >= 8 else 0
        if needed + LEAST_ROOM > len(self.buffer):
            self.buffer = bytearray(needed + LEAST_ROOM)
            self._view = memoryview(self.buffer)
        self._view[: len(rest)] = rest
        self._parsed, self._filled = 0, len(rest)

    def close(self) -> None:
        """End it."""
        self._socket.close()


@lru_cache(maxsize=4)
def _context(tls: TlsSettings) -> ssl.SSLContext:
    context = tls_context(tls)
    assert context is not None
    return context
