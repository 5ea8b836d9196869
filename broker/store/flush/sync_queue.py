"""Commits between the write and the acknowledgment: when a written message may be acknowledged and made visible.

A commit waits here for the own disk, for copies on other machines, or for both:

    is acknowledged after           own disk                   copies (copies.py)
    ASYNC_FLUSH                     –                          if the store has copies
    SYNC_FLUSH                      flushed                    if the store has copies
    becomes visible after           written to its file;       on a link only
                                    SYNC_FLUSH: flushed

Commits are settled in the order of the log: the statuses of their appends are set, and every waiter is called once.
Appends that may become visible are added to those that are dispatched next (log_flush.py). A message with WAIT=false is
acknowledged at once and made visible with the others.

An overdue commit gets FLUSH_DISK_TIMEOUT or FLUSH_SLAVE_TIMEOUT, and the latter if both apply: its messages are stored
and will become visible. On a link it gets SERVICE_NOT_AVAILABLE, and its messages become visible if they are copied
later. A failed sync settles the commits that wait for it as SERVICE_NOT_AVAILABLE. Their messages never become visible.

Source: docs/reference/disk.md, "Flush", "Put results".
"""

from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.store.flush.copies import Copies
from skylarkmq.broker.store.log.append import Append, PutStatus, settle

Settled = Callable[[], None]

_FOREVER_MS: Final = 1 << 62


class _Commit(msgspec.Struct, gc=False):
    """Appends that were written together, up to offset `end`.

    `flush_by_ms`, `copy_by_ms`: deadlines; 0: its producers do not wait for that. `status`: what the appends get if
    nothing that they wait for is overdue.
    """

    end: int
    flush_by_ms: int
    copy_by_ms: int
    status: PutStatus
    appends: list[Append]
    waiters: list[Settled]
    begun_s: float = 0  # when it began to wait for copies


class SyncQueue:
    """The commits that are not visible, and those that are not settled, oldest first.

    Appends of visible commits are added to `undispatched`. `is_sync`: messages are acknowledged after the flush.
    """

    def __init__(self, undispatched: list[Append], *, is_sync: bool, timeout_ms: int) -> None:
        self._undispatched = undispatched
        self._is_sync = is_sync
        self._timeout_ms = timeout_ms
        self._copies: Copies | None = None
        self._own = 0  # end of the log on the own disk, as `advance` got it
        self._now_ms = 0
        self._hidden: deque[_Commit] = deque()
        self._unsettled: deque[_Commit] = deque()

    def set_timeout(self, timeout_ms: int) -> None:
        """Set the flush timeout of commits that are added from now on."""
        self._timeout_ms = timeout_ms

    def await_copies(self, copies: Copies) -> None:
        """Let all commits that are added from now on wait for copies, too."""
        self._copies = copies

    def add(self, end: int, appends: list[Append], now_ms: int) -> None:
        """Add appends that were just written. `end` is the end of the log after them."""
        for append in appends:
            if not append.wait_flush:
                append.status = PutStatus.PUT_OK
        self._now_ms = now_ms
        flush_by_ms = now_ms + self._timeout_ms if self._is_sync else 0
        commit = _Commit(end, flush_by_ms, 0, PutStatus.PUT_OK, appends, [])
        if (copies := self._copies) is not None:
            if (refusal := copies.admits(end)) is not None:
                commit.status = refusal
            else:
                commit.copy_by_ms = now_ms + copies.timeout_ms
                commit.begun_s = monotonic()
            if not copies.is_visible_first:
                commit.flush_by_ms = 0  # `copied` includes the own flush
                for append in appends:
                    if 0 in append.properties:  # a search for b"\0" takes ten times as long
                        copies.may_seem_torn(end)
                        break
        self._hidden.append(commit)
        self._unsettled.append(commit)
        if not commit.flush_by_ms:
            self._settle_decided()

    @property
    def end(self) -> int:
        """Log offset where the newest commit ends that is not visible; 0 if all commits are visible."""
        return self._hidden[-1].end if self._hidden else 0

    @property
    def is_settled(self) -> bool:
        """Whether every commit is settled."""
        return not self._unsettled

    def when_settled(self, callback: Settled) -> None:
        """Call back once everything added so far is settled; at once if it already is."""
        if self._unsettled:
            self._unsettled[-1].waiters.append(callback)
        else:
            callback()

    def is_moved_by_copies(self, own: int) -> bool:
        """Return whether `advance(own)` has something to do because `copied` has grown."""
        copies = self._copies
        if copies is None:
            return False
        if copies.is_visible_first:
            return bool(self._unsettled) and self._decision(self._unsettled[0]) is not None
        return bool(self._hidden) and self._hidden[0].end <= min(own, copies.copied)

    def advance(self, own: int) -> None:
        """Release and settle all commits for which the own disk and the copies are far enough, and call their waiters.

        `own`: the end of the log that is flushed (SYNC_FLUSH), or in its files.
        """
        self._own = own
        hidden, copies = self._hidden, self._copies
        visible = own if copies is None or copies.is_visible_first else min(own, copies.copied)
        while hidden and hidden[0].end <= visible:
            self._undispatched += hidden.popleft().appends
        self._settle_decided()

    def expire(self, now_ms: int) -> None:
        """Settle overdue commits as timed out. Their records stay queued until they become visible."""
        self._now_ms = now_ms
        self._settle_decided()

    def end_waiting(self) -> None:
        """Settle everything that is left as timed out."""
        self.expire(_FOREVER_MS)

    def fail(self) -> None:
        """Settle the commits that wait for the own disk as failed: they will never be flushed."""
        while self._hidden and self._hidden[-1].end > self._own:
            self._hidden.pop()
        failed: list[_Commit] = []
        while self._unsettled and self._unsettled[-1].end > self._own:
            failed.append(self._unsettled.pop())
        for commit in reversed(failed):
            _settle(commit, PutStatus.SERVICE_NOT_AVAILABLE)

    def _settle_decided(self) -> None:
        unsettled = self._unsettled
        while unsettled and (status := self._decision(unsettled[0])) is not None:
            commit = unsettled.popleft()
            if self._copies is not None and commit.begun_s and status is PutStatus.PUT_OK:
                self._copies.commit_s.note(monotonic() - commit.begun_s)
            _settle(commit, status)

    def _decision(self, commit: _Commit) -> PutStatus | None:
        """Return the status of a commit; None if it has to wait. A status of the copies overrides one of the flush."""
        status = commit.status
        if commit.flush_by_ms and commit.end > self._own:
            if commit.flush_by_ms > self._now_ms:
                return None
            if status is PutStatus.PUT_OK:
                status = PutStatus.FLUSH_DISK_TIMEOUT
        copies = self._copies
        if copies is None or not commit.copy_by_ms:
            return status
        copied = copies.copied if copies.is_visible_first else min(self._own, copies.copied)
        if commit.end <= copied:
            return status
        if commit.copy_by_ms > self._now_ms:
            return None
        return PutStatus.FLUSH_SLAVE_TIMEOUT if copies.is_visible_first else PutStatus.SERVICE_NOT_AVAILABLE

    def __len__(self) -> int:
        return len(self._hidden)

    def __repr__(self) -> str:
        return f"<SyncQueue hidden={len(self._hidden)} unsettled={len(self._unsettled)}>"


def _settle(commit: _Commit, status: PutStatus) -> None:
    settle(commit.appends, status)
    waiters, commit.waiters = commit.waiters, []
    for callback in waiters:
        callback()
