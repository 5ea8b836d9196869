"""The selector: what all connections of one event loop share.

A read is handled whole before anything else happens: every complete frame in it is decoded and dispatched. A turn is as
many reads of one poll as together bring ENOUGH_BYTES, one if it brings that. At its end processors finish what they
gathered (`RequestDispatcher.end_batch`: the one write into the log), and all answers to a connection leave in one write; what no
answer waits for is done behind them (`RequestDispatcher.run_after_responses`: consumers see the messages, and get their answers). So small
reads share what a turn costs, and large ones are not kept waiting for others; nor are those of a peer while it is the
only one that says anything. All reads of a turn begin within one millisecond of the clock: the store gives what is
written together one time, and none that is older than the message.

        get_buffer -> buffer_updated -> CommandDecoder -> dispatch ... end_batch -> flush
        `---------------- connection.py ----------------'     selector   transfer.py

The selector also keeps the books: who is connected, who is held, who was silent for too long.
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from time import monotonic, time_ns
from typing import Final

import msgspec

from skylarkmq.broker.remoting.busy_polling import BusyPolling, effective_limit_us
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection import STALL_S, Connection, RequestDispatcher
from skylarkmq.broker.remoting.partial_frames import PartialFrames, PartialFramesConfig
from skylarkmq.broker.remoting.pending_writes import PendingWrites
from skylarkmq.broker.remoting.read_scheduling import ReadScheduler
from skylarkmq.protocol.command import RemotingCommand

RELIEF_S: Final = 0.1
RESERVED_DESCRIPTORS: Final = 1_536
"""For what is no client: 1,024 queue files (openQueueFiles), segments, index, health pages, name servers."""
SILENT_S: Final = 5.0
"""A new connection may keep still so long before it makes room for another."""
ENOUGH_BYTES: Final = 64 * 1024
"""With so much in it a turn ends, though more may be there to read."""

log = logging.getLogger(__name__)


class RemotingStatistics(msgspec.Struct, frozen=True):
    """Connections at one moment; counters are totals since the start."""

    connections: int
    accepted: int
    refused: int
    closed_idle: int
    closed_unread: int
    protocol_errors: int
    paused: int
    backlog_bytes: int
    received_bytes: int
    sent_bytes: int


class Selector:
    """What all connections of one event loop share."""

    def __init__(self, dispatcher: RequestDispatcher, config: RemotingConfig) -> None:
        self.dispatcher = dispatcher
        self.config = config
        self.pending_writes = PendingWrites(config)
        self.connections: set[Connection] = set()
        self.read_scheduler = ReadScheduler(self._is_memory_short, monotonic)
        self.partial_frames = PartialFrames(_partial_frames_config(config), self._watch_partial_frames)
        self.busy_polling = BusyPolling(effective_limit_us(config.busy_poll_us), self)
        self._is_watching = False
        self._most_connections = allowed_connections(config)
        self.deferred_bytes = 0  # requests of peers that do not read their answers
        self.accepting = True
        self.received_bytes = 0
        self.accepted = 0
        self.refused = 0
        self.closed_idle = 0
        self.closed_unread = 0  # for leaving more unread than anybody, when memory was short
        self._next_relief_s = 0.0
        self.protocol_errors = 0
        self._half_unread = config.total_backlog_bytes // 2
        self._half_partial = config.unfinished_frames_bytes // 2
        self._close_listeners: list[Callable[[Connection], None]] = []
        self._paused_by_broker: set[Connection] = set()
        self._silent: dict[Connection, None] = {}  # accepted, and without a first byte; the oldest first
        self._is_end_due = False  # of the turn, when the poll's reads have been handled
        self._last: Connection | None = None  # that was read from
        self._turn_ms = 0  # Unix time at which the turn began

    def __repr__(self) -> str:
        return f"<Selector {len(self.connections)} connections>"

    def configure(self, config: RemotingConfig) -> None:
        """Other limits on peers from now on, and on how new connections send files."""
        self.config = self.pending_writes.config = config
        self._most_connections = allowed_connections(config)
        self.partial_frames.configure(_partial_frames_config(config))
        self._half_partial = config.unfinished_frames_bytes // 2

    def statistics(self) -> RemotingStatistics:
        """The selector's figures now."""
        return RemotingStatistics(
            connections=len(self.connections),
            accepted=self.accepted,
            refused=self.refused,
            closed_idle=self.closed_idle,
            closed_unread=self.closed_unread,
            protocol_errors=self.protocol_errors,
            paused=sum(connection.paused for connection in self.connections),
            backlog_bytes=self.pending_writes.backlog_bytes,
            received_bytes=self.received_bytes,
            sent_bytes=self.pending_writes.sent_bytes,
        )

    @property
    def backlog_bytes(self) -> int:
        """What all peers together have not taken yet."""
        return self.pending_writes.backlog_bytes

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback` with each connection that is gone."""
        self._close_listeners.append(callback)

    def opened(self, connection: Connection) -> bool:
        """A connection came; returns whether it may stay."""
        is_full = len(self.connections) >= self._most_connections
        if not self.accepting or (is_full and not self._close_silent()):
            self.refused += 1
            log.warning("connection refused peer=%s limit=%d", connection.peer, self._most_connections)
            return False
        self.accepted += 1
        self.connections.add(connection)
        return True

    def expect_first_bytes(self, connection: Connection) -> None:
        """It was accepted and has said nothing yet."""
        if connection in self.connections:
            self._silent[connection] = None

    def first_bytes_received(self, connection: Connection) -> None:
        """Its first bytes came."""
        self._silent.pop(connection, None)

    def _close_silent(self) -> bool:
        """Make room: who has said nothing for longest goes, if that is SILENT_S. Else whoever connects and keeps still
        could keep everybody out."""
        longest = next(iter(self._silent), None)
        if longest is None or asyncio.get_running_loop().time() - longest.active_s < SILENT_S:
            return False
        del self._silent[longest]
        self.closed_idle += 1
        log.info("closing silent connection peer=%s limit=%d", longest.peer, self._most_connections)
        longest.abort()
        return True

    def closed(self, connection: Connection) -> None:
        """A connection is gone; tell whoever wanted to know."""
        self.connections.discard(connection)
        self._silent.pop(connection, None)
        self._paused_by_broker.discard(connection)
        if connection is self._last:
            self._last = None
        for callback in self._close_listeners:
            callback(connection)

    def pause_reads(self, connection: Connection) -> None:
        """Read no more from a connection until `resume_paused_reads`."""
        self._paused_by_broker.add(connection)

    def is_read_paused(self, connection: Connection) -> bool:
        """Whether a connection is not to be read from."""
        return connection in self._paused_by_broker or self.partial_frames.is_waiting(connection)

    def is_paused_by_broker(self, connection: Connection) -> bool:
        """Whether a connection is held until `resume_paused_reads`."""
        return connection in self._paused_by_broker

    def _watch_partial_frames(self) -> None:
        """Connections wait to finish their frames: look at them often until none does."""
        if not self._is_watching:
            self._is_watching = True
            asyncio.get_running_loop().call_later(self.partial_frames.step_s, self._step_partial_frames)

    def _step_partial_frames(self) -> None:
        self._is_watching = False
        self.partial_frames.step(asyncio.get_running_loop().time())
        if self.partial_frames.step_s:
            self._watch_partial_frames()

    def _is_memory_short(self) -> bool:
        """Whether half of what peers may cost by not reading, or by not finishing what they say, is gone."""
        unread = self.pending_writes.backlog_bytes + self.deferred_bytes
        return unread > self._half_unread or self.partial_frames.bytes > self._half_partial

    def relieve(self, now_s: float) -> None:
        """Close who has left most unread, if all together have left twice of what they may; looked at ten times a
        second, and what waits in files does not count."""
        limit = 2 * self.config.total_backlog_bytes
        if self.pending_writes.backlog_bytes <= limit or now_s < self._next_relief_s:
            return
        self._next_relief_s = now_s + RELIEF_S
        unread = {connection: connection.unread_bytes for connection in self.connections}
        if sum(unread.values()) > limit:
            worst = max(unread, key=unread.__getitem__)
            self.closed_unread += 1
            log.warning("closing connection peer=%s unread_bytes=%d", worst.peer, unread[worst])
            worst.abort()

    def resume_paused_reads(self) -> None:
        """Read from all connections again."""
        held, self._paused_by_broker = self._paused_by_broker, set()
        log.debug("reading again from connections=%d", len(held))
        for connection in held:
            connection.resume_reading()

    def flush(self) -> None:
        """Write what the connections gathered."""
        self.pending_writes.flush()

    def read(
        self, connection: Connection, commands: list[RemotingCommand], size: int = 0, waited_s: float = 0.0
    ) -> None:
        """Handle what a read of `size` bytes brought, or what has waited since; what comes of it is written when the
        turn ends."""
        dispatcher = self.dispatcher
        if (now_ms := time_ns() // 1_000_000) != self._turn_ms:
            self._turn_ms = now_ms
            if self._is_end_due:
                self._finish()
        self.pending_writes.begin_batch()
        is_late = waited_s >= dispatcher.max_wait_s
        if is_late:
            dispatcher.note_read_delay(waited_s)
        try:
            connection.handle(commands)
        finally:
            if is_late:
                dispatcher.note_read_delay(0.0)
            is_alone, self._last = connection is self._last, connection
            if is_alone or self.read_scheduler.taken_bytes + size >= ENOUGH_BYTES:
                self.end_batch()
            else:
                self.read_scheduler.take(size)
                if not self._is_end_due:
                    self._is_end_due = True
                    asyncio.get_running_loop().call_soon(self._end_poll)

    def _end_poll(self) -> None:
        """All that could be read was read."""
        self._is_end_due = False
        begun_s = monotonic()
        self.end_batch()
        if monotonic() - begun_s > STALL_S:
            self.read_scheduler.stalled(asyncio.get_running_loop().time())

    def end_batch(self) -> None:
        """Have what was read so far finished, and write what came of it."""
        try:
            self._finish()
        finally:
            self.read_scheduler.release()

    def flush_responses(self) -> None:
        """Out of turn, requests of earlier ones were answered: write that, and then do what none of them waits for."""
        self.pending_writes.flush()
        self._write_behind(self.dispatcher.run_after_responses)

    def _finish(self) -> None:
        self._write_behind(self.dispatcher.end_batch)
        self._write_behind(self.dispatcher.run_after_responses)

    def _write_behind(self, part: Callable[[], None]) -> None:
        self.pending_writes.begin_batch()
        try:
            part()
        finally:
            self.pending_writes.flush()

    def close_idle(self, now_s: float) -> None:
        """Close every connection that was silent for too long; `now_s` is the loop's time."""
        for connection in self.connections:
            connection.note_progress()
        limit = now_s - self.config.max_idle_s
        for connection in [c for c in self.connections - self._paused_by_broker if c.active_s < limit]:
            self.closed_idle += 1
            log.info("closing idle connection peer=%s idle_s=%.0f", connection.peer, now_s - connection.active_s)
            connection.abort()  # a peer that does not read would never let its last bytes be written


def allowed_connections(config: RemotingConfig) -> int:
    """As many as the settings allow and the process has descriptors for: the store keeps RESERVED_DESCRIPTORS, or half
    of all if that is less."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return config.max_connections
    return min(config.max_connections, most - min(RESERVED_DESCRIPTORS, most // 2))


def _partial_frames_config(config: RemotingConfig) -> PartialFramesConfig:
    return PartialFramesConfig(
        config.unfinished_frames_bytes,
        config.max_frame_bytes,
        config.unfinished_frames_host_percent,
        config.unfinished_frame_min_rate,
        config.unfinished_frame_slow_s,
    )
