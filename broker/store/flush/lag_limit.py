"""How far the disk may lag behind the log.

While more than `flushLagLimit` bytes are written and not flushed (`is_behind`), the broker does not read from
producers: `watch` registers callbacks for the begin and the end of that. The page cache must not fill faster than the
disk empties it, or all requests wait for the disk at once. From a quarter of the limit on, the flusher does not wait
for its pace: half a second of fast producers would reach the limit before the disk has begun.
"""

from collections.abc import Callable
from typing import Final

from skylarkmq.broker.store.flush.flusher import Flusher, Target

_EARLY: Final = 4  # the flusher is expedited from 1/4 of the limit on


class LagLimit:
    """`limit_bytes`: `flushLagLimit`, which may change at any time. `lag`: bytes written and not flushed.

    Set by `MessageStore.on_flush_lag`: `on_behind` and `on_caught_up`. They are of `SendBackpressure`, which is made
    with the store, because it reads the lag.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.is_behind = False
        self._on_behind: Callable[[], None] = lambda: None
        self._on_caught_up: Callable[[], None] = lambda: None
        self._expedited_at: Target | None = None  # `done` of the flusher when it was last expedited early

    def watch(self, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Register callbacks for the begin and the end of `is_behind`."""
        self._on_behind, self._on_caught_up = begun, ended

    def needs_haste(self, lag: int, flusher: Flusher) -> bool:
        """Return whether the flusher must not wait for its pace, after a submit."""
        if lag > self.limit_bytes and flusher.failure is None:
            if not self.is_behind:
                self.is_behind = True
                self._on_behind()
            return True
        if lag > self.limit_bytes // _EARLY and flusher.done is not self._expedited_at:
            self._expedited_at = flusher.done
            return True
        return False

    def end(self) -> None:
        """Resume producers: the disk has caught up, or has failed, so that each send gets an error."""
        if self.is_behind:
            self.is_behind = False
            self._on_caught_up()

    def __repr__(self) -> str:
        return f"<LagLimit {self.limit_bytes} behind={self.is_behind}>"
