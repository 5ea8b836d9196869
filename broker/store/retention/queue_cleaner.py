"""Trims queues to the log: deletes segments whose units all point below the first byte of the log.

A pass over all queues begins when the start of the log has moved. It also begins at the first step, because an earlier
process may have been stopped during its pass. Each step checks some queues. A queue with a single segment has nothing
to delete, and reads correct its minimum offset on demand. A helper thread unlinks the files of one queue at a time,
oldest first, followed by a pause of `deleteConsumeQueueFilesInterval`. A failed unlink is repeated, and nothing else is
unlinked in the meantime, so that no segment is missing in the middle of a queue.

Source: docs/reference/disk.md, "Retention".
"""

import logging
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdRead
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.read.store_reader import StoreReader

log = logging.getLogger(__name__)

CHECKED_PER_STEP: Final = 2_000  # queues; takes about 0.5 ms
READ_PER_STEP: Final = 20  # queues with several segments; each takes a search


class QueueCleanerStatistics(msgspec.Struct, frozen=True):
    """`deleted` files since the start; `left`: queues that the current pass still has to check."""

    deleted: int
    left: int


class QueueCleaner:
    """Cleans the queues of one store, one pass at a time."""

    def __init__(
        self, config: StoreConfig, queues: QueueTable, files: QueueFiles, helper: Helper, reader: StoreReader
    ) -> None:
        self.configure(config)
        self._queues = queues
        self._files = files
        self._helper = helper
        self._reader = reader
        self._log_start = -1
        self._to_check: list[ConsumeQueue] = []
        self._deleting: tuple[ConsumeQueue, list[str]] | None = None
        self._call: Future[Any] | None = None
        self._next_ms = 0
        self._deleted = 0

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings from now on."""
        self._interval_ms = config.delete_consume_queue_files_interval
        self._retry_ms = config.redelete_hanged_file_interval

    def restart(self) -> None:
        """Begin another pass at the next step, as if the start of the log had moved."""
        self._log_start = -1

    def follow(self, log_start: int, now_ms: int) -> None:
        """Continue the pass; begin a new one if the start of the log has moved."""
        if log_start != self._log_start:
            self._log_start = log_start
            self._to_check = list(self._queues.by_key.values())
        if self._call is not None and self._call.done():
            self._finish(self._call, now_ms)
        if self._call is not None or now_ms < self._next_ms:
            return
        if self._deleting is None:
            self._deleting = self._next_expired()
        if self._deleting is not None:
            queue, paths = self._deleting
            if queue.is_removed:  # deleted with its topic, files included
                self._deleting = None
            else:
                self._call = self._files.expire(paths, self._helper)

    def _next_expired(self) -> tuple[ConsumeQueue, list[str]] | None:
        queues = self._to_check
        reads = 0
        for _ in range(min(CHECKED_PER_STEP, len(queues))):
            queue = queues.pop()
            if not queue.has_several_segments or queue.is_removed or queue.topic.startswith(LIGHT_QUEUE_PREFIX):
                continue
            try:
                self._reader.with_current_min_offset(queue)
            except ColdRead as cold:
                self._reader.fetch(cold)
                queues.append(queue)
                return None
            if paths := queue.take_expired():
                return queue, paths
            reads += 1
            if reads == READ_PER_STEP:
                break
        return None

    def _finish(self, call: "Future[Any]", now_ms: int) -> None:
        self._call = None
        if self._deleting is None:
            return
        queue, paths = self._deleting
        problem = call.exception()
        if isinstance(problem, OSError):
            self._next_ms = now_ms + self._retry_ms
            log.error("queue segments not unlinked topic=%s queue_id=%d error=%s", queue.topic, queue.queue_id, problem)
            return
        call.result()
        self._deleting = None
        self._deleted += len(paths)
        self._next_ms = now_ms + self._interval_ms
        log.info("queue segments deleted topic=%s queue_id=%d files=%d", queue.topic, queue.queue_id, len(paths))

    def statistics(self) -> QueueCleanerStatistics:
        """Return counts since the start, and of the current pass."""
        return QueueCleanerStatistics(self._deleted, len(self._to_check))

    def __repr__(self) -> str:
        return f"<QueueCleaner deleted={self._deleted} left={len(self._to_check)}>"
