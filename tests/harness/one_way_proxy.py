"""A TCP proxy between two processes whose directions can be cut one by one, as a network does that loses packets.

    proxy = OneWayProxy(port)
    await proxy.start()                     # clients connect to proxy.port
    proxy.cut(Direction.TO_CLIENT)          # the target's bytes wait; connections stay open, new ones are accepted
    proxy.heal()                            # the bytes that waited arrive

In a direction that is cut neither bytes nor the end of a connection pass. The senders' buffers fill, as they do when
no acknowledgement of TCP arrives.
"""

import asyncio
from enum import StrEnum
from typing import Final

from tests.harness.ports import LOOPBACK

READ_BYTES: Final = 64 << 10


class Direction(StrEnum):
    """`TO_TARGET`: from the process that connects."""

    TO_TARGET = "to target"
    TO_CLIENT = "to client"


class OneWayProxy:
    """`target_port` is where connections go, on this machine."""

    def __init__(self, port: int, target_port: int) -> None:
        self.port = port
        self._target_port = target_port
        self._open = {direction: asyncio.Event() for direction in Direction}
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.heal()

    def __repr__(self) -> str:
        cut = [str(direction) for direction, is_open in self._open.items() if not is_open.is_set()]
        return f"<OneWayProxy {self.port} cut={cut}>"

    @property
    def is_listening(self) -> bool:
        """Whether it accepts connections."""
        return self._server is not None and self._server.is_serving()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, LOOPBACK, self.port, limit=READ_BYTES)

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def cut(self, direction: Direction) -> None:
        """Let nothing more through in this direction."""
        self._open[direction].clear()

    def heal(self) -> None:
        """Let everything through."""
        for is_open in self._open.values():
            is_open.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(LOOPBACK, self._target_port, limit=READ_BYTES)
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(
                self._forward(reader, target_writer, Direction.TO_TARGET),
                self._forward(target_reader, writer, Direction.TO_CLIENT),
            )
        finally:
            writer.transport.abort()
            target_writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        """Forward bytes until one side ends; its end passes like its bytes."""
        is_open = self._open[direction]
        try:
            while data := await reader.read(READ_BYTES):
                await is_open.wait()
                if writer.is_closing():
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # the end of the connection passes below
        await is_open.wait()
        writer.close()
