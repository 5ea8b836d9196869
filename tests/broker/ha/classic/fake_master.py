"""A master for tests of a slave: its HA port, and its responses to requests, as the test sets them."""

import asyncio
import json
from types import TracebackType
from typing import Self

from skylarkmq.broker.ha.classic.frames import REPORT_BYTES, pack_header
from tests.harness.fake_server import FakeServer
from tests.harness.limits import WAIT_LIMIT_S

BROKER_CONFIG, RUNTIME_INFO, VIEW_MESSAGE = 26, 28, 33


class FakeMaster:
    """Serves a log of `begin` to `end` in its runtime information; `bodies` are the responses by request code.

    Codes without a body get REQUEST_CODE_NOT_SUPPORTED (3). After a request with a code in `ends`, the log ends there.
    `connections` has the open HA connections.
    """

    def __init__(self, begin: int = 0, end: int = 0) -> None:
        self.begin, self.end = begin, end
        self.bodies: dict[int, bytes] = {}
        self.ends: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        self.remarks: dict[int, str] = {}
        self.asked: list[int] = []
        self.requests = FakeServer(responds=False)
        self.reports: asyncio.Queue[int] = asyncio.Queue()
        self.connections: list[asyncio.StreamWriter] = []
        self.accepted = 0
        self._ha: asyncio.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self.requests.address

    @property
    def ha_address(self) -> str:
        assert self._ha is not None
        return f"127.0.0.1:{self._ha.sockets[0].getsockname()[1]}"

    def send(self, offset: int, data: bytes = b"") -> None:
        """Send a transfer on the newest connection."""
        self.connections[-1].write(pack_header(offset, len(data)) + data)

    async def report(self) -> int:
        """Return the next report."""
        return await asyncio.wait_for(self.reports.get(), WAIT_LIMIT_S)

    async def until_report(self, end: int) -> None:
        """Wait for this report."""
        while await self.report() != end:
            pass

    async def __aenter__(self) -> Self:
        await self.requests.open()
        self._ha = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._task = asyncio.create_task(self._respond())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        assert self._ha is not None
        self._task.cancel()
        self._ha.close()
        for writer in self.connections:
            writer.close()
        await self.requests.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self.connections.append(writer)
        try:
            while True:
                self.reports.put_nowait(int.from_bytes(await reader.readexactly(REPORT_BYTES), "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the slave has disconnected
        finally:
            self.connections.remove(writer)
            writer.close()

    async def _respond(self) -> None:
        while True:
            request = await self.requests._requests.get()
            self.asked.append(request.code)
            if request.code == RUNTIME_INFO:
                table = {"commitLogMinOffset": str(self.begin), "commitLogMaxOffset": str(self.end)}
                request.respond(body=json.dumps({"table": table}).encode())
            elif request.code in self.bodies:
                request.respond(body=self.bodies[request.code])
            else:
                request.respond(self.codes.get(request.code, 3), self.remarks.get(request.code, "not supported"))
            self.end = self.ends.get(request.code, self.end)
