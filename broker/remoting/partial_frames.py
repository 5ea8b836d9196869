"""Unfinished frames: the memory of frames of which a part is still to come.

A connection keeps the piece of a frame that has come until the rest has. One frame may be large, but a thousand peers
that send half of a large one must not fill the machine. So while all pieces exceed `limit_bytes`, or those of one host
exceed its share of it, a connection may not add to a piece of SMALL_PIECE or more: it waits in line and is not read
from. One connection at a time is favored: it is read from all the same, so that frames are finished one by one.

        piece grows ─▶ within the limits? go on ─▶ above: into the line ─▶ room again, or favored: go on

The favor follows progress. It goes to the connection with SMALL_PIECE or more ready in its socket and the smallest
piece so far, hosts within their share first. It moves on, after a read or at the next step (STEP_S), when its holder
has nothing more to be read while another connection has. A peer that sends nothing never holds it.

A connection is closed while others with bytes ready wait for it if it is slow: less than `min_rate` bytes a second over
`slow_s`, counting what is ready. A connection that waits in line with SMALL_PIECE ready, or that the broker holds for
another reason, is not slow. Nothing is closed while no other connection is delayed.

Bounded so: the limit, one largest frame as headroom for favors that moved on, one for the favor, and for each
connection a small piece and the one read in which it met the limit (`Rounds` make those small). Above the headroom the
connection whose last progress is the oldest is closed.
"""

import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

import msgspec

SMALL_PIECE: Final = 4096
"""Pieces below are not counted: every read of a busy peer ends in one."""
STEP_S: Final = 0.05
PASS_ON_S: Final = 0.002
"""The favor moves on no more often after reads, which takes a look at each connection of the line."""
STEP_S_A_PIECE: Final = 0.00005
"""Steps are rarer while there are many pieces: a step looks at each, about 2 µs."""
LOG_EVERY_S: Final = 1.0
_LET_IN_AT_ONCE: Final = 64

log = logging.getLogger(__name__)


class FrameSource(Protocol):
    """What is wanted of a connection."""

    partial_frame_bytes: int
    peer: str
    host: str
    paused: bool  # because its peer does not read

    @property
    def is_paused_by_broker(self) -> bool:
        """Whether the broker does not read from the peer for a reason of its own, such as a disk."""

    @property
    def ready_bytes(self) -> int:
        """Bytes that have come and were not read yet."""

    def pause_for_memory(self) -> None:
        """Read no more from the peer."""

    def try_resume_reading(self) -> None:
        """Read from the peer again, unless something else forbids it."""

    def abort(self) -> None:
        """Close at once."""


class PartialFramesConfig(msgspec.Struct, frozen=True):
    """Bounds; see the module's story."""

    limit_bytes: int
    headroom_bytes: int  # above it, before connections are closed for it
    host_percent: int = 75  # of it for the connections of one host; many clients may share one address
    min_rate: int = 16 * 1024  # bytes a second; a connection below it is slow
    slow_s: float = 5.0  # over so many seconds


class PartialFramesStatistics(msgspec.Struct, frozen=True):
    """`waiting` connections at this moment; closed ones since the start."""

    bytes: int
    limit_bytes: int
    waiting: int
    closed: int


class _Piece(msgspec.Struct):
    """Progress of a frame: `arrived` bytes when it was measured last, at `since_s`; more came last at `moved_s`."""

    arrived: int
    since_s: float
    newest: int
    moved_s: float


