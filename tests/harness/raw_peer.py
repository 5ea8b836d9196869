"""A peer in the test's own event loop: raw frames out, decoded frames in, and every habit a bad peer can have.

Like `raw.py` it knows frames only, from the standard library; unlike it, it shares a loop with the server under test,
so that a test can look at both sides between two steps. Frame: docs/formats.md, "Frame".
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.harness.raw import frame, texts

PATIENCE_S = 10.0


class Received(NamedTuple):
    """A frame that the other side sent."""

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
    """`async with await RawPeer.connect(port) as peer`; every wait ends after PATIENCE_S with a TimeoutError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._opaque = 0

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Self:
        """With `tls` the handshake is done when this returns; OSError if the other side does not want it."""
        return cls(*await asyncio.open_connection(host, port, ssl=tls))

    @classmethod
    async def connect_deaf(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        """A peer that reads nothing until it is told to `listen`, with a kernel that holds little for it."""
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        name = "localhost" if tls else None
        # The least that a stream reads ahead.
        reader, writer = await asyncio.open_connection(sock=sock, limit=1, ssl=tls, server_hostname=name)
        writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket, which can
        return cls(reader, writer)

    def listen(self) -> None:
        """Stop being deaf."""
        self._writer.transport.resume_reading()  # type: ignore[attr-defined] # as above

    @property
    def address(self) -> str:
        """This end, as the other one sees it."""
        host, port = self._writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    @property
    def certificate(self) -> dict[str, Any] | None:
        """What the other side showed, if that was asked for."""
        shown: dict[str, Any] | None = self._writer.get_extra_info("peercert")
        return shown

    def send(self, data: bytes) -> None:
        """Any bytes at all."""
        self._writer.write(data)

    def ask(self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"", **header: Any) -> int:
        """Send a request without waiting; returns its opaque."""
        self._opaque += 1
        fields = {} if ext is None else {"extFields": texts(ext)}
        self.send(frame({"code": code, "opaque": self._opaque, **fields, **header}, body))
        return self._opaque

    async def call(
        self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b"", **header: Any
    ) -> Received:
        """Send a request and take the next frame, which must be its answer."""
        opaque = self.ask(code, ext, body, **header)
        received = await self.receive()
        assert received.header["flag"] & 1
        assert received.header["opaque"] == opaque
        return received

    async def receive(self) -> Received:
        """The next frame; IncompleteReadError if the connection ends before. JSON headers only are decoded."""
        async with asyncio.timeout(PATIENCE_S):
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            payload = await self._reader.readexactly(length)
        header_end = 4 + int.from_bytes(payload[1:4], "big")
        header = {} if payload[0] else json.loads(payload[4:header_end])
        return Received(payload[0], header, payload[header_end:])

    async def receive_raw(self) -> bytes:
        """The next frame as it came, its length word included."""
        async with asyncio.timeout(PATIENCE_S):
            prefix = await self._reader.readexactly(4)
            return prefix + await self._reader.readexactly(int.from_bytes(prefix, "big"))

    async def some(self) -> bytes:
        """What is there, at least a byte; nothing at the end."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.read(1 << 16)

    async def take(self, count: int) -> bytes:
        """The next so many bytes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readexactly(count)

    async def read(self, count: int) -> None:
        """Take so many bytes, whatever they are."""
        async with asyncio.timeout(PATIENCE_S):
            await self._reader.readexactly(count)

    async def rest(self) -> bytes:
        """Everything until the other side hangs up."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            pass  # the other side was faster

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
