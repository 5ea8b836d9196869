"""The flush of the log: when a commit may be acknowledged and made visible.

    ASYNC_FLUSH              written ─▶ acknowledged, visible          the flusher follows at its own pace
    SYNC_FLUSH               written ─▶ flushed ─▶ acknowledged, visible
    with a transient pool    in a buffer (─▶ acknowledged if ASYNC_FLUSH) ─▶ written by the committer ─▶ as above
    with copies              as above, and ─▶ copied ─▶ acknowledged (copies.py)

Commits that wait for a sync or for copies are held in `SyncQueue`. Messages that it releases become visible at the next
`make_visible`. The caller may acknowledge them before, and calls `make_visible` before it serves other requests. A
notified consumer may read on at once, which writes the open batch and may find more commits flushed while the earlier
messages are still being dispatched. The later messages then wait their turn.

After a flush announcement all its waiters are called, then `on_settled`, and then its messages are dispatched. While
syncs are quick and more commits wait after one, every second announcement is skipped: its waiters are called with those
of the next announcement, or at the next step. So producers form larger groups, each of which costs one event-loop
iteration, one sync and one write of responses.

After one failed write or sync of these threads no more messages are acknowledged, but for those that are written and
wait for copies under ASYNC_FLUSH. `on_failed` is called once.

How far the disk may lag behind is in `lag_limit.py`.

Source: docs/reference/disk.md, "Flush".
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.flush import compiled_flusher
from skylarkmq.broker.store.flush.copies import Copies, Growth
from skylarkmq.broker.store.flush.flusher import Flusher, FlusherStatistics, Pace, Target
from skylarkmq.broker.store.flush.lag_limit import LagLimit
from skylarkmq.broker.store.flush.sync_queue import Settled, SyncQueue
from skylarkmq.broker.store.flush.transient_pool import TransientPool, commit_pace_of, committer_of
from skylarkmq.broker.store.log.append import Append, PutStatus, settle
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.running_flags import RunningFlag

_LONG_S: Final = 0.005  # a sync of this duration delays the loop too much
_REST: Final = 20  # after such a sync the loop makes none for this many times its duration

_QUICK_S: Final = 0.001  # up to this duration of a sync, waiters may also wait for the next one


class LogFlushStatistics(msgspec.Struct, frozen=True):
    """`lag`: bytes written (or in a buffer) and not yet flushed. `waiting`: commits that are not visible yet.

    `commit_lag`: the part of `lag` that is only in buffers. `free_buffers`: None without a pool.
    """

    flusher: FlusherStatistics
    lag: int
    waiting: int
    is_behind: bool
    commit_lag: int
    free_buffers: int | None


class LogFlush:
    """The flusher of the log, the committer of a transient pool, and the callers that wait for them.

    Set after construction, because the callees are made with the store, which they read: `on_settled` by
    `Production.attach`, both callbacks of `on_growth` by the master of classic slaves, `on_failed` by the link and by
    `ReplicaLog`.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        dispatch: Callable[[Sequence[Append]], None],
        pool: TransientPool | None,
        steady_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._steady_ms = steady_ms
        self._log = commit_log
        self._dispatch = dispatch
        self._pool = pool
        self.undispatched: list[Append] = []
        """Messages that may become visible and are not dispatched yet, in the order of the log."""
        self._is_dispatching = False
        self._is_sync = config.is_sync_flush
        self._waiting = SyncQueue(self.undispatched, is_sync=self._is_sync, timeout_ms=config.sync_flush_timeout)
        self._is_visible_at_once = not self._is_sync and pool is None
        self._copies: Copies | None = None
        self._is_settled_by_copies = False  # whether `copied` includes the own flush, as on a link
        self._is_move_due = False  # whether the loop will call `_on_copied`
        self.lag_limit: Final = LagLimit(config.flush_lag_limit)
        self._flusher: Flusher | None = None
        self._committer: Flusher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_syncs_after_s = 0.0  # until this time the loop leaves all syncs to the thread
        self._is_deferred = False  # whether the last announcement was skipped
        self._flush_waiters: list[tuple[int, Settled]] = []  # (end, callback): call it once `end` is on disk
        self.is_interpreted = False
        """Whether the thread that flushes each commit needs the interpreter, so that the loop should not spin."""
        self.on_settled: Callable[[], None] = lambda: None
        """Called at every flush announcement: after all waiters of that flush, before its messages are dispatched."""
        self.on_failed: Callable[[OSError], None] = lambda _: None
        """Called once after a failed write or sync: only a restart can determine what is on the disk."""
        self._on_readable: Growth | None = None
        self._on_grown: Growth | None = None
        self._grown = 0  # what `_on_grown` got
        self._is_failed = False

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings from now on."""
        self._config = config
        self.lag_limit.limit_bytes = config.flush_lag_limit
        self._waiting.set_timeout(config.sync_flush_timeout)
        if self._flusher is not None:
            self._flusher.set_pace(pace_of(config))
        if self._committer is not None:
            self._committer.set_pace(commit_pace_of(config))

    def on_growth(self, readable: Growth | None, flushed: Growth | None) -> None:
        """Register callbacks for replicas of the log. `readable` gets the new end of the log in its files, after each
        write; `flushed` the new end of the log on disk, after each sync."""
        self._on_readable, self._on_grown = readable, flushed

    def replicate(self, copies: Copies) -> None:
        """Let all commits wait for copies on other machines, too. Call it before the first put."""
        self._copies = copies
        self._is_visible_at_once = False
        self._is_settled_by_copies = not copies.is_visible_first
        self._waiting.await_copies(copies)
        copies.moved = self._on_moved

    # life

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start the threads. With a loop, their results arrive as events; without one, at each `step`.

        Raises OSError if there is no memory for the pool.
        """
        self._loop = loop
        if self._pool is not None:
            self._pool.start()
            self._committer = committer_of(self._config, self._log.written)
            self._run(self._committer, self._on_committed)
        self._flusher = self._make_flusher("log-flusher", self._log.written)
        self._run(self._flusher, self._on_announced)

    def _make_flusher(self, name: str, durable: int) -> Flusher:
        if not self._is_sync:
            return Flusher(name, durable, pace_of(self._config))
        self.is_interpreted = not (compiled_flusher.is_available and self._log.files.is_on_real_disk)
        return Flusher(name, durable) if self.is_interpreted else compiled_flusher.CompiledFlusher(name, durable)

    def _run(self, flusher: Flusher, announced: Callable[[], None]) -> None:
        flusher.start()
        if self._loop is not None:
            self._loop.add_reader(flusher.event_fd, announced)

    def finish(self) -> bool:
        """Write and flush all commits and end the threads. False: that failed."""
        flusher = self._flusher
        if flusher is None:
            return False
        self._submit()
        if self._committer is not None:
            self._committer.stop()
            self._on_committed()
        flusher.stop()
        self._on_flushed(flusher)
        self._advance()
        self._waiting.end_waiting()
        return flusher.failure is None and flusher.done.end >= self._log.written

    def abandon(self) -> None:
        """End the threads and drop them. Submitted targets are still flushed; the results are ignored."""
        for flusher in (self._committer, self._flusher):
            if flusher is not None:
                if self._loop is not None:
                    self._loop.remove_reader(flusher.event_fd)
                flusher.close()
        self._flusher = self._committer = None

    # commits

    def committed(self, batch: list[Append], is_lone: bool = False) -> None:
        """Handle appends that were just put into the log: settle them now, or after the threads have passed them.

        `is_lone`: the caller has nothing else to do until they are flushed.
        """
        if self._on_readable is not None and self._committer is None:
            self._on_readable(self._log.written)  # first: the copies take longer than the own flush
        is_flushed = is_lone and self._flush_here()
        if not is_flushed:
            self._submit()
        if is_flushed or self._is_visible_at_once:
            self.undispatched += batch
            settle(batch, PutStatus.PUT_OK)
        else:
            self._waiting.add(self._log.written, batch, self._steady_ms())
        if self._copies is not None and not self._is_sync:
            self._waiting.advance(self.own)  # else an announcement of the flusher does

    def is_settled(self) -> bool:
        """Return whether every append committed so far is settled."""
        return self._waiting.is_settled

    def show(self, appends: Sequence[Append]) -> None:
        """Make records visible that were in the log before: on a follower, or found by recovery."""
        self.undispatched += appends
        self.make_visible()

    def make_visible(self) -> None:
        """Dispatch all messages that may become visible to their queues and consumers."""
        if self._is_dispatching:
            return  # the outer call dispatches these too
        self._is_dispatching = True
        try:
            while appends := self.undispatched[:]:
                self.undispatched.clear()
                self._dispatch(appends)
        finally:
            self._is_dispatching = False

    def _flush_here(self) -> bool:
        """Sync in the loop's thread a commit for which only one producer waits. False: it is not flushed.

        A flusher that needs the interpreter would be woken by the loop and then wake the loop, which takes longer than
        the sync. The flusher still syncs slow disks, and commits that follow other waiting commits.
        """
        flusher = self._flusher
        if flusher is None or not self.is_interpreted or self._committer is not None or self._copies is not None:
            return False
        if self._waiting or not flusher.is_idle or (begun_s := monotonic()) < self._loop_syncs_after_s:
            return False
        return self._sync_here(flusher, begun_s)

    def _sync_here(self, flusher: Flusher, begun_s: float) -> bool:
        """Sync all that is written, in the loop's thread. After a slow sync the loop leaves syncs to the flusher for a
        while: `_loop_syncs_after_s`. Return whether it is flushed."""
        end, timestamp = self._log.written, self._log.last_store_timestamp
        is_flushed = flusher.sync_here(Target(end, timestamp, self._log.files.from_offset(flusher.done.end)))
        ended_s = monotonic()
        if ended_s - begun_s > _LONG_S:
            self._loop_syncs_after_s = ended_s + _REST * (ended_s - begun_s)
        return is_flushed

    def when_settled(self, callback: Settled) -> None:
        """Call back once every append committed so far is settled; at once if it already is."""
        self._waiting.when_settled(callback)

    @property
    def is_polled(self) -> bool:
        """Whether the loop should spin for the flush of a lone commit: it wakes up later than the flush ends. Copies on
        other machines take longer, and spinning would delay the threads that make them."""
        return not self.is_interpreted and self._copies is None

    def keep_spinning(self, limit_us: int) -> None:
        """Make the flusher spin up to `limit_us` for the next commit, which comes soon after the last one is
        flushed."""
        if self._flusher is not None:
            self._flusher.keep_spinning(limit_us)

    def when_flushed(self, callback: Settled) -> None:
        """Call back once everything written is on disk, or cannot be any more. The threads are expedited."""
        flusher = self._flusher
        if flusher is None or flusher.failure is not None or not self.lag:
            callback()
        else:
            self._flush_waiters.append((self._log.written, callback))
            self._expedite(flusher)

    def step(self, now_ms: int) -> None:
        """Run what is due: results of the threads, overdue waiters."""
        self._on_committed()
        if (flusher := self._flusher) is not None:
            self._acknowledge(flusher)
            self._on_flushed(flusher)
        if self._copies is not None:
            self._on_copied()
        self._waiting.expire(now_ms)

    @property
    def is_behind(self) -> bool:
        """Whether more than `flushLagLimit` bytes are written and not flushed. Producers should wait until it ends."""
        return self.lag_limit.is_behind

    @property
    def lag(self) -> int:
        """Bytes that are written (or in a buffer) and not yet flushed."""
        return self._log.written - self.done.end

    @property
    def readable(self) -> int:
        """End of the log that can be read from its files: with a pool the rest is in buffers."""
        return self._committer.done.end if self._committer is not None else self._log.written

    @property
    def own(self) -> int:
        """End of the log up to which this store has done its part: it is flushed (SYNC_FLUSH), or in its files."""
        return self.done.end if self._is_sync else self.readable

    @property
    def done(self) -> Target:
        """The flushed part of the log: everything below `end`; `timestamp` is the store time of its newest message."""
        return self._flusher.done if self._flusher is not None else Target(0, 0, ())

    def _submit(self) -> None:
        flusher, written = self._flusher, self._log.written
        if flusher is None:
            return
        if self._committer is None or self._pool is None:
            self._submit_flush(flusher, written, self._log.last_store_timestamp)
        else:
            files = self._pool.uncommitted(written)
            self._committer.submit(Target(written, self._log.last_store_timestamp, files))
            self._refuse_while_deficient(self._pool)
        if self.lag_limit.needs_haste(written - flusher.done.end, flusher):
            self._expedite(flusher)

    def _submit_flush(self, flusher: Flusher, end: int, timestamp: int) -> None:
        flusher.submit(Target(end, timestamp, self._log.files.from_offset(flusher.done.end)))

    # results of the threads

    def _on_committed(self) -> None:
        committer, flusher, pool = self._committer, self._flusher, self._pool
        if committer is None or flusher is None or pool is None:
            return
        committer.acknowledge()
        if committer.failure is not None:
            self._give_up(committer.failure)
            return
        done = committer.done
        pool.return_buffers(done.end)
        self._refuse_while_deficient(pool)
        self._submit_flush(flusher, done.end, done.timestamp)
        if self.lag_limit.is_behind or self._flush_waiters:
            flusher.expedite()
        if self._on_readable is not None:
            self._on_readable(done.end)
        if not self._is_sync:
            self._advance()

    def _refuse_while_deficient(self, pool: TransientPool) -> None:
        flags = self._log.flags
        if pool.is_deficient and self._config.fast_fail_if_no_buffer_in_store_pool:
            flags.set(RunningFlag.NO_BUFFER)
        elif RunningFlag.NO_BUFFER in flags:
            flags.clear(RunningFlag.NO_BUFFER)

    def _on_announced(self) -> None:
        flusher = self._flusher
        if flusher is None:
            return
        self._acknowledge(flusher)
        is_more_to_come = self._is_sync and flusher.failure is None and self._waited_end > flusher.done.end
        if is_more_to_come and not self._is_deferred and flusher.sync_s < _QUICK_S:
            self._is_deferred = True
        else:
            self._on_flushed(flusher)

    @property
    def _waited_end(self) -> int:
        """Log offset up to which a flush is waited for."""
        return self._waiting.end

    def _acknowledge(self, flusher: Flusher) -> None:
        flusher.acknowledge()
        end = flusher.done.end
        if self._on_grown is not None and end > self._grown:
            self._grown = end
            self._on_grown(end)

    def _on_flushed(self, flusher: Flusher) -> None:
        self._is_deferred = False
        if self._is_sync and (flusher.failure is not None or not self._is_left_to_copies()):
            self._advance()
        if flusher.failure is not None:
            self._give_up(flusher.failure)
        if self.lag_limit.is_behind:
            self._check_caught_up(flusher)
        if self._flush_waiters:
            self._call_flush_waiters(flusher.done.end)

    def _is_left_to_copies(self) -> bool:
        """Return whether a flush alone settles nothing: on a link `_on_moved` does."""
        return self._is_settled_by_copies and not self._waiting.is_moved_by_copies(self.own)

    def _advance(self) -> None:
        self._waiting.advance(self.own)
        self.on_settled()
        self.make_visible()

    def _on_moved(self) -> None:
        """Settle what is copied: at once on a link, which reports commits, otherwise once per event-loop iteration."""
        if self._is_move_due or not self._waiting.is_moved_by_copies(self.own):
            return
        if self._loop is None or self._is_settled_by_copies:
            self._advance()
        else:
            self._is_move_due = True
            self._loop.call_soon(self._on_copied)

    def _on_copied(self) -> None:
        self._is_move_due = False
        self._advance()

    def _call_flush_waiters(self, flushed: int) -> None:
        ready = [callback for end, callback in self._flush_waiters if end <= flushed]
        self._flush_waiters = [waiter for waiter in self._flush_waiters if waiter[0] > flushed]
        for callback in ready:
            callback()

    def _check_caught_up(self, flusher: Flusher) -> None:
        if flusher.failure is None and self._log.written - flusher.done.end > self.lag_limit.limit_bytes:
            self._expedite(flusher)
        else:
            self.lag_limit.end()

    def _expedite(self, flusher: Flusher) -> None:
        if self._committer is not None and not self._committer.is_idle:
            self._committer.expedite()
        flusher.expedite()

    def _give_up(self, problem: OSError) -> None:
        self._log.flags.set(RunningFlag.SYNC_FAILED, problem)
        self._waiting.fail()
        self._call_flush_waiters(self._log.written)
        self.lag_limit.end()
        if not self._is_failed:
            self._is_failed = True
            self.on_failed(problem)

    def statistics(self) -> LogFlushStatistics:
        """Return a snapshot."""
        flusher = self._flusher
        return LogFlushStatistics(
            flusher=flusher.statistics() if flusher is not None else FlusherStatistics(0, 0, False),
            lag=self.lag,
            waiting=len(self._waiting),
            is_behind=self.lag_limit.is_behind,
            commit_lag=self._log.written - self._committer.done.end if self._committer is not None else 0,
            free_buffers=self._pool.statistics().free if self._pool is not None else None,
        )

    def __repr__(self) -> str:
        return f"<LogFlush flusher={self._flusher!r} waiting={len(self._waiting)}>"


def pace_of(config: StoreConfig) -> Pace:
    """Return the pace of ASYNC_FLUSH."""
    return Pace(
        config.flush_interval_commit_log,
        config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval,
        is_woken=config.wake_flush_when_put_message and not config.flush_commit_log_timed,
    )