class PartialFrames:
    """The unfinished frames of all connections. `watch` is called when the line forms: call `step` every `step_s` until
    nothing waits."""

    def __init__(self, config: PartialFramesConfig, watch: Callable[[], None]) -> None:
        self.bytes = 0
        self._watch = watch
        self._hosts: dict[str, int] = {}
        self._pieces: dict[FrameSource, _Piece] = {}
        self._line: dict[FrameSource, None] = {}
        self._favored: FrameSource | None = None
        self._waiting_since_s = 0.0
        self._demander: FrameSource | None = (
            None  # had bytes ready and could not add them at will, last at `_demanded_s`
        )
        self._demanded_s = 0.0
        self._next_pass_s = 0.0
        self._closed = 0
        self._next_log_s = 0.0
        self._unlogged = 0
        self.configure(config)

    def __repr__(self) -> str:
        return f"<PartialFrames {self.bytes}/{self.limit_bytes} waiting={len(self._line)}>"

    def configure(self, config: PartialFramesConfig) -> None:
        """Go by other bounds from now on."""
        self._config = config
        self.limit_bytes = config.limit_bytes
        self._host_limit = config.limit_bytes * config.host_percent // 100
        self._most = config.limit_bytes + config.headroom_bytes

    def statistics(self) -> PartialFramesStatistics:
        """The figures now."""
        return PartialFramesStatistics(self.bytes, self.limit_bytes, len(self._line), self._closed)

    @property
    def step_s(self) -> float:
        """Seconds until the next step; 0 while nothing waits."""
        return STEP_S + STEP_S_A_PIECE * len(self._pieces) if self._line else 0.0

    def is_waiting(self, source: FrameSource) -> bool:
        """Whether a connection is not to be read from because of its unfinished frame."""
        return source in self._line

    def note(self, source: FrameSource, size: int, now_s: float, *, is_new: bool) -> None:
        """After a read, `size` bytes of an unfinished frame are here; `is_new`: another one than before."""
        self._count(source, size)
        if is_new or size < SMALL_PIECE:
            self._pieces.pop(source, None)
        if is_new:
            self._let_go(source)
        if size < SMALL_PIECE:
            return
        piece = self._pieces.get(source)
        if piece is None:
            self._pieces[source] = _Piece(size, now_s, size, now_s)
        else:
            piece.newest, piece.moved_s = size, now_s
        if source is self._favored:
            if self._line and now_s >= self._next_pass_s:
                self._pass_on(now_s)
        elif self._is_over(source):
            self._join(source, now_s)

    def forget(self, source: FrameSource) -> None:
        """A connection is gone, and what it had begun with it."""
        self._line.pop(source, None)
        self._pieces.pop(source, None)
        if source is self._demander:
            self._demander = None
        self._count(source, 0)
        self._let_go(source)

    def step(self, now_s: float) -> None:
        """Close slow connections, and move the favor on, while connections wait."""
        if not self._line:
            return
        ready = {source: _ready(source) for source in self._pieces}
        self._note_ready(ready, now_s)
        self._close_slow(ready, now_s)
        self._make_room(now_s)
        self._pass_on(now_s)
        self._let_in(len(self._line))
        self._favor()

    # ------------------------------------------------------------------------------------------------------ the books

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

    # ------------------------------------------------------------------------------------------- the line, the favor

    def _join(self, source: FrameSource, now_s: float) -> None:
        is_first = not self._line
        self._line[source] = None
        source.pause_for_memory()
        if _ready(source):
            self._demander, self._demanded_s = source, now_s
        self._favor()
        if is_first and self._line:
            self._waiting_since_s = now_s
            self._watch()

    def _let_go(self, source: FrameSource) -> None:
        """A frame is finished, or given up. There may be room: let in connections that wait for it."""
        if source is self._favored:
            self._favored = None
        self._let_in(_LET_IN_AT_ONCE)
        self._favor()

    def _let_in(self, most: int) -> None:
        """Of the first `most` in line, read again from those that are within the limits."""
        if self.bytes <= self.limit_bytes:
            for source in list(islice(self._line, most)):
                if not self._is_host_over(source):
                    del self._line[source]
                    source.try_resume_reading()

    def _pass_on(self, now_s: float) -> None:
        """Take the favor from a connection that has nothing to be read, if another one has."""
        self._next_pass_s = now_s + PASS_ON_S
        favored = self._favored
        if favored is not None and not _ready(favored) and any(map(_ready, self._line)):
            favored.pause_for_memory()
            self._favored = None
            self._favor()
            self._line[favored] = None

    def _favor(self) -> None:
        """Favor, of the connections that have much to be read, the one with the smallest piece."""
        if self._line and self._favored is None:
            source = max(self._line, key=self._claim)
            del self._line[source]
            self._favored = source
            source.try_resume_reading()

    def _claim(self, source: FrameSource) -> tuple[bool, int, int]:
        return not self._is_host_over(source), min(_ready(source), SMALL_PIECE), -source.partial_frame_bytes

    # ------------------------------------------------------------------------------------------------------- closing

    def _note_ready(self, ready: dict[FrameSource, int], now_s: float) -> None:
        for source, piece in self._pieces.items():
            arrived = source.partial_frame_bytes + ready[source]
            if arrived > piece.newest:
                piece.newest, piece.moved_s = arrived, now_s
            if ready[source] and (source is self._favored or source in self._line):
                self._demander, self._demanded_s = source, now_s

    def _close_slow(self, ready: dict[FrameSource, int], now_s: float) -> None:
        if now_s - self._demanded_s > self._config.slow_s:
            return
        for source, piece in list(self._pieces.items()):
            elapsed_s = now_s - max(piece.since_s, self._waiting_since_s)
            if elapsed_s < self._config.slow_s:
                continue
            is_excused = source.is_paused_by_broker or (source in self._line and ready[source] >= SMALL_PIECE)
            is_slow = piece.newest - piece.arrived < self._config.min_rate * elapsed_s
            if is_slow and not is_excused and source is not self._demander:
                self._close(source, now_s, "slow")
            else:
                piece.arrived, piece.since_s = piece.newest, now_s

    def _make_room(self, now_s: float) -> None:
        while self.bytes > self._most and len(self._pieces) > 1:
            pieces = self._pieces
            stalest = min((each for each in pieces if each is not self._favored), key=lambda e: pieces[e].moved_s)
            self._close(stalest, now_s, "memory")

    def _close(self, source: FrameSource, now_s: float, reason: str) -> None:
        self._closed += 1
        if now_s >= self._next_log_s:
            log.warning(
                "closing connection, frame unfinished peer=%s reason=%s unfinished_bytes=%d waiting=%d unlogged=%d",
                *(source.peer, reason, source.partial_frame_bytes, len(self._line), self._unlogged),
            )
            self._next_log_s, self._unlogged = now_s + LOG_EVERY_S, 0
        else:
            self._unlogged += 1
        source.abort()
        self.forget(source)


def _ready(source: FrameSource) -> int:
    """What a favor would have read of a connection."""
    return 0 if source.paused or source.is_paused_by_broker else source.ready_bytes
