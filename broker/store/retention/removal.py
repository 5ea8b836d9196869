"""Removal of deleted segments: unlinked at once, unmapped after the last holder. Neither happens on the event loop.

Unlinking a gigabyte may take tens of milliseconds, and so may the close that frees its blocks. A helper thread does
both, one segment at a time and in order, and syncs each unlink before the next. Whatever a power cut undoes, the
remaining log has no gap.

If a file cannot be unlinked, the unlink is repeated every `redeleteHangedFileInterval`, and all later segments wait.
Transfers that hold a segment for longer than `destroyMapedFileIntervalForcibly` are canceled.

Source: docs/reference/disk.md, "Retention".
"""

import logging
from collections import deque
from concurrent.futures import Future
from typing import Any

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.broker.store.files.mapped_file import MappedFile

log = logging.getLogger(__name__)


class _Deleted(msgspec.Struct):
    segment: MappedFile
    since_ms: int
    is_revoked: bool = False


class RemovalStatistics(msgspec.Struct, frozen=True):
    """`unlinked` since the start; segments that wait for their unlink, and segments that wait for their holders."""

    unlinked: int
    waiting: int
    held: int


class Removal:
    """Unlinks and closes deleted segments."""

    def __init__(self, config: StoreConfig, helper: Helper) -> None:
        self.configure(config)
        self._helper = helper
        self._to_unlink: deque[_Deleted] = deque()
        self._to_close: deque[_Deleted] = deque()
        self._call: Future[Any] | None = None  # the current call, for the first of `_to_unlink` or of `_to_close`
        self._is_closing = False  # whether the current call is for `_to_close`
        self._next_unlink_ms = 0
        self._unlinked = 0

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings from now on."""
        self._force_after_ms = config.destroy_maped_file_interval_forcibly
        self._retry_ms = config.redelete_hanged_file_interval

    @property
    def is_ready(self) -> bool:
        """Return whether no unlink is outstanding, so that the next segment may be deleted."""
        return not self._to_unlink

    def add(self, segment: MappedFile, now_ms: int) -> None:
        """Add a segment that was just removed from the log."""
        self._to_unlink.append(_Deleted(segment, now_ms))
        self._start(now_ms)

    def step(self, now_ms: int) -> None:
        """Process the result of the thread, and start its next call."""
        for deleted in self._to_close:
            if not deleted.is_revoked and deleted.segment.holders and now_ms - deleted.since_ms >= self._force_after_ms:
                deleted.is_revoked = True
                segment = deleted.segment
                log.warning("transfers of a deleted segment canceled path=%s holders=%d", segment.path, segment.holders)
                segment.revoke()
        if self._call is not None and self._call.done():
            self._finish(self._call, now_ms)
        self._start(now_ms)

    def _finish(self, call: "Future[Any]", now_ms: int) -> None:
        self._call = None
        if self._is_closing:
            deleted = self._to_close.popleft()
            if not call.result():
                self._to_close.append(deleted)
            return
        deleted = self._to_unlink[0]
        problem = call.exception()
        if isinstance(problem, OSError):
            self._next_unlink_ms = now_ms + self._retry_ms
            log.error("segment not unlinked path=%s error=%s", deleted.segment.path, problem)
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
        """Close all mappings; the thread must be idle. The next start finds a file that is not unlinked yet."""
        for deleted in (*self._to_unlink, *self._to_close):
            deleted.segment.close()
        self._to_unlink.clear()
        self._to_close.clear()
        self._call = None

    def statistics(self) -> RemovalStatistics:
        """Return counts since the start, and of waiting segments."""
        return RemovalStatistics(self._unlinked, len(self._to_unlink), len(self._to_close))

    def __repr__(self) -> str:
        return f"<Removal unlinking={len(self._to_unlink)} held={len(self._to_close)}>"
