"""The queue of waiting commits against a model: random writes, flushes, copies, delays and failures."""

from random import Random
from typing import NamedTuple

import pytest

from skylarkmq.broker.store.flush.sync_queue import SyncQueue
from skylarkmq.broker.store.log.append import Append, PutStatus
from tests.harness.copies import TestCopies
from tests.harness.rounds import rounds
from tests.harness.stores import message

FLUSH_MS, COPY_MS = 500, 300
RECORD_BYTES = 100


class Written(NamedTuple):
    """A commit of one message. `refusal`: what the copies gave for it; `waits`: whether its producer waits."""

    append: Append
    end: int
    at_ms: int
    refusal: PutStatus | None
    called: list[PutStatus]


class Trial:
    """A queue, and the values that decide about its commits. `kind`: "none", "classic" or "link"."""

    def __init__(self, rng: Random, kind: str, *, is_sync: bool) -> None:
        self.rng = rng
        self.kind = kind
        self.is_sync = is_sync
        self.visible: list[Append] = []
        self.queue = SyncQueue(self.visible, is_sync=is_sync, timeout_ms=FLUSH_MS)
        self.copies = TestCopies(is_visible_first=kind == "classic", timeout_ms=COPY_MS)
        if kind != "none":
            self.queue.await_copies(self.copies)
        self.commits: list[Written] = []
        self.end = self.own = 0
        self.now_ms = 1_000

    def write(self) -> None:
        """Write one message; a caller waits for it."""
        self.end += RECORD_BYTES
        append = message(wait_flush=self.rng.random() < 0.8)
        self.copies.refusal = self.rng.choice((None, None, None, PutStatus.SLAVE_NOT_AVAILABLE))
        refusal = None if self.kind == "none" else self.copies.refusal
        commit = Written(append, self.end, self.now_ms, refusal, [])
        self.commits.append(commit)
        self.queue.add(self.end, [append], self.now_ms)
        if not self.is_sync:
            self.advance(self.end)
        self.queue.when_settled(lambda: commit.called.append(append.status))

    def advance(self, own: int) -> None:
        """Let the own disk come as far as `own`."""
        self.own = own
        self.queue.advance(own)

    def flush(self) -> None:
        """Flush some of what is written."""
        if self.is_sync:
            self.advance(self.own + self.rng.randint(0, (self.end - self.own) // RECORD_BYTES) * RECORD_BYTES)

    def copy(self) -> None:
        """Copy some of what is written; in part, a record."""
        self.copies.copied += self.rng.randint(0, self.end - self.copies.copied)
        if self.queue.is_moved_by_copies(self.own):
            self.queue.advance(self.own)

    def wait(self) -> None:
        """Let time pass."""
        self.now_ms += self.rng.choice((1, 50, COPY_MS, FLUSH_MS))
        self.queue.expire(self.now_ms)

    def is_overdue(self, commit: Written, limit_ms: int) -> bool:
        return self.now_ms >= commit.at_ms + limit_ms

    def may_be(self, commit: Written) -> set[PutStatus]:
        """Return the statuses that a message whose producer waits may have now, by the rules alone."""
        ok, pending = PutStatus.PUT_OK, PutStatus.PENDING
        flush: PutStatus | None = ok
        if self.is_sync and commit.end > self.own:
            flush = PutStatus.FLUSH_DISK_TIMEOUT if self.is_overdue(commit, FLUSH_MS) else None
        if self.kind == "none":
            return {flush or pending}
        if commit.refusal is not None:
            return {commit.refusal if flush or self.kind == "link" else pending}
        copied = self.copies.copied if self.kind == "classic" else min(self.own, self.copies.copied)
        overdue = self.is_overdue(commit, COPY_MS)
        if self.kind == "link":
            return {ok if commit.end <= copied else PutStatus.SERVICE_NOT_AVAILABLE if overdue else pending}
        copy = ok if commit.end <= copied else PutStatus.FLUSH_SLAVE_TIMEOUT if overdue else None
        if flush is None or copy is None:
            return {pending}
        return {flush if copy is ok else copy}

    def check(self) -> None:
        """Compare the queue with the rules. Commits are settled in order, and a settled status stays."""
        is_open = False  # whether a commit so far has to wait
        for commit in self.commits:
            is_open = is_open or PutStatus.PENDING in self.may_be(commit)
            status = commit.append.status
            if not commit.append.wait_flush:
                assert status is PutStatus.PUT_OK
            else:
                assert (status is PutStatus.PENDING) == is_open
            assert len(commit.called) == (0 if is_open else 1)
        shown = self.own if self.kind != "link" else min(self.own, self.copies.copied)
        assert self.visible == [commit.append for commit in self.commits if commit.end <= shown]


@pytest.mark.parametrize("is_sync", [True, False])
@pytest.mark.parametrize("kind", ["none", "classic", "link"])
def test_every_commit_gets_the_status_that_the_rules_require(kind: str, is_sync: bool) -> None:
    """Each commit has an allowed status at every step, and is settled with the status that the rules give."""
    for seed in range(rounds(400)):
        trial = Trial(Random(f"{kind} {is_sync} {seed}"), kind, is_sync=is_sync)
        for _ in range(40):
            before = {id(commit): commit.append.status for commit in trial.commits}
            trial.rng.choice((trial.write, trial.write, trial.flush, trial.copy, trial.wait))()
            for commit in trial.commits:
                status = commit.append.status
                was = before.get(id(commit), PutStatus.PENDING)
                if was is not PutStatus.PENDING:
                    assert status is was
                elif status is not PutStatus.PENDING and commit.append.wait_flush:
                    assert status in trial.may_be(commit), (seed, commit)
            trial.check()
        trial.queue.end_waiting()
        assert trial.queue.is_settled
        assert all(len(commit.called) == 1 for commit in trial.commits)


@pytest.mark.parametrize("is_visible_first", [False, True])
def test_on_a_link_commits_with_zero_bytes_in_properties_are_noted(is_visible_first: bool) -> None:
    """Recovery may take such a record for a torn one. In classic replication this does not matter."""
    queue = SyncQueue([], is_sync=True, timeout_ms=FLUSH_MS)
    queue.await_copies(copies := TestCopies(is_visible_first=is_visible_first))
    queue.add(100, [message(properties=b"a\x01b\x02"), message(properties=b"")], 0)
    queue.add(200, [message(properties=b"a\x01\0\x02"), message(properties=b"a\x01b\x02")], 0)
    queue.add(300, [message(properties=b"a\x01b\x02"), message(properties=b"a\x01b\0")], 0)
    assert copies.doubtful == ([] if is_visible_first else [200, 300])
