"""Durability: the log is synced first, then the files derived from it, then the checkpoint that covers both.

    commit ─▶ LogFlush ─▶ dispatch, statuses, waiters
    dispatch ─▶ queue flusher ─▶ checkpoint, after all files that it covers

Queues are flushed every `flushIntervalConsumeQueue`: the queues with enough new pages, and once per thorough interval
all queues, after the units that were in memory at the start of the round have been written. The checkpoint is written
after each round that changes it, and covers only data on disk: the log up to the last sync, and the queues only after a
round that left no queue out. After one failed sync of any file, the store becomes read-only and acknowledges no more
messages.

A stop flushes the log, then the queues, then the checkpoint. The stop is clean only if all of that succeeded.

Source: docs/reference/disk.md, "Flush", "Checkpoint".
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from skylarkmq.broker.store.dispatch.dispatch import Dispatch
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.flush.checkpoint import CheckpointFile, CheckpointWrite
from skylarkmq.broker.store.flush.flusher import Flusher, Syncable, Target
from skylarkmq.broker.store.flush.follower_flush import FollowerFlush
from skylarkmq.broker.store.flush.log_flush import LogFlush
from skylarkmq.broker.store.flush.transient_pool import TransientPool
from skylarkmq.broker.store.flush.undecided_records import UndecidedRecords
from skylarkmq.broker.store.index.builder import UNSAFE_CATCH_UP_BYTES, IndexFeed
from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.running_flags import RunningFlag
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.protocol.disk import Checkpoint

log = logging.getLogger(__name__)


class _Round(msgspec.Struct, frozen=True):
    """One flush round over the queues.

    When it ends, the files contain the units of all records below byte `offset` of the log. `timestamp` (ms) is the
    store time of the newest of them. Zeros: the round covers no such range. `least_pages` 0: all files are synced.
    """

    least_pages: int
    offset: int
    timestamp: int


class Durability:
    """The flushers of one store and their waiters. Only the event loop's thread calls these methods.

    Set by `HiddenTail.open`, of a follower: `undecided`, the undecided records, which are written before each
    checkpoint. Until recovery has decided about them, a checkpoint leaves their file as it is.
    """

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        dispatch: Dispatch,
        queue_files: QueueFiles,
        checkpoint: CheckpointFile,
        steady_ms: Callable[[], int],
        pool: TransientPool | None = None,
    ) -> None:
        self._config = config
        self._log = commit_log
        self._dispatch = dispatch
        self._queue_files = queue_files
        self._checkpoint = checkpoint
        make_flush = FollowerFlush if config.is_follower else LogFlush
        self.log = make_flush(config, commit_log, self._dispatch_appends, pool, steady_ms)
        self._queue_flusher: Flusher | None = None
        self._next_queue_flush_ms = 0
        self._next_thorough_ms = 0
        self._round: _Round | None = None
        self.undecided: UndecidedRecords | None = None
        self._vouched = Checkpoint()  # the content that the next checkpoint may have

    # life

    def load(self) -> Checkpoint:
        """Read and return the checkpoint."""
        self._vouched = self._checkpoint.load()
        return self._vouched

    def open_index(self, feed: IndexFeed, *, clean: bool, check_stop: Callable[[], None]) -> None:
        """Bring the index up to the dispatched end of the log. From then on dispatch also feeds the index.

        If index files that the checkpoint covers must be rebuilt, the checkpoint is lowered first.

        Raises StoreError if the disk fails.
        """
        try:
            feed.open(self._dispatch.offset, trusted_to=None if clean else self._vouched.index_timestamp)
            known = feed.index.full_timestamp
            if known < self._vouched.index_timestamp:
                self._vouched = msgspec.structs.replace(self._vouched, index_timestamp=known)
                self._checkpoint.write(self._vouched)
        except OSError as problem:
            raise StoreError(f"the index cannot be opened: {problem}") from problem
        feed.catch_up(None if self._config.message_index_safe else UNSAFE_CATCH_UP_BYTES, check_stop)
        self._dispatch.index = feed

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings from now on."""
        self._config = config
        self.log.configure(config)

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start the threads. With a loop, their results arrive as events; without one, at each `step`."""
        self._dispatch.writes.limit = self._config.queue_units_in_memory
        self.log.start(loop)
        self._queue_flusher = Flusher("queue-flusher")
        self._queue_flusher.start()
        if self._dispatch.index is not None:
            self._dispatch.index.start(loop)

    def finish(self) -> bool:
        """Flush all commits and end the threads. False: some of it is not durable."""
        queue_flusher = self._queue_flusher
        if queue_flusher is None:
            return False
        is_flushed = self.log.finish()
        self._dispatch.retry()
        last_round = self._begin_round(0, is_whole=True)
        self._dispatch.writes.write_slice(whole=True)
        is_good = is_flushed and not self._dispatch.failed and self._dispatch.offset >= self._log.written
        queue_flusher.wait_idle()
        confirm = self._log.last_record if is_good else self._vouched.confirm_offset
        index_files = self._dispatch.index.index.take_all(self.log.done.end) if self._dispatch.index is not None else []
        vouched = msgspec.structs.replace(self._vouched, confirm_offset=confirm)
        self._submit_queues(last_round, vouched, index_files, is_stop=is_good)
        queue_flusher.stop()
        is_good = is_good and queue_flusher.failure is None
        self.abandon()
        return is_good

    def abandon(self) -> None:
        """End the threads and drop them. Submitted targets are still flushed; the results are ignored."""
        self.log.abandon()
        if self._queue_flusher is not None:
            self._queue_flusher.close()
            self._queue_flusher = None

    # dispatch

    def _dispatch_appends(self, appends: Sequence[Append]) -> None:
        """Make appends visible to consumers. While a queue cannot be written, new messages are refused."""
        self._dispatch.dispatch(appends)
        if self._dispatch.failed:
            self._log.flags.set(RunningFlag.QUEUE_ERROR, self._dispatch.writes.failure)

    @property
    def deletable_offset(self) -> int:
        """The log below this byte may be deleted: it is flushed, and so are its queues.

        A queue whose units are lost would be numbered anew.
        """
        flusher = self._queue_flusher
        return 0 if self._dispatch.failed or flusher is None else min(self.log.done.end, flusher.done.end)

    def step(self, now_ms: int) -> None:
        """Run what is due: results of the flushers, overdue waiters, flushes and retries of the queues."""
        self.log.step(now_ms)
        if self._dispatch.failed:
            self._dispatch.retry()
            if self._dispatch.failed:
                self._log.flags.set(RunningFlag.QUEUE_ERROR, self._dispatch.writes.failure)
            else:
                self._log.flags.clear(RunningFlag.QUEUE_ERROR)
        if self._dispatch.index is not None:
            self._dispatch.index.step()
        self._flush_queues(now_ms)

    # the queues and the checkpoint

    def _flush_queues(self, now_ms: int) -> None:
        flusher = self._queue_flusher
        if flusher is not None and flusher.failure is not None:
            self._log.flags.set(RunningFlag.SYNC_FAILED, flusher.failure)
        if flusher is None or not flusher.is_idle:
            return
        if self._round is None:
            if now_ms < self._next_queue_flush_ms:
                return
            self._round = self._due_round(now_ms)
        if self._dispatch.writes.write_slice():
            found, self._round = self._round, None
            feed = self._dispatch.index
            self._submit_queues(
                found, self._vouched, feed.index.take_full(self.log.done.end) if feed is not None else []
            )

    def _due_round(self, now_ms: int) -> "_Round":
        config = self._config
        self._next_queue_flush_ms = now_ms + config.flush_interval_consume_queue
        if now_ms < self._next_thorough_ms:
            return self._begin_round(config.flush_consume_queue_least_pages, is_whole=self._dispatch.writes.is_short)
        self._next_thorough_ms = now_ms + config.flush_consume_queue_thorough_interval
        return self._begin_round(0, is_whole=True)

    def _begin_round(self, least_pages: int, *, is_whole: bool) -> "_Round":
        """Begin a round. `is_whole`: units in memory are written before the queues are synced."""
        if self.undecided is not None:
            self.undecided.note()
        if is_whole:
            self._dispatch.writes.begin_round()
            return _Round(least_pages, self._dispatch.offset, self._dispatch.last_store_timestamp)
        return _Round(least_pages, 0, 0)

    def _submit_queues(
        self, found: "_Round", vouched: Checkpoint, index_files: Sequence[IndexFile], *, is_stop: bool = False
    ) -> None:
        """Sync queue files and index files, then write the checkpoint that covers them."""
        if self._queue_flusher is None:
            return
        files: list[Syncable] = [*self._queue_files.take_dirty(found.least_pages), *index_files]
        covers_queues = not self._queue_files.statistics().dirty_files and not self._dispatch.failed
        if self.undecided is not None:
            write = self.undecided.take_write(is_stop=is_stop, covers_queues=covers_queues and found.offset > 0)
            files += [] if write is None else [write]
        vouched = msgspec.structs.replace(
            vouched, physic_timestamp=max(vouched.physic_timestamp, self.log.done.timestamp)
        )
        end = self._queue_flusher.done.end
        if covers_queues:
            end = max(end, found.offset)
            logics = max(vouched.logics_timestamp, found.timestamp)
            vouched = msgspec.structs.replace(vouched, logics_timestamp=logics)
        for index_file in index_files:
            if index_file.is_full:
                vouched = msgspec.structs.replace(vouched, index_timestamp=index_file.header.end_timestamp)
        if vouched != self._vouched:
            self._vouched = vouched
            files.append(CheckpointWrite(self._checkpoint, vouched))
        if files or end > self._queue_flusher.done.end:
            self._queue_flusher.submit(Target(end, found.timestamp, files))

    def __repr__(self) -> str:
        return f"<Durability {self.log!r}>"
