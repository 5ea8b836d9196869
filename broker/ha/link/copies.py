"""What a SYNC_MASTER that leads a link waits for: its log is committed (broker/store/flush/copies.py).

A recovery ends the log before a record that seems torn: one whose properties end with zeros. A whole record may have
such properties, although RocketMQ's clients do not make them. So before the leader counts one as synced, the file
`haSynced` says that the log is synced up to there.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.ha.status import COMMIT_BOUNDS_S
from skylarkmq.broker.store.log.append import PutStatus

Keep: TypeAlias = Callable[[int, Callable[[OSError | None], None]], None]
"""Writes `haSynced`, and calls back with None or the error of the disk."""


class LinkCopies:
    """`copied` is the committed end, which includes the own sync. Messages are visible once they are committed.

    Set by `MessageStore.replicate`: `moved`. It is of the flush of the log, which reads `copied`.
    """

    is_visible_first: Final = False
    moved: Callable[[], None]

    def __init__(self, timeout_ms: int, committed: int, keep_synced: Keep) -> None:
        self.moved = lambda: None
        self.commit_s = Histogram(COMMIT_BOUNDS_S)
        self.copied = committed
        self.timeout_ms = timeout_ms
        self._keep_synced = keep_synced
        self._doubtful: deque[int] = deque()  # ends of commits that a recovery would take for torn
        self._flushed = 0
        self._is_moved = False
        self._is_keeping = False

    def __repr__(self) -> str:
        return f"<LinkCopies copied={self.copied}>"

    def move(self, committed: int) -> None:
        """The log is committed up to here. `settle` follows."""
        self.copied = max(committed, self.copied)
        self._is_moved = True

    def settle(self) -> None:
        """Have the messages acknowledged that are committed. An error in that is none of the log, so this is no part of
        an effect of the core."""
        if self._is_moved:
            self._is_moved = False
            self.moved()

    def may_seem_torn(self, end: int) -> None:
        """Note a commit of which a recovery may take a record for a torn one."""
        self._doubtful.append(end)

    def flushed(self, end: int, then: Callable[[int], None], failed: Callable[[], None]) -> None:
        """Call `then` with the synced end of the log, once a recovery is sure to keep all of it."""
        if not self._doubtful or self._doubtful[0] > end:
            then(end)
            return
        self._flushed = end
        if self._is_keeping:
            return
        self._is_keeping = True

        def kept(error: OSError | None) -> None:
            self._is_keeping = False
            if error is not None:
                failed()
                return
            while self._doubtful and self._doubtful[0] <= end:
                self._doubtful.popleft()
            self.flushed(self._flushed, then, failed)

        self._keep_synced(end, kept)

    def admits(self, end: int) -> PutStatus | None:
        """Let each commit wait: while the group is read-only, the store refuses messages before this."""
        del end
        return None
