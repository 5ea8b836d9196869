"""A peer in the test's own event loop that sends raw frames, reads decoded ones, and can misbehave in many ways.

Like `raw.py` it uses the standard library only. It shares an event loop with the server under test, so that a test can
inspect both sides between two steps. Source: docs/reference/wire.md, "Frame".
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import frame, texts

CLOSE_TIMEOUT_S = 1.0


class Received(NamedTuple):
    """A frame from the other side."""

    dialect: int
    header: dict[str, Any]
    body: bytes

    @property
    def code(self) -> int:
        code: int = self.header["code"]
        return code

    @property
    def remark(self) -> str | None:
        return self.header.get("remark")

    @property
    def ext(self) -> dict[str, str]:
        return self.header.get("extFields") or {}


class RawPeer:
    """Use as `async with await RawPeer.connect(port) as peer`. Every wait is limited to WAIT_LIMIT_S (TimeoutError)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._opaque = 0

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Self:
        """Connect; with `tls` after the handshake. Raises OSError if the other side refuses it."""
        return cls(*await asyncio.open_connection(host, port, ssl=tls))

    @classmethod
    async def connect_without_reading(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        """Return a peer with a small receive buffer that reads nothing until `resume_reading` is called."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        name = "localhost" if tls else None
        # The smallest read-ahead of a stream.
        reader, writer = await asyncio.open_connection(sock=sock, limit=1, ssl=tls, server_hostname=name)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # a socket transport has it
        return cls(reader, writer)

    def resume_reading(self) -> None:
        """Start reading."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined] # as above

    @property
    def address(self) -> str:
        """Return the address of this end."""
        host, port = self._writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    @property
    def certificate(self) -> dict[str, Any] | None:
        """Return the certificate of the other side, if it was verified."""
        shown: dict[str, Any] | None = self._writer.get_extra_info("peercert")
        return shown

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._writer.write(data)

    def send_request(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"", **header: Any) -> int:
        """Send a request without waiting, and return its opaque."""
        self._opaque += 1
        fields = {} if ext is None else {"extFields": texts(ext)}
        self.send(frame({"code": code, "opaque": self._opaque, **fields, **header}, body))
        return self._opaque

    async def call(
        self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"", **header: Any
    ) -> Received:
        """Send a request, and return the next frame, which must be its response."""
        opaque = self.send_request(code, ext, body, **header)
        received = await self.receive()
        assert received.header["flag"] & 1
        assert received.header["opaque"] == opaque
        return received

    async def receive(self) -> Received:
        """Return the next frame. Raises IncompleteReadError if the connection ends before. Only JSON headers are
        decoded."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            payload = await self._reader.readexactly(length)
        header_end = 4 + int.from_bytes(payload[1:4], "big")
        header = {} if payload[0] else json.loads(payload[4:header_end])
        return Received(payload[0], header, payload[header_end:])

    async def receive_raw(self) -> bytes:
        """Return the next frame as bytes, including its length word."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            prefix = await self._reader.readexactly(4)
            return prefix + await self._reader.readexactly(int.from_bytes(prefix, "big"))

    async def some(self) -> bytes:
        """Return the available bytes, at least one; empty at the end of the stream."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            return await self._reader.read(1 << 16)

    async def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            return await self._reader.readexactly(count)

    async def read(self, count: int) -> None:
        """Read and discard `count` bytes."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            await self._reader.readexactly(count)

    async def rest(self) -> bytes:
        """Return all bytes until the other side disconnects."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        """Close the connection, and abort it if the other side does not read its last data or its end of TLS."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        except OSError:  # the other side has closed it already, or TLS ended early; TimeoutError is one too
            self._writer.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
