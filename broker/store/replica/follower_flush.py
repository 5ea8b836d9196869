"""The flush of a follower's log: the flusher follows the appended bytes, and its progress is what is acknowledged.

SYNC_FLUSH: each append is synced at once, as a commit of a master is. ASYNC_FLUSH: at the configured pace. No producer
waits here; the owner of the connection gets every move of the synced end by `on_synced`.

Source: docs/formats.md, "Flush".
"""

from collections.abc import Callable
from typing import Any

from skylarkmq.broker.store.flush.flusher import Flusher
from skylarkmq.broker.store.flush.log_flush import LogFlush


class FollowerFlush(LogFlush):
    """`on_synced(end)` is called in the loop when `done` has moved."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.on_synced: Callable[[int], None] | None = None
        self._announced = 0

    def appended(self) -> None:
        """Have the bytes synced that were appended."""
        self._submit()

    def restart(self, set_end: Callable[[], None]) -> None:
        """Sync everything, call `set_end`, which moves the end of the log, and continue from there.

        Blocks until the disk has synced. Raises OSError if it cannot; only a restart of the store helps then.
        """
        flusher = self._flusher
        if flusher is None:
            set_end()
            return
        loop = self._loop
        self.abandon()
        if flusher.failure is not None:
            self._give_up(flusher.failure)
            raise flusher.failure
        try:
            set_end()
        except OSError as problem:
            self._give_up(problem)
            raise
        self._announced = self._log.written
        self.start(loop)

    def _on_flushed(self, flusher: Flusher) -> None:
        super()._on_flushed(flusher)
        end = flusher.done.end
        if end != self._announced:
            self._announced = end
            if self.on_synced is not None:
                self.on_synced(end)
