"""From written to durable: what may be acknowledged and seen, what may be said in the checkpoint, how a store closes.

    commit ─▶ log flusher ─▶ SyncQueue (SYNC_FLUSH) ─▶ dispatch, statuses, waiters
    dispatch ─▶ queue flusher ─▶ checkpoint, behind everything that it speaks of

Under ASYNC_FLUSH a commit is decided and dispatched at once and the flusher follows; under SYNC_FLUSH both wait for the
flusher. Queues are flushed every `flushIntervalConsumeQueue`: those with enough new pages, and every thorough interval
all of them. After one failed sync, of whichever file, the store gives up: nothing is acknowledged any more.

A stop: the log first, then the queues, then the checkpoint, and only if all of that went well is the stop a clean one.

Source: docs/formats.md, "Flush", "Checkpoint".
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from broker.store.append import Append, PutStatus
from broker.store.checkpoint import CheckpointFile, CheckpointWrite
from broker.store.commit_log import CommitLog
from broker.store.config import StoreConfig
from broker.store.errors import StoreError
from broker.store.flush import Flusher, FlusherStatistics, Pace, Syncable, Target
from broker.store.index_feed import UNSAFE_CATCH_UP_BYTES, IndexFeed
from broker.store.index_file import IndexFile
from broker.store.queue_files import QueueFiles
from broker.store.reput import Reput
from broker.store.running_flags import RunningFlag
from broker.store.sync_queue import Settled, SyncQueue
from protocol.disk import Checkpoint

log = logging.getLogger(__name__)


class DurabilityStatistics(msgspec.Struct, frozen=True):
    """`lag` in bytes of the log: written and not yet flushed; `waiting` commits that no flush has covered yet."""

    flusher: FlusherStatistics
    lag: int
    waiting: int


class Durability:
    """The flushers of one store and those who wait for them; only the event loop's thread calls in here."""

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        reput: Reput,
        queue_files: QueueFiles,
        checkpoint: CheckpointFile,
    ) -> None:
        self._config = config
        self._log = commit_log
        self._reput = reput
        self._queue_files = queue_files
        self._checkpoint = checkpoint
        self._sync_queue = SyncQueue(self.dispatch, config.sync_flush_timeout)
        self._is_sync = config.is_sync_flush
        self._flusher: Flusher | None = None
        self._queue_flusher: Flusher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_queue_flush_ms = 0
        self._next_thorough_ms = 0
        self._vouched = Checkpoint()  # what the next checkpoint may say

    # life

    def load(self) -> Checkpoint:
        """What the checkpoint vouches for."""
        self._vouched = self._checkpoint.load()
        return self._vouched

    def open_index(self, feed: IndexFeed, *, clean: bool) -> None:
        """Bring the index up to what is dispatched; from then on dispatch goes to it too. StoreError: the disk refuses.

        Before files are made again that the checkpoint vouches for, it has to stop doing so.
        """
        try:
            feed.open(trusted_to=None if clean else self._vouched.index_timestamp)
            known = feed.index.full_timestamp
            if known < self._vouched.index_timestamp:
                self._vouched = msgspec.structs.replace(self._vouched, index_timestamp=known)
                self._checkpoint.write(self._vouched)
        except OSError as problem:
            raise StoreError(f"the index cannot be opened: {problem}") from problem
        feed.catch_up(None if self._config.message_index_safe else UNSAFE_CATCH_UP_BYTES)
        self._reput.index = feed

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start the threads. With a loop their answers arrive by themselves, else at each `step`."""
        config = self._config
        pace = None
        if not self._is_sync:
            pace = Pace(
                config.flush_interval_commit_log,
                config.flush_commit_log_least_pages,
                config.flush_commit_log_thorough_interval,
            )
        self._flusher = Flusher("log-flusher", self._log.written, pace)
        self._queue_flusher = Flusher("queue-flusher")
        self._flusher.start()
        self._queue_flusher.start()
        self._loop = loop
        if self._reput.index is not None:
            self._reput.index.start(loop)
        if loop is not None:
            loop.add_reader(self._flusher.event_fd, self._on_flushed)

    def finish(self) -> bool:
        """Flush everything that was committed and end the threads. False: something of it cannot be vouched for."""
        flusher, queue_flusher = self._flusher, self._queue_flusher
        if flusher is None or queue_flusher is None:
            return False
        self._submit_log()
        flusher.stop()
        self._on_flushed()
        self._reput.retry()
        is_good = flusher.failure is None and not self._reput.failed and self._reput.offset >= self._log.written
        queue_flusher.wait_idle()
        confirm = self._log.last_record if is_good else self._vouched.confirm_offset
        index_files = self._reput.index.index.take_all() if self._reput.index is not None else []
        self._submit_queues(0, msgspec.structs.replace(self._vouched, confirm_offset=confirm), index_files)
        queue_flusher.stop()
        is_good = is_good and queue_flusher.failure is None
        self.abandon()
        return is_good

    def abandon(self) -> None:
        """End the threads and forget them; what was submitted is still flushed, nothing is said about it."""
        if self._flusher is not None and self._loop is not None:
            self._loop.remove_reader(self._flusher.event_fd)
        for flusher in (self._flusher, self._queue_flusher):
            if flusher is not None:
                flusher.close()
        self._flusher = self._queue_flusher = None

    # the log

    def committed(self, batch: list[Append]) -> None:
        """Appends just written: decide and dispatch them now, or when the flusher has passed them."""
        self._submit_log()
        if self._is_sync:
            self._sync_queue.add(self._log.written, batch, self._log.last_store_timestamp)
            return
        self.dispatch(batch)
        ok = PutStatus.PUT_OK
        for append in batch:
            append.status = ok

    def dispatch(self, appends: Sequence[Append]) -> None:
        """Let appends be seen. While a queue cannot be written, new messages are refused."""
        self._reput.dispatch(appends)
        if self._reput.failed:
            self._log.flags.set(RunningFlag.QUEUE_ERROR)

    @property
    def settled(self) -> int:
        """Everything below that byte of the log is flushed and dispatched: nobody needs its segment any more."""
        if self._flusher is None or self._reput.failed:
            return 0
        return min(self._flusher.done.end, self._reput.offset)

    def when_settled(self, callback: Settled) -> None:
        """Call back once every append committed so far is decided; at once if it is."""
        self._sync_queue.when_settled(callback)

    def step(self, now_ms: int) -> None:
        """What is due by now: answers of the flusher, overdue waiters, queues to flush or to try again."""
        self._on_flushed()
        self._sync_queue.expire(now_ms)
        if self._reput.failed:
            self._reput.retry()
            if not self._reput.failed:
                self._log.flags.clear(RunningFlag.QUEUE_ERROR)
        if self._reput.index is not None:
            self._reput.index.step()
        self._flush_queues(now_ms)

    def _submit_log(self) -> None:
        if self._flusher is not None:
            dirty = self._log.files.from_offset(self._flusher.done.end)
            self._flusher.submit(Target(self._log.written, self._log.last_store_timestamp, dirty))

    def _on_flushed(self) -> None:
        flusher = self._flusher
        if flusher is None:
            return
        flusher.acknowledge()
        if flusher.failure is not None:
            self._log.flags.set(RunningFlag.SYNC_FAILED, flusher.failure)
            self._sync_queue.fail()
        elif self._is_sync:
            self._sync_queue.flushed(flusher.done.end)

    # the queues and the checkpoint

    def _flush_queues(self, now_ms: int) -> None:
        flusher = self._queue_flusher
        if flusher is not None and flusher.failure is not None:
            self._log.flags.set(RunningFlag.SYNC_FAILED, flusher.failure)
        if flusher is None or now_ms < self._next_queue_flush_ms or not flusher.is_idle:
            return
        config = self._config
        self._next_queue_flush_ms = now_ms + config.flush_interval_consume_queue
        index_files = self._reput.index.index.take_full() if self._reput.index is not None else []
        if now_ms < self._next_thorough_ms:
            self._submit_queues(config.flush_consume_queue_least_pages, None, index_files)
            return
        self._next_thorough_ms = now_ms + config.flush_consume_queue_thorough_interval
        self._submit_queues(0, self._vouched, index_files)

    def _submit_queues(self, least_pages: int, checkpoint: Checkpoint | None, index_files: Sequence[IndexFile]) -> None:
        """Sync queue and index files; with a checkpoint all of the queues; then the checkpoint that speaks of them."""
        if self._flusher is None or self._queue_flusher is None:
            return
        files: list[Syncable] = [*self._queue_files.take_dirty(least_pages), *index_files]
        before = self._vouched
        if checkpoint is not None:
            self._vouched = msgspec.structs.replace(
                checkpoint,
                physic_timestamp=max(checkpoint.physic_timestamp, self._flusher.done.timestamp),
                logics_timestamp=max(checkpoint.logics_timestamp, self._reput.last_store_timestamp),
            )
        for index_file in index_files:
            if index_file.is_full:
                end = index_file.header.end_timestamp
                self._vouched = msgspec.structs.replace(self._vouched, index_timestamp=end)
        if checkpoint is not None or self._vouched is not before:
            files.append(CheckpointWrite(self._checkpoint, self._vouched))
        if files:
            self._queue_flusher.submit(Target(self._reput.offset, self._reput.last_store_timestamp, files))

    def statistics(self) -> DurabilityStatistics:
        """A snapshot."""
        flusher = self._flusher
        return DurabilityStatistics(
            flusher=flusher.statistics() if flusher is not None else FlusherStatistics(0, 0, False),
            lag=self._log.written - (flusher.done.end if flusher is not None else 0),
            waiting=len(self._sync_queue),
        )

    def __repr__(self) -> str:
        return f"<Durability flusher={self._flusher!r} {self._sync_queue!r}>"
