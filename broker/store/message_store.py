"""The entry point to a store directory.

Within an event-loop iteration, `put` and `put_batch` collect the messages that one read brought. `write` writes them
with one pwrite. Under ASYNC_FLUSH that also settles every status. Under SYNC_FLUSH statuses stay PENDING until the
flusher has passed them, and with copies on other machines until these have them; `flush.when_settled` calls back then.
`make_visible` dispatches messages that may become visible: after the responses are written, which need not wait for it,
and before other requests are served. `commit` does both.

Some lookups write, so that a request sees the sends before it in the same iteration:

    `commit` first         get, if a batch is open or settled messages are not visible yet; max_offset, units,
                           record_at, query_by_key, offset_by_time, store_time_at, earliest_store_time; also
                           when_flushed and delete_topic
    `make_visible` first   record_of_unit and is_queued, for an offset after the visible end of the queue
    neither                all others, and those of `reader`

Life cycle: `load` (lock, segments, queues, recovery), `start` (threads, `abort` file), `close` (flush; `abort` is
removed only after a clean stop). The owner of the clock calls `step` about every 100 ms.

Only the event loop's thread calls these methods. Source: docs/reference/disk.md, "Store directory".
"""

import asyncio
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final

from skylarkmq.broker.store.dispatch.dispatch import Arrival, Dispatch
from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.files.config import StoreConfig, parse_delay_levels
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import LostBytesError, refused_by_disk
from skylarkmq.broker.store.flush.sync_queue import Settled
from skylarkmq.broker.store.index.key_query import Found
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.broker.store.log.running_flags import RunningFlag
from skylarkmq.broker.store.parts import StoreParts
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.topic_traffic import TopicTraffic
from skylarkmq.broker.store.read.log_reads import Region
from skylarkmq.broker.store.read.offset_by_time import Boundary
from skylarkmq.broker.store.read.property_filters import PropertyTest, Wanted
from skylarkmq.broker.store.read.queue_reads import GetResult, ReadAhead
from skylarkmq.broker.store.recovery.recovery import Recovered
from skylarkmq.broker.store.replica.leader_block import LeaderBlock
from skylarkmq.broker.store.replica.replica_log import ReplicaLog
from skylarkmq.broker.store.retention.rules import DiskUsage, measure
from skylarkmq.broker.store.statistics import MessageStoreStatistics
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

