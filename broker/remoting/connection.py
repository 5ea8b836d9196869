"""A connection: its reading half, and the requests that are ours.

All connections share one receive buffer, and take turns (`rounds.py`). A read is handled whole before anything else
happens: every complete frame in it is decoded and dispatched, and what comes of that leaves at the end of the turn
(`selector.py`). A connection owns no more than the piece of a frame that a read cut off. What it writes is its output's
business (`transfer.py`).

A peer that does not read what it asked for is not read from either: above `peer_backlog_bytes` waiting for one peer
(or, with anything waiting for it, `total_backlog_bytes` for all) its connection is paused, frames already received are
kept for later, and everything goes on when the peer has taken what is there. Other connections do not notice. Should
all those together have left twice `total_backlog_bytes` in memory all the same, the one that has left most is closed.
Whoever handles requests may have a connection held as well (`pause_reads`): it is not read from until all are
released.

A connection carries requests of both sides. Answers to ours are matched by opaque; oneway requests of the peer are
never answered. Nothing here knows what a request means.
"""

import asyncio
import logging
import socket
from contextlib import suppress
from fcntl import ioctl
from struct import Struct
from termios import FIONREAD
from time import monotonic
from typing import Final, Protocol, cast

from skylarkmq.broker.remoting.busy_polling import BusyPolling
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection_writer import ConnectionWriter
from skylarkmq.broker.remoting.partial_frames import SMALL_PIECE, PartialFrames
from skylarkmq.broker.remoting.pending_writes import PendingWrites
from skylarkmq.broker.remoting.read_scheduling import ReadScheduler
from skylarkmq.protocol.codes import Flag
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.send_columns import apart
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.stream import CommandDecoder

STALL_S: Final = 0.01
"""A read that took longer to serve made others wait."""
BARE_COMMAND_BYTES: Final = 800
"""What a deferred command keeps in memory without its body."""

_RESPONSE: Final = Flag.RESPONSE
_READY: Final = Struct("i")

log = logging.getLogger(__name__)


class RequestDispatcher(Protocol):
    """What reading wants of the dispatcher."""

    def dispatch_from(self, connection: "Connection", commands: list[RemotingCommand], at: int) -> int:
        """Serve the request at `at`, and those behind it that go with it; returns where the next one stands."""

    max_wait_s: float
    """How long requests may have waited to be read without being asked."""

    def note_read_delay(self, waited_s: float) -> None:
        """What comes now has waited so long; 0 ends that."""

    def end_batch(self) -> None:
        """Finish what was gathered during a read."""

    def run_after_responses(self) -> None:
        """Do what nobody's answer waits for."""


class Shared(Protocol):
    """What a connection wants of the selector."""

    dispatcher: RequestDispatcher
    config: RemotingConfig
    pending_writes: PendingWrites
    read_scheduler: ReadScheduler
    partial_frames: PartialFrames
    busy_polling: BusyPolling
    deferred_bytes: int
    received_bytes: int
    protocol_errors: int

    def opened(self, connection: "Connection") -> bool:
        """A connection came; returns whether it may stay."""

    def closed(self, connection: "Connection") -> None:
        """A connection is gone."""

    def read(
        self, connection: "Connection", commands: list[RemotingCommand], size: int = 0, waited_s: float = 0.0
    ) -> None:
        """Handle what a read of `size` bytes brought, or what has waited since; see selector.py."""

    def end_batch(self) -> None:
        """Have what was read so far finished, and write what came of it."""

    def pause_reads(self, connection: "Connection") -> None:
        """Read no more from a connection until all are released."""

    def is_read_paused(self, connection: "Connection") -> bool:
        """Whether a connection is not to be read from."""

    def is_paused_by_broker(self, connection: "Connection") -> bool:
        """Whether a connection is held until all are released."""

    def relieve(self, now_s: float) -> None:
        """Somebody is behind: see that not too much waits for all together."""


