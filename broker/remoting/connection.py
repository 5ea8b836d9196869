"""A connection: its reading half, and the requests that we send on it.

All connections share one receive buffer and are scheduled fairly (`read_scheduling.py`). A read is handled completely
before anything else happens: every complete frame in it is decoded and dispatched, and the responses leave at the end
of the read batch (`read_batch.py`). A connection owns only the part of a frame that a read cut off. Writing is the task
of its `ConnectionWriter` (`connection_writer.py`).

A peer that does not read its responses is not read from either. If more than `peer_backlog_bytes` wait for one peer
(or, while anything waits for it, more than `total_backlog_bytes` for all peers), reads from its connection are paused
and its received frames are deferred. Both continue when the peer has taken all responses. Other connections are not
affected. If the unread responses of all peers still reach twice `total_backlog_bytes` in memory, the connection with
the most unread bytes is closed. A request processor can also pause reads from a connection (`pause_reads`) until the
registry resumes all paused connections. The dispatcher holds a connection (`hold`) whose next request has to wait for a
quota: the rest of its read is deferred in the same way, and served after that time.

Both sides send requests on a connection. Responses to ours are matched by opaque. The peer's oneway requests get no
response. The meaning of requests is not known here.
"""

import asyncio
import logging
import socket
from contextlib import suppress
from fcntl import ioctl
from struct import Struct
from termios import FIONREAD
from time import monotonic
from typing import Final, Self, cast

from skylarkmq.broker.remoting.busy_polling import BusyPolling
from skylarkmq.broker.remoting.connection_registry import ConnectionRegistry
from skylarkmq.broker.remoting.connection_writer import ConnectionWriter
from skylarkmq.broker.remoting.dispatch import UNCHECKED
from skylarkmq.broker.remoting.partial_frames import SMALL_PIECE
from skylarkmq.broker.remoting.read_batch import STALL_S, ReadBatch
from skylarkmq.protocol.codes import Flag
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.message_id import encode_host
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.stream import CommandDecoder

BARE_COMMAND_BYTES: Final = 800
"""Memory of a deferred command without its body."""
HELD_READ_BYTES: Final = 64 * 1024
"""Largest read of a connection that was held in the last HELD_S: more would only be deferred."""
HELD_S: Final = 1.0
SLICE_COMMANDS: Final = 64
"""Deferred commands that are taken at a time: those that must wait again are few."""

_RESPONSE: Final = Flag.RESPONSE
_READY: Final = Struct("i")

log = logging.getLogger(__name__)


