"""A server for clients under test: records requests, and responds, stays silent or disconnects as the test requires.

It builds frames with the standard library only, like `raw.py` and `raw_peer.py`.
"""

import asyncio
import json
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import frame


class ReceivedRequest(NamedTuple):
    """A request and the connection that it came on."""

    header: dict[str, Any]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def code(self) -> int:
        code: int = self.header["code"]
        return code

    @property
    def ext(self) -> dict[str, str]:
        return self.header.get("extFields") or {}

    def respond(self, code: int = 0, remark: str | None = None, body: bytes = b"") -> None:
        header = {"code": code, "opaque": self.header["opaque"], "flag": 1}
        self.writer.write(frame(header if remark is None else {**header, "remark": remark}, body))


class FakeServer:
    """Use as `async with FakeServer() as server`; it can be closed and opened again on the same port.

    With `responds=True` it responds to every request at once with success; otherwise the test responds.
    """

    def __init__(self, *, responds: bool = True) -> None:
        self.responds = responds
        self.port = 0
        self.connections = 0
        self._requests: asyncio.Queue[ReceivedRequest] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_port=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the listening socket and every connection."""
        assert self._server is not None
        self._server.close()
        self.disconnect()
        await self._server.wait_closed()

    def disconnect(self) -> None:
        """Close every connection; new ones are accepted."""
        for writer in self._writers:
            writer.close()

    async def next_request(self) -> ReceivedRequest:
        """Return the next request that was not returned before."""
        async with asyncio.timeout(WAIT_LIMIT_S):
            return await self._requests.get()

    @property
    def unread(self) -> int:
        """Return the number of requests that were not returned yet."""
        return self._requests.qsize()

    def send(self, data: bytes) -> None:
        """Send raw bytes on every connection."""
        for writer in self._writers:
            writer.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            while True:
                length = int.from_bytes(await reader.readexactly(4), "big")
                payload = await reader.readexactly(length)
                header_end = 4 + int.from_bytes(payload[1:4], "big")
                request = ReceivedRequest(json.loads(payload[4:header_end]), payload[header_end:], writer)
                if self.responds and not request.header["flag"] & 1:
                    request.respond()
                self._requests.put_nowait(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has disconnected
        finally:
            self._writers.discard(writer)
            writer.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
