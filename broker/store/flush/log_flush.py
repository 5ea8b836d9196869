"""The log's way to the disk: when a commit may be acknowledged and seen, and how far the disk may be behind.

    ASYNC_FLUSH              written ─▶ acknowledged, seen          the flusher follows in its rhythm
    SYNC_FLUSH               written ─▶ flushed ─▶ acknowledged, seen
    with a transient pool    in a buffer (─▶ acknowledged if ASYNC_FLUSH) ─▶ written by the committer ─▶ as above

What has to wait waits in the `SyncQueue`. What is decided is seen by the next `show`: who acknowledges it may do so
before, and calls that before anybody else is served. Who is shown a message may ask for what comes next, and so have
the open batch written, and find more flushed, while those that go with it are still being shown: the later ones wait.

When a flush has been announced, all who waited for it are called, then `on_decided`, and then what it decided is shown.
While syncs are quick and more waits behind one, every other of them is passed over: who waited for it is told with
those of the next one, or at the next step. So senders come in larger groups, each of which takes one turn, one sync and
one write of answers.

After one failed write or sync of these threads nothing is acknowledged any more. While more than `flushLagLimit` is
written and not flushed (`is_behind`), those who send are not read from: `on_behind` is called when that begins,
`on_caught_up` when it has ended. The page cache must not be filled faster than the disk empties it, or everybody waits
for it at once. From a part of it on the flusher does not wait for its rhythm: half a second of fast senders would be
the limit before the disk has begun.

Source: docs/formats.md, "Flush".
"""

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.flush import compiled_flusher
from skylarkmq.broker.store.flush.flusher import Flusher, FlusherStatistics, Pace, Target
from skylarkmq.broker.store.flush.sync_queue import Settled, SyncQueue
from skylarkmq.broker.store.log.append import Append, PutStatus, settle
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.transient_pool import TransientPool, commit_pace_of, committer_of
from skylarkmq.broker.store.running_flags import RunningFlag

_LONG_S: Final = 0.005  # a sync by which the loop was held up
_REST: Final = 20  # for so many times as long it tries none

_QUICK_S: Final = 0.001  # a sync that others may wait for, too
_EARLY: Final = 4  # that part of `flushLagLimit`


class LogFlushStatistics(msgspec.Struct, frozen=True):
    """`lag` in bytes: written (or in a buffer) and not yet flushed; `waiting` commits that nobody may see yet.

    `commit_lag`: of those bytes, the ones that stand in buffers only; `free_buffers` None: there is no pool.
    """

    flusher: FlusherStatistics
    lag: int
    waiting: int
    is_behind: bool
    commit_lag: int
    free_buffers: int | None


