"""The main statistics of a store."""

import msgspec

from skylarkmq.broker.store.flush.flusher import FlusherStatistics
from skylarkmq.broker.store.index.index import IndexStatistics
from skylarkmq.broker.store.log.commit_log import CommitLogStatistics
from skylarkmq.broker.store.read.store_reader import StoreReaderStatistics
from skylarkmq.broker.store.retention.cleaner import CleanerStatistics


class MessageStoreStatistics(msgspec.Struct, frozen=True):
    """A snapshot of a store. Offsets in bytes of the log."""

    log: CommitLogStatistics
    flusher: FlusherStatistics
    queues: int
    skipped_records: int  # records without a queue unit, found by recovery
    dispatched: int
    dispatch_lag: int
    flush_lag: int
    waiting_for_flush: int
    commit_lag: int
    free_buffers: int | None  # of the transient store pool; None without a pool
    is_writable: bool
    reader: StoreReaderStatistics
    cleaner: CleanerStatistics
    index: IndexStatistics | None  # None if messageIndexEnable is off
