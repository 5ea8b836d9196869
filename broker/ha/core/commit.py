"""The commit rule (rule 3).

All stores that may be in the recorded set count: the stores of the set that was read last, and of each proposed set
whose swap may have taken effect or still may. So whichever set the store of decisions has, its stores have all
committed bytes.

With `acks` "leader" (ASYNC_MASTER) a message is acknowledged before it is committed, as soon as the leader has synced
it. What is committed, and so the followers' marks and the next leader's bytes, follows the same rule.
"""

from collections.abc import Iterable


class CommitRule:
    """What is committed in one term.

    `committed`: what the leader knew to be committed before. `term_end`: end of the epoch record, in or after which
    committed may advance (rule 6). `minimum`: size of the recorded set below which nothing is committed (rule 5).
    """

    def __init__(self, *, committed: int, term_end: int, in_sync: Iterable[str], minimum: int) -> None:
        self.committed = committed
        self.in_sync = frozenset(in_sync)
        self._term_end = term_end
        self._minimum = minimum
        self._proposed: frozenset[str] = frozenset()
        self.counted = self.in_sync
        """The ids of the stores whose acknowledgement is needed."""
        self._synced: dict[str, int] = {}

    def synced(self, store_id: str) -> int | None:
        """Return what a store has acknowledged in this term; None if nothing."""
        return self._synced.get(store_id)

    def acknowledged(self, store_id: str, end: int) -> None:
        """A store has synced the log up to `end`. Acknowledgements of one term never go back."""
        self._synced[store_id] = max(end, self._synced.get(store_id, end))

    def has_committed(self, store_id: str) -> bool:
        """Return whether a store certainly has all committed bytes, which it needs to be added to the set.

        `committed` may be lower than the previous leader's committed offset, which is before the epoch record.
        """
        return self._synced.get(store_id, -1) >= max(self.committed, self._term_end)

    def visible(self, acks: str, own: str) -> int:
        """Return up to where the leader, whose store is `own`, acknowledges messages."""
        synced = self._synced.get(own, -1)
        return synced if acks == "leader" and synced >= max(self.committed, self._term_end) else self.committed

    def propose(self, in_sync: frozenset[str]) -> None:
        """A swap to this set is about to be requested."""
        self._proposed |= in_sync
        self.counted = self.in_sync | self._proposed

    def settle(self, in_sync: Iterable[str]) -> None:
        """The record has this set, at a later revision than any proposal was made for."""
        self.counted = self.in_sync = frozenset(in_sync)
        self._proposed = frozenset()

    def advance(self) -> bool:
        """Return whether `committed` has grown."""
        if len(self.in_sync) < self._minimum:
            return False
        synced = self._synced
        end = min([synced.get(store_id, -1) for store_id in self.counted], default=-1)
        if end < self._term_end or end <= self.committed:
            return False
        self.committed = end
        return True