class LogFlush:
    """The flusher of the log, with a pool its committer, and those who wait for them."""

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
        self.unseen: list[Append] = []
        """What is decided and not shown yet, in the order of the log."""
        self._is_showing = False
        self._waiting = SyncQueue(self.unseen, config.sync_flush_timeout)
        self._is_sync = config.is_sync_flush
        self._is_seen_at_once = not self._is_sync and pool is None
        self._lag_limit = config.flush_lag_limit
        self._flusher: Flusher | None = None
        self._committer: Flusher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left_until_s = 0.0  # until then, syncs are not for the loop
        self._is_put_off = False  # what the last announcement was about
        self._hasty: list[tuple[int, Settled]] = []  # who waits for the disk, up to that byte
        self.is_interpreted = False  # the thread of a SYNC_FLUSH
        self._hurried_behind: Target | None = None  # what was on disk when the flusher was told not to wait
        self.is_behind = False
        self.on_behind: Callable[[], None] = lambda: None
        self.on_caught_up: Callable[[], None] = lambda: None
        self.on_decided: Callable[[], None] = lambda: None

    def configure(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self._config = config
        self._lag_limit = config.flush_lag_limit
        self._waiting.limit(config.sync_flush_timeout)
        if self._flusher is not None:
            self._flusher.keep_pace(pace_of(config))
        if self._committer is not None:
            self._committer.keep_pace(commit_pace_of(config))

    # life

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start the threads. With a loop their answers arrive by themselves, else at each `step`. OSError: no memory
        for the pool."""
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
        return Flusher(name, durable) if self.is_interpreted else compiled_flusher.BareFlusher(name, durable)

    def _run(self, flusher: Flusher, announced: Callable[[], None]) -> None:
        flusher.start()
        if self._loop is not None:
            self._loop.add_reader(flusher.event_fd, announced)

    def finish(self) -> bool:
        """Write and flush everything that was committed and end the threads. False: it could not be done."""
        flusher = self._flusher
        if flusher is None:
            return False
        self._submit()
        if self._committer is not None:
            self._committer.stop()
            self._on_committed()
        flusher.stop()
        self._on_flushed(flusher)
        return flusher.failure is None and flusher.done.end >= self._log.written

    def abandon(self) -> None:
        """End the threads and forget them; what was submitted is still done, nothing is said about it."""
        for flusher in (self._committer, self._flusher):
            if flusher is not None:
                if self._loop is not None:
                    self._loop.remove_reader(flusher.event_fd)
                flusher.close()
        self._flusher = self._committer = None

    # commits

    def committed(self, batch: list[Append], is_lone: bool = False) -> None:
        """Appends just put into the log: decide them now, or when the threads have passed them.

        `is_lone`: there is nothing else to do until they are flushed.
        """
        is_flushed = is_lone and self._flush_here()
        if not is_flushed:
            self._submit()
        if is_flushed or self._is_seen_at_once:
            self.unseen += batch
        else:
            self._waiting.add(self._log.written, batch, self._steady_ms())
            if self._is_sync:
                return
        settle(batch, PutStatus.PUT_OK)

    def is_settled(self) -> bool:
        """Whether every append committed so far is decided."""
        return not self._is_sync or not self._waiting

    def show(self) -> None:
        """Let everything be seen that is decided."""
        if self._is_showing:
            return  # whoever is at it goes on with these
        self._is_showing = True
        try:
            while appends := self.unseen[:]:
                self.unseen.clear()
                self._dispatch(appends)
        finally:
            self._is_showing = False

    def _flush_here(self) -> bool:
        """Have the loop sync what only one sender waits for: a thread that needs the interpreter would be woken for it,
        and the loop by the thread, which takes longer than the sync. A disk that is slow is left to the thread, and so
        is what stands behind others that wait. False: it is not flushed."""
        flusher = self._flusher
        if flusher is None or not self.is_interpreted or self._committer is not None:
            return False
        if self._waiting or not flusher.is_idle or (begun_s := monotonic()) < self._left_until_s:
            return False
        end, timestamp = self._log.written, self._log.last_store_timestamp
        is_flushed = flusher.sync_here(Target(end, timestamp, self._log.files.from_offset(flusher.done.end)))
        ended_s = monotonic()
        if ended_s - begun_s > _LONG_S:
            self._left_until_s = ended_s + _REST * (ended_s - begun_s)
        return is_flushed

    def when_settled(self, callback: Settled) -> None:
        """Call back once every append committed so far is decided; at once if it is."""
        if self._is_sync:
            self._waiting.when_settled(callback)
        else:
            callback()

    def stay_awake(self, limit_us: int) -> None:
        """The next commit comes soon after the last one is flushed."""
        if self._flusher is not None:
            self._flusher.stay_awake(limit_us)

    def when_flushed(self, callback: Settled) -> None:
        """Call back once all that is written is on disk, or never will be; the threads hurry."""
        flusher = self._flusher
        if flusher is None or flusher.failure is not None or not self.lag:
            callback()
        else:
            self._hasty.append((self._log.written, callback))
            self._hurry(flusher)

    def step(self, now_ms: int) -> None:
        """What is due by now: answers of the threads, overdue waiters."""
        self._on_committed()
        if (flusher := self._flusher) is not None:
            flusher.acknowledge()
            self._on_flushed(flusher)
        self._waiting.expire(now_ms)

    @property
    def lag(self) -> int:
        """Bytes that are written (or in a buffer) and not yet flushed."""
        return self._log.written - self.done.end

    @property
    def done(self) -> Target:
        """What is on disk: everything below `end`, the newest message of which is of `timestamp`."""
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
        lag = written - flusher.done.end
        if lag > self._lag_limit and flusher.failure is None:
            if not self.is_behind:
                self.is_behind = True
                self.on_behind()
            self._hurry(flusher)
        elif lag > self._lag_limit // _EARLY and flusher.done is not self._hurried_behind:
            self._hurried_behind = flusher.done
            self._hurry(flusher)

    def _submit_flush(self, flusher: Flusher, end: int, timestamp: int) -> None:
        flusher.submit(Target(end, timestamp, self._log.files.from_offset(flusher.done.end)))

    # answers of the threads

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
        if self.is_behind or self._hasty:
            flusher.hurry()
        if not self._is_sync:
            self._waiting.flushed(done.end)
            self.show()

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
        flusher.acknowledge()
        is_more_to_come = self._is_sync and flusher.failure is None and self._waiting.end > flusher.done.end
        if is_more_to_come and not self._is_put_off and flusher.sync_s < _QUICK_S:
            self._is_put_off = True
        else:
            self._on_flushed(flusher)

    def _on_flushed(self, flusher: Flusher) -> None:
        self._is_put_off = False
        if self._is_sync:
            self._waiting.flushed(flusher.done.end)
            self.on_decided()
            self.show()
        if flusher.failure is not None:
            self._give_up(flusher.failure)
        if self.is_behind:
            self._look_behind(flusher)
        if self._hasty:
            self._tell_hasty(flusher.done.end)

    def _tell_hasty(self, flushed: int) -> None:
        ready = [callback for end, callback in self._hasty if end <= flushed]
        self._hasty = [waiter for waiter in self._hasty if waiter[0] > flushed]
        for callback in ready:
            callback()

    def _look_behind(self, flusher: Flusher) -> None:
        """Producers go on once the disk has caught up, or will never: then each is told so."""
        if flusher.failure is None and self._log.written - flusher.done.end > self._lag_limit:
            self._hurry(flusher)
        else:
            self.is_behind = False
            self.on_caught_up()

    def _hurry(self, flusher: Flusher) -> None:
        if self._committer is not None and not self._committer.is_idle:
            self._committer.hurry()
        flusher.hurry()

    def _give_up(self, problem: OSError) -> None:
        self._log.flags.set(RunningFlag.SYNC_FAILED, problem)
        self._waiting.fail()
        self._tell_hasty(self._log.written)
        if self.is_behind:
            self.is_behind = False
            self.on_caught_up()

    def statistics(self) -> LogFlushStatistics:
        """A snapshot."""
        flusher = self._flusher
        return LogFlushStatistics(
            flusher=flusher.statistics() if flusher is not None else FlusherStatistics(0, 0, False),
            lag=self.lag,
            waiting=len(self._waiting),
            is_behind=self.is_behind,
            commit_lag=self._log.written - self._committer.done.end if self._committer is not None else 0,
            free_buffers=self._pool.statistics().free if self._pool is not None else None,
        )

    def __repr__(self) -> str:
        return f"<LogFlush flusher={self._flusher!r} waiting={len(self._waiting)}>"


def pace_of(config: StoreConfig) -> Pace:
    """The rhythm of ASYNC_FLUSH."""
    return Pace(
        config.flush_interval_commit_log,
        config.flush_commit_log_least_pages,
        config.flush_commit_log_thorough_interval,
        is_woken=config.wake_flush_when_put_message and not config.flush_commit_log_timed,
    )
