"""A wire between a broker and its clients on which one frame can be caught, so that something happens just then.

    with trapped(directory) as (daemon, trap):        what clients of the daemon say goes through the trap
        trap.catch_request(is_wanted, then)           the next such request goes no further; `then` is called, once
        trap.catch_answer(is_wanted, then)            the request is served, its answer goes no further
        trap.release()                                everybody who was connected is gone, and nothing is caught

The broker advertises another loopback address than the one it listens on, with the same port; the trap is there. What
is repeated of a request that was caught is caught, too.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from skylarkmq.clients.background_loop import run
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.serialize import decode_command
from tests.harness.daemon import Daemon, running
from tests.harness.ports import LOOPBACK

ADVERTISED: Final = "127.0.0.2"
PATIENCE_S: Final = 20.0

Wanted = Callable[[int, bytes], bool]  # of a request's code, and of its header's bytes in whatever dialect
Pass = Callable[[RemotingCommand, bytes], bool]


class Trap:
    """Passes frames on to the broker's port and back, but for those that are caught."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._request: Wanted = _never
        self._answer: Wanted = _never
        self._then: Callable[[], object] = _nothing
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server = run(asyncio.start_server(self._serve, ADVERTISED, port))

    def catch_request(self, is_wanted: Wanted, then: Callable[[], object]) -> None:
        self._request, self._then = is_wanted, then

    def catch_answer(self, is_wanted: Wanted, then: Callable[[], object]) -> None:
        """`is_wanted` is asked about the request."""
        self._answer, self._then = is_wanted, then

    def release(self) -> None:
        """Once nobody is left of whom frames are caught; they must be about to go. TimeoutError."""
        run(self._wait_deserted())
        self._request = self._answer = _never

    def close(self) -> None:
        async def close() -> None:
            self._server.close()
            for writer in self._connections.values():
                writer.close()
            await self._wait_deserted()

        run(close())

    async def _wait_deserted(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
        broker_reader, broker_writer = await asyncio.open_connection(LOOPBACK, self._port)
        awaited: set[int] = set()

        def ask(command: RemotingCommand, header: bytes) -> bool:
            if self._answer(command.code, header):
                awaited.add(command.opaque)
            return not (self._request(command.code, header) and self._caught())

        def answer(command: RemotingCommand, _: bytes) -> bool:
            return not (command.is_response and command.opaque in awaited and self._caught())

        back = asyncio.create_task(_pass_on(broker_reader, writer, answer))
        try:
            await _pass_on(reader, broker_writer, ask)
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
    """What happens when a frame is caught once more."""


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: Pass) -> None:
    """Frame by frame until one side leaves."""
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
    """A daemon whose clients find the trap where they look for its broker."""
    with running(directory=directory, settings={"bindAddress": LOOPBACK, "brokerIP1": ADVERTISED}) as daemon:
        trap = Trap(daemon.broker_port)
        try:
            yield daemon, trap
        finally:
            trap.close()
