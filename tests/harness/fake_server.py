"""A server for clients under test: it shows what it was asked, and answers, keeps silent or hangs up as it is told.

Frames from the standard library only, like `raw.py` and `raw_peer.py`.
"""

import asyncio
import json
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.harness.raw import frame

PATIENCE_S = 10.0


class Asked(NamedTuple):
    """A request, and the connection on which it came."""

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

    def answer(self, code: int = 0, remark: str | None = None, body: bytes = b"") -> None:
        header = {"code": code, "opaque": self.header["opaque"], "flag": 1}
        self.writer.write(frame(header if remark is None else {**header, "remark": remark}, body))


class FakeServer:
    """`async with FakeServer() as server`; it may close and open again on the same port.

    With `answers` it answers every request at once with success; otherwise the test does.
    """

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.port = 0
        self.connections = 0
        self._asked: asyncio.Queue[Asked] = asyncio.Queue()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_port=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close the door and every connection."""
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Cut every connection; new ones are welcome."""
        for writer in self._writers:
            writer.close()

    async def asked(self) -> Asked:
        """The next request that has not been looked at."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._asked.get()

    @property
    def unread(self) -> int:
        """Requests that have not been looked at."""
        return self._asked.qsize()

    def send(self, data: bytes) -> None:
        """Any bytes, to every connection."""
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
                asked = Asked(json.loads(payload[4:header_end]), payload[header_end:], writer)
                if self.answers and not asked.header["flag"] & 1:
                    asked.answer()
                self._asked.put_nowait(asked)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
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
