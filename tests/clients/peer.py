"""A peer on loopback that answers as a test tells it to: by request code, through the real codec."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command

Answer = RemotingCommand | None
Handler = Callable[["PeerConnection", RemotingCommand], Answer | Awaitable[Answer]]


class PeerConnection(asyncio.Protocol):
    """The peer's end; a request without a handler is answered 3, a None leaves it unanswered."""

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

    def answer_later(self, request: RemotingCommand, answer: Awaitable[Answer]) -> None:
        async def answering() -> None:
            if (response := await answer) is not None:
                self.send(response.in_response_to(request))

        task = asyncio.create_task(answering())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Peer:
    """One listening address."""

    def __init__(self) -> None:
        self.handlers: dict[int, Handler] = {}
        self.requests: list[RemotingCommand] = []
        self.answers: list[RemotingCommand] = []  # to what the peer asked
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
        """Break every connection; the peer still listens."""
        for connection in list(self.connections):
            connection.transport.abort()

    def on(self, code: int, handler: Handler | Answer | dict[str, str]) -> None:
        """Answer `code` by a handler, or always with these ext fields."""
        if callable(handler):
            self.handlers[code] = handler
        else:
            ext = handler if isinstance(handler, dict) else None
            self.handlers[code] = lambda *_: RemotingCommand.response(ext=ext)

    def received(self, connection: PeerConnection, request: RemotingCommand) -> None:
        request.ext_fields()
        (self.answers if request.is_response else self.requests).append(request)
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if request.is_response:
            return
        handler = self.handlers.get(request.code)
        if handler is None:
            answer: Any = RemotingCommand.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not scripted")
        else:
            answer = handler(connection, request)
        if isinstance(answer, RemotingCommand):
            if not request.is_oneway:
                connection.send(answer.in_response_to(request))
        elif answer is not None:
            connection.answer_later(request, answer)

    def requests_of(self, code: int) -> list[RemotingCommand]:
        """The requests with this code, so far."""
        return [request for request in self.requests if request.code == code]

    async def wait_requests(self, code: int, times: int = 1) -> list[RemotingCommand]:
        """Wait until `code` has been asked so many times."""
        async with self._news, asyncio.timeout(10):
            await self._news.wait_for(lambda: len(self.requests_of(code)) >= times)
        return self.requests_of(code)

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        """What the client that connected last answers to a request of ours."""
        known = len(self.answers)
        self.connections[-1].send(command)
        async with self._news, asyncio.timeout(10):
            await self._news.wait_for(lambda: len(self.answers) > known)
        return self.answers[-1]

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()


@asynccontextmanager
async def peers(count: int) -> AsyncIterator[list[Peer]]:
    """Peers that listen; each answers heartbeats and leaves."""
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
    """A handler that answers with an error."""
    return lambda *_: RemotingCommand.response(code, remark)


def silence(*_: object) -> None:
    """A handler that never answers."""


async def until(fact: Callable[[], object], what: str = "a fact") -> None:
    """Let the loop turn until `fact` holds."""
    try:
        async with asyncio.timeout(10):
            while not fact():  # noqa: ASYNC110 - what other tasks do has no event of its own
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true") from None