_UNLIMITED = 1 << 62
_LOST_BYTES_CHECK_MS = 1_000  # interval of the check for lost bytes


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
        self._disk = disk = disk or Disk()
        self._dispatch = Dispatch(parse_delay_levels(config.message_delay_level), on_arrival, topics)
        self._parts = parts = StoreParts(config, disk, self._dispatch, self.commit, now_ms, steady_ms or now_ms)
        self._log = parts.log
        self._durability = parts.durability
        self.flush: Final = parts.durability.log
        """The flush of the log: what is on disk, how far it is behind, callbacks, and waits for copies."""
        self.queues: Final = parts.queues
        """The queues of each topic, and their traffic."""
        self.reader: Final = parts.reader
        """Lookups in the written log, which leave the open batch open; and the fetch after a ColdRead."""
        self.flags: Final = parts.log.flags
        """The reasons for which messages are refused."""
        self.deleted: Final = parts.deleted
        """Which messages were deleted with their topic."""
        self.stored_bytes: Final = parts.stored_bytes
        """Bytes of the records in the queues of a topic."""
        self.manual_cleanup: Final = parts.manual_cleanup
        """Cleanup that an operator requests."""
        self.hidden_tail: Final = parts.hidden_tail
        """With replication: the end of the log that is not visible yet."""
        self.leader_block: Final = LeaderBlock(parts.log, config.mapped_file_size_commit_log)
        """With replication: refuses all messages while too few copies can acknowledge."""
        self.put: Callable[[Append], None] = self._log.put
        """Add a message to the current batch; a refused one gets its status at once. Bound directly to the log's
        method, because it is the hottest call of all."""
        self.put_run: Callable[[Sequence[Append]], None] = self._log.put_run
        """Do the same for many messages, each on its own."""
        self.put_batch: Callable[[Sequence[Append]], None] = self._log.put_all
        """Add messages that stay contiguous in the log: all, or none."""
        self.put_alike: Callable[[Sequence[Append]], None] = self._log.put_alike
        """Do the same for messages that differ only in body, properties and flag."""
        self.make_visible: Callable[[], None] = self.flush.make_visible
        """Dispatch settled messages, before other requests are served."""
        self._is_started = False
        self._skipped_records = 0
        self._checked_at = 0

    # life

    def load(
        self,
        should_stop: Callable[[], bool] | None = None,
        show_to: int | None = None,
        synced_to: int = 0,
        before_loss: Callable[[], None] = lambda: None,
    ) -> Recovered:
        """Take the lock, open all files, recover. Raises StoreError if the directory cannot be served.

        `show_to`: a byte of the log; records that end above it stay invisible until `hidden_tail.show_recovered` or
        `replica.show`. Messages are numbered after them. The whole log is on disk when this returns. `synced_to`:
        records below this byte are known to be synced, whatever they look like. `before_loss` is called before the log
        is cleared from a record on that may have been whole (`Recovered.lacks_bytes`).

        This may take minutes, and may run in another thread than the event loop's, which may then only read
        `load_progress`. `should_stop` is called several times a second; once it returns True, LoadStopped is raised.
        """
        with refused_by_disk("the store cannot be opened"):
            self._parts.running.lock()
            recovered = self._parts.open(should_stop, show_to, synced_to, before_loss)
        self._skipped_records = recovered.skipped
        return recovered

    @property
    def load_progress(self) -> str:
        """Progress of `load`, for operators: "recovering 37 %"; "" while it does not read the log."""
        recovery = self._parts.recovery
        return "" if recovery is None else f"recovering {recovery.percent} %"

    @property
    def replica(self) -> ReplicaLog | None:
        """The log of a follower, once it is loaded; None for a store that takes messages."""
        return self.hidden_tail.replica

    def configure(self, config: StoreConfig) -> None:
        """Apply new settings. Only those in `LIVE` may differ from the current ones."""
        self._config = config
        self._parts.configure(config)

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Accept messages. With a loop, results of the flusher arrive as events; without one, at each `step`."""
        with refused_by_disk("the store cannot be started"):
            self._parts.running.write_abort()
            self._durability.start(loop)
        if loop is not None:
            self.reader.start(loop)
        if not self._config.is_follower:
            self._log.prepare()
        self.flags.clear(RunningFlag.CLOSED)
        self._is_started = True

    def close(self) -> None:
        """Write and flush all messages, stop the threads, release the lock. If that fails, the `abort` file stays."""
        if self._is_started:
            self._is_started = False
            self.commit()
            self.flags.set(RunningFlag.CLOSED)
            is_clean = self._durability.finish()
            is_clean = is_clean and self._parts.running.remove_abort()
            log.info("store closed end=%d clean=%s", self._log.written, is_clean)
        self._parts.close()

    # put

    def write(self, is_lone: bool = False) -> list[Append]:
        """Write the batch and return its appends: settled, or PENDING until `flush.when_settled`.

        `is_lone`: a single producer sends one message at a time, so the loop has time to wait for the disk.
        """
        batch = self._log.commit()
        if batch and batch[0].status is PutStatus.PENDING:  # else it was rolled back
            self.flush.committed(batch, is_lone)
        return batch

    def commit(self) -> list[Append]:
        """Write the batch, make settled messages visible, and return the appends as `write` does."""
        batch = self.write()
        self.make_visible()
        return batch

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

        In a store with a loop, this and the other lookups raise ColdRead for bytes that are not in memory: see
        `reader.fetch`.
        """
        if self._log.batch or self.flush.undispatched:
            self.commit()
        queue = self.queues.by_key.get((topic, queue_id))
        if queue is not None:
            queue.correct_min_offset(self._log.files.min_offset, self.reader.reads)
        return self.reader.get(queue, offset, max_count, matches, max_total_bytes)

    def messages_from(self, topic: str, queue_id: int, offset: int) -> int:
        """Return how many messages of a queue are visible from `offset` on; 0 or less if there are none."""
        queue = self.queues.by_key.get((topic, queue_id))
        return 0 if queue is None else queue.end - offset

    def read_ahead(self, topic: str, queue_id: int, offset: int, count: int) -> ReadAhead | None:
        """Return up to `count` messages of a queue from `offset` on, to be taken one by one. None if they need checks
        or are not in memory: then use `get`."""
        queue = self.queues.by_key.get((topic, queue_id))
        try:
            if queue is None:
                return None
            return self.reader.read_ahead(self.reader.with_current_min_offset(queue), offset, count)
        except (ColdRead, LostBytesError):
            return None

    def has_wanted(self, topic: str, queue_id: int, test: PropertyTest, offset: int, count: int) -> bool:
        """Return whether one of `count` messages from `offset` passes a test of properties, or that is not known at
        once."""
        queue = self.queues.by_key.get((topic, queue_id))
        return queue is not None and self.reader.has_wanted(queue, offset, count, test)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return the queue with its current smallest offset, or None if it never had a message."""
        queue = self.queues.by_key.get((topic, queue_id))
        return None if queue is None else self.reader.with_current_min_offset(queue)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record that begins at this byte of the log, or None."""
        self.commit()
        record = self.reader.record_at(physical_offset)
        return None if record is None else bytes(record)

    def record_of_unit(self, topic: str, queue_id: int, offset: int, physical_offset: int) -> Record | None:
        """Return a copy of the record at this byte of the log if the queue's unit at `offset` points at it. Raises
        ColdRead."""
        queue = self.queues.get(topic, queue_id)
        if queue is not None and offset >= queue.end:
            self.make_visible()
        return None if queue is None else self.reader.record_of_unit(queue, offset, physical_offset)

    def is_queued(self, record: Record) -> bool:
        """Return whether the record's queue has a unit at the record's offset: bytes inside a body may look like a
        record. A record that is appended and not visible yet counts. Raises ColdRead."""
        queue = self.queues.get(record.topic, record.queue_id)
        if queue is not None and record.queue_offset >= queue.end:
            self.make_visible()
        return queue is not None and self.reader.has_unit_of(queue, record)

    def log_region(self, offset: int, limit: int) -> Region | None:
        """Return up to `limit` bytes of the log from `offset` on, which lie in one file, for a copy of the log. None if
        its files have no byte there. Raises LostBytesError."""
        return self.reader.log_region(offset, min(offset + limit, self.readable_offset))

    def min_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the first offset of a queue that still has its record; None without such a queue."""
        queue = self._queue(topic, queue_id)
        return None if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int | None:
        """Return the offset after the last readable one; None without such a queue."""
        self.commit()
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else queue.end

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return `(physical offset, size, tags code)` of up to `count` messages from `offset` on, in one segment of the
        queue."""
        self.commit()
        queue = self._queue(topic, queue_id)
        return [] if queue is None or offset < queue.min_offset else self.reader.units(queue, offset, count)

    def lost_topics(self, is_known: Callable[[str], bool]) -> dict[str, int]:
        """Return the topics with messages for which `is_known` is False, with the number of queues that each needs.

        Only a process that was not stopped cleanly loses topics; RocketMQ leaves the queues of deleted topics behind.
        """
        if self._parts.was_clean:
            return {}
        return {topic: count for topic, count in self.queues.queues_needed().items() if not is_known(topic)}

    async def query_by_key(self, topic: str, key: str, max_num: int, begin: int, end: int) -> Found:
        """Return the newest messages of a topic with this key or unique key, stored in [begin, end] (ms)."""
        self.commit()
        return await self._parts.key_query.run(topic, key, max_num, begin, end)

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER) -> int:
        """Return the queue offset for a store timestamp (ms); 0 without such a queue."""
        self.commit()
        queue = self._queue(topic, queue_id)
        return 0 if queue is None else self.reader.offset_by_time(queue, timestamp, boundary)

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Return the store timestamp (ms) of a queue's message; None if there is no such message."""
        self.commit()
        queue = self.queues.get(topic, queue_id)
        return None if queue is None else self.reader.store_time_at(queue, offset)

    def earliest_store_time(self, topic: str, queue_id: int) -> int | None:
        """Return the store timestamp (ms) of a queue's first message, or None."""
        first = self.min_offset(topic, queue_id)
        return None if first is None else self.store_time_at(topic, queue_id, first)

    @property
    def min_physical_offset(self) -> int:
        """The first byte of the log that still exists."""
        return self._log.files.min_offset

    @property
    def dispatched_offset(self) -> int:
        """The end of the last dispatched record, or the end of the log that recovery left."""
        return self._dispatch.offset

    @property
    def max_physical_offset(self) -> int:
        """The end of the log, after the last record."""
        return self._log.written

    @property
    def readable_offset(self) -> int:
        """The end of the log in its files; with a transient pool more of it may be in buffers."""
        return self.flush.readable

    @property
    def flushed_offset(self) -> int:
        """The end of the part of the log that is on disk."""
        return self.flush.done.end

    @property
    def is_writable(self) -> bool:
        """Whether a put would be accepted."""
        return self.flags.is_clear

    def disk_usage(self) -> DiskUsage:
        """Return how full the file systems of the store are. Raises OSError."""
        return measure(self._config.store_path_root_dir, self._disk)

    async def delete_topic(self, topic: str, *, may_have_delayed: bool = False) -> int:
        """Remove a topic's queues and their offsets; the log keeps its records. Return the number of removed queues.

        Recovery does not restore messages from before this call, and `deleted` covers them where they wait
        elsewhere (delayed messages); for a topic without queues only with `may_have_delayed`. Raises OSError if the
        deletion cannot be made durable; then nothing is removed. On a follower, see `HiddenTail.delete_topic_below`.
        """
        return await self.hidden_tail.delete_topic(topic, may_have_delayed=may_have_delayed)

    # flush

    def when_flushed(self, callback: Settled) -> None:
        """Write the batch, and call back once the log up to its current end is on disk, or cannot be any more."""
        self.commit()
        self.flush.when_flushed(callback)

    def step(self, now_ms: int) -> None:
        """Run what is due, by the steady clock: results of the flusher, overdue waiters, flushes and retries of queues,
        removal of expired segments."""
        self._durability.step(now_ms)
        self._log.step(now_ms)
        if now_ms // _LOST_BYTES_CHECK_MS != self._checked_at:
            self._checked_at = now_ms // _LOST_BYTES_CHECK_MS
            self._log.files.check_for_lost_bytes()
        self._parts.cleaner.step(now_ms, self.disk_usage, lambda: self._durability.deletable_offset)
        self.stored_bytes.step(now_ms)

    def traffic(self) -> Mapping[str, TopicTraffic]:
        """Return the traffic of each topic that has queues; read-only."""
        self._dispatch.writes.note_units()
        return self.queues.traffic

    def statistics(self) -> MessageStoreStatistics:
        """Return a snapshot."""
        durability, index = self.flush.statistics(), self._parts.index
        return MessageStoreStatistics(
            log=self._log.statistics(),
            flusher=durability.flusher,
            queues=len(self.queues.by_key),
            skipped_records=self._skipped_records,
            dispatched=self._dispatch.statistics().dispatched,
            dispatch_lag=self._log.written - self._dispatch.offset,
            flush_lag=durability.lag,
            waiting_for_flush=durability.waiting,
            commit_lag=durability.commit_lag,
            free_buffers=durability.free_buffers,
            is_writable=self.is_writable,
            reader=self.reader.statistics(),
            cleaner=self._parts.cleaner.statistics(),
            index=None if index is None else index.index.statistics(),
        )

    def __repr__(self) -> str:
        return f"<MessageStore {self._config.store_path_root_dir} end={self._log.written}>"
