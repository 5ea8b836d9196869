"""Which half messages are open: a byte for each, from the oldest that may be asked about to the newest with a mark.

    offset      low ............... begin .................. what has no byte yet
    state       1 1 3 1 2 1 1 1 1 1 0 1 1 0 0 1 1 2 1 0 1    open
                decided, kept for   the first open one
                whoever ends again

All offsets are those of the half topic's queue. A half message that is stored again, because it was asked about or has
to stay open for long, goes on as a copy of its *root*, the message that the producer sent; the one before is
superseded. Producers may name any of them, so decisions are about roots: they hold for the root and its latest copy.
A copy's record says who its root is; from a root to its latest copy it takes a table, of open ones only.

To find the next open one is one search for a zero byte, however many were decided before it. In front of `begin`,
KEPT to twice as many decided ones are remembered: to end a transaction twice does nothing. So are the last LATE roots
from before that whose copies were ended. What is older nobody knows any more (None).
Source: docs/formats.md, "Half messages on disk".
"""

from enum import IntEnum
from typing import Final

import msgspec

KEPT: Final = 1 << 20
LATE: Final = 1 << 16

_GONE: Final = bytes([3]) + bytes(range(1, 256))  # what is open becomes discarded


class HalfState(IntEnum):
    """What became of a half message."""

    OPEN = 0
    DECIDED = 1  # committed or rolled back
    SUPERSEDED = 2  # there is a later copy
    DISCARDED = 3  # not asked about any more; it may still be ended


class OpenHalvesStatistics(msgspec.Struct, frozen=True):
    """Offsets, and how many open ones have copies."""

    low: int
    begin: int
    end: int
    copies: int


class OpenHalves:
    """The half messages from `begin` on; nothing before it is open."""

    def __init__(self, begin: int = 0, kept: int = KEPT) -> None:
        self._kept = kept
        self._low = begin
        self._begin = begin
        self._states = bytearray()
        self._copies: dict[int, int] = {}  # root -> latest copy
        self._late: dict[int, HalfState] = {}  # of roots that have no byte any more

    def __repr__(self) -> str:
        return f"<OpenHalves from={self._begin} copies={len(self._copies)}>"

    def statistics(self) -> OpenHalvesStatistics:
        """The figures now."""
        return OpenHalvesStatistics(self._low, self._begin, self._low + len(self._states), len(self._copies))

    @property
    def begin(self) -> int:
        """Nothing before this offset is open."""
        return self._begin

    def state(self, root: int) -> HalfState | None:
        """What became of a half message and its copies; None: it is too long ago."""
        if root in self._copies:
            return HalfState.OPEN
        at = root - self._low
        if at < 0:
            return self._late.get(root)
        return HalfState(self._states[at]) if at < len(self._states) else HalfState.OPEN

    def latest(self, root: int) -> int:
        """The offset under which a half message is open, if it is."""
        return self._copies.get(root, root)

    def next_open(self, offset: int) -> int:
        """The first open one at `offset` or behind it; what has no byte yet counts as open."""
        offset = max(offset, self._begin)
        at = self._states.find(0, offset - self._low)
        return self._low + at if at >= 0 else max(offset, self._low + len(self._states))

    def is_open_at(self, offset: int) -> bool:
        """Whether this very one is open, as a root or as a copy."""
        at = offset - self._low
        return at >= 0 and (at >= len(self._states) or not self._states[at])

    def end(self, root: int, state: HalfState = HalfState.DECIDED) -> None:
        """A half message is open no more, nor is its copy."""
        copy = self._copies.pop(root, None)
        self._mark(root, state)
        if copy is not None:
            self._mark(copy, state)
            if root < self._low:
                self._remember(root, state)

    def _remember(self, root: int, state: HalfState) -> None:
        self._late[root] = state
        if len(self._late) > LATE:
            del self._late[next(iter(self._late))]

    def mark_decided(self, offset: int) -> None:
        """This one was decided, says an op message, root or copy."""
        self._mark(offset, HalfState.DECIDED)

    def renewed(self, root: int, offset: int) -> None:
        """There is a new copy at `offset`, which is open; the one before is superseded."""
        previous = self._copies.get(root, root)
        self._copies[root] = offset
        self._mark(previous, HalfState.SUPERSEDED)

    def expire(self, min_offset: int) -> None:
        """The queue begins there now: what was open before it can neither be asked about nor ended any more."""
        if min_offset <= self._begin:
            return
        self._grow(min_offset - self._low)
        begin, end = self._begin - self._low, min_offset - self._low
        self._states[begin:end] = self._states[begin:end].translate(_GONE)
        self._copies = {root: copy for root, copy in self._copies.items() if copy >= min_offset}
        self._advance()

    def _mark(self, offset: int, state: HalfState) -> None:
        at = offset - self._low
        if at < 0:
            return
        self._grow(at + 1)
        self._states[at] = state
        if offset == self._begin:
            self._advance()

    def _grow(self, size: int) -> None:
        missing = size - len(self._states)
        if missing > 0:
            self._states.extend(bytes(missing))

    def _advance(self) -> None:
        at = self._states.find(0, self._begin - self._low)
        self._begin = self._low + (at if at >= 0 else len(self._states))
        if self._begin - self._low > 2 * self._kept:
            cut = self._begin - self._low - self._kept
            del self._states[:cut]
            self._low += cut
