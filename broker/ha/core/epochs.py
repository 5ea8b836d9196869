"""The epoch history of a log: which term wrote which part of it.

A term begins with a record of its own, so each epoch has a start, and starts increase with epochs. Bytes before the
first start were written before the store was part of a group. They have no epoch, and two such logs have nothing in
common, but for the bytes of the node that founded the group: its history begins with the entry `founded`, and a node
that copies them gets that entry from the leader. Two logs with different entries are of two foundings: a disk that was
lost, and another one that began again. Their epochs may be equal, and have nothing in common.

If two logs have the same epoch at the same start, they are equal up to the point where one of them ends that epoch:
one leader wrote it, in one order, on top of one prefix. So the newest such epoch gives the common prefix (rule 7).
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32


class Epoch(NamedTuple):
    """A term: its number, and the offset of its first record in the log."""

    epoch: int
    start: int


def founded(store_id: str) -> Epoch:
    """Return the entry of the founder's bytes before epoch 1. The start lies before each log, so a truncation keeps the
    entry. The founder's random store id makes it another one for each founding."""
    return Epoch(0, -1 - crc32(store_id.encode()))


class EpochHistory(NamedTuple):
    """The epochs of one log, oldest first. Immutable: each change returns another history."""

    entries: tuple[Epoch, ...] = ()

    @property
    def last(self) -> int:
        """The newest epoch; 0 without epochs."""
        return self.entries[-1].epoch if self.entries else 0

    @property
    def founding(self) -> Epoch | None:
        """The entry of the founder; None if the log has no byte of a founder."""
        return self.entries[0] if self.entries and self.entries[0].start < 0 else None

    @property
    def is_ordered(self) -> bool:
        """Whether epochs and starts increase: a peer may send anything."""
        return all(a.epoch < b.epoch and a.start < b.start for a, b in pairwise(self.entries))

    def appended(self, epochs: Iterable[Epoch]) -> "EpochHistory":
        """Return the history with these epochs behind it. Raises ValueError if epochs or starts do not increase."""
        entries = self.entries
        for new in epochs:
            if entries and not (new.epoch > entries[-1].epoch and new.start > entries[-1].start):
                raise ValueError(f"epoch {new.epoch} at {new.start} follows epoch {entries[-1]}")
            entries = (*entries, new)
        return EpochHistory(entries)

    def truncated(self, end: int) -> "EpochHistory":
        """Return the history of a log that ends at this offset."""
        return EpochHistory(tuple(entry for entry in self.entries if entry.start < end))

    def common_end(self, end: int, other: "EpochHistory", other_end: int) -> int | None:
        """Return where the common prefix of two logs with these ends ends; None if they have no epoch in common."""
        theirs = {entry: other.end_of(n, other_end) for n, entry in enumerate(other.entries)}
        for n in reversed(range(len(self.entries))):
            if self.entries[n] in theirs:
                return min(self.end_of(n, end), theirs[self.entries[n]])
        return None

    def end_of(self, position: int, log_end: int) -> int:
        """Return where the epoch at this position of the history ends."""
        return self.entries[position + 1].start if position + 1 < len(self.entries) else log_end
