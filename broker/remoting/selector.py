"""The selector: the state shared by all connections of one event loop.

A read is handled completely before anything else happens: every complete frame in it is decoded and dispatched. A read
batch consists of the reads of one poll until they reach BATCH_BYTES; a read of that size is a batch of its own. At its
end processors finish the work that they collected (`RequestDispatcher.end_batch`: the one write into the log), and all
responses to a connection leave in one write. Work that no response waits for follows
(`RequestDispatcher.run_after_responses`: messages become visible to consumers, parked pulls get their responses). So
small reads share the cost of a batch, and large ones do not wait for others; neither do the reads of a peer that is the
only active one. All reads of a batch begin within the same millisecond: the store gives all records of one write the
same time, which must not be earlier than the messages.

        get_buffer -> buffer_updated -> CommandDecoder -> dispatch ... end_batch -> flush
        `---------------- connection.py ----------------'     selector   pending_writes.py

The selector also tracks all connections: which are open, which have paused reads, and which are idle.
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

UNREAD_CHECK_S: Final = 0.1
RESERVED_DESCRIPTORS: Final = 1_536
"""Descriptors for other purposes: 1,024 queue files (openQueueFiles), segments, index, health pages, name servers."""
SILENT_S: Final = 5.0
"""A new connection may send nothing for so long before it can be closed in favor of a newer one."""
BATCH_BYTES: Final = 64 * 1024
"""A read batch of this size ends, even if more data can be read."""

log = logging.getLogger(__name__)


class RemotingStatistics(msgspec.Struct, frozen=True):
    """Figures of the connections; counters are totals since the start."""

    connections: int
    accepted: int
    refused: int
    closed_idle: int
    closed_unread: int
    protocol_errors: int
    paused: int
    held: int
    backlog_bytes: int
    received_bytes: int
    sent_bytes: int


class Selector:
    """The state shared by all connections of one event loop."""

    def __init__(self, dispatcher: RequestDispatcher, config: RemotingConfig) -> None:
        self.dispatcher = dispatcher
        self.config = config
        self.pending_writes = PendingWrites(config)
        self.connections: set[Connection] = set()
        self.read_scheduler = ReadScheduler(self._is_memory_short, monotonic)
        self.partial_frames = PartialFrames(_partial_frames_config(config), self._watch_partial_frames)
        self.busy_polling = BusyPolling(effective_limit_us(config.busy_poll_us), self)
        self._is_watching = False
        self._max_connections = allowed_connections(config)
        self.deferred_bytes = 0  # requests of peers that do not read their responses
        self.accepting = True
        self.received_bytes = 0
        self.accepted = 0
        self.refused = 0
        self.closed_idle = 0
        self.closed_unread = 0  # connections with the most unread bytes, when memory was short
        self._next_unread_check_s = 0.0
        self.protocol_errors = 0
        self._half_unread = config.total_backlog_bytes // 2
        self._half_partial = config.unfinished_frames_bytes // 2
        self._close_listeners: list[Callable[[Connection], None]] = []
        self.may_open: Callable[[Connection], bool] | None = None
        """Returns whether a new connection may stay; None: every one may, up to `max_connections`."""
        self._paused_by_broker: set[Connection] = set()
        self._silent: dict[Connection, None] = {}  # accepted, no byte received yet; the oldest first
        self._is_end_due = False  # the batch ends after the poll's reads
        self._last: Connection | None = None  # the connection of the last read
        self._batch_ms = 0  # Unix time at which the batch began

    def __repr__(self) -> str:
        return f"<Selector {len(self.connections)} connections>"

    def configure(self, config: RemotingConfig) -> None:
        """Use other limits on peers from now on; new connections also use the new setting for sendfile."""
        self.config = self.pending_writes.config = config
        self._max_connections = allowed_connections(config)
        self.partial_frames.configure(_partial_frames_config(config))
        self._half_partial = config.unfinished_frames_bytes // 2

    def statistics(self) -> RemotingStatistics:
        """Return the current figures."""
        return RemotingStatistics(
            connections=len(self.connections),
            accepted=self.accepted,
            refused=self.refused,
            closed_idle=self.closed_idle,
            closed_unread=self.closed_unread,
            protocol_errors=self.protocol_errors,
            paused=sum(connection.paused and not connection.is_held for connection in self.connections),
            held=sum(connection.is_held for connection in self.connections),
            backlog_bytes=self.pending_writes.backlog_bytes,
            received_bytes=self.received_bytes,
            sent_bytes=self.pending_writes.sent_bytes,
        )

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that all peers have not taken yet."""
        return self.pending_writes.backlog_bytes

    def on_close(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback` with each closed connection."""
        self._close_listeners.append(callback)

    def opened(self, connection: Connection) -> bool:
        """Register a new connection; return whether it may stay."""
        is_full = len(self.connections) >= self._max_connections
        if not self.accepting or (is_full and not self._close_silent()):
            self.refused += 1
            log.warning("connection refused peer=%s limit=%d", connection.peer, self._max_connections)
            return False
        if self.may_open is not None and not self.may_open(connection):
            self.refused += 1
            return False
        self.accepted += 1
        self.connections.add(connection)
        return True

    def expect_first_bytes(self, connection: Connection) -> None:
        """Track an accepted connection that has sent nothing yet."""
        if connection in self.connections:
            self._silent[connection] = None

    def first_bytes_received(self, connection: Connection) -> None:
        """Stop tracking a connection: its first bytes arrived."""
        self._silent.pop(connection, None)

    def _close_silent(self) -> bool:
        """Close the connection that has sent nothing for longest, if that is at least SILENT_S; return whether one was
        closed. Otherwise connections that send nothing could keep all other clients out."""
        longest = next(iter(self._silent), None)
        if longest is None or asyncio.get_running_loop().time() - longest.active_s < SILENT_S:
            return False
        del self._silent[longest]
        self.closed_idle += 1
        log.info("closing silent connection peer=%s limit=%d", longest.peer, self._max_connections)
        longest.abort()
        return True

    def closed(self, connection: Connection) -> None:
        """Unregister a closed connection, and call the close listeners."""
        self.connections.discard(connection)
        self._silent.pop(connection, None)
        self._paused_by_broker.discard(connection)
        if connection is self._last:
            self._last = None
        for callback in self._close_listeners:
            callback(connection)

    def pause_reads(self, connection: Connection) -> None:
        """Pause reads from a connection until `resume_paused_reads`."""
        self._paused_by_broker.add(connection)

    def is_read_paused(self, connection: Connection) -> bool:
        """Return whether a connection must not be read from."""
        return connection in self._paused_by_broker or self.partial_frames.is_waiting(connection)

    def is_paused_by_broker(self, connection: Connection) -> bool:
        """Return whether reads from a connection are paused until `resume_paused_reads`."""
        return connection in self._paused_by_broker

    def _watch_partial_frames(self) -> None:
        """Check the partial frames at short intervals while connections wait for memory."""
        if not self._is_watching:
            self._is_watching = True
            asyncio.get_running_loop().call_later(self.partial_frames.step_s, self._step_partial_frames)

    def _step_partial_frames(self) -> None:
        self._is_watching = False
        self.partial_frames.step(asyncio.get_running_loop().time())
        if self.partial_frames.step_s:
            self._watch_partial_frames()

    def _is_memory_short(self) -> bool:
        """Return whether half of the memory limit for unread responses, or for partial frames, is used."""
        unread = self.pending_writes.backlog_bytes + self.deferred_bytes
        return unread > self._half_unread or self.partial_frames.bytes > self._half_partial

    def enforce_unread_limit(self, now_s: float) -> None:
        """Close the connection with the most unread bytes in memory if all together exceed twice their limit. Checked
        at most ten times a second; unsent data in files does not count."""
        limit = 2 * self.config.total_backlog_bytes
        if self.pending_writes.backlog_bytes <= limit or now_s < self._next_unread_check_s:
            return
        self._next_unread_check_s = now_s + UNREAD_CHECK_S
        unread = {connection: connection.unread_bytes for connection in self.connections}
        if sum(unread.values()) > limit:
            worst = max(unread, key=unread.__getitem__)
            self.closed_unread += 1
            log.warning("closing connection peer=%s unread_bytes=%d", worst.peer, unread[worst])
            worst.abort()

    def resume_paused_reads(self) -> None:
        """Resume reads from all paused connections."""
        paused, self._paused_by_broker = self._paused_by_broker, set()
        log.debug("reads resumed connections=%d", len(paused))
        for connection in paused:
            connection.resume_reading()

    def flush(self) -> None:
        """Write the collected output of the connections."""
        self.pending_writes.flush()

    def read(
        self, connection: Connection, commands: list[RemotingCommand], size: int = 0, waited_s: float = 0.0
    ) -> None:
        """Handle the commands of a read of `size` bytes, or deferred ones; the responses are written at the end of the
        read batch."""
        dispatcher = self.dispatcher
        if (now_ms := time_ns() // 1_000_000) != self._batch_ms:
            self._batch_ms = now_ms
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
            if is_alone or self.read_scheduler.excluded_bytes + size >= BATCH_BYTES:
                self.end_batch()
            else:
                self.read_scheduler.exclude(size)
                if not self._is_end_due:
                    self._is_end_due = True
                    asyncio.get_running_loop().call_soon(self._end_poll)

    def _end_poll(self) -> None:
        """End the batch: all reads of the poll are handled."""
        self._is_end_due = False
        begun_s = monotonic()
        self.end_batch()
        if monotonic() - begun_s > STALL_S:
            self.read_scheduler.record_stall(asyncio.get_running_loop().time())

    def end_batch(self) -> None:
        """Finish the work of the reads so far, and write the responses."""
        try:
            self._finish()
        finally:
            self.read_scheduler.release()

    def flush_responses(self) -> None:
        """Write responses to requests of earlier batches outside of a batch, then do the work that no response waits
        for."""
        self.pending_writes.flush()
        self._run_and_flush(self.dispatcher.run_after_responses)

    def _finish(self) -> None:
        self._run_and_flush(self.dispatcher.end_batch)
        self._run_and_flush(self.dispatcher.run_after_responses)

    def _run_and_flush(self, part: Callable[[], None]) -> None:
        self.pending_writes.begin_batch()
        try:
            part()
        finally:
            self.pending_writes.flush()

    def close_idle(self, now_s: float) -> None:
        """Close every connection that was silent for too long; `now_s` is the event loop's time."""
        for connection in self.connections:
            connection.note_progress()
        limit = now_s - self.config.max_idle_s
        for connection in [c for c in self.connections - self._paused_by_broker if c.active_s < limit]:
            self.closed_idle += 1
            log.info("closing idle connection peer=%s idle_s=%.0f", connection.peer, now_s - connection.active_s)
            connection.abort()  # a close would wait for a peer that does not read


def allowed_connections(config: RemotingConfig) -> int:
    """Return the configured maximum, limited by the process's descriptors: RESERVED_DESCRIPTORS, or half of all if that
    is less, are kept for other purposes."""
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
