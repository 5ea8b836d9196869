"""Deleted segments on their way out: unlinked at once, unmapped behind their last holder. Neither happens on the loop.

Unlinking a gigabyte, and even more the close that frees its blocks, may take tens of milliseconds. Both are done by a
helper thread, one segment at a time and in order, each unlink synced before the next: whatever a power cut undoes, the
log that is left has no gap.

A segment whose file cannot be unlinked is tried again every `redeleteHangedFileInterval`, and everything behind it
waits. Holders that keep one for `destroyMapedFileIntervalForcibly` are asked to let go.

Source: docs/formats.md, "Retention".
"""

import logging
from collections import deque
from concurrent.futures import Future
from typing import Any

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.io_thread import Helper
from skylarkmq.broker.store.log.mapped_file import MappedFile

log = logging.getLogger(__name__)


class _Leaving(msgspec.Struct):
    segment: MappedFile
    since_ms: int
    is_revoked: bool = False


class RemovalStatistics(msgspec.Struct, frozen=True):
    """`unlinked` since the start; now: how many wait for their unlink, and how many for their holders."""

    unlinked: int
    waiting: int
    held: int


class Removal:
    """Takes deleted segments and makes them go away."""

    def __init__(self, config: StoreConfig, helper: Helper) -> None:
        self.configure(config)
        self._helper = helper
        self._to_unlink: deque[_Leaving] = deque()
        self._to_close: deque[_Leaving] = deque()
        self._call: Future[Any] | None = None  # the one under way, for the first of `_to_unlink` or of `_to_close`
        self._is_closing = False  # which of the two
        self._next_unlink_ms = 0
        self._unlinked = 0

    def configure(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self._force_after_ms = config.destroy_maped_file_interval_forcibly
        self._retry_ms = config.redelete_hanged_file_interval

    @property
    def is_ready(self) -> bool:
        """No unlink is outstanding: the next segment may be deleted."""
        return not self._to_unlink

    def add(self, segment: MappedFile, now_ms: int) -> None:
        """A segment that has just left the log."""
        self._to_unlink.append(_Leaving(segment, now_ms))
        self._start(now_ms)

    def step(self, now_ms: int) -> None:
        """Take note of what the thread has done, and give it the next call."""
        for leaving in self._to_close:
            if not leaving.is_revoked and leaving.segment.holders and now_ms - leaving.since_ms >= self._force_after_ms:
                leaving.is_revoked = True
                segment = leaving.segment
                log.warning("transfers of a deleted segment are cut path=%s holders=%d", segment.path, segment.holders)
                segment.revoke()
        if self._call is not None and self._call.done():
            self._finish(self._call, now_ms)
        self._start(now_ms)

    def _finish(self, call: "Future[Any]", now_ms: int) -> None:
        self._call = None
        if self._is_closing:
            leaving = self._to_close.popleft()
            if not call.result():
                self._to_close.append(leaving)
            return
        leaving = self._to_unlink[0]
        problem = call.exception()
        if isinstance(problem, OSError):
            self._next_unlink_ms = now_ms + self._retry_ms
            log.error("segment not unlinked path=%s error=%s", leaving.segment.path, problem)
            return
        call.result()
        self._unlinked += 1
        self._to_close.append(self._to_unlink.popleft())

    def _start(self, now_ms: int) -> None:
        if self._call is not None:
            return
        if self._to_unlink and now_ms >= self._next_unlink_ms:
            self._is_closing = False
            self._call = self._helper.submit(self._to_unlink[0].segment.delete)
            return
        for _ in range(len(self._to_close)):
            if not self._to_close[0].segment.holders:
                self._is_closing = True
                self._call = self._helper.submit(self._to_close[0].segment.close_if_free)
                return
            self._to_close.rotate(-1)

    def close(self) -> None:
        """Give up every mapping; the thread is at rest. A file not unlinked yet is found by the next start."""
        for leaving in (*self._to_unlink, *self._to_close):
            leaving.segment.close()
        self._to_unlink.clear()
        self._to_close.clear()
        self._call = None

    def statistics(self) -> RemovalStatistics:
        """Counts since the start, and now."""
        return RemovalStatistics(self._unlinked, len(self._to_unlink), len(self._to_close))

    def __repr__(self) -> str:
        return f"<Removal unlinking={len(self._to_unlink)} held={len(self._to_close)}>"
