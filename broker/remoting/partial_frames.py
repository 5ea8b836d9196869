"""Partial frames: the memory of frames that have arrived in part.

A connection keeps the received piece of a frame until the rest arrives. A single frame may be large, but a thousand
peers that each send half of a large frame must not exhaust the memory. While all pieces exceed `limit_bytes`, or those
of one host exceed its share of it, a connection may not add to a piece of SMALL_PIECE bytes or more: it is queued and
not read from. One connection at a time is favored: it is read from all the same, so that frames are completed one by
one.

        piece grows ─▶ within the limits? continue ─▶ above: queue ─▶ below the limits again, or favored: continue

The favor follows progress. It goes to the connection with SMALL_PIECE or more ready in its socket and the smallest
piece so far; connections of hosts within their share come first. It moves on, after a read or at the next step
(STEP_S), when the favored connection has nothing to read while another one has. A peer that sends nothing never holds
it.

A connection is closed if it is slow while other connections with bytes ready wait for it: it received less than
`min_rate` bytes per second over `slow_s`, including the bytes ready in its socket. A connection that is queued with
SMALL_PIECE ready, or whose reads the broker has paused for another reason, is not slow. No connection is closed while
no other one is delayed.

The memory is bounded by the sum of: the limit, one frame of maximum size as headroom for favors that moved on, one for
the current favor, and for each connection a small piece and the one read that reached the limit (`ReadScheduler` keeps
those small). Above the headroom the connection with the oldest progress is closed.
"""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

import msgspec

SMALL_PIECE: Final = 4096
"""Smaller pieces are not counted: every read of a busy peer ends in one."""
STEP_S: Final = 0.05
MOVE_FAVOR_S: Final = 0.002
"""Minimum time between two moves of the favor after reads; a move checks each queued connection."""
STEP_S_PER_PIECE: Final = 0.00005
"""Steps are rarer while there are many pieces: a step checks each one, which takes about 2 µs."""
LOG_EVERY_S: Final = 1.0
_ADMIT_AT_ONCE: Final = 64

log = logging.getLogger(__name__)


class FrameSource(Protocol):
    """The part of a connection that is needed here."""

    partial_frame_bytes: int
    peer: str
    host: str
    paused: bool  # reads are paused because its peer does not read

    @property
    def is_paused_by_broker(self) -> bool:
        """Return whether the broker has paused reads for a reason of its own, such as a disk."""

    @property
    def ready_bytes(self) -> int:
        """Return the number of bytes in the socket that were not read yet."""

    def pause_for_memory(self) -> None:
        """Pause reads from the peer."""

    def try_resume_reading(self) -> None:
        """Resume reads, unless they are paused for another reason."""

    def abort(self) -> None:
        """Close at once."""


class PartialFramesConfig(msgspec.Struct, frozen=True):
    """The limits; see the module docstring."""

    limit_bytes: int
    headroom_bytes: int  # above the limit, before connections are closed for memory
    host_percent: int = 75  # share of the limit for the connections of one host; many clients may share an address
    min_rate: int = 16 * 1024  # bytes per second; a slower connection is slow
    slow_s: float = 5.0  # seconds over which the rate is measured


class PartialFramesStatistics(msgspec.Struct, frozen=True):
    """`waiting` connections now; `closed` connections since the start."""

    bytes: int
    limit_bytes: int
    waiting: int
    closed: int


class _Piece(msgspec.Struct):
    """Progress of a frame: `arrived` bytes at the measurement at `since_s`; `newest` bytes at `moved_s`, the last
    change."""

    arrived: int
    since_s: float
    newest: int
    moved_s: float


