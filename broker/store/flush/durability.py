"""From written to durable: the log first, then what is derived from it, then the checkpoint that speaks of both.

    commit ─▶ LogFlush ─▶ dispatch, statuses, waiters
    dispatch ─▶ queue flusher ─▶ checkpoint, behind everything that it speaks of

Queues are flushed every `flushIntervalConsumeQueue`: those with enough new pages, and every thorough interval all of
them, once their units are written that stood in memory when it began. The checkpoint is written behind each round that
has something new to say, and says no more than what is on disk: of the log up to the last sync, of the queues only when
a round left none of them out. After one failed sync, of whichever file, the store gives up: nothing is acknowledged any
more.

A stop: the log first, then the queues, then the checkpoint, and only if all of that went well is the stop a clean one.

Source: docs/formats.md, "Flush", "Checkpoint".
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.errors import StoreError
from skylarkmq.broker.store.flush.checkpoint import CheckpointFile, CheckpointWrite
from skylarkmq.broker.store.flush.flusher import Flusher, Syncable, Target
from skylarkmq.broker.store.flush.log_flush import LogFlush
from skylarkmq.broker.store.index.builder import UNSAFE_CATCH_UP_BYTES, IndexFeed
from skylarkmq.broker.store.index.file import IndexFile
from skylarkmq.broker.store.log.append import Append
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.transient_pool import TransientPool
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.reput import Reput
from skylarkmq.broker.store.running_flags import RunningFlag
from skylarkmq.protocol.disk import Checkpoint

log = logging.getLogger(__name__)


class _Round(msgspec.Struct, frozen=True):
    """One round over the queues. Units of everything below byte `offset` of the log, the newest of which is of
    `timestamp` (ms), are in files when it ends; zeros: no such thing is said. `least_pages` 0: all files are synced."""

    least_pages: int
    offset: int
    timestamp: int


class Durability:
    """The flushers of one store and those who wait for them; only the event loop's thread calls in here."""

    def __init__(
        self,
        config: StoreConfig,
        commit_log: CommitLog,
        reput: Reput,
        queue_files: QueueFiles,
        checkpoint: CheckpointFile,
        steady_ms: Callable[[], int],
        pool: TransientPool | None = None,
    ) -> None:
        self._config = config
        self._log = commit_log
        self._reput = reput
        self._queue_files = queue_files
        self._checkpoint = checkpoint
        self.log = LogFlush(config, commit_log, self._dispatch, pool, steady_ms)
        self._queue_flusher: Flusher | None = None
        self._next_queue_flush_ms = 0
        self._next_thorough_ms = 0
        self._round: _Round | None = None
        self._vouched = Checkpoint()  # what the next checkpoint may say

    # life

    def load(self) -> Checkpoint:
        """What the checkpoint vouches for."""
        self._vouched = self._checkpoint.load()
        return self._vouched

    def open_index(self, feed: IndexFeed, *, clean: bool, check_stop: Callable[[], None]) -> None:
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
        feed.catch_up(None if self._config.message_index_safe else UNSAFE_CATCH_UP_BYTES, check_stop)
        self._reput.index = feed

    def configure(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self._config = config
        self.log.configure(config)

    def start(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Start the threads. With a loop their answers arrive by themselves, else at each `step`."""
        self._reput.writes.limit = self._config.queue_units_in_memory
        self.log.start(loop)
        self._queue_flusher = Flusher("queue-flusher")
        self._queue_flusher.start()
        if self._reput.index is not None:
            self._reput.index.start(loop)

    def finish(self) -> bool:
        """Flush everything that was committed and end the threads. False: something of it cannot be vouched for."""
        queue_flusher = self._queue_flusher
        if queue_flusher is None:
            return False
        is_flushed = self.log.finish()
        self._reput.retry()
        last_round = self._begin_round(0, is_whole=True)
        self._reput.writes.write_slice(whole=True)
        is_good = is_flushed and not self._reput.failed and self._reput.offset >= self._log.written
        queue_flusher.wait_idle()
        confirm = self._log.last_record if is_good else self._vouched.confirm_offset
        index_files = self._reput.index.index.take_all(self.log.done.end) if self._reput.index is not None else []
        self._submit_queues(last_round, msgspec.structs.replace(self._vouched, confirm_offset=confirm), index_files)
        queue_flusher.stop()
        is_good = is_good and queue_flusher.failure is None
        self.abandon()
        return is_good

    def abandon(self) -> None:
        """End the threads and forget them; what was submitted is still flushed, nothing is said about it."""
        self.log.abandon()
        if self._queue_flusher is not None:
            self._queue_flusher.close()
            self._queue_flusher = None

    # what is seen

    def _dispatch(self, appends: Sequence[Append]) -> None:
        """Let appends be seen. While a queue cannot be written, new messages are refused."""
        self._reput.dispatch(appends)
        if self._reput.failed:
            self._log.flags.set(RunningFlag.QUEUE_ERROR, self._reput.writes.failure)

    @property
    def settled(self) -> int:
        """Everything below that byte of the log is flushed, and so are its queues, which without their units would be
        numbered anew: nobody needs its segment any more."""
        flusher = self._queue_flusher
        return 0 if self._reput.failed or flusher is None else min(self.log.done.end, flusher.done.end)

    def step(self, now_ms: int) -> None:
        """What is due by now: answers of the flusher, overdue waiters, queues to flush or to try again."""
        self.log.step(now_ms)
        if self._reput.failed:
            self._reput.retry()
            if self._reput.failed:
                self._log.flags.set(RunningFlag.QUEUE_ERROR, self._reput.writes.failure)
            else:
                self._log.flags.clear(RunningFlag.QUEUE_ERROR)
        if self._reput.index is not None:
            self._reput.index.step()
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
        if self._reput.writes.write_slice():
            found, self._round = self._round, None
            feed = self._reput.index
            self._submit_queues(
                found, self._vouched, feed.index.take_full(self.log.done.end) if feed is not None else []
            )

    def _due_round(self, now_ms: int) -> "_Round":
        config = self._config
        self._next_queue_flush_ms = now_ms + config.flush_interval_consume_queue
        if now_ms < self._next_thorough_ms:
            return self._begin_round(config.flush_consume_queue_least_pages, is_whole=self._reput.writes.is_short)
        self._next_thorough_ms = now_ms + config.flush_consume_queue_thorough_interval
        return self._begin_round(0, is_whole=True)

    def _begin_round(self, least_pages: int, *, is_whole: bool) -> "_Round":
        """`is_whole`: what waits in memory is written before queues are synced."""
        if is_whole:
            self._reput.writes.begin_round()
            return _Round(least_pages, self._reput.offset, self._reput.last_store_timestamp)
        return _Round(least_pages, 0, 0)

    def _submit_queues(self, found: "_Round", vouched: Checkpoint, index_files: Sequence[IndexFile]) -> None:
        """Sync queue files and index files, then what the checkpoint may say about them by then."""
        if self._queue_flusher is None:
            return
        files: list[Syncable] = [*self._queue_files.take_dirty(found.least_pages), *index_files]
        vouched = msgspec.structs.replace(
            vouched, physic_timestamp=max(vouched.physic_timestamp, self.log.done.timestamp)
        )
        end = self._queue_flusher.done.end
        if not self._queue_files.statistics().dirty_files and not self._reput.failed:
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
