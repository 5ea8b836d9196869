"""When what was written may be acknowledged and seen: the line between the log and those who wait for it.

ASYNC_FLUSH: at once; the flusher follows at its own pace. SYNC_FLUSH: commits queue up here until the flusher has
passed their end; then their appends are decided, in order, join those that are to be seen (log_flush.py), and every
waiter is called once. A message with WAIT=false is acknowledged at once, but seen like the others. A waiter that is
overdue is told FLUSH_DISK_TIMEOUT: its message is stored and will be seen.

A failed sync decides everything that waits as SERVICE_NOT_AVAILABLE, and nobody sees any of it.

Source: docs/formats.md, "Flush", "Put results".
"""

from collections import deque
from collections.abc import Callable

import msgspec

from skylarkmq.broker.store.log.append import Append, PutStatus, settle

Settled = Callable[[], None]


class _Commit(msgspec.Struct, gc=False):
    """Appends written together, waiting for the sync that covers `end`."""

    end: int
    deadline_ms: int
    appends: list[Append]
    waiters: list[Settled]


class SyncQueue:
    """The commits of a SYNC_FLUSH store that are written and not yet flushed, oldest first; `unseen` gets those that
    are decided."""

    def __init__(self, unseen: list[Append], timeout_ms: int) -> None:
        self._unseen = unseen
        self._timeout_ms = timeout_ms
        self._commits: deque[_Commit] = deque()

    def limit(self, timeout_ms: int) -> None:
        """Let those who come from now on wait for so long."""
        self._timeout_ms = timeout_ms

    def add(self, end: int, appends: list[Append], now_ms: int) -> None:
        """Appends just written; `end` is the log's end behind them."""
        for append in appends:
            if not append.wait_flush:
                append.status = PutStatus.PUT_OK
        self._commits.append(_Commit(end, now_ms + self._timeout_ms, appends, []))

    @property
    def end(self) -> int:
        """Where the newest of them ends in the log; 0: none waits."""
        return self._commits[-1].end if self._commits else 0

    def when_settled(self, callback: Settled) -> None:
        """Call back once everything added so far is decided; now, if it is."""
        if self._commits:
            self._commits[-1].waiters.append(callback)
        else:
            callback()

    def flushed(self, durable: int) -> None:
        """The log is on disk up to `durable`: everything below is decided, and everyone told."""
        commits = self._commits
        while commits and commits[0].end <= durable:
            commit = commits.popleft()
            self._unseen += commit.appends
            self._settle(commit, PutStatus.PUT_OK)

    def expire(self, now_ms: int) -> None:
        """Answer those who have waited too long; their records stay in line to be seen."""
        for commit in self._commits:
            if commit.deadline_ms > now_ms:
                return
            self._settle(commit, PutStatus.FLUSH_DISK_TIMEOUT)

    def fail(self) -> None:
        """Nothing that waits will ever be flushed."""
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
