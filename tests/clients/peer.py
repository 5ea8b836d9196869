"""A scripted server on loopback: a test sets a handler for each request code.

    peer = Peer()
    await peer.listen()
    peer.on(RequestCode.GET_MAX_OFFSET, {"offset": "7"})

Frames pass through the real codec. A request without a handler gets REQUEST_CODE_NOT_SUPPORTED (3). A handler that
returns None sends no response. The peer also sends requests of its own to the client under test.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command
from tests.harness.limits import WAIT_LIMIT_S

Response = RemotingCommand | None
Handler = Callable[["PeerConnection", RemotingCommand], Response | Awaitable[Response]]


class PeerConnection(asyncio.Protocol):
    """The peer's end of one connection."""

    def __init__(self, peer: "Peer") -> None:
        self._peer = peer
        self._decoder = FrameDecoder()
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._peer.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.connections.remove(self)
        for task in self._tasks:
            task.cancel()
        if self._peer.on_lost is not None:
            self._peer.on_lost(self)

    def data_received(self, data: bytes) -> None:
        for frame in self._decoder.feed(memoryview(data)):
            command = decode_command(frame)
            assert command is not None
            self._peer.received(self, command)

    def send(self, command: RemotingCommand) -> None:
        self.transport.write(encode_command(command))

    def respond_later(self, request: RemotingCommand, awaitable: Awaitable[Response]) -> None:
        """Send the result of `awaitable`, unless it is None. The task is canceled when the connection ends."""

        async def respond() -> None:
            if (response := await awaitable) is not None:
                self.send(response.in_response_to(request))

        task = asyncio.create_task(respond())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Peer:
    """One listening address and its connections.

    `requests` and `responses` are the commands received so far, in their order, over all connections. `on_lost` is
    called with each connection that has ended.
    """

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.requests: list[RemotingCommand] = []
        self.responses: list[RemotingCommand] = []
        self.connections: list[PeerConnection] = []
        self.on_lost: Callable[[PeerConnection], None] | None = None
        self.address = ""
        self._server: asyncio.Server | None = None
        self._news = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: str = "127.0.0.1:0") -> None:
        host, _, port = address.rpartition(":")
        self._server = await asyncio.get_running_loop().create_server(lambda: PeerConnection(self), host, int(port))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        """Close the listener and every connection."""
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """Abort every connection; the peer still listens."""
        for connection in list(self.connections):
            connection.transport.abort()

    def on(self, code: int, handler: Handler | Response | dict[str, str]) -> None:
        """Set the handler of a request code. A dict stands for successful responses with these ext fields, None for
        successful responses without fields."""
        if callable(handler):
            self.handlers[code] = handler
        else:
            ext = handler if isinstance(handler, dict) else None
            self.handlers[code] = lambda *_: RemotingCommand.response(ext=ext)

    def received(self, connection: PeerConnection, request: RemotingCommand) -> None:
        """Record a command, and respond to it if it is a request."""
        request.ext_fields()  # decodes them while the buffer of the read is valid
        (self.responses if request.is_response else self.requests).append(request)
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if request.is_response:
            return
        handler = self.handlers.get(request.code)
        if handler is None:
            response: Any = RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not scripted")
        else:
            response = handler(connection, request)
        if isinstance(response, RemotingCommand):
            if not request.is_oneway:
                connection.send(response.in_response_to(request))
        elif response is not None:
            connection.respond_later(request, response)

    def requests_of(self, code: int) -> list[RemotingCommand]:
        """Return the requests with this code that were received so far."""
        return [request for request in self.requests if request.code == code]

    async def wait_requests(self, code: int, times: int = 1) -> list[RemotingCommand]:
        """Wait until `times` requests with this code were received, and return them."""
        async with self._news, asyncio.timeout(WAIT_LIMIT_S):
            await self._news.wait_for(lambda: len(self.requests_of(code)) >= times)
        return self.requests_of(code)

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        """Send a request over the newest connection, and return the next response of the client."""
        known = len(self.responses)
        self.connections[-1].send(command)
        async with self._news, asyncio.timeout(WAIT_LIMIT_S):
            await self._news.wait_for(lambda: len(self.responses) > known)
        return self.responses[-1]

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()


@asynccontextmanager
async def peers(count: int) -> AsyncIterator[list[Peer]]:
    """Yield listening peers; each one accepts HEART_BEAT (34) and UNREGISTER_CLIENT (35)."""
    made = [Peer() for _ in range(count)]
    try:
        for peer in made:
            await peer.listen()
            peer.on(RequestCode.HEART_BEAT, None)
            peer.on(RequestCode.UNREGISTER_CLIENT, None)
        yield made
    finally:
        for peer in made:
            await peer.stop()


def refuse(code: int, remark: str = "no") -> Handler:
    """Return a handler that responds with an error."""
    return lambda *_: RemotingCommand.response(code, remark)


def silence(*_: object) -> None:
    """A handler that sends no response."""


async def until(fact: Callable[[], object], what: str = "a fact") -> None:
    """Run the event loop until `fact` returns true. AssertionError after WAIT_LIMIT_S; its text names `what`."""
    try:
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not fact():  # noqa: ASYNC110 - a fact has no event of its own
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None
