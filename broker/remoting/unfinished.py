"""Unfinished frames: the memory of what peers began to say and have not finished.

A connection keeps the piece of a frame that has come until the rest has. One frame may be large, but a thousand peers
that send half of a large one must not fill the machine. So from `limit_bytes` on nobody may add to a piece of
SMALL_PIECE or more: its connection waits in line and is not read from. The first of the line is favoured: it goes on
all the same, so that frames are finished one by one even if every byte belongs to peers that have gone silent. Who is
favoured and has not finished after FAVOUR_S, while others wait, is closed.

        piece grows ─▶ below the limit? go on ─▶ above: into the line ─▶ room again, or favoured: go on

Bounded so: the limit, one largest frame, and for each connection a small piece and the one read in which it met the
limit (`Rounds` make those small).
"""

import logging
from typing import Final, Protocol

import msgspec

SMALL_PIECE: Final = 4096
"""Pieces below are not counted: every read of a busy peer ends in one."""
FAVOUR_S: Final = 20.0

log = logging.getLogger(__name__)


class Talker(Protocol):
    """What is wanted of a connection."""

    unfinished_bytes: int
    peer: str

    @property
    def is_held_up(self) -> bool:
        """Whether it is us who do not read from the peer."""

    def wait_for_memory(self) -> None:
        """Read no more from the peer."""

    def read_on(self) -> None:
        """Read from the peer again, unless something else forbids it."""

    def abort(self) -> None:
        """Close at once."""


class UnfinishedStatistics(msgspec.Struct, frozen=True):
    """`waiting` connections at this moment; closed ones since the start."""

    bytes: int
    limit_bytes: int
    waiting: int
    closed: int


class Unfinished:
    """The unfinished frames of all connections."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.bytes = 0
        self._line: dict[Talker, None] = {}
        self._favoured: Talker | None = None
        self._favoured_s = 0.0
        self._closed = 0

    def __repr__(self) -> str:
        return f"<Unfinished {self.bytes}/{self.limit_bytes} waiting={len(self._line)}>"

    def statistics(self) -> UnfinishedStatistics:
        """The figures now."""
        return UnfinishedStatistics(self.bytes, self.limit_bytes, len(self._line), self._closed)

    def is_waiting(self, talker: Talker) -> bool:
        """Whether a connection is not to be read from because of its unfinished frame."""
        return talker in self._line

    def note(self, talker: Talker, size: int, now_s: float, *, is_new: bool) -> None:
        """After a read, `size` bytes of an unfinished frame are here; `is_new`: another one than before."""
        self.bytes += size - talker.unfinished_bytes
        talker.unfinished_bytes = size
        if is_new:
            self._let_go(talker, now_s)
        if self.bytes > self.limit_bytes and size >= SMALL_PIECE and talker is not self._favoured:
            self._line[talker] = None
            talker.wait_for_memory()
            self._favour(now_s)

    def forget(self, talker: Talker, now_s: float) -> None:
        """A connection is gone, and what it had begun with it."""
        self._line.pop(talker, None)
        self.bytes -= talker.unfinished_bytes
        talker.unfinished_bytes = 0
        self._let_go(talker, now_s)

    def step(self, now_s: float) -> None:
        """Close who was favoured, did not finish, and keeps others waiting."""
        talker = self._favoured
        if talker is None or not self._line:
            return
        if talker.is_held_up:
            self._favoured_s = now_s  # not its fault
        elif now_s - self._favoured_s >= FAVOUR_S:
            self._closed += 1
            log.warning("closing connection peer=%s unfinished_bytes=%d", talker.peer, talker.unfinished_bytes)
            talker.abort()

    def _let_go(self, talker: Talker, now_s: float) -> None:
        """A frame is finished, or given up. There may be room: let in whoever waits for it."""
        if talker is self._favoured:
            self._favoured = None
        while self._line and self.bytes <= self.limit_bytes:
            self._let_in()
        self._favour(now_s)

    def _favour(self, now_s: float) -> None:
        if self._line and self._favoured is None:
            self._favoured, self._favoured_s = self._let_in(), now_s

    def _let_in(self) -> Talker:
        talker = next(iter(self._line))
        del self._line[talker]
        talker.read_on()
        return talker
