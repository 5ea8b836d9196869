"""The only door to a store directory.

A turn: `put` and `put_batch` gather what one read brought; `write` writes it with one pwrite, and under ASYNC_FLUSH
decides every status in the same step. Under SYNC_FLUSH statuses stay PENDING until the flusher has passed them:
`when_settled` calls back then. `show` lets be seen what is decided: it comes behind the answers, which need not wait
for it, and before anything else is done. `commit` is both; whatever reads commits first, so a pull behind a send of
the same turn sees it.

Life: `load` (lock, segments, queues, recovery), `start` (threads, `abort`), `close` (flush, `abort` goes only after
a good end). `step` is called every 100 ms or so by whoever owns the clock.

Only the event loop's thread comes in here. Source: docs/formats.md, "Store directory".
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path

from skylarkmq.broker.store.config import StoreConfig, parse_delay_levels
from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.errors import LoadStopped, LostBytesError, refused_by_disk
from skylarkmq.broker.store.flush.checkpoint import CheckpointFile
from skylarkmq.broker.store.flush.durability import Durability
from skylarkmq.broker.store.flush.sync_queue import Settled
from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.index.key_query import Found, KeyQuery
from skylarkmq.broker.store.io_thread import helper_thread
from skylarkmq.broker.store.log.allocation import BUSY_BYTES, Allocator
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.append_columns import AppendColumns
from skylarkmq.broker.store.log.checksummed_log import ChecksummedCommitLog
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.mapped_file_queue import MappedFileQueue
from skylarkmq.broker.store.log.transient_pool import TransientPool
from skylarkmq.broker.store.log.warm_up import WarmUp
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.offset_by_time import Boundary
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.read.cold_reads import ColdRead
from skylarkmq.broker.store.read.property_filters import PropertyTest, Wanted
from skylarkmq.broker.store.read.queue_reads import GetResult, ReadAhead
from skylarkmq.broker.store.read.store_reader import StoreReader
from skylarkmq.broker.store.recovery.lock_and_abort import RunningFiles
from skylarkmq.broker.store.recovery.recovery import Recovered, Recovery
from skylarkmq.broker.store.reput import Arrival, Reput
from skylarkmq.broker.store.retention.cleaner import Cleaner, Follower
from skylarkmq.broker.store.retention.deleted_topics import DeletedTopics
from skylarkmq.broker.store.retention.manual_cleanup import ManualCleanup
from skylarkmq.broker.store.retention.queue_cleaner import QueueCleaner
from skylarkmq.broker.store.retention.removal import Removal
from skylarkmq.broker.store.retention.rules import DiskUsage, measure
from skylarkmq.broker.store.running_flags import RunningFlag
from skylarkmq.broker.store.statistics import MessageStoreStatistics
from skylarkmq.broker.store.topic_traffic import TopicTraffic
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

_UNLIMITED = 1 << 62
_LOOK_MS = 1_000  # how often segments are looked at for lost bytes


class MessageStore:
    """One store. `on_arrival(topic, queue_id, max_offset, tags_codes)` is called for new units that may be seen, in the
    `topics` of which somebody wants to hear; None: in all.

    `now_ms` gives Unix time, for what is stored; `steady_ms` a clock that is never set, for intervals and for `step`.
    Without it, `now_ms` is both.
    """

    def __init__(
        self,
        config: StoreConfig,
        now_ms: Callable[[], int],
        on_arrival: Arrival | None = None,
        disk: Disk | None = None,
        topics: Container[str] | None = None,
        steady_ms: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        steady_ms = steady_ms or now_ms
        self._disk = disk = disk or Disk()
        root = Path(config.store_path_root_dir)
        self._running = RunningFiles(root, disk)
        pool = TransientPool.of(config)
        self._allocator = Allocator(
            disk,
            pool or WarmUp.of(config),
            config.written_beforehand_bytes,
            lambda: self._log.written,
            1 if config.is_sync_flush else BUSY_BYTES,
        )
        self._queue_files = QueueFiles(
            str(root / CONSUME_QUEUE_DIRECTORY), config.mapped_file_size_consume_queue, config.open_queue_files, disk
        )
        self._queues = QueueTable(root, self._queue_files, disk)
        segments = MappedFileQueue(
            root / COMMIT_LOG_DIRECTORY,
            config.mapped_file_size_commit_log,
            disk,
            self._allocator,
            force_gap=config.force_gap,
        )
        make_log = ChecksummedCommitLog if config.enabled_append_prop_crc else CommitLog
        self._log = make_log(config, segments, self._queues, now_ms)
        self.put: Callable[[Append], None] = self._log.put
        """Add a message to this turn's batch; refused ones have their status at once. (The log's own method: the
        hottest call of all goes through no frame of ours.)"""
        self.put_run: Callable[[Sequence[Append]], None] = self._log.put_run
        """The same with many messages, each of them for itself."""
        self.put_batch: Callable[[Sequence[Append]], None] = self._log.put_all
        """Add messages that stay contiguous in the log: all of them, or none."""
        self.put_alike: Callable[[Sequence[Append]], None] = self._log.put_alike
        """The same of messages that differ in body, properties and flag only."""
        self.put_columns: Callable[[AppendColumns], bool] = self._log.put_columns
        """Add messages that are columns; False: none, they are to be put one by one."""
        self._reput = Reput(parse_delay_levels(config.message_delay_level), on_arrival, topics)
        self._reader = StoreReader(config, self._log)
        self._helper = helper_thread()
        has_index = config.message_index_enable
        self._index: IndexFeed | None = None
        if has_index:
            self._index = IndexFeed.of(config, self._log, disk, now_ms, steady_ms, self._helper)
        self._key_query = KeyQuery(self._index, self._reader, config.max_msgs_num_batch)
        self._deleted = DeletedTopics(root, disk, self._helper)
        self._removal = Removal(config, self._helper)
        self._queue_cleaner = QueueCleaner(config, self._queues, self._queue_files, self._helper, self._reader)
        followers: list[Follower] = [self._queue_cleaner, self._deleted]
        if self._index is not None:
            followers.append(self._index)
        self._cleaner = Cleaner(config, segments, self._log.flags, self._removal, followers, now_ms)
        self.manual_cleanup = ManualCleanup(self._cleaner, self._queue_cleaner, self._queues)
        self._is_started = False
        self._recovery: Recovery | None = None  # while it runs
        self._was_clean = True
        self._skipped_records = 0
        self._looked_at = 0
        checkpoint = CheckpointFile(root, disk)
        self._durability = Durability(config, self._log, self._reput, self._queue_files, checkpoint, steady_ms, pool)
        self._log_flush = self._durability.log
        self.make_visible: Callable[[], None] = self._log_flush.make_visible
        """Let be seen what is decided, before anybody else is served."""
        self.is_settled: Callable[[], bool] = self._log_flush.is_settled
        """Whether every append committed so far is decided."""

    # life

    def load(self, should_stop: Callable[[], bool] | None = None) -> Recovered:
        """Take the lock, open everything, recover. StoreError when the directory cannot be served as it is.

        It may take minutes, and may run in another thread than the event loop's, which then does nothing with the store
        but read `load_progress`. `should_stop` is called several times a second; once it returns True, LoadStopped is
        raised.
        """

        def check_stop() -> None:
            if should_stop is not None and should_stop():
                raise LoadStopped

        with refused_by_disk("the store cannot be opened"):
            self._running.lock()
            return self._open(check_stop)

    def _open(self, check_stop: Callable[[], None]) -> Recovered:
        try:
            self._was_clean = was_clean = not self._running.is_abort_present()
            self._log.files.load()
            self._deleted.load()
            was_clean = not self._queues.load(self._deleted, check_stop) and was_clean
            is_checked = self._config.check_crc_on_recover
            self._recovery = recovery = Recovery(
                self._log,
                self._queues,
                self._reput,
                self._deleted,
                check_body=is_checked,
                check_seal=is_checked and self._config.force_verify_prop_crc,
                check_stop=check_stop,
            )
            recovered = recovery.run(self._durability.load(), clean=was_clean)
            self._skipped_records = recovered.skipped
            self._deleted.limit(recovered.end)
            if self._index is not None:
                self._durability.open_index(self._index, clean=was_clean, check_stop=check_stop)
            self._reader.begin(recovered.scanned_from if is_checked else recovered.end)
            self._queues.begin_traffic()
            return recovered
        except BaseException:
            self._close_files()
            raise
        finally:
            self._recovery = None

    @property
    def load_progress(self) -> str:
        """How far `load` is, for operators: "recovering 37 %"; "" while it does not read the log."""
        recovery = self._recovery
        return "" if recovery is None else f"recovering {recovery.percent} %"

    def configure(self, config: StoreConfig) -> None:
        """Go by other settings from now on: those in `LIVE`; the others have to be what they were."""
        self._config = config
        for part in (self._log, self._durability, self._reader, self._cleaner, self._removal, self._queue_cleaner):
            part.configure(config)
        self._key_query.limit(config.max_msgs_num_batch)

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Accept messages. With a loop the flusher's answers arrive by themselves, else at each `step`."""
        with refused_by_disk("the store cannot be started"):
            self._running.write_abort()
            self._durability.start(loop)
        if loop is not None:
            self._reader.start(loop)
        self._log.prepare()
        self._log.flags.clear(RunningFlag.CLOSED)
        self._is_started = True

    def close(self) -> None:
        """Write and flush what was put, stop the threads, give up the lock; what cannot be finished keeps `abort`."""
        if self._is_started:
            self._is_started = False
            self.commit()
            self._log.flags.set(RunningFlag.CLOSED)
            is_clean = self._durability.finish()
            is_clean = is_clean and self._running.remove_abort()
            log.info("store closed end=%d clean=%s", self._log.written, is_clean)
        self._close_files()

    def _close_files(self) -> None:
        self._reader.close()
        if self._index is not None:
            self._index.close()
        self._helper.shutdown()
        self._removal.close()
        self._allocator.close()
        self._log.close()
        self._queue_files.close()
        self._running.unlock()

    # putting

    def write(self, is_lone: bool = False) -> list[Append]:
        """Write the batch and return its appends: decided under ASYNC_FLUSH, else PENDING until `when_settled`.

        `is_lone`: somebody sends one by one and nobody else does, so there is time to wait for the disk.
        """
        batch = self._log.commit()
        if batch and batch[0].status is PutStatus.PENDING:  # else it was taken back
            self._log_flush.committed(batch, is_lone)
        return batch

    def commit(self) -> list[Append]:
        """Write the batch and return its appends as `write` does, and show what is decided."""
        batch = self.write()
        self.make_visible()
        return batch

    def when_settled(self, callback: Settled) -> None:
        """Call back once every append committed so far is decided; at once if it is."""
        self._log_flush.when_settled(callback)

    @property
    def is_sync(self) -> bool:
        """Whether appends stay PENDING until the disk has them."""
        return self._config.is_sync_flush

    @property
    def is_flush_interpreted(self) -> bool:
        """Whether the thread that flushes each commit waits for the interpreter meanwhile: it had better be free."""
        return self._log_flush.is_interpreted

    def after_each_flush(self, callback: Callable[[], None]) -> None:
        """Call back each time that a flush was announced: when all have been called who waited for it, and before what
        it decided is shown."""
        self._log_flush.on_settled = callback

    def keep_spinning(self, limit_us: int) -> None:
        """Someone sends one by one: the next commit comes soon after this one is flushed."""
        self._log_flush.keep_spinning(limit_us)

    @property
    def is_flush_behind(self) -> bool:
        """More than `flushLagLimit` is written and not flushed: senders should wait until it has ended."""
        return self._log_flush.is_behind

    def on_flush_lag(self, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Call back each time that `is_flush_behind` begins and has ended."""
        self._log_flush.on_behind = begun
        self._log_flush.on_caught_up = ended

    @property
    def flush_lag(self) -> int:
        """Bytes that are written and not flushed."""
        return self._log_flush.lag

    @property
    def flush_lag_limit(self) -> int:
        """`flushLagLimit`."""
        return self._config.flush_lag_limit

    # reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        matches: Wanted | None = None,
        max_total_bytes: int = _UNLIMITED,
    ) -> GetResult:
        """Messages of a queue from `offset`, with every status and correction of docs/formats.md, "getMessage".

        This and the other lookups raise ColdRead, in a store with a loop, for what is not in memory: see `fetch`.
        """
        if self._log.batch or self._log_flush.undispatched:
            self.commit()
        queue = self._queues.by_key.get((topic, queue_id))
        if queue is not None:
            queue.correct_min_offset(self._log.files.min_offset, self._reader.reads)
        return self._reader.get(queue, offset, max_count, matches, max_total_bytes)

    def messages_from(self, topic: str, queue_id: int, offset: int) -> int:
        """How many messages of a queue may be seen from `offset` on; no more than none where there are none."""
        queue = self._queues.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.end - offset

    def read_ahead(self, topic: str, queue_id: int, offset: int, count: int) -> ReadAhead | None:
        """Up to `count` messages of a queue from `offset`, to be read one after the other; None if they are not of the
        usual kind, or not in memory: `get` sees to all."""
        queue = self._queues.by_key.get((topic, queue_id))
        try:
            if queue is None:
                return None
            return self._reader.read_ahead(self._reader.with_current_min_offset(queue), offset, count)
        except (ColdRead, LostBytesError):
            return None

    def has_wanted(self, topic: str, queue_id: int, test: PropertyTest, offset: int, count: int) -> bool:
        """Whether one of `count` messages from `offset` passes a test of properties, or that cannot be told at once."""
        queue = self._queues.by_key.get((topic, queue_id))
        return queue is not None and self._reader.has_wanted(queue, offset, count, test)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, if it ever had a message, with its smallest offset as the log's start has it now."""
        queue = self._queues.by_key.get((topic, queue_id))
        return None if queue is None else self._reader.with_current_min_offset(queue)

    def record_at(self, physical_offset: int) -> bytes | None:
        """The record that begins at that byte of the log; None when none does."""
        self.commit()
        record = self._reader.record_at(physical_offset)
        return None if record is None else bytes(record)

    def written_record_at(self, physical_offset: int) -> Record | None:
        """A copy of the record that begins there, if it was written before this turn: its batch stays open."""
        return self._reader.copied_record_at(physical_offset)

    def record_of_size_at(self, physical_offset: int, size: int) -> Record | None:
        """A copy of a record of which more is known; what stands in this turn's batch is not there."""
        return self._reader.record_of_size_at(physical_offset, size)

    def is_queued(self, record: Record) -> bool:
        """Return whether the queue that a record names has a message where the record lies: bytes inside a body may
        look like one. A record that is appended and not visible yet counts. ColdRead."""
        queue = self._queues.get(record.topic, record.queue_id)
        if queue is not None and record.queue_offset >= queue.end:
            self.make_visible()
        return queue is not None and self._reader.has_unit_of(queue, record)

    def fetch(self, cold: ColdRead) -> asyncio.Future[None]:
        """Done once what a lookup missed is in memory, so that it is worth asking again. Not to be cancelled."""
        return self._reader.fetch(cold)

    def min_offset(self, topic: str, queue_id: int) -> int | None:
        """The first offset of a queue that still has its record; None when there is no such queue."""
        queue = self._queue(topic, queue_id)
        return None if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int | None:
        """One past the last offset that may be read; None when there is no such queue."""
        self.commit()
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else queue.end

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """`(physical offset, size, tags code)` of messages from `offset` on: up to `count` that are there, and in one
        segment of the queue."""
        self.commit()
        queue = self._queue(topic, queue_id)
        return [] if queue is None or offset < queue.min_offset else self._reader.units(queue, offset, count)

    def lost_topics(self, is_known: Callable[[str], bool]) -> dict[str, int]:
        """Return the topics with messages that are not known, with the number of queues that these need.

        Only a process that did not stop in order loses topics so; RocketMQ leaves the queues of deleted topics behind.
        """
        if self._was_clean:
            return {}
        return {topic: count for topic, count in self._queues.queues_needed().items() if not is_known(topic)}

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that ever had a message."""
        return list(self._queues.by_topic.get(topic, ()))

    async def query_by_key(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Found:
        """The newest messages of a topic with that key (or unique key) that were stored in [begin, end] (ms)."""
        self.commit()
        return await self._key_query.run(topic, key, max_num, begin, end)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """The queue offset that belongs to a store timestamp (ms); 0 when there is no such queue."""
        self.commit()
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else self._reader.offset_by_time(queue, timestamp, boundary)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The store timestamp (ms) of a queue's message; None when it is not there."""
        self.commit()
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else self._reader.store_time_at(queue, offset)

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
    def flushed_offset(self) -> int:
        """The log is on disk up to that byte."""
        return self._log.written - self.flush_lag

    @property
    def is_writable(self) -> bool:
        """Whether a put would be accepted."""
        return not self._log.flags.reasons()

    @property
    def lacks_descriptors(self) -> bool:
        """Whether the store refuses messages because the process has no file descriptor left."""
        return self._log.flags.lacks_descriptors

    def refusal_reasons(self) -> str:
        """Why puts are refused, for operators; "" when they are accepted."""
        return self._log.flags.reasons()

    def disk_usage(self) -> DiskUsage:
        """How full the file systems are that hold the store. OSError."""
        return measure(self._config.store_path_root_dir, self._disk)

    async def delete_topic(self, topic: str, *, may_have_delayed: bool = False) -> int:
        """Remove a topic's queues and their offsets; the log keeps its records. Returns how many queues there were.

        No recovery brings back what was there when this was called, and `is_deleted` tells what waits elsewhere: of a
        topic without queues, only with `may_have_delayed`. OSError: that cannot be promised, nothing went.
        """
        if not self._queues.has_topic(topic) and not may_have_delayed:
            return 0
        self.commit()
        await self._deleted.add(topic, self._log.written)
        self.commit()
        removed = self._queues.remove_topic(topic)
        await self._deleted.add(topic, self._log.written)  # with what came while the disk was waited for
        log.info("topic removed from store topic=%s queues=%d", topic, removed)
        return removed

    def is_deleted(self, topic: str, physical_offset: int) -> bool:
        """Whether a message for that topic, which lies at that byte of the log, went with the topic."""
        return self._deleted.covers(topic, physical_offset)

    # flushing

    def when_flushed(self, callback: Settled) -> None:
        """Write the batch, and call back once the log is on disk as far as it goes now, or never will be."""
        self.commit()
        self._log_flush.when_flushed(callback)

    def step(self, now_ms: int) -> None:
        """What is due by now, by the steady clock: answers of the flusher, overdue waiters, queues to flush or to try
        again, segments that have been kept long enough."""
        self._durability.step(now_ms)
        self._log.step(now_ms)
        if now_ms // _LOOK_MS != self._looked_at:
            self._looked_at = now_ms // _LOOK_MS
            self._log.files.check_for_lost_bytes()
        self._cleaner.step(now_ms, self.disk_usage, lambda: self._durability.deletable_offset)

    def traffic(self) -> Mapping[str, TopicTraffic]:
        """What came into each topic that has queues, to look at."""
        self._reput.writes.note_units()
        return self._queues.traffic

    def messages_into(self, topics: Iterable[str]) -> int:
        """How many messages came into these topics since the start; no other's queues are looked at."""
        return sum(self._queues.topic_traffic(topic).sizes.count for topic in topics if topic in self._queues.traffic)

    def note_special(self, topic: str, kind: str, size: int) -> None:
        """A message that was put is of a special kind; unless its topic is gone already."""
        traffic = self._queues.traffic.get(topic)
        if traffic is not None:
            traffic.note_special(kind, size)

    def statistics(self) -> MessageStoreStatistics:
        """A snapshot."""
        durability = self._log_flush.statistics()
        return MessageStoreStatistics(
            log=self._log.statistics(),
            flusher=durability.flusher,
            queues=len(self._queues.by_key),
            skipped_records=self._skipped_records,
            dispatched=self._reput.statistics().dispatched,
            dispatch_lag=self._log.written - self._reput.offset,
            flush_lag=durability.lag,
            waiting_for_flush=durability.waiting,
            commit_lag=durability.commit_lag,
            free_buffers=durability.free_buffers,
            is_writable=self.is_writable,
            reader=self._reader.statistics(),
            cleaner=self._cleaner.statistics(),
            index=self._index.index.statistics() if self._index is not None else None,
        )

    def __repr__(self) -> str:
        return f"<MessageStore {self._config.store_path_root_dir} end={self._log.written}>"