class PartialFrames:
    """The partial frames of all connections. `watch` is called when the first connection is queued: the caller then
    calls `step` every `step_s` seconds until no connection waits."""

    def __init__(self, config: PartialFramesConfig, watch: Callable[[], None]) -> None:
        self.bytes = 0
        self._watch = watch
        self._hosts: dict[str, int] = {}
        self._pieces: dict[FrameSource, _Piece] = {}
        self._waiting: dict[FrameSource, None] = {}
        self._favored: FrameSource | None = None
        self._waiting_since_s = 0.0
        self._blocked: FrameSource | None = None  # had bytes ready while it was paused, last at `_blocked_s`
        self._blocked_s = 0.0
        self._next_move_s = 0.0
        self._closed = 0
        self._next_log_s = 0.0
        self._unlogged = 0
        self.configure(config)

    def __repr__(self) -> str:
        return f"<PartialFrames {self.bytes}/{self.limit_bytes} waiting={len(self._waiting)}>"

    def configure(self, config: PartialFramesConfig) -> None:
        """Use other limits from now on."""
        self._config = config
        self.limit_bytes = config.limit_bytes
        self._host_limit = config.limit_bytes * config.host_percent // 100
        self._max_bytes = config.limit_bytes + config.headroom_bytes

    def statistics(self) -> PartialFramesStatistics:
        """Return the current figures."""
        return PartialFramesStatistics(self.bytes, self.limit_bytes, len(self._waiting), self._closed)

    @property
    def step_s(self) -> float:
        """Return the seconds until the next step; 0 while no connection waits."""
        return STEP_S + STEP_S_PER_PIECE * len(self._pieces) if self._waiting else 0.0

    def is_waiting(self, source: FrameSource) -> bool:
        """Return whether a connection must not be read from because of its partial frame."""
        return source in self._waiting

    def record_read(self, source: FrameSource, size: int, now_s: float, *, is_new: bool) -> None:
        """Record that after a read `size` bytes of a partial frame are here; `is_new`: of another frame than before."""
        self._count(source, size)
        if is_new or size < SMALL_PIECE:
            self._pieces.pop(source, None)
        if is_new:
            self._end_frame(source)
        if size < SMALL_PIECE:
            return
        piece = self._pieces.get(source)
        if piece is None:
            self._pieces[source] = _Piece(size, now_s, size, now_s)
        else:
            piece.newest, piece.moved_s = size, now_s
        if source is self._favored:
            if self._waiting and now_s >= self._next_move_s:
                self._move_favor(now_s)
        elif self._is_over(source):
            self._enqueue(source, now_s)

    def forget(self, source: FrameSource) -> None:
        """Remove a closed connection and its piece."""
        self._waiting.pop(source, None)
        self._pieces.pop(source, None)
        if source is self._blocked:
            self._blocked = None
        self._count(source, 0)
        self._end_frame(source)

    def step(self, now_s: float) -> None:
        """While connections wait, close slow ones and move the favor on."""
        if not self._waiting:
            return
        ready = {source: _ready(source) for source in self._pieces}
        self._note_ready(ready, now_s)
        self._close_slow(ready, now_s)
        self._free_memory(now_s)
        self._move_favor(now_s)
        self._admit(len(self._waiting))
        self._favor()

    # --------------------------------------------------------------------------------------------------------- counting

    def _count(self, source: FrameSource, size: int) -> None:
        added = size - source.partial_frame_bytes
        source.partial_frame_bytes = size
        self.bytes += added
        of_host = self._hosts.get(source.host, 0) + added
        if of_host:
            self._hosts[source.host] = of_host
        else:
            self._hosts.pop(source.host, None)

    def _is_over(self, source: FrameSource) -> bool:
        return self.bytes > self.limit_bytes or self._is_host_over(source)

    def _is_host_over(self, source: FrameSource) -> bool:
        return self._hosts.get(source.host, 0) > self._host_limit

    # --------------------------------------------------------------------------------------------- the queue, the favor

    def _enqueue(self, source: FrameSource, now_s: float) -> None:
        is_first = not self._waiting
        self._waiting[source] = None
        source.pause_for_memory()
        if _ready(source):
            self._blocked, self._blocked_s = source, now_s
        self._favor()
        if is_first and self._waiting:
            self._waiting_since_s = now_s
            self._watch()

    def _end_frame(self, source: FrameSource) -> None:
        """Handle the end of a frame, complete or not: resume queued connections that are within the limits again."""
        if source is self._favored:
            self._favored = None
        self._admit(_ADMIT_AT_ONCE)
        self._favor()

    def _admit(self, most: int) -> None:
        """Resume the connections that are within the limits, among the first `most` queued ones."""
        if self.bytes <= self.limit_bytes:
            for source in list(islice(self._waiting, most)):
                if not self._is_host_over(source):
                    del self._waiting[source]
                    source.try_resume_reading()

    def _move_favor(self, now_s: float) -> None:
        """Move the favor on from a connection that has nothing to read, if another one has."""
        self._next_move_s = now_s + MOVE_FAVOR_S
        favored = self._favored
        if favored is not None and not _ready(favored) and any(map(_ready, self._waiting)):
            favored.pause_for_memory()
            self._favored = None
            self._favor()
            self._waiting[favored] = None

    def _favor(self) -> None:
        """Favor the queued connection with the highest priority."""
        if self._waiting and self._favored is None:
            source = max(self._waiting, key=self._priority)
            del self._waiting[source]
            self._favored = source
            source.try_resume_reading()

    def _priority(self, source: FrameSource) -> tuple[bool, int, int]:
        return not self._is_host_over(source), min(_ready(source), SMALL_PIECE), -source.partial_frame_bytes

    # ---------------------------------------------------------------------------------------------------------- closing

    def _note_ready(self, ready: dict[FrameSource, int], now_s: float) -> None:
        for source, piece in self._pieces.items():
            arrived = source.partial_frame_bytes + ready[source]
            if arrived > piece.newest:
                piece.newest, piece.moved_s = arrived, now_s
            if ready[source] and (source is self._favored or source in self._waiting):
                self._blocked, self._blocked_s = source, now_s

    def _close_slow(self, ready: dict[FrameSource, int], now_s: float) -> None:
        if now_s - self._blocked_s > self._config.slow_s:
            return
        for source, piece in list(self._pieces.items()):
            elapsed_s = now_s - max(piece.since_s, self._waiting_since_s)
            if elapsed_s < self._config.slow_s:
                continue
            is_excused = source.is_paused_by_broker or (source in self._waiting and ready[source] >= SMALL_PIECE)
            is_slow = piece.newest - piece.arrived < self._config.min_rate * elapsed_s
            if is_slow and not is_excused and source is not self._blocked:
                self._close(source, now_s, "slow")
            else:
                piece.arrived, piece.since_s = piece.newest, now_s

    def _free_memory(self, now_s: float) -> None:
        while self.bytes > self._max_bytes and len(self._pieces) > 1:
            pieces = self._pieces
            stalest = min((each for each in pieces if each is not self._favored), key=lambda e: pieces[e].moved_s)
            self._close(stalest, now_s, "memory")

    def _close(self, source: FrameSource, now_s: float, reason: str) -> None:
        self._closed += 1
        if now_s >= self._next_log_s:
            log.warning(
                "closing connection, frame unfinished peer=%s reason=%s unfinished_bytes=%d waiting=%d unlogged=%d",
                source.peer,
                reason,
                source.partial_frame_bytes,
                len(self._waiting),
                self._unlogged,
            )
            self._next_log_s, self._unlogged = now_s + LOG_EVERY_S, 0
        else:
            self._unlogged += 1
        source.abort()
        self.forget(source)


def _ready(source: FrameSource) -> int:
    """Return the bytes that could be read from a favored connection."""
    return 0 if source.paused or source.is_paused_by_broker else source.ready_bytes
