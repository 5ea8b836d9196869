"""The entry point to a store directory.

Within an event-loop iteration, `put` and `put_batch` collect the messages that one read brought. `write` writes them
with one pwrite. Under ASYNC_FLUSH that also settles every status. Under SYNC_FLUSH statuses stay PENDING until the
flusher has passed them, and with copies on other machines until these have them; `when_settled` calls back then.
`make_visible` dispatches messages that may become visible: after the responses are written, which need not wait for it,
and before other requests are served. `commit` does both. Lookups commit first, so that a pull sees the sends before it
in the same iteration.

Life cycle: `load` (lock, segments, queues, recovery), `start` (threads, `abort` file), `close` (flush; `abort` is
removed only after a clean stop). The owner of the clock calls `step` about every 100 ms.

Only the event loop's thread calls these methods. Source: docs/reference/disk.md, "Store directory".
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from skylarkmq.broker.store.dispatch.dispatch import Arrival, Reput
from skylarkmq.broker.store.files.allocation import BUSY_BYTES, Allocator
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.files.config import StoreConfig, parse_delay_levels
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import LoadStopped, LostBytesError, refused_by_disk
from skylarkmq.broker.store.files.io_thread import helper_thread
from skylarkmq.broker.store.files.mapped_file_queue import MappedFileQueue
from skylarkmq.broker.store.files.warm_up import WarmUp
from skylarkmq.broker.store.flush.checkpoint import CheckpointFile
from skylarkmq.broker.store.flush.copies import Copies, Growth
from skylarkmq.broker.store.flush.durability import Durability
from skylarkmq.broker.store.flush.sync_queue import Settled
from skylarkmq.broker.store.flush.transient_pool import TransientPool
from skylarkmq.broker.store.flush.undecided_records import UndecidedRecords
from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.index.key_query import Found, KeyQuery
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.checksummed_log import ChecksummedCommitLog
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.running_flags import RunningFlag
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.deleted_topics import DeletedTopics
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.stored_bytes import StoredBytes
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.queue.topic_traffic import TopicTraffic
from skylarkmq.broker.store.read.log_reads import Region
from skylarkmq.broker.store.read.offset_by_time import Boundary
from skylarkmq.broker.store.read.property_filters import PropertyTest, Wanted
from skylarkmq.broker.store.read.queue_reads import GetResult, ReadAhead
from skylarkmq.broker.store.read.store_reader import StoreReader
from skylarkmq.broker.store.recovery.lock_and_abort import RunningFiles
from skylarkmq.broker.store.recovery.record_check import RecordCheck
from skylarkmq.broker.store.recovery.recovery import Recovered, Recovery
from skylarkmq.broker.store.replica.follower_log import FollowerLog
from skylarkmq.broker.store.replica.hidden_tail import HiddenTail
from skylarkmq.broker.store.replica.log_dispatch import LogDispatch
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.broker.store.retention.cleaner import Cleaner, Follower
from skylarkmq.broker.store.retention.manual_cleanup import ManualCleanup
from skylarkmq.broker.store.retention.queue_cleaner import QueueCleaner
from skylarkmq.broker.store.retention.removal import Removal
from skylarkmq.broker.store.retention.rules import DiskUsage, measure
from skylarkmq.broker.store.retention.topic_deletion import TopicDeletion
from skylarkmq.broker.store.statistics import MessageStoreStatistics
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

_UNLIMITED = 1 << 62
_LOST_BYTES_CHECK_MS = 1_000  # interval of the check for lost bytes


def _log_kind(config: StoreConfig) -> type[CommitLog]:
    if config.is_follower:
        return FollowerLog
    return ChecksummedCommitLog if config.enabled_append_prop_crc else CommitLog


class MessageStore:
    """One store. `on_arrival(topic, queue_id, max_offset, tags_codes)` is called for new visible units of `topics`, or
    of all topics if that is None.

    `now_ms` returns Unix time, for stored timestamps. `steady_ms` is a monotonic clock, for intervals and `step`; the
    default is `now_ms`.
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
        pool = None if config.is_follower else TransientPool.of(config)
        self._allocator = Allocator(
            disk,
            pool or WarmUp.of(config),
            config.zero_fill_bytes,
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
        self._log = _log_kind(config)(config, segments, self._queues, now_ms)
        if config.is_follower:
            self._log.flags.set(RunningFlag.FOLLOWER)
        self.put: Callable[[Append], None] = self._log.put
        """Add a message to the current batch; a refused one gets its status at once. Bound directly to the log's
        method, because it is the hottest call of all."""
        self.put_run: Callable[[Sequence[Append]], None] = self._log.put_run
        """Do the same for many messages, each on its own."""
        self.put_batch: Callable[[Sequence[Append]], None] = self._log.put_all
        """Add messages that stay contiguous in the log: all, or none."""
        self.put_alike: Callable[[Sequence[Append]], None] = self._log.put_alike
        """Do the same for messages that differ only in body, properties and flag."""
        self._reput = Reput(parse_delay_levels(config.message_delay_level), on_arrival, topics)
        self._reader = StoreReader(config, self._log)
        self._helper = helper_thread()
        has_index = config.message_index_enable
        self._index: IndexFeed | None = None
        if has_index:
            self._index = IndexFeed.of(config, self._log, disk, now_ms, steady_ms, self._helper)
        self._key_query = KeyQuery(self._index, self._reader, config.max_msgs_num_batch)
        self._deleted = DeletedTopics(root, disk, self._helper)
        self._stored_bytes = StoredBytes(self._queues, lambda: self.min_physical_offset, self._helper)
        self._removal = Removal(config, self._helper)
        self._queue_cleaner = QueueCleaner(config, self._queues, self._queue_files, self._helper, self._reader)
        followers: list[Follower] = [self._queue_cleaner, self._deleted]
        if self._index is not None:
            followers.append(self._index)
        self._cleaner = Cleaner(config, segments, self._log.flags, self._removal, followers, now_ms)
        self.manual_cleanup = ManualCleanup(self._cleaner, self._queue_cleaner, self._queues)
        self._blocked = ""
        self._is_started = False
        self._recovery: Recovery | None = None  # while it runs
        self._was_clean = True
        self._skipped_records = 0
        self._checked_at = 0
        checkpoint = CheckpointFile(root, disk)
        self._durability = Durability(config, self._log, self._reput, self._queue_files, checkpoint, steady_ms, pool)
        self._log_flush = self._durability.log
        deletion = TopicDeletion(self._deleted, self._queues, self._log, self.commit)
        self._hidden_tail = HiddenTail(self._log, self._durability, deletion, UndecidedRecords(root, disk))
        self.make_visible: Callable[[], None] = self._log_flush.make_visible
        """Dispatch settled messages, before other requests are served."""
        self.is_settled: Callable[[], bool] = self._log_flush.is_settled
        """Return whether every append committed so far is settled."""

    # life

    def load(
        self,
        should_stop: Callable[[], bool] | None = None,
        show_to: int | None = None,
        synced_to: int = 0,
        before_loss: Callable[[], None] = lambda: None,
    ) -> Recovered:
        """Take the lock, open all files, recover. Raises StoreError if the directory cannot be served.

        `show_to`: a byte of the log; records that end above it stay invisible (`show_recovered`, `replica.show`).
        Messages are numbered after them. The whole log is on disk when this returns. `synced_to`: records below this
        byte are known to be synced, whatever they look like. `before_loss` is called before the log is cleared from a
        record on that may have been whole (`Recovered.lacks_bytes`).

        This may take minutes, and may run in another thread than the event loop's, which may then only read
        `load_progress`. `should_stop` is called several times a second; once it returns True, LoadStopped is raised.
        """

        def check_stop() -> None:
            if should_stop is not None and should_stop():
                raise LoadStopped

        with refused_by_disk("the store cannot be opened"):
            self._running.lock()
            return self._open(check_stop, show_to, synced_to, before_loss)

    def _open(
        self,
        check_stop: Callable[[], None],
        show_to: int | None,
        synced_to: int,
        before_loss: Callable[[], None],
    ) -> Recovered:
        try:
            self._was_clean = was_clean = not self._running.is_abort_present()
            self._log.files.load()
            self._deleted.load()
            was_clean = not self._queues.load(self._deleted, check_stop) and was_clean
            check = RecordCheck.of(self._config)
            self._recovery = recovery = Recovery(
                self._log,
                self._queues,
                self._reput,
                self._deleted,
                check,
                is_follower=self._config.is_follower,
                show_to=show_to,
                synced_to=synced_to,
                before_loss=before_loss,
                undecided=self._hidden_tail.undecided(),
                check_stop=check_stop,
            )
            recovered = recovery.run(self._durability.load(), clean=was_clean)
            self._skipped_records = recovered.skipped
            self._deleted.limit(recovered.end)
            if self._index is not None:
                self._durability.open_index(self._index, clean=was_clean, check_stop=check_stop)
            self._reader.begin(recovered.scanned_from if self._config.check_crc_on_recover else recovered.end)
            self._queues.begin_traffic()
            tail = None
            if self._config.is_follower or show_to is not None:
                tail = LogDispatch(
                    *(self._log, self._queues, self._reput, self._deleted, check, recovery.order, self._log_flush.show)
                )
            self._hidden_tail.open(tail, recovered.end)
            return recovered
        except BaseException:
            self._close_files()
            raise
        finally:
            self._recovery = None

    @property
    def load_progress(self) -> str:
        """Progress of `load`, for operators: "recovering 37 %"; "" while it does not read the log."""
        recovery = self._recovery
        return "" if recovery is None else f"recovering {recovery.percent} %"

    def show_recovered(self) -> None:
        """Make visible what `load` found above its `show_to`: before any message of this process becomes visible.

        A second call does nothing. Raises LostBytesError or DamagedReplicaError if the log cannot be read.
        """
        self._hidden_tail.show_recovered()

    @property
    def replica(self) -> ReplicaLog | None:
        """The log of a follower, once it is loaded; None for a store that takes messages."""
        return self._hidden_tail.replica

    def configure(self, config: StoreConfig) -> None:
        """Apply new settings. Only those in `LIVE` may differ from the current ones."""
        self._config = config
        for part in (self._log, self._durability, self._reader, self._cleaner, self._removal, self._queue_cleaner):
            part.configure(config)
        self._key_query.limit(config.max_msgs_num_batch)

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Accept messages. With a loop, results of the flusher arrive as events; without one, at each `step`."""
        with refused_by_disk("the store cannot be started"):
            self._running.write_abort()
            self._durability.start(loop)
        if loop is not None:
            self._reader.start(loop)
        if not self._config.is_follower:
            self._log.prepare()
        self._log.flags.clear(RunningFlag.CLOSED)
        self._is_started = True

    def close(self) -> None:
        """Write and flush all messages, stop the threads, release the lock. If that fails, the `abort` file stays."""
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

    # put

    def write(self, is_lone: bool = False) -> list[Append]:
        """Write the batch and return its appends: settled, or PENDING until `when_settled`.

        `is_lone`: a single producer sends one message at a time, so the loop has time to wait for the disk.
        """
        batch = self._log.commit()
        if batch and batch[0].status is PutStatus.PENDING:  # else it was rolled back
            self._log_flush.committed(batch, is_lone)
        return batch

    def commit(self) -> list[Append]:
        """Write the batch, make settled messages visible, and return the appends as `write` does."""
        batch = self.write()
        self.make_visible()
        return batch

    def when_settled(self, callback: Settled) -> None:
        """Call back once every append committed so far is settled; at once if it already is."""
        self._log_flush.when_settled(callback)

    @property
    def is_flush_interpreted(self) -> bool:
        """Whether the thread that flushes each commit needs the interpreter, so that the loop should not spin."""
        return self._log_flush.is_interpreted

    @property
    def is_flush_polled(self) -> bool:
        """Whether the loop should spin for the flush of a lone commit: it wakes up later than the flush ends. Copies on
        other machines take longer, and spinning would delay the threads that make them."""
        return not (self._log_flush.is_interpreted or self._log_flush.waits_for_copies)

    def after_each_flush(self, callback: Callable[[], None]) -> None:
        """Register a callback for every flush announcement. It is called after all waiters of that flush, and before
        the flushed messages are dispatched."""
        self._log_flush.on_settled = callback

    def replicate(self, copies: Copies) -> None:
        """Let all commits wait for copies on other machines, too. Call it before the first put."""
        self._log_flush.replicate(copies)

    def on_log_growth(self, readable: Growth | None, flushed: Growth | None) -> None:
        """Register callbacks for replicas of the log. `readable` gets the new end of the log in its files, after each
        write; `flushed` the new end of the log on disk, after each sync."""
        self._log_flush.on_readable = readable
        self._log_flush.on_flushed = flushed

    def on_log_failure(self, callback: Callable[[OSError], None]) -> None:
        """Call back once after a failed write or sync of the log: only a restart can determine what is on the disk."""
        self._log_flush.on_failed = callback

    @property
    def readable_offset(self) -> int:
        """The end of the log in its files; with a transient pool more of it may be in buffers."""
        return self._log_flush.readable

    def keep_spinning(self, limit_us: int) -> None:
        """Make the flusher spin up to `limit_us` for the next commit of a lone producer."""
        self._log_flush.keep_spinning(limit_us)

    @property
    def is_flush_behind(self) -> bool:
        """Whether more than `flushLagLimit` bytes are written and not flushed. Producers should wait until it ends."""
        return self._log_flush.lag_limit.is_behind

    def on_flush_lag(self, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        """Register callbacks for the begin and the end of `is_flush_behind`."""
        self._log_flush.lag_limit.on_behind = begun
        self._log_flush.lag_limit.on_caught_up = ended

    @property
    def flush_lag(self) -> int:
        """Bytes that are written and not flushed."""
        return self._log_flush.lag

    @property
    def flush_lag_limit(self) -> int:
        """`flushLagLimit`."""
        return self._config.flush_lag_limit

    # lookups

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        matches: Wanted | None = None,
        max_total_bytes: int = _UNLIMITED,
    ) -> GetResult:
        """Return messages of a queue from `offset` on, with the statuses and corrections of docs/reference/disk.md,
        "getMessage".

        In a store with a loop, this and the other lookups raise ColdRead for bytes that are not in memory: see `fetch`.
        """
        if self._log.batch or self._log_flush.undispatched:
            self.commit()
        queue = self._queues.by_key.get((topic, queue_id))
        if queue is not None:
            queue.correct_min_offset(self._log.files.min_offset, self._reader.reads)
        return self._reader.get(queue, offset, max_count, matches, max_total_bytes)

    def messages_from(self, topic: str, queue_id: int, offset: int) -> int:
        """Return how many messages of a queue are visible from `offset` on; 0 or less if there are none."""
        queue = self._queues.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.end - offset

    def read_ahead(self, topic: str, queue_id: int, offset: int, count: int) -> ReadAhead | None:
        """Return up to `count` messages of a queue from `offset` on, to be taken one by one. None if they need checks
        or are not in memory: then use `get`."""
        queue = self._queues.by_key.get((topic, queue_id))
        try:
            if queue is None:
                return None
            return self._reader.read_ahead(self._reader.with_current_min_offset(queue), offset, count)
        except (ColdRead, LostBytesError):
            return None

    def has_wanted(self, topic: str, queue_id: int, test: PropertyTest, offset: int, count: int) -> bool:
        """Return whether one of `count` messages from `offset` passes a test of properties, or that is not known at
        once."""
        queue = self._queues.by_key.get((topic, queue_id))
        return queue is not None and self._reader.has_wanted(queue, offset, count, test)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue with its current smallest offset, or None if it never had a message."""
        queue = self._queues.by_key.get((topic, queue_id))
        return None if queue is None else self._reader.with_current_min_offset(queue)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record that begins at this byte of the log, or None."""
        self.commit()
        record = self._reader.record_at(physical_offset)
        return None if record is None else bytes(record)

    def written_record_at(self, physical_offset: int) -> Record | None:
        """Return a copy of the record at this offset if it is written. The open batch stays open."""
        return self._reader.copied_record_at(physical_offset)

    def record_of_size_at(self, physical_offset: int, size: int) -> Record | None:
        """Return a copy of the record of `size` bytes at this offset if it is written. The open batch stays open."""
        return self._reader.record_of_size_at(physical_offset, size)

    def record_of_unit(self, topic: str, queue_id: int, offset: int, physical_offset: int) -> Record | None:
        """Return a copy of the record at this byte of the log if the queue's unit at `offset` points at it. Raises
        ColdRead."""
        queue = self._queues.get(topic, queue_id)
        if queue is not None and offset >= queue.end:
            self.make_visible()
        return None if queue is None else self._reader.record_of_unit(queue, offset, physical_offset)

    def is_queued(self, record: Record) -> bool:
        """Return whether the record's queue has a unit at the record's offset: bytes inside a body may look like a
        record. A record that is appended and not visible yet counts. Raises ColdRead."""
        queue = self._queues.get(record.topic, record.queue_id)
        if queue is not None and record.queue_offset >= queue.end:
            self.make_visible()
        return queue is not None and self._reader.has_unit_of(queue, record)

    def log_region(self, offset: int, limit: int) -> Region | None:
        """Return up to `limit` bytes of the log from `offset` on, which lie in one file, for a copy of the log. None if
        its files have no byte there. Raises LostBytesError."""
        return self._reader.log_region(offset, min(offset + limit, self.readable_offset))

    def fetch(self, cold: ColdRead) -> asyncio.Future[None]:
        """Return a future that is done once a lookup that raised `cold` can be repeated. Do not cancel it."""
        return self._reader.fetch(cold)

    def min_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the first offset of a queue that still has its record; None without such a queue."""
        queue = self._queue(topic, queue_id)
        return None if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the offset after the last readable one; None without such a queue."""
        self.commit()
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else queue.end

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return `(physical offset, size, tags code)` of up to `count` messages from `offset` on, in one segment of the
        queue."""
        self.commit()
        queue = self._queue(topic, queue_id)
        return [] if queue is None or offset < queue.min_offset else self._reader.units(queue, offset, count)

    def lost_topics(self, is_known: Callable[[str], bool]) -> dict[str, int]:
        """Return the topics with messages for which `is_known` is False, with the number of queues that each needs.

        Only a process that was not stopped cleanly loses topics; RocketMQ leaves the queues of deleted topics behind.
        """
        if self._was_clean:
            return {}
        return {topic: count for topic, count in self._queues.queues_needed().items() if not is_known(topic)}

    def stored_topics(self) -> list[str]:
        """Return the topics that ever had a message and are not deleted."""
        return list(self._queues.by_topic)

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic that ever had a message."""
        return list(self._queues.by_topic.get(topic, ()))

    async def query_by_key(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Found:
        """Return the newest messages of a topic with this key or unique key, stored in [begin, end] (ms)."""
        self.commit()
        return await self._key_query.run(topic, key, max_num, begin, end)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset for a store timestamp (ms); 0 without such a queue."""
        self.commit()
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else self._reader.offset_by_time(queue, timestamp, boundary)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store timestamp (ms) of a queue's message; None if there is no such message."""
        self.commit()
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else self._reader.store_time_at(queue, offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int | None:
        """Return the store timestamp (ms) of a queue's first message; None if it has none."""
        first = self.min_offset(topic, queue_id)
        return None if first is None else self.store_time_at(topic, queue_id, first)

    @property
    def min_physical_offset(self) -> int:
        """The first byte of the log that still exists."""
        return self._log.files.min_offset

    @property
    def dispatched_offset(self) -> int:
        """The end of the last dispatched record, or the end of the log that recovery left."""
        return self._reput.offset

    @property
    def max_physical_offset(self) -> int:
        """The end of the log, after the last record."""
        return self._log.written

    @property
    def flushed_offset(self) -> int:
        """The end of the part of the log that is on disk."""
        return self._log.written - self.flush_lag

    @property
    def is_writable(self) -> bool:
        """Whether a put would be accepted."""
        return self._log.flags.is_clear

    @property
    def lacks_descriptors(self) -> bool:
        """Whether the store refuses messages because the process has no file descriptor left."""
        return self._log.flags.lacks_descriptors

    def refusal_reasons(self) -> str:
        """Return why puts are refused, for operators; "" if they are accepted."""
        return self._log.flags.reasons()

    def block(self, reason: str) -> None:
        """Refuse all messages for this reason of the replication; "" accepts them again."""
        if reason:
            self._log.flags.set(RunningFlag.COPIES_MISSING, reason)
        else:
            self._log.flags.clear(RunningFlag.COPIES_MISSING)
        self._blocked = reason

    def keep_room(self, size: int) -> None:
        """Leave `size` bytes of each segment, at most a quarter, to records that are put with `accepting`.

        Such a record is the first one of a term. In the next segment it would follow a blank of its term, and a replica
        whose log has other bytes in place of that blank could not be told where the logs begin to differ.
        """
        self._log.kept_room = min(size, self._config.mapped_file_size_commit_log // 4)

    @contextmanager
    def accepting(self) -> Iterator[None]:
        """Accept messages within this context although the store is blocked: the record that ends the block."""
        reason, room = self._blocked, self._log.kept_room
        self.block("")
        self._log.kept_room = 0
        try:
            yield
        finally:
            self._log.kept_room = room
            self.block(reason)

    def disk_usage(self) -> DiskUsage:
        """Return how full the file systems of the store are. Raises OSError."""
        return measure(self._config.store_path_root_dir, self._disk)

    async def delete_topic(self, topic: str, *, may_have_delayed: bool = False) -> int:
        """Remove a topic's queues and their offsets; the log keeps its records. Return the number of removed queues.

        Recovery does not restore messages from before this call, and `is_deleted` reports them where they wait
        elsewhere (delayed messages); for a topic without queues only with `may_have_delayed`. Raises OSError if the
        deletion cannot be made durable; then nothing is removed. On a follower, see `delete_topic_below`.
        """
        return await self._hidden_tail.delete_topic(topic, may_have_delayed=may_have_delayed)

    async def delete_topic_below(self, topic: str, end: int) -> int:
        """Do the same on a follower, for a topic whose records below byte `end` of the log are deleted.

        Returns 0, and removes nothing, if a later record of the topic has a unit, or gets one before the deletion is
        durable: it may be of a topic with the same name that was created again.
        """
        return await self._hidden_tail.delete_topic_below(topic, end)

    def is_deleted(self, topic: str, physical_offset: int) -> bool:
        """Return whether a message for this topic, at this byte of the log, was deleted with the topic."""
        return self._deleted.covers(topic, physical_offset)

    # flush

    def when_flushed(self, callback: Settled) -> None:
        """Write the batch, and call back once the log up to its current end is on disk, or cannot be any more."""
        self.commit()
        self._log_flush.when_flushed(callback)

    def step(self, now_ms: int) -> None:
        """Run what is due, by the steady clock: results of the flusher, overdue waiters, flushes and retries of queues,
        removal of expired segments."""
        self._durability.step(now_ms)
        self._log.step(now_ms)
        if now_ms // _LOST_BYTES_CHECK_MS != self._checked_at:
            self._checked_at = now_ms // _LOST_BYTES_CHECK_MS
            self._log.files.check_for_lost_bytes()
        self._cleaner.step(now_ms, self.disk_usage, lambda: self._durability.deletable_offset)
        self._stored_bytes.step(now_ms)

    def traffic(self) -> Mapping[str, TopicTraffic]:
        """Return the traffic of each topic that has queues; read-only."""
        self._reput.writes.note_units()
        return self._queues.traffic

    def stored_bytes(self, topic: str) -> int | None:
        """Return the bytes of the records in a topic's queues; None until they are counted, within seconds."""
        return self._stored_bytes.of(topic)

    def messages_into(self, topics: Iterable[str]) -> int:
        """Return how many messages these topics received since the start. Queues of other topics are not read."""
        return sum(self._queues.topic_traffic(topic).sizes.count for topic in topics if topic in self._queues.traffic)

    def note_message_type(self, topic: str, message_type: str, size: int) -> None:
        """Count a put message of a type other than normal, unless its topic was removed."""
        traffic = self._queues.traffic.get(topic)
        if traffic is not None:
            traffic.note_message_type(message_type, size)

    def statistics(self) -> MessageStoreStatistics:
        """Return a snapshot."""
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
