"""Commits between the write and the acknowledgment: when a written message may be acknowledged and made visible.

ASYNC_FLUSH: at once; the flusher follows at its own pace. SYNC_FLUSH: commits wait here until the flusher has passed
their end. Then their appends are settled in order and added to the messages that become visible next (log_flush.py),
and every waiter is called once. A message with WAIT=false is acknowledged at once and made visible with the others. An
overdue waiter gets FLUSH_DISK_TIMEOUT: its message is stored and will become visible.

A failed sync settles all waiting commits as SERVICE_NOT_AVAILABLE. Their messages never become visible.

Source: docs/formats.md, "Flush", "Put results".
"""

from collections import deque
from collections.abc import Callable

import msgspec

from skylarkmq.broker.store.log.append import Append, PutStatus, settle

Settled = Callable[[], None]


class _Commit(msgspec.Struct, gc=False):
    """Appends that were written together and wait for the sync that covers `end`."""

    end: int
    deadline_ms: int
    appends: list[Append]
    waiters: list[Settled]


class SyncQueue:
    """The commits of a SYNC_FLUSH store that are written and not yet flushed, oldest first.

    Appends of flushed commits are added to `undispatched`.
    """

    def __init__(self, undispatched: list[Append], timeout_ms: int) -> None:
        self._undispatched = undispatched
        self._timeout_ms = timeout_ms
        self._commits: deque[_Commit] = deque()

    def set_timeout(self, timeout_ms: int) -> None:
        """Set the timeout of commits that are added from now on."""
        self._timeout_ms = timeout_ms

    def add(self, end: int, appends: list[Append], now_ms: int) -> None:
        """Add appends that were just written. `end` is the end of the log after them."""
        for append in appends:
            if not append.wait_flush:
                append.status = PutStatus.PUT_OK
        self._commits.append(_Commit(end, now_ms + self._timeout_ms, appends, []))

    @property
    def end(self) -> int:
        """Log offset where the newest waiting commit ends; 0 if none waits."""
        return self._commits[-1].end if self._commits else 0

    def when_settled(self, callback: Settled) -> None:
        """Call back once everything added so far is settled; at once if it already is."""
        if self._commits:
            self._commits[-1].waiters.append(callback)
        else:
            callback()

    def flushed(self, durable: int) -> None:
        """Settle all commits up to `durable`, the flushed end of the log, and call their waiters."""
        commits = self._commits
        while commits and commits[0].end <= durable:
            commit = commits.popleft()
            self._undispatched += commit.appends
            self._settle(commit, PutStatus.PUT_OK)

    def expire(self, now_ms: int) -> None:
        """Settle overdue commits as timed out. Their records stay queued until they become visible."""
        for commit in self._commits:
            if commit.deadline_ms > now_ms:
                return
            self._settle(commit, PutStatus.FLUSH_DISK_TIMEOUT)

    def fail(self) -> None:
        """Settle all waiting commits as failed: they will never be flushed."""
        while self._commits:
            self._settle(self._commits.popleft(), PutStatus.SERVICE_NOT_AVAILABLE)

    @staticmethod
    def _settle(commit: _Commit, status: PutStatus) -> None:
        settle(commit.appends, status)
        waiters, commit.waiters = commit.waiters, []
        for callback in waiters:
            callback()

    def __len__(self) -> int:
        return len(self._commits)

    def __repr__(self) -> str:
        return f"<SyncQueue waiting={len(self._commits)}>"
