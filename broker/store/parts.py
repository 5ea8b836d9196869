"""The parts of a store, constructed in the order of their dependencies, and their life: load, configure, close.

`MessageStore` is the entry point to them. Source: docs/reference/disk.md, "Store directory".
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.dispatch.dispatch import Dispatch
from skylarkmq.broker.store.files.allocation import BUSY_BYTES, Allocator
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.errors import LoadStopped
from skylarkmq.broker.store.files.io_thread import helper_thread
from skylarkmq.broker.store.files.mapped_file_queue import MappedFileQueue
from skylarkmq.broker.store.files.warm_up import WarmUp
from skylarkmq.broker.store.flush.checkpoint import CheckpointFile
from skylarkmq.broker.store.flush.durability import Durability
from skylarkmq.broker.store.flush.transient_pool import TransientPool
from skylarkmq.broker.store.flush.undecided_records import UndecidedRecords
from skylarkmq.broker.store.index.builder import IndexFeed
from skylarkmq.broker.store.index.key_query import KeyQuery
from skylarkmq.broker.store.log.checksummed_log import ChecksummedCommitLog
from skylarkmq.broker.store.log.commit_log import CommitLog
from skylarkmq.broker.store.log.running_flags import RunningFlag
from skylarkmq.broker.store.queue.deleted_topics import DeletedTopics
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.stored_bytes import StoredBytes
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.read.store_reader import StoreReader
from skylarkmq.broker.store.recovery.lock_and_abort import RunningFiles
from skylarkmq.broker.store.recovery.record_check import RecordCheck
from skylarkmq.broker.store.recovery.recovery import Recovered, Recovery
from skylarkmq.broker.store.replica.follower_log import FollowerLog
from skylarkmq.broker.store.replica.hidden_tail import HiddenTail
from skylarkmq.broker.store.replica.log_dispatch import LogDispatch
from skylarkmq.broker.store.retention.cleaner import Cleaner, Follower
from skylarkmq.broker.store.retention.manual_cleanup import ManualCleanup
from skylarkmq.broker.store.retention.queue_cleaner import QueueCleaner
from skylarkmq.broker.store.retention.removal import Removal
from skylarkmq.broker.store.retention.topic_deletion import TopicDeletion
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY


class StoreParts:
    """The parts of one store. `commit` writes the open batch; for the other arguments see `MessageStore`."""

    def __init__(
        self,
        config: StoreConfig,
        disk: Disk,
        dispatch: Dispatch,
        commit: Callable[[], object],
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
    ) -> None:
        self._config = config
        root = Path(config.store_path_root_dir)
        self.running: Final = RunningFiles(root, disk)
        pool = None if config.is_follower else TransientPool.of(config)
        self._allocator = Allocator(
            disk,
            pool or WarmUp.of(config),
            config.zero_fill_bytes,
            lambda: self.log.written,
            1 if config.is_sync_flush else BUSY_BYTES,
        )
        self._queue_files = QueueFiles(
            str(root / CONSUME_QUEUE_DIRECTORY), config.mapped_file_size_consume_queue, config.open_queue_files, disk
        )
        self.queues: Final = QueueTable(root, self._queue_files, disk)
        segments = MappedFileQueue(
            root / COMMIT_LOG_DIRECTORY,
            config.mapped_file_size_commit_log,
            disk,
            self._allocator,
            force_gap=config.force_gap,
        )
        self.log: Final = _log_kind(config)(config, segments, self.queues, now_ms)
        if config.is_follower:
            self.log.flags.set(RunningFlag.FOLLOWER)
        self.dispatch: Final = dispatch
        self.reader: Final = StoreReader(config, self.log)
        self._helper = helper_thread()
        self.index: IndexFeed | None = None
        if config.message_index_enable:
            self.index = IndexFeed.of(config, self.log, disk, now_ms, steady_ms, self._helper)
        self.key_query: Final = KeyQuery(self.index, self.reader, config.max_msgs_num_batch)
        self.deleted: Final = DeletedTopics(root, disk, self._helper)
        self.stored_bytes: Final = StoredBytes(self.queues, lambda: segments.min_offset, self._helper)
        self._removal = Removal(config, self._helper)
        self._queue_cleaner = QueueCleaner(config, self.queues, self._queue_files, self._helper, self.reader)
        followers: list[Follower] = [self._queue_cleaner, self.deleted]
        if self.index is not None:
            followers.append(self.index)
        self.cleaner: Final = Cleaner(config, segments, self.log.flags, self._removal, followers, now_ms)
        self.manual_cleanup: Final = ManualCleanup(self.cleaner, self._queue_cleaner, self.queues)
        checkpoint = CheckpointFile(root, disk)
        self.durability: Final = Durability(config, self.log, dispatch, self._queue_files, checkpoint, steady_ms, pool)
        deletion = TopicDeletion(self.deleted, self.queues, self.log, commit)
        self.hidden_tail: Final = HiddenTail(self.log, self.durability, deletion, UndecidedRecords(root, disk))
        self.was_clean = True
        """Whether the last process stopped cleanly; known after `open`."""
        self.recovery: Recovery | None = None
        """The recovery, while it runs."""

    def __repr__(self) -> str:
        return f"<StoreParts {self._config.store_path_root_dir}>"

    def open(
        self,
        should_stop: Callable[[], bool] | None,
        show_to: int | None,
        synced_to: int,
        before_loss: Callable[[], None],
    ) -> Recovered:
        """Open all files and recover, with the lock held; see `MessageStore.load`. Closes all files if it fails."""

        def check_stop() -> None:
            if should_stop is not None and should_stop():
                raise LoadStopped

        try:
            self.was_clean = was_clean = not self.running.is_abort_present()
            self.log.files.load()
            self.deleted.load()
            was_clean = not self.queues.load(self.deleted, check_stop) and was_clean
            check = RecordCheck.of(self._config)
            self.recovery = recovery = Recovery(
                self.log,
                self.queues,
                self.dispatch,
                self.deleted,
                check,
                is_follower=self._config.is_follower,
                show_to=show_to,
                synced_to=synced_to,
                before_loss=before_loss,
                undecided=self.hidden_tail.undecided(),
                check_stop=check_stop,
            )
            recovered = recovery.run(self.durability.load(), clean=was_clean)
            self.deleted.limit(recovered.end)
            if self.index is not None:
                self.durability.open_index(self.index, clean=was_clean, check_stop=check_stop)
            self.reader.begin(recovered.scanned_from if self._config.check_crc_on_recover else recovered.end)
            self.queues.begin_traffic()
            tail = None
            if self._config.is_follower or show_to is not None:
                show = self.durability.log.show
                tail = LogDispatch(self.log, self.queues, self.dispatch, self.deleted, check, recovery.order, show)
            self.hidden_tail.open(tail, recovered.end)
            return recovered
        except BaseException:
            self.close()
            raise
        finally:
            self.recovery = None

    def configure(self, config: StoreConfig) -> None:
        """Apply new settings. Only those in `LIVE` may differ from the current ones."""
        self._config = config
        for part in (self.log, self.durability, self.reader, self.cleaner, self._removal, self._queue_cleaner):
            part.configure(config)
        self.key_query.limit(config.max_msgs_num_batch)

    def close(self) -> None:
        """End the threads, close all files, and release the lock."""
        self.reader.close()
        if self.index is not None:
            self.index.close()
        self._helper.shutdown()
        self._removal.close()
        self._allocator.close()
        self.log.close()
        self._queue_files.close()
        self.running.unlock()


def _log_kind(config: StoreConfig) -> type[CommitLog]:
    if config.is_follower:
        return FollowerLog
    return ChecksummedCommitLog if config.enabled_append_prop_crc else CommitLog
