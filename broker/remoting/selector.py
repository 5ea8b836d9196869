"""The selector: connections, what they read, and one write per turn.

All connections share one receive buffer. A read is handled whole before anything else happens: every complete frame in
it is decoded and dispatched, processors finish what they gathered (`Turns.end_turn`: the one write into the log), and
all answers to the connection leave in one write. A connection owns no more than the piece of a frame that a read cut
off.

        get_buffer -> buffer_updated -> FrameDecoder -> dispatch ... end_turn -> flush

A peer that does not read what it asked for is not read from either: above `peer_backlog_bytes` waiting for one peer
(or, with anything waiting for it, `total_backlog_bytes` for all) its connection is paused, frames already received are
kept for later, and everything goes on when the peer has taken what is there. Other connections do not notice. Whoever
handles requests may have a connection held as well (`hold_reading`): it is not read from until all are released.

A connection carries requests of both sides. Answers to ours are matched by opaque; oneway requests of the peer are
never answered. Nothing here knows what a request means.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol, cast

import msgspec

from protocol.codes import Flag
from protocol.command import RemotingCommand
from protocol.errors import ProtocolError
from protocol.frame import MAX_FRAME_BYTES, Frame, FrameDecoder
from protocol.message_id import encode_host
from protocol.serialize import decode_command, encode_command

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
_RESPONSE: Final = Flag.RESPONSE

log = logging.getLogger(__name__)


class RemotingConfig(msgspec.Struct, frozen=True):
    """Limits on peers. Bytes and seconds."""

    max_frame_bytes: int = MAX_FRAME_BYTES  # RocketMQ's frameMaxLength
    max_connections: int = 16_384  # descriptors are finite; RocketMQ has no limit
    max_idle_s: float = 120.0  # serverChannelMaxIdleTimeSeconds: silence in both directions
    peer_backlog_bytes: int = 4 * 1024 * 1024  # one slow reader
    total_backlog_bytes: int = 64 * 1024 * 1024  # all slow readers together


class RemotingStatistics(msgspec.Struct, frozen=True):
    """Connections at one moment; counters are totals since the start."""

    connections: int
    accepted: int
    refused: int
    closed_idle: int
    protocol_errors: int
    paused: int
    backlog_bytes: int
    received_bytes: int
    sent_bytes: int


class Turns(Protocol):
    """What the selector wants of the dispatcher."""

    def dispatch(self, connection: "Connection", command: RemotingCommand) -> None:
        """Serve one request."""

    def end_turn(self) -> None:
        """Finish what was gathered during a read."""


class Selector:
    """What all connections of one event loop share."""

    def __init__(self, turns: Turns, config: RemotingConfig) -> None:
        self.turns = turns
        self.config = config
        self.connections: set[Connection] = set()
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.accepting = True
        self.backlog_bytes = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.accepted = 0
        self.refused = 0
        self.closed_idle = 0
        self.protocol_errors = 0
        self._dirty: list[Connection] = []
        self._flush_scheduled = False
        self._close_listeners: list[Callable[[Connection], None]] = []
        self._held: set[Connection] = set()

    def __repr__(self) -> str:
        return f"<Selector {len(self.connections)} connections>"

    def statistics(self) -> RemotingStatistics:
        """The selector's figures now."""
        return RemotingStatistics(
            connections=len(self.connections),
            accepted=self.accepted,
            refused=self.refused,
            closed_idle=self.closed_idle,
            protocol_errors=self.protocol_errors,
            paused=sum(connection.paused for connection in self.connections),
            backlog_bytes=self.backlog_bytes,
            received_bytes=self.received_bytes,
            sent_bytes=self.sent_bytes,
        )

    def on_close(self, callback: Callable[["Connection"], None]) -> None:
        """Call `callback` with each connection that is gone."""
        self._close_listeners.append(callback)

    def closed(self, connection: "Connection") -> None:
        """A connection is gone; tell whoever wanted to know."""
        self.connections.discard(connection)
        self._held.discard(connection)
        for callback in self._close_listeners:
            callback(connection)

    def hold(self, connection: "Connection") -> None:
        """Read no more from a connection until `release_held`."""
        self._held.add(connection)

    def is_held(self, connection: "Connection") -> bool:
        """Whether a connection is not to be read from."""
        return connection in self._held

    def release_held(self) -> None:
        """Read from all connections again."""
        held, self._held = self._held, set()
        log.debug("reading again from connections=%d", len(held))
        for connection in held:
            connection.resume_reading()

    def to_flush(self, connection: "Connection") -> None:
        """Remember a connection with output; it is written at the end of this read, or of this loop turn."""
        self._dirty.append(connection)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Write what the connections gathered."""
        self._flush_scheduled = False
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.flush()

    def read(self, connection: "Connection", frames: list[Frame]) -> None:
        """Handle the frames of one read and write what came of them."""
        scheduled, self._flush_scheduled = self._flush_scheduled, True
        try:
            connection.handle(frames)
            self.turns.end_turn()
        finally:
            self._flush_scheduled = scheduled
        if not scheduled:
            self.flush()
        else:
            connection.flush()

    def close_idle(self, now_s: float) -> None:
        """Close every connection that was silent for too long; `now_s` is the loop's time."""
        for connection in self.connections:
            connection.note_progress()
        limit = now_s - self.config.max_idle_s
        for connection in [c for c in self.connections - self._held if c.active_s < limit]:
            self.closed_idle += 1
            log.info("closing idle connection peer=%s idle_s=%.0f", connection.peer, now_s - connection.active_s)
            connection.abort()  # a peer that does not read would never let its last bytes be written


