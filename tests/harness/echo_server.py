"""A remoting server with a processor for each case of remoting: respond, refuse, fail, wait, gather, defer."""

import asyncio
from types import TracebackType
from typing import Self

from skylarkmq.broker.remoting.admission import Pool, PoolLimits
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Processor
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from tests.harness.raw import frame

ECHO = 1001
"""Responds with the request's ext and body."""
LARGE = 1002
"""Responds with as many bytes as the ext field `n` requests."""
REFUSE = 1003
FAIL = 1004
WAIT = 1005
"""Responds with the request's body once `go_on` is set, or fails if the body is `fail`."""
GATHER = 1006
"""Responds at the end of the read."""
DEFER = 1007
"""Added to `deferred`; the test responds."""
UNKNOWN = 1999


def requests(count: int, size: int = 10) -> bytes:
    """Return `count` requests for an echo of `size` bytes, with opaques from 0."""
    return b"".join(frame({"code": ECHO, "opaque": n}, bytes([n % 256]) * size) for n in range(count))


class EchoServer:
    """Use as `async with EchoServer() as server`; `handled` counts the requests that reached a processor."""

    def __init__(
        self,
        config: RemotingConfig = RemotingConfig(),
        *,
        capacity: int = 1000,
        wait_ms: int | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.remoting = RemotingServer(config, tls)
        self.selector = self.remoting.selector
        self.dispatcher = self.remoting.dispatcher
        self.pool = Pool("test", capacity, PoolLimits(wait_ms=wait_ms))
        self.port = 0
        self.handled = 0
        self.go_on = asyncio.Event()
        self.deferred: list[tuple[Connection, RemotingCommand]] = []
        self._gathered: list[tuple[RequestSource, RemotingCommand]] = []
        self.gathered_sizes: list[int] = []
        processors: dict[int, Processor] = {
            ECHO: self._echo,
            LARGE: self._large,
            REFUSE: self._refuse,
            FAIL: self._fail,
            WAIT: self._wait,
            GATHER: self._gather,
            DEFER: self._defer,
        }
        for code, processor in processors.items():
            self.dispatcher.register([code], processor, self.pool)
        self.dispatcher.at_batch_end(self._answer_gathered)

    @property
    def connection(self) -> Connection:
        """Return the only open connection."""
        (connection,) = self.selector.registry.connections
        return connection

    def has_handled(self, count: int) -> bool:
        """Return whether at least `count` requests reached a processor."""
        return self.handled >= count

    def _echo(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        self.handled += 1
        return RemotingCommand.response(ext=command.ext_fields(), body=bytes(command.body))

    def _large(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        self.handled += 1
        return RemotingCommand.response(body=bytes(int(command.ext_fields()["n"])))

    def _refuse(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        self.handled += 1
        raise RequestError(ResponseCode.NO_PERMISSION, "not you")

    def _fail(self, _source: RequestSource, _command: RemotingCommand) -> RemotingCommand:
        self.handled += 1
        raise KeyError("lost")

    async def _wait(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand:
        self.handled += 1
        await self.go_on.wait()
        if bytes(command.body) == b"fail":
            raise KeyError("lost later")
        return RemotingCommand.response(body=bytes(command.body))

    def _gather(self, source: RequestSource, command: RemotingCommand) -> None:
        self.handled += 1
        self._gathered.append((source, command.detached()))

    def _defer(self, source: RequestSource, command: RemotingCommand) -> None:
        assert isinstance(source, Connection)
        self.handled += 1
        self.deferred.append((source, command.detached()))

    def _answer_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        if gathered:
            self.gathered_sizes.append(len(gathered))
        for source, command in gathered:
            source.respond(command, RemotingCommand.response(body=command.body))

    async def __aenter__(self) -> Self:
        self.port = await self.remoting.start("127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.go_on.set()
        await self.remoting.stop(lambda: self.dispatcher.waiting, grace_s=0.2)