class Connection(asyncio.BufferedProtocol):
    """One TCP connection, accepted or opened by us."""

    def __init__(self, selector: Shared) -> None:
        self._selector = selector
        self._loop = asyncio.get_running_loop()
        self._decoder = CommandDecoder(selector.config.max_frame_bytes)
        self._writer = ConnectionWriter(selector.pending_writes, self)
        self.write = self._writer.write
        self.write_regions = self._writer.write_regions
        self._deferred: list[RemotingCommand] = []
        self._deferred_bytes = 0
        self.partial_frame_bytes = 0
        self._pending: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._transport: asyncio.Transport | None = None
        self.paused = False
        self.active_s = self._loop.time()
        self.arrived_s = monotonic()  # when what is being handled now came; whoever resumes a request puts it back
        self.peer = "?"
        self.host = ""
        self.peer_host = bytes(8)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self.paused else "open"
        return f"<Connection {self.peer} {state} backlog={self.backlog_bytes}>"

    @property
    def closed(self) -> bool:
        """Whether the connection is gone or going."""
        return self._transport is None or self._transport.is_closing() or self._writer.is_closing

    @property
    def backlog_bytes(self) -> int:
        """What the peer has not taken yet."""
        return self._writer.backlog_bytes

    @property
    def unread_bytes(self) -> int:
        """As much of it as stands in memory."""
        return self._writer.memory_bytes

    # ------------------------------------------------------------------------------------------- the loop calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or refuse it when there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        self._writer.opened(self._transport)
        host, port = transport.get_extra_info("peername", ("0.0.0.0", 0))[:2]
        self.host = host
        self.peer_host = encode_host(host, port)
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _no_delay(transport.get_extra_info("socket"))
        if not self._selector.opened(self):
            self._transport.abort()

    def secured(self, transport: asyncio.Transport) -> None:
        """The peer speaks TLS: from now on this is the transport."""
        self._transport = transport
        self._writer.opened(transport)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """As much of the shared receive buffer as is fair: it is used up before anybody else reads."""
        return self._selector.read_scheduler.window

    def buffer_updated(self, size: int) -> None:
        """One read: see the module's story."""
        selector = self._selector
        self.arrived_s = self.active_s = now_s = monotonic()  # the loop's time, too
        selector.received_bytes += size
        data = selector.read_scheduler.window[:size]
        if selector.read_scheduler.note(size, now_s) and not self.paused and self._transport is not None:
            # uvloop would go on reading this one connection; let the others have their turn
            self._transport.pause_reading()
            selector.read_scheduler.enqueue(self)
        commands = self._decoder.feed_commands(data)
        if (pending_bytes := self._decoder.pending_bytes) >= SMALL_PIECE or self.partial_frame_bytes:
            selector.partial_frames.note(self, pending_bytes, now_s, is_new=bool(commands))
        if commands:
            selector.read(self, commands, size, now_s - selector.read_scheduler.began_s)
            if monotonic() - now_s > STALL_S:
                selector.read_scheduler.stalled(now_s)
        if self._decoder.failure is not None:
            self._fail(self._decoder.failure)

    def eof_received(self) -> bool:
        """The peer has said all; it gets what was answered by now and nothing else, as with RocketMQ."""
        self._selector.end_batch()
        if not self._writer.has_queued:
            return False
        self._writer.close()
        return True

    def pause_writing(self) -> None:
        """Something waits to be written; the output looks how much."""

    def resume_writing(self) -> None:
        """The transport has written all it had."""
        self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: fail what waits for its answers, forget what it was to be told."""
        self._transport = None
        self._writer.lost()
        self._take_deferred()
        self._selector.read_scheduler.forget(self)
        self._selector.partial_frames.forget(self)
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ConnectionError(f"connection to {self.peer} lost: {exc or 'closed'}"))
        self._selector.closed(self)

    # ------------------------------------------------------------------------------------------------------- requests

    def handle(self, commands: list[RemotingCommand]) -> None:
        """Dispatch what a read brought; what stands behind too much output is kept for later.

        A request that cannot be understood ends the stream, like bytes that are no frame: nothing behind it is looked
        at.
        """
        writer = self._writer
        selector = self._selector
        config = selector.config
        is_short = selector.pending_writes.backlog_bytes > config.total_backlog_bytes
        limit = 0 if is_short else config.peer_backlog_bytes
        if self._deferred:
            limit = -1  # nothing overtakes what waits already
        dispatch = selector.dispatcher.dispatch_from
        at = 0
        while at < len(commands):
            if writer.gathered_bytes + writer.backlog_bytes > limit:
                self._defer(commands[at:])
                return
            command = commands[at]
            if command.flag & _RESPONSE:
                self._answered(command)
                at += 1
                continue
            try:
                at = dispatch(self, commands, at)
            except ProtocolError as error:
                self._decoder.failure = error
                return

    def _defer(self, commands: list[RemotingCommand]) -> None:
        """Keep commands in memory of their own until the peer has read."""
        commands = apart(commands)
        size = sum(BARE_COMMAND_BYTES + len(command.body) for command in commands)
        self._deferred += [command.detached() for command in commands]
        self._deferred_bytes += size
        self._selector.deferred_bytes += size
        self.pause_for_backlog()

    def _take_deferred(self) -> list[RemotingCommand]:
        deferred, self._deferred = self._deferred, []
        self._selector.deferred_bytes -= self._deferred_bytes
        self._deferred_bytes = 0
        return deferred

    def _answered(self, command: RemotingCommand) -> None:
        future = self._pending.pop(command.opaque, None)
        if future is None or future.done():
            log.debug("answer without a request peer=%s opaque=%d", self.peer, command.opaque)
        else:
            future.set_result(command.detached())

    def _fail(self, error: ProtocolError) -> None:
        """Close because of the peer's bytes, once everything before them has been answered."""
        self._selector.end_batch()
        if self._deferred or self.closed:
            return
        self._selector.protocol_errors += 1
        log.warning("closing connection peer=%s reason=%s", self.peer, error)
        self.close()

    def answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Answer a request in its dialect, unless it wanted none or the peer is gone."""
        if not request.flag & Flag.ONEWAY:
            self.write(encode_command(response.answer_to(request)))

    def busy_poll(self, times: int = 1) -> int:
        """What this peer waits for, or the request behind it, is near: see lookout.py."""
        return self._selector.busy_polling.begin(times)

    # --------------------------------------------------------------------------------------------- pauses and progress

    def pause_for_backlog(self) -> None:
        """The peer does not take its answers: read no more from it."""
        if not self.paused and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()
            log.debug("pausing peer=%s backlog_bytes=%d", self.peer, self.backlog_bytes)
        self._selector.relieve(self._loop.time())

    def progressed(self) -> None:
        """A peer that takes a long answer slowly is not idle."""
        self.active_s = self._loop.time()

    def drained(self) -> None:
        """The peer took all there was."""
        self.active_s = self._loop.time()
        if self.paused:
            self._loop.call_soon(self._take_up)

    def _take_up(self) -> None:
        """Serve what waited for the peer to read, unless it is behind again."""
        if not self.paused or self.backlog_bytes or self.closed:
            return
        self.paused = False
        if deferred := self._take_deferred():
            self._selector.read(self, deferred)  # they waited for their own peer, which is no reason to refuse them
        if self._decoder.failure is not None:
            self._fail(self._decoder.failure)
        self.try_resume_reading()

    def note_progress(self) -> None:
        """Look how much a slow peer has taken meanwhile."""
        self._writer.note_progress()

    def pause_reads(self) -> None:
        """Read no more from this peer until the selector releases all who are held; its answers are still written."""
        if not self.closed:
            self._selector.pause_reads(self)
            cast(asyncio.Transport, self._transport).pause_reading()

    def resume_reading(self) -> None:
        """The hold is over; until now the peer could not show that it is alive."""
        self.active_s = self._loop.time()
        self.try_resume_reading()

    def pause_for_memory(self) -> None:
        """Read no more from this peer until there is memory for the rest of what it says."""
        if self._transport is not None:
            self._transport.pause_reading()

    @property
    def is_paused_by_broker(self) -> bool:
        """Whether the broker does not read from the peer for a reason of its own."""
        return self._selector.is_paused_by_broker(self)

    @property
    def ready_bytes(self) -> int:
        """Bytes that wait in the socket; none on a connection that is closing."""
        sock = None if self.closed else cast(asyncio.Transport, self._transport).get_extra_info("socket")
        if sock is None:
            return 0
        with suppress(OSError):  # it is being closed at this moment
            (size,) = _READY.unpack(ioctl(sock.fileno(), FIONREAD, bytes(_READY.size)))
            return int(size)
        return 0

    def try_resume_reading(self) -> None:
        """Read from the peer, unless it is paused or held."""
        if not self.closed and not self.paused and not self._selector.is_read_paused(self):
            cast(asyncio.Transport, self._transport).resume_reading()

    # ---------------------------------------------------------------------------------------------------- our requests

    def push(self, command: RemotingCommand) -> None:
        """Send a oneway request."""
        command.opaque = self._next_opaque()
        self.write(encode_command(command))

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and wait for its answer; TimeoutError or ConnectionError if none comes."""
        if self.closed:
            raise ConnectionError(f"connection to {self.peer} is closed")
        command.opaque = self._next_opaque()
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()
        self._pending[command.opaque] = future
        self.write(encode_command(command))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        finally:
            self._pending.pop(command.opaque, None)

    @property
    def calls(self) -> int:
        """Our requests that wait for an answer of the peer."""
        return len(self._pending)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        return self._opaque

    def close(self) -> None:
        """Write what is there, then close; nothing is read meanwhile."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._writer.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _no_delay(sock: socket.socket | None) -> None:
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
