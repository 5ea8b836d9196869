"""A peer without a socket: a real connection over an in-memory transport.

    peer = Peer(dispatcher)
    response = peer.call(RemotingCommand.request(...))

Frames that the broker writes within the event-loop iteration are decoded; later ones are decoded by `take`.
"""

import asyncio
from typing import Any

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command
from tests.harness.waiting import until


class MemoryTransport(asyncio.Transport):
    """Accepts all data at once, unless `stuck` is set: then it buffers the data, as the kernel does for a slow peer."""

    def __init__(self, peername: tuple[str, int]) -> None:
        super().__init__({"peername": peername})
        self.written = bytearray()
        self.backlog = bytearray()
        self.stuck = False
        self.reading = True
        self.closing = False

    def write(self, data: Any) -> None:
        (self.backlog if self.stuck else self.written).extend(data)

    def get_write_buffer_size(self) -> int:
        return len(self.backlog)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close


class Peer:
    """The client's end of a connection to the processors of `dispatcher`."""

    def __init__(
        self, dispatcher: Dispatcher, selector: Selector | None = None, address: tuple[str, int] = ("127.0.0.9", 4321)
    ) -> None:
        self._dispatcher = dispatcher
        self.selector = selector or Selector(dispatcher, RemotingConfig())
        self.transport = MemoryTransport(address)
        self.connection = self.selector.new_connection()
        self.connection.connection_made(self.transport)
        self._decoder = FrameDecoder()
        self._opaque = 0
        self.received: list[RemotingCommand] = []

    def send(self, *commands: RemotingCommand) -> None:
        """Send these requests in one read; sets their opaques."""
        for command in commands:
            self._opaque += 1
            command.opaque = self._opaque
        self.send_bytes(b"".join(map(encode_command, commands)))

    def send_bytes(self, data: bytes) -> None:
        """Deliver the bytes in one read, and end the event-loop iteration."""
        rounds = self.selector.read_scheduler
        rounds.window = rounds.receive_buffer[: len(data)]
        self.deliver(data)
        self.selector.batch.end()
        self.take()

    def deliver(self, data: bytes) -> None:
        """Deliver the bytes in one read, without ending the iteration."""
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def take(self) -> list[RemotingCommand]:
        """Decode the frames written since the last call, add them to `received`, and return them."""
        self.selector.pending_writes.flush()
        frames = self._decoder.feed(memoryview(bytes(self.transport.written)))
        self.transport.written.clear()
        commands = [command for frame in frames if (command := decode_command(frame)) is not None]
        self.received += commands
        return commands

    def call(self, command: RemotingCommand) -> RemotingCommand:
        """Send one request and return its response, which must come within the iteration."""
        self.send(command)
        responses = [
            response for response in self.received if response.is_response and response.opaque == command.opaque
        ]
        assert len(responses) == 1, f"{len(responses)} responses to {command}"
        return responses[0]

    async def call_and_wait(self, command: RemotingCommand) -> RemotingCommand:
        """Send one request and return its response, which may come some iterations later."""
        self.send(command)
        await asyncio.gather(*self._dispatcher._tasks)
        self.take()
        [response] = [
            response for response in self.received if response.is_response and response.opaque == command.opaque
        ]
        return response

    async def next_request(self) -> RemotingCommand:
        """Return the first request of the broker that expects a response; it may come some iterations later."""
        requests: list[RemotingCommand] = []

        def has_come() -> bool:
            self.take()
            requests[:] = [command for command in self.received if not command.is_response and not command.is_oneway]
            return bool(requests)

        await until(has_come)
        self.received.remove(requests[0])
        return requests[0]

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Respond to a request of the broker."""
        self.send_bytes(encode_command(response.in_response_to(request)))

    def disconnect(self) -> None:
        """Break the connection."""
        self.transport.closing = True
        self.connection.connection_lost(None)
