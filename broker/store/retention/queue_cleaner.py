"""Queues follow the log: segments whose units all point below its first byte go.

A walk over all queues begins when the log's start has moved, and at the first step, for what an earlier process had no
time for. It looks at some queues a step; a queue of one segment has nothing to give, and its smallest offset is
corrected when somebody asks. One queue's files are unlinked at a time, oldest first, in a helper thread, with
`deleteConsumeQueueFilesInterval` behind it; what cannot be unlinked is tried again, and nothing else is meanwhile, so
that no queue gets a hole.

Source: docs/formats.md, "Retention".
"""

import logging
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.io_thread import Helper
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.files import QueueFiles
from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX
from skylarkmq.broker.store.queue.table import QueueTable
from skylarkmq.broker.store.read.cold_reads import ColdRead
from skylarkmq.broker.store.read.store_reader import StoreReader

log = logging.getLogger(__name__)

LOOKED_AT_PER_STEP: Final = 2_000  # about half a millisecond
READ_PER_STEP: Final = 20  # of them with more than one segment: a search each


class QueueCleanerStatistics(msgspec.Struct, frozen=True):
    """`deleted` files since the start, `left` queues of the walk under way."""

    deleted: int
    left: int


class QueueCleaner:
    """One walk at a time."""

    def __init__(
        self, config: StoreConfig, queues: QueueTable, files: QueueFiles, helper: Helper, reader: StoreReader
    ) -> None:
        self.configure(config)
        self._queues = queues
        self._files = files
        self._helper = helper
        self._reader = reader
        self._log_start = -1
        self._walk: list[ConsumeQueue] = []
        self._leaving: tuple[ConsumeQueue, list[str]] | None = None
        self._call: Future[Any] | None = None
        self._next_ms = 0
        self._deleted = 0

    def configure(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self._interval_ms = config.delete_consume_queue_files_interval
        self._retry_ms = config.redelete_hanged_file_interval

    def start_over(self) -> None:
        """Begin another walk at the next step, as if the log's start had moved."""
        self._log_start = -1

    def follow(self, log_start: int, now_ms: int) -> None:
        """Go on with the walk; start over when the log has moved."""
        if log_start != self._log_start:
            self._log_start = log_start
            self._walk = list(self._queues.by_key.values())
        if self._call is not None and self._call.done():
            self._finish(self._call, now_ms)
        if self._call is not None or now_ms < self._next_ms:
            return
        if self._leaving is None:
            self._leaving = self._next_expired()
        if self._leaving is not None:
            queue, paths = self._leaving
            if queue.is_removed:  # its topic went, and the files with it
                self._leaving = None
            else:
                self._call = self._files.expire(paths, self._helper)

    def _next_expired(self) -> tuple[ConsumeQueue, list[str]] | None:
        walk = self._walk
        reads = 0
        for _ in range(min(LOOKED_AT_PER_STEP, len(walk))):
            queue = walk.pop()
            if not queue.has_several_segments or queue.is_removed or queue.topic.startswith(LIGHT_QUEUE_PREFIX):
                continue
            try:
                self._reader.corrected(queue)
            except ColdRead as cold:
                self._reader.fetch(cold)
                walk.append(queue)
                return None
            if paths := queue.take_expired():
                return queue, paths
            reads += 1
            if reads == READ_PER_STEP:
                break
        return None

    def _finish(self, call: "Future[Any]", now_ms: int) -> None:
        self._call = None
        if self._leaving is None:
            return
        queue, paths = self._leaving
        problem = call.exception()
        if isinstance(problem, OSError):
            self._next_ms = now_ms + self._retry_ms
            log.error("queue segments not unlinked topic=%s queue_id=%d error=%s", queue.topic, queue.queue_id, problem)
            return
        call.result()
        self._leaving = None
        self._deleted += len(paths)
        self._next_ms = now_ms + self._interval_ms
        log.info("queue segments deleted topic=%s queue_id=%d files=%d", queue.topic, queue.queue_id, len(paths))

    def statistics(self) -> QueueCleanerStatistics:
        """Counts since the start, and now."""
        return QueueCleanerStatistics(self._deleted, len(self._walk))

    def __repr__(self) -> str:
        return f"<QueueCleaner deleted={self._deleted} left={len(self._walk)}>"
