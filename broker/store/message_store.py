"""The only door to a store directory.

A turn: `put` and `put_batch` gather what one read brought; `commit` writes it with one pwrite, and under
ASYNC_FLUSH dispatches it and decides every status in the same step. Under SYNC_FLUSH statuses stay PENDING until
the flusher has passed them: `when_settled` calls back then. Whatever reads commits first, so a pull behind a send
of the same turn sees it.

Life: `load` (lock, segments, queues, recovery), `start` (threads, `abort`), `close` (flush, `abort` goes only after
a good end). `step` is called every 100 ms or so by whoever owns the clock.

Only the event loop's thread comes in here. Source: docs/formats.md, "Store directory".
"""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from broker.store.allocate import Allocator
from broker.store.append import Append, PutStatus
from broker.store.checkpoint import CheckpointFile, CheckpointWrite
from broker.store.commit_log import CommitLog, CommitLogStatistics
from broker.store.config import StoreConfig, parse_delay_levels
from broker.store.disk import Disk
from broker.store.flush import Flusher, FlusherStatistics, Pace, Syncable, Target
from broker.store.mapped_file_queue import MappedFileQueue
from broker.store.offset_by_time import Boundary, offset_by_time, store_time_of
from broker.store.queue_files import QueueFiles
from broker.store.queue_table import QueueTable
from broker.store.reading import GetResult, Matches, Reader
from broker.store.recovery import Recovered, Recovery
from broker.store.reput import Arrival, Reput
from broker.store.running_files import RunningFiles
from broker.store.sync_queue import Settled, SyncQueue
from protocol.disk import COMMIT_LOG_DIRECTORY, Checkpoint
from protocol.record import Record, parse

log = logging.getLogger(__name__)

_UNLIMITED = 1 << 62


class MessageStoreStatistics(msgspec.Struct, frozen=True):
    """What an operator asks first. Offsets in bytes of the log."""

    log: CommitLogStatistics
    flusher: FlusherStatistics
    queues: int
    dispatched: int
    dispatch_lag: int
    flush_lag: int
    waiting_for_flush: int
    is_writable: bool