class Connection(asyncio.BufferedProtocol):
    """One TCP connection, accepted or opened by us."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(selector.config.max_frame_bytes)
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._backlog = 0
        self._deferred: list[Frame] = []
        self._pending: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._transport: asyncio.Transport | None = None
        self.paused = False
        self.active_s = self._loop.time()
        self.peer = "?"
        self.peer_host = bytes(8)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self.paused else "open"
        return f"<Connection {self.peer} {state} backlog={self._backlog}>"

    @property
    def closed(self) -> bool:
        """Whether the connection is gone or going."""
        return self._transport is None or self._transport.is_closing()

    @property
    def backlog_bytes(self) -> int:
        """What the peer has not taken yet."""
        return self._backlog

    # ------------------------------------------------------------------------------------------- the loop calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or refuse it when there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        host, port = transport.get_extra_info("peername", ("0.0.0.0", 0))[:2]
        self.peer_host = encode_host(host, port)
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _no_delay(transport.get_extra_info("socket"))
        selector = self._selector
        if not selector.accepting or len(selector.connections) >= selector.config.max_connections:
            selector.refused += 1
            log.warning("connection refused peer=%s limit=%d", self.peer, selector.config.max_connections)
            self._transport.abort()
            return
        selector.accepted += 1
        selector.connections.add(self)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """The shared receive buffer: it is used up before anybody else reads."""
        return self._selector.receive_buffer

    def buffer_updated(self, size: int) -> None:
        """One read: see the module's story."""
        selector = self._selector
        self.active_s = self._loop.time()
        selector.received_bytes += size
        data = selector.receive_buffer[:size]
        if size == RECEIVE_BUFFER_BYTES and not self.paused and self._transport is not None:
            # uvloop would go on reading this one connection; let the others have their turn
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)
        frames = self._decoder.feed(data)
        if frames:
            selector.read(self, frames)
        if self._decoder.failure is not None:
            self._fail(self._decoder.failure)

    def eof_received(self) -> bool:
        """The peer has said all; it gets no more answers either, as with RocketMQ."""
        return False

    def pause_writing(self) -> None:
        """Something waits to be written; `flush` looks how much."""

    def resume_writing(self) -> None:
        """All was written: take up what waited."""
        self._account(0)
        self.active_s = self._loop.time()
        if self.paused:
            self.paused = False
            deferred, self._deferred = self._deferred, []
            if deferred:
                self._selector.read(self, deferred)
            if self._decoder.failure is not None:
                self._fail(self._decoder.failure)
            self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: fail what waits for its answers, forget what it was to be told."""
        self._transport = None
        self._account(0)
        self._out.clear()
        self._deferred.clear()
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ConnectionError(f"connection to {self.peer} lost: {exc or 'closed'}"))
        self._selector.closed(self)

    # ------------------------------------------------------------------------------------------------------- requests

    def handle(self, frames: list[Frame]) -> None:
        """Decode and dispatch frames; those behind too much output are kept for later.

        A frame that cannot be understood ends the stream, like bytes that are no frame: nothing behind it is looked at.
        """
        limit = self._selector.config.peer_backlog_bytes
        dispatch = self._selector.turns.dispatch
        for index, frame in enumerate(frames):
            if self._out_bytes + self._backlog > limit:
                self._defer(frames[index:])
                return
            try:
                command = decode_command(frame)
                if command is None:
                    continue
                if command.flag & _RESPONSE:
                    self._answered(command)
                else:
                    dispatch(self, command)
            except ProtocolError as error:
                self._decoder.failure = error
                return

    def _defer(self, frames: list[Frame]) -> None:
        """Keep frames in memory of their own until the peer has read."""
        self._deferred += [(d, memoryview(bytes(h)), memoryview(bytes(b))) for d, h, b in frames]
        self._pause()

    def _answered(self, command: RemotingCommand) -> None:
        future = self._pending.pop(command.opaque, None)
        if future is None or future.done():
            log.debug("answer without a request peer=%s opaque=%d", self.peer, command.opaque)
        else:
            future.set_result(command.detached())

    def _fail(self, error: ProtocolError) -> None:
        """Close because of the peer's bytes, once everything before them has been answered."""
        if self._deferred or self.closed:
            return
        self._selector.protocol_errors += 1
        log.warning("closing connection peer=%s reason=%s", self.peer, error)
        self.close()

    # -------------------------------------------------------------------------------------------------------- answers

    def answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Answer a request in its dialect, unless it wanted none or the peer is gone."""
        if not request.flag & Flag.ONEWAY:
            self.write(encode_command(response.answer_to(request)))

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes to what leaves at the end of this turn; dropped when the peer is gone."""
        if self._transport is None:
            return
        if not self._out:
            self._selector.to_flush(self)
        self._out.append(data)
        self._out_bytes += len(data)

    def flush(self) -> None:
        """Write what this turn gathered, and stop reading from a peer that does not take it."""
        out = self._out
        if not out:
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            out.clear()
            self._out_bytes = 0
            return
        transport.write(out[0] if len(out) == 1 else b"".join(out))
        self._selector.sent_bytes += self._out_bytes
        self._out = []
        self._out_bytes = 0
        self._account(transport.get_write_buffer_size())
        if not self._backlog:
            self.active_s = self._loop.time()
            if self.paused:  # the peer took all at once, so the transport will not say it
                self._loop.call_soon(self.resume_writing)

    def note_progress(self) -> None:
        """A peer that takes a long answer slowly is not idle."""
        if self._backlog and self._transport is not None:
            backlog = self._transport.get_write_buffer_size()
            if backlog < self._backlog:
                self.active_s = self._loop.time()
                self._account(backlog)

    def _account(self, backlog: int) -> None:
        """Note how many bytes wait for this peer now."""
        selector, config = self._selector, self._selector.config
        selector.backlog_bytes += backlog - self._backlog
        self._backlog = backlog
        if backlog > config.peer_backlog_bytes or (backlog and selector.backlog_bytes > config.total_backlog_bytes):
            self._pause()

    def _pause(self) -> None:
        if not self.paused and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()
            log.debug("pausing peer=%s backlog_bytes=%d", self.peer, self._backlog)

    def hold_reading(self) -> None:
        """Read no more from this peer until the selector releases all who are held; its answers are still written."""
        if not self.closed:
            self._selector.hold(self)
            cast(asyncio.Transport, self._transport).pause_reading()

    def resume_reading(self) -> None:
        """The hold is over; until now the peer could not show that it is alive."""
        self.active_s = self._loop.time()
        self._read_on()

    def _read_on(self) -> None:
        if not self.closed and not self.paused and not self._selector.is_held(self):
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

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        return self._opaque

    def close(self) -> None:
        """Write what is there, then close."""
        if self._transport is not None:
            self.flush()
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()


def _no_delay(sock: socket.socket | None) -> None:
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
