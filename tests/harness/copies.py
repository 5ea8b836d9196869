"""Copies of a log that tests move by hand, in place of replicas on other machines."""

from collections.abc import Callable

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.broker.store.log.append import PutStatus


class TestCopies:
    """Copies of the log up to `copied`. `refusal`: the status of commits that shall not wait for them. `doubtful`: the
    ends of commits that may seem torn."""

    __test__ = False

    def __init__(self, *, is_visible_first: bool = True, timeout_ms: int = 3_000) -> None:
        self.is_visible_first = is_visible_first
        self.timeout_ms = timeout_ms
        self.copied = 0
        self.refusal: PutStatus | None = None
        self.doubtful: list[int] = []
        self.commit_s = Histogram([1e9])
        self.moved: Callable[[], None] = lambda: None

    def admits(self, _end: int) -> PutStatus | None:
        """Return `refusal`."""
        return self.refusal

    def may_seem_torn(self, end: int) -> None:
        """Note `end`."""
        self.doubtful.append(end)

    def move(self, end: int) -> None:
        """Copy the log up to `end`, as a replica reports it."""
        self.copied = end
        self.moved()
