"""A proxy between a broker and its clients that can catch one frame, so that the test can act at that moment.

    with trapped(directory) as (daemon, trap):        clients of the daemon connect through the proxy
        trap.catch_request(is_wanted, then)           the next matching request is dropped; `then` is called once
        trap.catch_response(is_wanted, then)            the request is served, its response is dropped
        trap.release()                                all connected clients are gone, and nothing is caught any more

The broker advertises another loopback address than the one it listens on, with the same port; the proxy listens there.
Retries of a caught request are caught, too.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.serialize import decode_command
from tests.harness.daemon import Daemon, running
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK

ADVERTISED: Final = "127.0.0.2"

Wanted = Callable[[int, bytes], bool]  # takes a request's code, and its encoded header
Pass = Callable[[RemotingCommand, bytes], bool]


class Trap:
    """Forwards frames to the broker's port and back, except for those that it catches."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._request: Wanted = _never
        self._response: Wanted = _never
        self._then: Callable[[], object] = _nothing
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server = run(asyncio.start_server(self._serve, ADVERTISED, port))

    def catch_request(self, is_wanted: Wanted, then: Callable[[], object]) -> None:
        self._request, self._then = is_wanted, then

    def catch_response(self, is_wanted: Wanted, then: Callable[[], object]) -> None:
        """Drop the response to the next request that matches `is_wanted`."""
        self._response, self._then = is_wanted, then

    def release(self) -> None:
        """Stop catching, once all clients with caught frames have disconnected; they must be about to. Raises
        TimeoutError."""
        run(self._wait_deserted())
        self._request = self._response = _never

    def close(self) -> None:
        async def close() -> None:
            self._server.close()
            for writer in self._connections.values():
                writer.close()
            await self._wait_deserted()

        run(close())

    async def _wait_deserted(self) -> None:
        async with asyncio.timeout(PROCESS_LIMIT_S):
            await asyncio.gather(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
        broker_reader, broker_writer = await asyncio.open_connection(LOOPBACK, self._port)
        awaited: set[int] = set()

        def pass_request(command: RemotingCommand, header: bytes) -> bool:
            if self._response(command.code, header):
                awaited.add(command.opaque)
            return not (self._request(command.code, header) and self._caught())

        def pass_response(command: RemotingCommand, _: bytes) -> bool:
            return not (command.is_response and command.opaque in awaited and self._caught())

        back = asyncio.create_task(_pass_on(broker_reader, writer, pass_response))
        try:
            await _pass_on(reader, broker_writer, pass_request)
        finally:
            back.cancel()
            writer.close()
            broker_writer.close()

    def _caught(self) -> bool:
        then, self._then = self._then, _nothing
        then()
        return True


def _never(_: int, __: bytes) -> bool:
    return False


def _nothing() -> None:
    """Do nothing when a further frame is caught."""


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: Pass) -> None:
    """Forward frames until one side disconnects."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            prefix = await reader.readexactly(4)
            rest = await reader.readexactly(int.from_bytes(prefix, "big"))
            header_end = 4 + int.from_bytes(rest[1:4], "big")
            header = rest[4:header_end]
            command = decode_command((rest[0], memoryview(header), memoryview(rest)[header_end:]))
            if command is None or may_pass(command, header):
                writer.write(prefix + rest)
                await writer.drain()


@contextmanager
def trapped(directory: Path) -> Iterator[tuple[Daemon, Trap]]:
    """Start a daemon whose advertised address is that of the proxy."""
    with running(directory=directory, settings={"bindAddress": LOOPBACK, "brokerIP1": ADVERTISED}) as daemon:
        trap = Trap(daemon.broker_port)
        try:
            yield daemon, trap
        finally:
            trap.close()
