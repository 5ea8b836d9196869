"""What a SYNC_MASTER that leads a link waits for: its log is committed (broker/store/flush/copies.py)."""

from collections.abc import Callable

from skylarkmq.broker.ha.status import COMMIT_BOUNDS_S
from skylarkmq.broker.histogram import Histogram
from skylarkmq.broker.store.log.append import PutStatus


class LinkCopies:
    """`copied` is the committed end, which includes the own sync. Messages are visible once they are committed."""

    is_visible_first = False
    moved: Callable[[], None]

    def __init__(self, timeout_ms: int, committed: int) -> None:
        self.moved = lambda: None
        self.commit_s = Histogram(COMMIT_BOUNDS_S)
        self.copied = committed
        self.timeout_ms = timeout_ms

    def __repr__(self) -> str:
        return f"<LinkCopies copied={self.copied}>"

    def move(self, committed: int) -> None:
        """The log is committed up to here."""
        self.copied = max(committed, self.copied)
        self.moved()

    def admits(self, end: int) -> PutStatus | None:
        """Let each commit wait: while the group is read-only, the store refuses messages before this."""
        del end
        return None