class MessageStore:
    """One store. `on_arrival(topic, queue_id, max_offset, tags_codes)` is called for new units that may be seen."""

    def __init__(
        self,
        config: StoreConfig,
        now_ms: Callable[[], int],
        on_arrival: Arrival | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._config = config
        self._disk = disk = disk or Disk()
        root = Path(config.store_path_root_dir)
        self._running = RunningFiles(root, disk)
        self._checkpoint = CheckpointFile(root, disk)
        self._allocator = Allocator(disk)
        self._queue_files = QueueFiles(config.mapped_file_size_consume_queue, config.open_queue_files, disk)
        self._queues = QueueTable(root, self._queue_files, disk)
        segments = MappedFileQueue(
            root / COMMIT_LOG_DIRECTORY, config.mapped_file_size_commit_log, disk, self._allocator
        )
        self._log = CommitLog(config, segments, self._queues, now_ms)
        self.put: Callable[[Append], None] = self._log.put
        """Add a message to this turn's batch; refused ones have their status at once. (The log's own method: the
        hottest call of all goes through no frame of ours.)"""
        self._reput = Reput(parse_delay_levels(config.message_delay_level), on_arrival)
        self._reader = Reader(config, self._log)
        self._sync_queue = SyncQueue(self._dispatch, config.sync_flush_timeout)
        self._is_sync = config.is_sync_flush
        self._flusher: Flusher | None = None
        self._queue_flusher: Flusher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next_queue_flush_ms = 0
        self._next_thorough_ms = 0
        self._vouched = Checkpoint()  # what the next checkpoint may say

    # life

    def load(self) -> Recovered:
        """Take the lock, open everything, recover. StoreError when the directory cannot be served as it is."""
        self._running.lock()
        try:
            was_clean = not self._running.is_abort_present()
            self._log.files.load()
            self._queues.load()
            self._vouched = self._checkpoint.load()
            recovery = Recovery(self._log, self._queues, self._reput, check_body=self._config.check_crc_on_recover)
            return recovery.run(self._vouched, clean=was_clean)
        except BaseException:
            self._close_files()
            raise

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Accept messages. With a loop the flusher's answers arrive by themselves, else at each `step`."""
        config = self._config
        self._running.write_abort()
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
        if loop is not None:
            loop.add_reader(self._flusher.event_fd, self._on_flushed)
        self._log.prepare()
        self._log.refusal = None

    def close(self) -> None:
        """Write and flush what was put, stop the threads, give up the lock; what cannot be finished keeps `abort`."""
        if self._flusher is not None and self._queue_flusher is not None:
            self.commit()
            self._log.refusal = PutStatus.SERVICE_NOT_AVAILABLE
            self._flush_everything(self._flusher, self._queue_flusher)
        self._close_files()

    def _flush_everything(self, flusher: Flusher, queue_flusher: Flusher) -> None:
        self._submit_log()
        flusher.stop()
        self._on_flushed()
        self._reput.retry()
        is_good = flusher.failure is None and not self._reput.failed and self._reput.offset >= self._log.written
        queue_flusher.wait_idle()
        confirm = self._log.last_record if is_good else self._vouched.confirm_offset
        self._submit_queues(0, msgspec.structs.replace(self._vouched, confirm_offset=confirm))
        queue_flusher.stop()
        if self._loop is not None:
            self._loop.remove_reader(flusher.event_fd)
        is_good = is_good and queue_flusher.failure is None
        flusher.close()
        queue_flusher.close()
        self._flusher = self._queue_flusher = None
        if is_good:
            self._running.remove_abort()
        log.info("store closed end=%d clean=%s", self._log.written, is_good)

    def _close_files(self) -> None:
        self._allocator.close()
        self._log.files.close()
        self._queue_files.close()
        self._running.unlock()

    # putting

    def put_batch(self, appends: Sequence[Append]) -> None:
        """Add messages that stay contiguous in the log: all of them, or none."""
        self._log.put_all(appends)

    def commit(self) -> list[Append]:
        """Write the batch and return its appends: decided under ASYNC_FLUSH, else PENDING until `when_settled`."""
        if not self._log.batch:
            return self._log.batch
        batch = self._log.commit()
        if batch[0].status is not PutStatus.PENDING:
            return batch  # taken back
        self._submit_log()
        if self._is_sync:
            self._sync_queue.add(self._log.written, batch, self._log.last_store_timestamp)
            return batch
        self._dispatch(batch)
        ok = PutStatus.PUT_OK
        for append in batch:
            append.status = ok
        return batch

    def _dispatch(self, appends: Sequence[Append]) -> None:
        self._reput.dispatch(appends)
        if self._reput.failed:
            self._log.refusal = PutStatus.SERVICE_NOT_AVAILABLE

    def when_settled(self, callback: Settled) -> None:
        """Call back once every append committed so far is decided; at once if it is."""
        self._sync_queue.when_settled(callback)

    # reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        matches: Matches | None = None,
        max_total_bytes: int = _UNLIMITED,
    ) -> GetResult:
        """Messages of a queue from `offset`, with every status and correction of docs/formats.md, "getMessage"."""
        self.commit()
        return self._reader.get(self._queues.get(topic, queue_id), offset, max_count, matches, max_total_bytes)

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that begins at that byte of the log; None when none does."""
        self.commit()
        segment = self._log.files.find(physical_offset)
        if segment is None or physical_offset >= self._log.written:
            return None
        found = parse(segment.view, physical_offset - segment.start)
        if not isinstance(found, Record) or found.physical_offset != physical_offset:
            return None
        return bytes(segment.view[found.position : found.position + found.size])

    def min_offset(self, topic: str, queue_id: int) -> int | None:
        """The first offset of a queue that still has its record; None when there is no such queue."""
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int | None:
        """One past the last offset that may be read; None when there is no such queue."""
        self.commit()
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else queue.end

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """The queue offset that belongs to a store timestamp (ms); 0 when there is no such queue."""
        self.commit()
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else offset_by_time(self._log, queue, timestamp, boundary)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The store timestamp (ms) of a queue's message; None when it is not there."""
        self.commit()
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else store_time_of(self._log, queue, offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int | None:
        """The store timestamp (ms) of a queue's first message; None when it has none."""
        first = self.min_offset(topic, queue_id)
        return None if first is None else self.store_time_at(topic, queue_id, first)

    @property
    def min_physical_offset(self) -> int:
        """The first byte of the log that still exists."""
        return self._log.files.min_offset

    @property
    def max_physical_offset(self) -> int:
        """The byte behind the last record."""
        return self._log.written

    @property
    def is_writable(self) -> bool:
        """Whether a put would be accepted."""
        return self._log.refusal is None

    def disk_used_ratio(self) -> float:
        """How full the file system is that holds the store, from 0 to 1."""
        space = os.statvfs(self._config.store_path_root_dir)
        return 1 - space.f_bavail / space.f_blocks

    def delete_topic(self, topic: str) -> int:
        """Remove a topic's queues and their offsets; the log keeps its records. Returns how many queues there were."""
        self.commit()
        removed = self._queues.remove_topic(topic)
        log.info("topic removed from store topic=%s queues=%d", topic, removed)
        return removed

    # flushing

    def step(self, now_ms: int) -> None:
        """What is due by now: answers of the flusher, overdue waiters, queues to flush or to try again."""
        self._on_flushed()
        self._sync_queue.expire(now_ms)
        if self._reput.failed:
            self._reput.retry()
            if not self._reput.failed:
                self._log.refusal = None
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
            self._log.give_up()
            self._sync_queue.fail()
        elif self._is_sync:
            self._sync_queue.flushed(flusher.done.end)

    def _flush_queues(self, now_ms: int) -> None:
        flusher = self._queue_flusher
        if flusher is not None and flusher.failure is not None:
            self._log.give_up()
        if flusher is None or now_ms < self._next_queue_flush_ms or not flusher.is_idle:
            return
        config = self._config
        self._next_queue_flush_ms = now_ms + config.flush_interval_consume_queue
        if now_ms < self._next_thorough_ms:
            self._submit_queues(config.flush_consume_queue_least_pages, None)
            return
        self._next_thorough_ms = now_ms + config.flush_consume_queue_thorough_interval
        self._submit_queues(0, self._vouched)

    def _submit_queues(self, least_pages: int, checkpoint: Checkpoint | None) -> None:
        """Sync the queue files; with a checkpoint all of them, and then the checkpoint that speaks of them."""
        if self._flusher is None or self._queue_flusher is None:
            return
        files: list[Syncable] = [*self._queue_files.take_dirty(least_pages)]
        if checkpoint is not None:
            self._vouched = msgspec.structs.replace(
                checkpoint,
                physic_timestamp=max(checkpoint.physic_timestamp, self._flusher.done.timestamp),
                logics_timestamp=max(checkpoint.logics_timestamp, self._reput.last_store_timestamp),
            )
            files.append(CheckpointWrite(self._checkpoint, self._vouched))
        if files:
            self._queue_flusher.submit(Target(self._reput.offset, self._reput.last_store_timestamp, files))

    def statistics(self) -> MessageStoreStatistics:
        """A snapshot."""
        return MessageStoreStatistics(
            log=self._log.statistics(),
            flusher=self._flusher.statistics() if self._flusher is not None else FlusherStatistics(0, 0, False),
            queues=len(self._queues.by_key),
            dispatched=self._reput.statistics().dispatched,
            dispatch_lag=self._log.written - self._reput.offset,
            flush_lag=self._log.written - (self._flusher.done.end if self._flusher is not None else 0),
            waiting_for_flush=len(self._sync_queue),
            is_writable=self.is_writable,
        )

    def __repr__(self) -> str:
        return f"<MessageStore {self._config.store_path_root_dir} end={self._log.written}>"
