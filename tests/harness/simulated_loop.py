"""Event loops of simulated processes, and connections between them: nothing happens unless the test calls it.

    network = SimulatedNetwork()
    loop = SimulatedLoop(network, now)        one for each process
    loop.run(call)                            run a call inside the loop, then all callbacks that are due
    loop.readable(fd)                         run the reader of this descriptor
    transport.deliver(size)                   hand over bytes that the peer has written

An exception of a callback leaves `run`: a power cut ends the process there. Only what a store and a replication link
use exists. Calls in threads are made when the test steps their executor (tests.harness.stepped_helpers.SteppedCalls).
"""

import asyncio
import contextvars
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")

_HOST: Final = "127.0.0.1"
_Loop: Any = asyncio.AbstractEventLoop  # most of its methods are not used, and do not exist here


class _Callback(asyncio.TimerHandle):
    """A callback whose exceptions are not caught."""

    def __init__(
        self, when: float, callback: Callable[..., object], args: Any, loop: asyncio.AbstractEventLoop, context: Any
    ) -> None:
        super().__init__(when, callback, args, loop)
        self.call = partial((context or contextvars.copy_context()).run, callback, *args)


class SimulatedLoop(_Loop):  # type: ignore[misc]
    """The loop of one process. `now`: the time in seconds."""

    def __init__(self, network: "SimulatedNetwork", now: Callable[[], float]) -> None:
        self.transports: list[SimulatedTransport] = []
        self.has_ended = False
        self._network = network
        self._now = now
        self._ready: deque[_Callback] = deque()
        self._timers: list[tuple[float, int, _Callback]] = []
        self._count = 0
        self._readers: dict[int, Callable[[], object]] = {}

    def __repr__(self) -> str:
        return f"<SimulatedLoop ready={len(self._ready)}>"

    # calls of the test

    def run(self, call: Callable[[], T]) -> T:
        """Return the result of a call that is made inside the loop, between all callbacks that are due."""
        events._set_running_loop(self)
        try:
            self._run_due()
            result = call()
            self._run_due()
        finally:
            events._set_running_loop(None)
        return result

    def _run_due(self) -> None:
        while True:
            while self._timers and self._timers[0][0] <= self._now():
                self._ready.append(heapq.heappop(self._timers)[2])
            if not self._ready:
                return
            callback = self._ready.popleft()
            if not callback.cancelled():
                callback.call()

    def readable(self, fd: int) -> None:
        """Run the reader of a descriptor, if there is one."""
        if (reader := self._readers.get(fd)) is not None:
            self.run(reader)

    def end(self, *, is_noticed: bool) -> None:
        """End the process: no callback runs any more. `is_noticed`: its peers get the end of their connections."""
        self.has_ended = True
        self._network.forget(self)
        if is_noticed:
            for transport in self.transports:
                transport.send_end()

    # the loop

    def time(self) -> float:
        return self._now()

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.has_ended

    def is_closed(self) -> bool:
        return self.has_ended

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = _Callback(self._now(), callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = _Callback(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A canceled timer stays until it is due."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, **options)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise the exception of a task: none is expected. Tasks of an ended process are dropped."""
        if not self.has_ended and (problem := context.get("exception")) is not None:
            raise problem

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        return asyncio.wrap_future(executor.submit(partial(func, *args)), loop=self)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self._readers[fd] = partial(callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        del host
        return self._network.connect(self, protocol_factory(), port)

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        del host
        return self._network.listen(self, protocol_factory, port)


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. `waiting`: what the peer has written; None: the connection ends there."""

    def __init__(self, loop: SimulatedLoop, protocol: asyncio.BaseProtocol, address: tuple[str, int]) -> None:
        super().__init__({"peername": address})
        self.loop = loop
        self.peer: SimulatedTransport
        self.waiting: deque[bytes | None] = deque()
        self._protocol = protocol
        self._is_closing = False
        self._is_paused = False
        loop.transports.append(self)

    @property
    def is_deliverable(self) -> bool:
        """Whether `deliver` has something to do."""
        return bool(self.waiting) and not (self._is_closing or self._is_paused or self.loop.has_ended)

    def deliver(self, size: int) -> None:
        """Hand over up to `size` bytes, or the end of the connection. Call it with `loop.run`."""
        data = b""
        while len(data) < size and self.waiting and (piece := self.waiting[0]) is not None:
            self.waiting.popleft()
            data += piece
        if len(data) > size:
            self.waiting.appendleft(data[size:])
            data = data[:size]
        if data:
            self._hand_over(data)
        elif self.waiting:
            self.close()

    def _hand_over(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._is_closing:
            if isinstance(self._protocol, asyncio.BufferedProtocol):
                buffer = memoryview(self._protocol.get_buffer(-1))
                piece = rest[: len(buffer)]
                buffer[: len(piece)] = piece
                self._protocol.buffer_updated(len(piece))
            else:
                assert isinstance(self._protocol, asyncio.Protocol)
                piece = rest
                self._protocol.data_received(bytes(piece))
            rest = rest[len(piece) :]

    def send_end(self) -> None:
        """Let the peer get the end of the connection, after what was written."""
        self.peer.waiting.append(None)

    # the transport

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self.peer.waiting.append(bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.send_end()
            self.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered here."""

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False


class SimulatedServer:
    """A port that accepts connections."""

    def __init__(self, network: "SimulatedNetwork", port: int) -> None:
        self._network = network
        self.port = port
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return _HOST, self.port

    def close(self) -> None:
        self._network.listeners.pop(self.port, None)


class SimulatedNetwork:
    """The ports of all processes. A connection is established at once, or refused."""

    def __init__(self) -> None:
        self.listeners: dict[int, tuple[SimulatedLoop, Callable[[], asyncio.BaseProtocol]]] = {}

    def listen(self, loop: SimulatedLoop, factory: Callable[[], asyncio.BaseProtocol], port: int) -> SimulatedServer:
        """Accept connections to a port."""
        self.listeners[port] = (loop, factory)
        return SimulatedServer(self, port)

    def forget(self, loop: SimulatedLoop) -> None:
        """Close the ports of a process."""
        self.listeners = {port: one for port, one in self.listeners.items() if one[0] is not loop}

    def connect(
        self, loop: SimulatedLoop, protocol: asyncio.BaseProtocol, port: int
    ) -> tuple[SimulatedTransport, asyncio.BaseProtocol]:
        """Return the client's end of a new connection. Raises ConnectionRefusedError."""
        if port not in self.listeners:
            raise ConnectionRefusedError
        server_loop, factory = self.listeners[port]
        client = SimulatedTransport(loop, protocol, (_HOST, port))
        accepted: asyncio.BaseProtocol = _Accepting(factory)
        server = SimulatedTransport(server_loop, accepted, (_HOST, 1))
        client.peer, server.peer = server, client
        server_loop.call_soon(accepted.connection_made, server)
        protocol.connection_made(client)
        return client, protocol


class _Accepting(asyncio.Protocol):
    """Makes the protocol of an accepted connection inside the loop of the server."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._factory = factory

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        protocol = self._factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