class Connection(asyncio.BufferedProtocol):
    """One TCP connection, accepted or opened by us."""

    def __init__(self, batch: ReadBatch, registry: ConnectionRegistry["Connection"], busy_polling: BusyPolling) -> None:
        self._batch = batch
        self._scheduler = batch.scheduler
        self._pending_writes = batch.pending_writes
        self._registry = registry
        self._busy_polling = busy_polling
        self._loop = asyncio.get_running_loop()
        self._decoder = CommandDecoder(batch.pending_writes.config.max_frame_bytes)
        self._writer = ConnectionWriter(batch.pending_writes, self)
        self.write = self._writer.write
        self.write_regions = self._writer.write_regions
        self._deferred: list[RemotingCommand] = []
        self._deferred_bytes = 0
        self._is_resuming = False  # deferred commands are being served
        self.partial_frame_bytes = 0
        self._pending: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaque = 0
        self._transport: asyncio.Transport | None = None
        self.paused = False
        self._hold: asyncio.TimerHandle | None = None  # until a quota permits the first deferred request
        self._held_since_s = 0.0  # when that request arrived
        self._last_hold_s: float | None = None  # None: not held in the last HELD_S
        self.active_s = self._loop.time()
        self.arrived_s = monotonic()  # arrival of the requests handled now; code that resumes a request restores it
        self.peer = "?"
        self.host = ""
        self.peer_host = bytes(8)
        self.certificate_subject: str | None = None  # of the verified client certificate (tls.py)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "paused" if self.paused else "open"
        return f"<Connection {self.peer} {state} backlog={self.backlog_bytes}>"

    @property
    def closed(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._transport is None or self._transport.is_closing() or self._writer.is_closing

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that the peer has not taken yet."""
        return self._writer.backlog_bytes

    @property
    def is_held(self) -> bool:
        """Return whether the next request waits for a quota."""
        return self._hold is not None

    @property
    def output_bytes(self) -> int:
        """Return all bytes of responses and requests that were written to this connection."""
        return self._writer.output_bytes

    @property
    def unread_bytes(self) -> int:
        """Return the part of the backlog that is in memory."""
        return self._writer.memory_bytes

    # ----------------------------------------------------------------------------------------------- called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or abort it when there are too many connections."""
        self._transport = cast(asyncio.Transport, transport)
        self._writer.opened(self._transport)
        host, port = transport.get_extra_info("peername", ("0.0.0.0", 0))[:2]
        self.host = host
        self.peer_host = encode_host(host, port)
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _no_delay(transport.get_extra_info("socket"))
        if not self._registry.opened(self):
            self._transport.abort()

    def secured(self, transport: asyncio.Transport) -> None:
        """Use the TLS transport from now on: the peer speaks TLS."""
        self._transport = transport
        self._writer.opened(transport)

    def get_buffer(self, _size_hint: int) -> memoryview:
        """Return the window of the shared receive buffer; the read is handled before another connection reads."""
        window = self._scheduler.window
        return window if self._last_hold_s is None else window[:HELD_READ_BYTES]

    def buffer_updated(self, size: int) -> None:
        """Handle one read; see the module docstring."""
        scheduler = self._scheduler
        self.arrived_s = self.active_s = now_s = monotonic()  # also the loop's clock
        data = scheduler.window[:size]
        is_full = scheduler.record_read(size, now_s)
        if self._last_hold_s is not None:
            is_full = self._was_held_read_full(size, now_s, self._last_hold_s)
        if is_full and not self.paused and self._transport is not None:
            # uvloop would continue to read this connection only; other connections come first
            self._transport.pause_reading()
            scheduler.enqueue(self)
        commands = self._decoder.feed_commands(data)
        if (pending_bytes := self._decoder.pending_bytes) >= SMALL_PIECE or self.partial_frame_bytes:
            self._registry.partial_frames.record_read(self, pending_bytes, now_s, is_new=bool(commands))
        if commands:
            self._batch.run(self, commands, size, now_s - scheduler.began_s)
            if monotonic() - now_s > STALL_S:
                scheduler.record_stall(now_s)
        if self._decoder.failure is not None:
            self._fail(self._decoder.failure)

    def _was_held_read_full(self, size: int, now_s: float, last_hold_s: float) -> bool:
        """Return whether a read of a connection that was held filled its smaller window; end that after HELD_S."""
        if now_s - last_hold_s > HELD_S:
            self._last_hold_s = None
        return size >= min(HELD_READ_BYTES, len(self._scheduler.window))

    def eof_received(self) -> bool:
        """Close after the responses written so far. Requests without a response get none, as with RocketMQ."""
        self._batch.end()
        if not self._writer.has_queued:
            return False
        self._writer.close()
        return True

    def pause_writing(self) -> None:
        """Ignore this: the writer reads the size of the transport's buffer itself."""

    def resume_writing(self) -> None:
        """Continue writing: the transport's buffer is empty."""
        self._writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests that wait for a response, and release all state."""
        self._transport = None
        self._writer.lost()
        self._release_hold()
        self._drop_deferred()
        self._scheduler.forget(self)
        self._registry.partial_frames.forget(self)
        self._batch.forget(self)
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(ConnectionError(f"connection to {self.peer} lost: {exc or 'closed'}"))
        self._registry.closed(self)

    # --------------------------------------------------------------------------------------------------------- requests

    def handle(self, commands: list[RemotingCommand]) -> None:
        """Dispatch the commands of a read; defer those after which too much output waits.

        A request that cannot be decoded ends the stream, as bytes that are no frame do: nothing after it is handled.
        """
        writer = self._writer
        config = self._pending_writes.config
        is_short = self._pending_writes.backlog_bytes > config.total_backlog_bytes
        limit = 0 if is_short else config.peer_backlog_bytes
        if self._deferred and not self._is_resuming:
            limit = -1  # no request overtakes deferred ones
        dispatch = self._batch.dispatcher.dispatch_from
        at, run = 0, UNCHECKED
        while at < len(commands):
            if writer.gathered_bytes + writer.backlog_bytes > limit:
                self.defer(commands[at:])
                return
            command = commands[at]
            if command.flag & _RESPONSE:
                self._receive_response(command)
                at += 1
                continue
            try:
                served_to, run = dispatch(self, commands, at, run)
            except ProtocolError as error:
                self._decoder.failure = error
                return
            if served_to == at:
                self.defer(commands[at:])
                return
            at = served_to

    def defer(self, commands: list[RemotingCommand]) -> None:
        """Copy commands and keep them until the peer has read its responses, and no request has to wait for a quota."""
        kept = [command.detached() for command in commands]
        at = 0 if self._is_resuming else len(self._deferred)
        self._deferred[at:at] = kept
        self._count_deferred(_memory_of(kept))
        self.pause_for_backlog()

    def _count_deferred(self, size: int) -> None:
        self._deferred_bytes += size
        self._registry.deferred_bytes += size

    def hold(self, wait_s: float) -> None:
        """Pause reads for `wait_s` seconds, and then serve the deferred commands; the caller defers the first one."""
        if self._transport is None:
            return
        if self._hold is None:
            self._held_since_s = self.arrived_s
        self._release_hold()
        self._last_hold_s = monotonic()
        self._hold = self._loop.call_later(wait_s, self._end_hold)
        self.paused = True
        self._transport.pause_reading()

    def _release_hold(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.cancel()

    def _end_hold(self) -> None:
        """Serve the deferred commands, as of the time at which they arrived."""
        self._hold = None
        self.arrived_s = self._held_since_s
        self._resume_deferred()

    def _take_deferred(self) -> list[RemotingCommand]:
        """Return the first deferred commands, which are no longer counted."""
        taken = self._deferred[:SLICE_COMMANDS]
        del self._deferred[:SLICE_COMMANDS]
        self._count_deferred(-_memory_of(taken))
        return taken

    def _drop_deferred(self) -> None:
        self._deferred.clear()
        self._count_deferred(-self._deferred_bytes)

    def _receive_response(self, command: RemotingCommand) -> None:
        future = self._pending.pop(command.opaque, None)
        if future is None or future.done():
            log.debug("response without a request peer=%s opaque=%d", self.peer, command.opaque)
        else:
            future.set_result(command.detached())

    def _fail(self, error: ProtocolError) -> None:
        """Close because of invalid bytes, after the requests before them have their responses."""
        self._batch.end()
        if self._deferred or self.closed:
            return
        self._registry.protocol_errors += 1
        log.warning("closing connection peer=%s reason=%s", self.peer, error)
        self.close()

    def respond(self, request: RemotingCommand, response: RemotingCommand) -> None:
        """Write the response to a request in its header dialect, unless the request is oneway or the peer is gone."""
        if not request.flag & Flag.ONEWAY:
            self.write(encode_command(response.in_response_to(request)))

    def busy_poll(self, times: int = 1) -> int:
        """Start busy polling for the flush that this peer waits for, or for its next request (`busy_polling.py`)."""
        return self._busy_polling.begin(times)

    # ---------------------------------------------------------------------------------------------- pauses and progress

    def pause_for_backlog(self) -> None:
        """Pause reads: the peer does not take its responses."""
        if not self.paused and self._transport is not None:
            self.paused = True
            self._transport.pause_reading()
            log.debug("pausing peer=%s backlog_bytes=%d", self.peer, self.backlog_bytes)
        self._registry.enforce_unread_limit(self._loop.time())

    def progressed(self) -> None:
        """Record activity: a peer that takes a long response slowly is not idle."""
        self.active_s = self._loop.time()

    def drained(self) -> None:
        """Resume after the peer has taken everything."""
        self.active_s = self._loop.time()
        if self.paused:
            self._loop.call_soon(self._resume_deferred)

    def _resume_deferred(self) -> None:
        """Serve the deferred commands, unless the peer has a backlog again or has to wait for a quota."""
        if not self.paused or self.backlog_bytes or self.closed or self.is_held:
            return
        self.paused = False
        self._is_resuming = True
        try:
            while self._deferred and not self.paused and not self.closed:
                self._batch.run(self, self._take_deferred())  # no wait: they waited for their own peer
        finally:
            self._is_resuming = False
        if self._decoder.failure is not None:
            self._fail(self._decoder.failure)
        self.try_resume_reading()

    def note_progress(self) -> None:
        """Record how much a slow peer has taken since the last call."""
        self._writer.note_progress()

    def pause_reads(self) -> None:
        """Pause reads until the registry resumes all paused connections; responses are still written."""
        if not self.closed:
            self._registry.pause_reads(self)
            cast(asyncio.Transport, self._transport).pause_reading()

    def resume_reading(self) -> None:
        """Continue after a pause; until now the peer could not show activity."""
        self.active_s = self._loop.time()
        self.try_resume_reading()

    def pause_for_memory(self) -> None:
        """Pause reads until there is memory for the rest of the peer's frame."""
        if self._transport is not None:
            self._transport.pause_reading()

    @property
    def is_paused_by_broker(self) -> bool:
        """Return whether the broker has paused reads for a reason of its own."""
        return self._registry.is_paused_by_broker(self)

    @property
    def ready_bytes(self) -> int:
        """Return the bytes that wait in the socket; 0 on a connection that is closing."""
        sock = None if self.closed else cast(asyncio.Transport, self._transport).get_extra_info("socket")
        if sock is None:
            return 0
        with suppress(OSError):  # the socket is being closed
            (size,) = _READY.unpack(ioctl(sock.fileno(), FIONREAD, bytes(_READY.size)))
            return int(size)
        return 0

    def try_resume_reading(self) -> None:
        """Resume reads, unless they are paused for another reason."""
        if not self.closed and not self.paused and not self._registry.is_read_paused(self):
            cast(asyncio.Transport, self._transport).resume_reading()

    # ----------------------------------------------------------------------------------------------------- our requests

    def push(self, command: RemotingCommand) -> None:
        """Send a oneway request."""
        command.opaque = self._next_opaque()
        self.write(encode_command(command))

    async def invoke(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        """Send a request and return its response. Raises TimeoutError or ConnectionError if none arrives."""
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
    def client(self) -> Self:
        """Return this connection, over which the broker sends requests to the client (`ClientChannel`)."""
        return self

    @property
    def calls(self) -> int:
        """Return the number of our requests that wait for a response."""
        return len(self._pending)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        return self._opaque

    def close(self) -> None:
        """Write the remaining output, then close; nothing is read meanwhile."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._writer.close()

    def abort(self) -> None:
        """Close at once, without writing the remaining output."""
        if self._transport is not None:
            self._transport.abort()


def _memory_of(commands: list[RemotingCommand]) -> int:
    """Return the bytes that deferred commands retain."""
    return sum(BARE_COMMAND_BYTES + len(command.body) for command in commands)


def _no_delay(sock: socket.socket | None) -> None:
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
