"""The writer of the audit log: a bounded queue, and one thread that empties it into a sink.

The event loop only appends to the queue. An entry that finds the queue full is lost: it is counted, and the log gets an
entry with their number as soon as it can be written again. If a write fails (a full disk, a file that cannot be
opened), the thread keeps the entry, repeats the write every RETRY_S, and logs the reason at most once a minute. At the
stop the thread has FLUSH_S to write the queue; a write that fails then ends it.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.access.audit_sinks import Entry, Sink

QUEUE_ENTRIES: Final = 10_000
RETRY_S: Final = 1.0
LOGGED_EVERY_S: Final = 60.0
FLUSH_S: Final = 2.0

log = logging.getLogger(__name__)


class AuditStatistics(msgspec.Struct, frozen=True):
    """`waiting` entries now; totals since the start: entries written and lost, and failed writes."""

    waiting: int
    written: int
    lost: int
    failures: int


class AuditWriter:
    """Writes entries in a thread. `lost_entry` makes the entry that reports a number of lost entries."""

    def __init__(
        self, sink: Sink, lost_entry: Callable[[int], Entry], capacity: int = QUEUE_ENTRIES, retry_s: float = RETRY_S
    ) -> None:
        self._sink = sink
        self._lost_entry = lost_entry
        self._capacity = capacity
        self._retry_s = retry_s
        self._queue: deque[Entry] = deque()
        self._work = threading.Event()
        self._stopping = threading.Event()
        self._deadline_s = 0.0
        self._thread: threading.Thread | None = None
        self._lost = 0
        self._reported = 0
        self._written = 0
        self._failures = 0
        self._logged_s = -LOGGED_EVERY_S

    def __repr__(self) -> str:
        return f"<AuditWriter {self._sink!r} waiting={len(self._queue)} lost={self._lost}>"

    def statistics(self) -> AuditStatistics:
        """Return the current figures."""
        return AuditStatistics(len(self._queue), self._written, self._lost, self._failures)

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """Queue an entry, or count it as lost. Does not wait."""
        if len(self._queue) >= self._capacity:
            self._lost += 1
            return
        self._queue.append(entry)
        if not self._work.is_set():
            self._work.set()

    async def stop(self) -> None:
        """Write what is queued, for at most FLUSH_S, and end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._deadline_s = time.monotonic() + FLUSH_S
        self._stopping.set()
        self._work.set()
        await asyncio.to_thread(thread.join, 2 * FLUSH_S)
        if self._queue:
            log.error("audit entries not written entries=%d sink=%r", len(self._queue), self._sink)

    # ------------------------------------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._work.wait()
            self._work.clear()
            while self._has_work() and not self._stopping.is_set():
                if not self._write_next():
                    self._stopping.wait(self._retry_s)
        while self._has_work() and time.monotonic() < self._deadline_s and self._write_next():
            pass
        self._close()

    def _has_work(self) -> bool:
        return bool(self._queue) or self._lost > self._reported

    def _write_next(self) -> bool:
        """Write the report of lost entries or the first entry; return whether that succeeded."""
        lost = self._lost
        try:
            if lost > self._reported:
                self._sink.write(self._lost_entry(lost - self._reported))
                self._reported = lost
            else:
                self._sink.write(self._queue[0])
                self._queue.popleft()
                self._written += 1
        except OSError as problem:
            self._failures += 1
            self._close()
            now_s = time.monotonic()
            if now_s - self._logged_s >= LOGGED_EVERY_S:
                self._logged_s = now_s
                log.error(
                    "audit log not written sink=%r reason=%s waiting=%d failures=%d",
                    self._sink,
                    problem,
                    len(self._queue),
                    self._failures,
                )
            return False
        return True

    def _close(self) -> None:
        try:
            self._sink.close()
        except OSError as problem:
            log.warning("audit log not closed sink=%r reason=%s", self._sink, problem)
