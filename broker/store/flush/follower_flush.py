"""The flush of a follower's log: the flusher follows the appended bytes, and its progress is what is acknowledged.

SYNC_FLUSH: the appends of one event-loop iteration are synced at its end. Few bytes are synced by the loop itself while
the disk is quick and the flusher is idle: the hand-over to the thread and back would take as long as the sync, and a
lone producer waits for both. Otherwise the flusher syncs, and while more bytes wait for their sync every second move is
not announced. ASYNC_FLUSH: at the configured pace. No producer waits here; the owner of the connection gets the moves
of the synced end by `on_synced`.

Source: docs/reference/disk.md, "Flush".
"""

from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from skylarkmq.broker.store.flush.flusher import Flusher
from skylarkmq.broker.store.flush.log_flush import LogFlush

FEW_BYTES: Final = 64 << 10
"""Up to here the loop syncs itself."""


class FollowerFlush(LogFlush):
    """The flush of a follower's log. `on_synced(end)` is called in the loop when `done` has moved.

    Set by `ReplicaLog.on_synced`: `on_synced`. It belongs to the part that acknowledges bytes to the master, which is
    made with the log, because it appends to it.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.on_synced: Callable[[int], None] | None = None
        self._announced = 0
        self._is_sync_due = False  # whether the loop will call `_sync_appended`

    def appended(self) -> None:
        """Have the bytes synced that were appended: once for all appends of an event-loop iteration."""
        if self._loop is None:
            self._submit()
        elif not self._is_sync_due:
            self._is_sync_due = True
            self._loop.call_soon(self._sync_appended)

    def _sync_appended(self) -> None:
        self._is_sync_due = False
        flusher = self._flusher
        if flusher is None or not self.lag:
            return
        if not self._is_synced_by_loop(flusher):
            self._submit()
        elif flusher.failure is None:  # a failure is announced by the flusher
            self._announce(flusher)

    def _is_synced_by_loop(self, flusher: Flusher) -> bool:
        """Sync few bytes. Return False if the flusher has to sync, True if no sync is left to do or a sync failed."""
        if not self.may_sync_here(0):
            return False
        self._sync_here(flusher, monotonic())
        return True

    def may_sync_here(self, more: int) -> bool:
        """Return whether the loop should sync what is appended and `more` bytes."""
        flusher = self._flusher
        if flusher is None or not self._is_sync or not flusher.is_idle or flusher.failure is not None:
            return False
        return self.lag + more <= FEW_BYTES and monotonic() >= self._loop_syncs_after_s

    def sync_here(self) -> None:
        """Sync what is appended, without a call of `on_synced`.

        Raises OSError without an errno: whatever the reason, the content of the disk is unknown then.
        """
        flusher = self._flusher
        assert flusher is not None, "not started"
        if not self._sync_here(flusher, monotonic()):
            raise OSError(f"the log cannot be synced: {flusher.failure}")
        self._announced = flusher.done.end

    def restart(self, set_end: Callable[[], None]) -> None:
        """Sync everything, call `set_end`, which moves the end of the log, and continue from there.

        Blocks until the disk has synced. Raises OSError if it cannot; only a restart of the store helps then.
        """
        flusher = self._flusher
        if flusher is None:
            set_end()
            return
        loop = self._loop
        self._submit()  # appends of this iteration
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
        self._announce(flusher)

    @property
    def _waited_end(self) -> int:
        """Log offset up to which a flush is waited for."""
        return self._log.written

    def _announce(self, flusher: Flusher) -> None:
        end = flusher.done.end
        if end != self._announced:
            self._announced = end
            if self.on_synced is not None:
                self.on_synced(end)
