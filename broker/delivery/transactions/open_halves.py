"""The open half messages: a byte for each half message from the oldest recorded one to the newest with a state.

    offset      low ............... begin .................. offsets without a byte yet
    state       1 1 3 1 2 1 1 1 1 1 0 1 1 0 0 1 1 2 1 0 1    open
                decided, kept for   the first open one
                repeated ends

All offsets are offsets in the half topic's queue. A half message that is stored again, because it was checked or has to
stay open for long, continues as a copy of its *root*, the message that the producer sent; the previous copy is
superseded. Producers may refer to the root or to any copy, so decisions are about roots: they apply to the root and its
latest copy. The record of a copy contains the offset of its root. A table leads from a root to its latest copy, for
open ones only.

Finding the next open half message is one search for a zero byte, however many were decided before it. KEPT to twice as
many offsets before `begin` are recorded, so that ending a transaction twice has no effect. Of older
roots, the last LATE whose copies were ended are recorded as well. The state of all others is unknown (None).
Source: docs/reference/disk.md, "Half messages on disk".
"""

from enum import IntEnum
from typing import Final

import msgspec

KEPT: Final = 1 << 20
LATE: Final = 1 << 16

_GONE: Final = bytes([3]) + bytes(range(1, 256))  # a translation table: open becomes discarded


class HalfState(IntEnum):
    """The state of a half message."""

    OPEN = 0
    DECIDED = 1  # committed or rolled back
    SUPERSEDED = 2  # there is a later copy
    DISCARDED = 3  # no longer checked; it may still be ended


class OpenHalvesStatistics(msgspec.Struct, frozen=True):
    """Offsets, and the number of open half messages with copies."""

    low: int
    begin: int
    end: int
    copies: int


class OpenHalves:
    """The states of half messages; none before `begin` is open."""

    def __init__(self, begin: int = 0, kept: int = KEPT) -> None:
        self._kept = kept
        self._low = begin
        self._begin = begin
        self._states = bytearray()
        self._copies: dict[int, int] = {}  # root -> latest copy
        self._late: dict[int, HalfState] = {}  # states of roots without a byte

    def __repr__(self) -> str:
        return f"<OpenHalves from={self._begin} copies={len(self._copies)}>"

    def statistics(self) -> OpenHalvesStatistics:
        """Return the current figures."""
        return OpenHalvesStatistics(self._low, self._begin, self._low + len(self._states), len(self._copies))

    @property
    def begin(self) -> int:
        """Return the offset before which no half message is open."""
        return self._begin

    def state(self, root: int) -> HalfState | None:
        """Return the state of a half message and its copies; None if it is not recorded any more."""
        if root in self._copies:
            return HalfState.OPEN
        at = root - self._low
        if at < 0:
            return self._late.get(root)
        return HalfState(self._states[at]) if at < len(self._states) else HalfState.OPEN

    def latest(self, root: int) -> int:
        """Return the offset of the latest copy of an open half message, or its own."""
        return self._copies.get(root, root)

    def next_open(self, offset: int) -> int:
        """Return the first open offset at or after `offset`; an offset without a byte counts as open."""
        offset = max(offset, self._begin)
        at = self._states.find(0, offset - self._low)
        return self._low + at if at >= 0 else max(offset, self._low + len(self._states))

    def is_open_at(self, offset: int) -> bool:
        """Return whether the half message or copy at this offset is open."""
        at = offset - self._low
        return at >= 0 and (at >= len(self._states) or not self._states[at])

    def end(self, root: int, state: HalfState = HalfState.DECIDED) -> None:
        """End a half message and its latest copy."""
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
        """Mark the offset in an op message, of a root or a copy, as decided."""
        self._mark(offset, HalfState.DECIDED)

    def renewed(self, root: int, offset: int) -> None:
        """Register a new, open copy at `offset`; the previous one is superseded."""
        previous = self._copies.get(root, root)
        self._copies[root] = offset
        self._mark(previous, HalfState.SUPERSEDED)

    def expire(self, min_offset: int) -> None:
        """Discard open ones before `min_offset`, where the queue begins now: they can be neither checked nor ended."""
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
