"""The connections of one event loop: which are open, which have paused reads, which are idle, and their limits.

number      a connection above `max_connections` is refused, unless another one has sent nothing for SILENT_S
memory      reads become small while half of a limit is used; the connection with the most unread bytes is closed
            above twice `total_backlog_bytes`; partial frames: `partial_frames.py`
time        a connection without a byte in either direction for `max_idle_s` is closed
"""

import asyncio
import logging
import resource
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.partial_frames import FrameSource, PartialFrames, PartialFramesConfig
from skylarkmq.broker.remoting.pending_writes import PendingWrites

UNREAD_CHECK_S: Final = 0.1
RESERVED_DESCRIPTORS: Final = 1_536
"""Descriptors for other purposes: 1,024 queue files (openQueueFiles), segments, index, health pages, name servers."""
SILENT_S: Final = 5.0
"""A new connection may send nothing for so long before it can be closed in favor of a newer one."""

log = logging.getLogger(__name__)


class TrackedConnection(FrameSource, Protocol):
    """The part of a connection that is needed here."""

    active_s: float  # the loop's time of the last byte in either direction

    @property
    def is_held(self) -> bool:
        """Return whether the next request waits for a quota."""

    @property
    def unread_bytes(self) -> int:
        """Return the bytes in memory that the peer has not taken yet."""

    def note_progress(self) -> None:
        """Record how much a slow peer has taken since the last call."""

    def resume_reading(self) -> None:
        """Continue after a pause by the broker."""


Tracked = TypeVar("Tracked", bound=TrackedConnection)


class ConnectionRegistry(Generic[Tracked]):
    """The open connections. `may_open` returns whether a new connection may stay; None: every one may, up to
    `max_connections`.

    Set after construction: the listeners of closed connections (`on_close`), by `attach` of the parts that serve
    requests. These parts are made with the dispatcher of the same server, and thus after it.
    """

    def __init__(
        self,
        config: RemotingConfig,
        pending_writes: PendingWrites,
        may_open: Callable[[Tracked], bool] | None = None,
    ) -> None:
        self._pending_writes = pending_writes
        self._may_open = may_open
        self.connections: set[Tracked] = set()
        self.partial_frames = PartialFrames(_partial_frames_config(config), self._watch_partial_frames)
        self.deferred_bytes = 0  # requests of peers that do not read their responses
        self.accepting = True
        self.accepted = 0
        self.refused = 0
        self.closed_idle = 0
        self.closed_unread = 0  # connections with the most unread bytes, when memory was short
        self.protocol_errors = 0
        self._is_watching = False
        self._next_unread_check_s = 0.0
        self._close_listeners: list[Callable[[Tracked], None]] = []
        self._paused_by_broker: set[Tracked] = set()
        self._silent: dict[Tracked, None] = {}  # accepted, no byte received yet; the oldest first
        self.configure(config)

    def __repr__(self) -> str:
        return f"<ConnectionRegistry {len(self.connections)} connections>"

    def configure(self, config: RemotingConfig) -> None:
        """Use other limits from now on."""
        self._config = config
        self._max_connections = allowed_connections(config)
        self.partial_frames.configure(_partial_frames_config(config))
        self._half_unread = config.total_backlog_bytes // 2
        self._half_partial = config.unfinished_frames_bytes // 2

    def on_close(self, callback: Callable[[Tracked], None]) -> None:
        """Call `callback` with each closed connection."""
        self._close_listeners.append(callback)

    # ---------------------------------------------------------------------------------------------------- open, closed

    def opened(self, connection: Tracked) -> bool:
        """Register a new connection; return whether it may stay."""
        is_full = len(self.connections) >= self._max_connections
        if not self.accepting or (is_full and not self._close_silent()):
            self.refused += 1
            log.warning("connection refused peer=%s limit=%d", connection.peer, self._max_connections)
            return False
        if self._may_open is not None and not self._may_open(connection):
            self.refused += 1
            return False
        self.accepted += 1
        self.connections.add(connection)
        return True

    def expect_first_bytes(self, connection: Tracked) -> None:
        """Track an accepted connection that has sent nothing yet."""
        if connection in self.connections:
            self._silent[connection] = None

    def first_bytes_received(self, connection: Tracked) -> None:
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

    def closed(self, connection: Tracked) -> None:
        """Unregister a closed connection, and call the close listeners."""
        self.connections.discard(connection)
        self._silent.pop(connection, None)
        self._paused_by_broker.discard(connection)
        for callback in self._close_listeners:
            callback(connection)

    def close_idle(self, now_s: float) -> None:
        """Close every connection that was silent for too long; `now_s` is the event loop's time."""
        for connection in self.connections:
            connection.note_progress()
        limit = now_s - self._config.max_idle_s
        for connection in [c for c in self.connections - self._paused_by_broker if c.active_s < limit]:
            self.closed_idle += 1
            log.info("closing idle connection peer=%s idle_s=%.0f", connection.peer, now_s - connection.active_s)
            connection.abort()  # a close would wait for a peer that does not read

    # ---------------------------------------------------------------------------------------------------- paused reads

    def pause_reads(self, connection: Tracked) -> None:
        """Pause reads from a connection until `resume_paused_reads`."""
        self._paused_by_broker.add(connection)

    def is_read_paused(self, connection: Tracked) -> bool:
        """Return whether a connection must not be read from."""
        return connection in self._paused_by_broker or self.partial_frames.is_waiting(connection)

    def is_paused_by_broker(self, connection: Tracked) -> bool:
        """Return whether reads from a connection are paused until `resume_paused_reads`."""
        return connection in self._paused_by_broker

    def resume_paused_reads(self) -> None:
        """Resume reads from all paused connections."""
        paused, self._paused_by_broker = self._paused_by_broker, set()
        log.debug("reads resumed connections=%d", len(paused))
        for connection in paused:
            connection.resume_reading()

    # ---------------------------------------------------------------------------------------------------------- memory

    def is_memory_short(self) -> bool:
        """Return whether half of the memory limit for unread responses, or for partial frames, is used."""
        unread = self._pending_writes.backlog_bytes + self.deferred_bytes
        return unread > self._half_unread or self.partial_frames.bytes > self._half_partial

    def enforce_unread_limit(self, now_s: float) -> None:
        """Close the connection with the most unread bytes in memory if all together exceed twice their limit. Checked
        at most ten times a second; unsent data in files does not count."""
        limit = 2 * self._config.total_backlog_bytes
        if self._pending_writes.backlog_bytes <= limit or now_s < self._next_unread_check_s:
            return
        self._next_unread_check_s = now_s + UNREAD_CHECK_S
        unread = {connection: connection.unread_bytes for connection in self.connections}
        if sum(unread.values()) > limit:
            worst = max(unread, key=unread.__getitem__)
            self.closed_unread += 1
            log.warning("closing connection peer=%s unread_bytes=%d", worst.peer, unread[worst])
            worst.abort()

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
