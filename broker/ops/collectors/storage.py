"""Metrics of the store: flush and dispatch lag, disk use, damaged and cold data."""

import shutil
from pathlib import Path
from typing import Final

from skylarkmq.broker.ops.steps import Steps, Value
from skylarkmq.broker.store.message_store import MessageStore
from skylarkmq.broker.store.read.store_reader import StoreReaderStatistics
from skylarkmq.broker.store.retention.archive_hold import OVERRIDES, HoldStatistics
from skylarkmq.broker.store.statistics import MessageStoreStatistics

OUTCOMES: Final = ("cold", "fetched", "waited")


class StorageCollector:
    """Metrics of one store."""

    def __init__(self, store: MessageStore, path: Path) -> None:
        self._store = store
        self._path = path

    def __repr__(self) -> str:
        return f"<StorageCollector {self._store!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        now = self._store.statistics()
        yield Value("rocketmq_storage_flush_behind_bytes", (), now.flush_lag)
        yield Value("rocketmq_storage_dispatch_behind_bytes", (), now.dispatch_lag)
        yield from self._log(now)
        yield from self._reader(now.reader)
        if now.index is not None:
            yield Value("skylark_store_index_keys_total", (), now.index.keys)
        yield from self._disk(now)
        if now.cleaner.hold is not None:
            yield from self._archive(now.cleaner.hold)

    def _log(self, now: MessageStoreStatistics) -> Steps:
        yield Value("skylark_store_writable", (), int(now.is_writable))
        yield Value("skylark_store_damaged_segments", (), now.log.damaged_segments)
        yield Value("skylark_store_skipped_records", (), now.skipped_records)
        yield Value("skylark_store_failed_batches_total", (), now.log.failed_batches)
        yield Value("skylark_store_syncs_total", (), now.flusher.syncs)
        yield Value("skylark_store_waiting_for_flush", (), now.waiting_for_flush)
        yield Value("skylark_store_commit_behind_bytes", (), now.commit_lag)
        yield Value("skylark_store_queues", (), now.queues)
        yield Value("skylark_store_segments_deleted_total", (), now.cleaner.deleted)

    def _reader(self, now: StoreReaderStatistics) -> Steps:
        for outcome in OUTCOMES:
            yield Value("skylark_store_cold_reads_total", (outcome,), getattr(now.cold, outcome))
        yield Value("skylark_store_records_checked_total", (), now.checks.checked)
        yield Value("skylark_store_records_damaged_total", (), now.checks.damaged)

    def _disk(self, now: MessageStoreStatistics) -> Steps:
        usage = now.cleaner.usage
        if usage is not None:
            for directory in ("log", "queues", "index"):
                yield Value("skylark_store_disk_used_ratio", (directory,), getattr(usage, directory) / 100)
        yield Value("rocketmq_storage_size_bytes", (), shutil.disk_usage(self._path).used)

    def _archive(self, now: HoldStatistics) -> Steps:
        if now.mark is not None:
            yield Value("skylark_archive_mark_bytes", (), now.mark)
        yield Value("skylark_archive_mark_age_seconds", (), now.mark_age_ms / 1000)
        yield Value("skylark_archive_held_bytes", (), now.held_bytes)
        for reason in OVERRIDES:
            yield Value("skylark_archive_hold_overridden", (reason,), int(now.override == reason))
        yield Value("skylark_archive_missed_segments_total", (), now.unarchived)
