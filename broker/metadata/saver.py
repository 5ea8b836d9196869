"""Savers: they write tables to disk without blocking the event loop.

The event loop owns a table and encodes it after a change; a thread writes and syncs the file and does nothing else. At
most one save of a file runs at a time, and changes in the meantime are part of the next save. So any number of changes
in one event-loop iteration, or during one slow save, cause one more save.

A failed save (disk full, read-only file system) leaves the old file, is logged, fails the tasks that wait for it, and
is repeated after RETRY_S. Source: docs/reference/disk.md, "State files".
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.store.files.state_file import StateFile

RETRY_S: Final = 5.0

log = logging.getLogger(__name__)


class Table(Protocol):
    """A table that can be stored in a state file."""

    def load(self, data: bytes | None) -> None:
        """Load the content of a file. Raises ValueError if it is invalid for this table."""

    def encode(self) -> bytes:
        """Return the content for the file."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the table should be saved."""


class SaverStatistics(msgspec.Struct, frozen=True):
    """The state of a file; counters are totals since the start."""

    saves: int
    failures: int
    is_behind: bool


class Saver:
    """Stores one table in one file. Create it with `open`, inside the event loop."""

    def __init__(self, file: StateFile, encode: Callable[[], bytes]) -> None:
        self._file = file
        self._encode = encode
        self._changes = 0
        self._saved_changes = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._saves = 0
        self._failures = 0

    @classmethod
    def open(cls, table: Table, path: Path, validate: Callable[[bytes], object], *, is_secret: bool = False) -> "Saver":
        """Load `table` from `path` and save its changes there. Raises StoreError if file and backup are damaged.

        A file with secrets has no backup (`state_file.py`).
        """
        file = StateFile(path, validate=validate, is_secret=is_secret)
        saver = cls(file, table.encode)
        table.on_change(saver.changed)
        table.load(file.load())
        return saver

    def __repr__(self) -> str:
        return f"<Saver {self._file!r} saves={self._saves} behind={self._changes - self._saved_changes}>"

    def statistics(self) -> SaverStatistics:
        """Return the current figures."""
        return SaverStatistics(
            saves=self._saves, failures=self._failures, is_behind=self._saved_changes < self._changes
        )

    def changed(self) -> None:
        """Save the table after this event-loop iteration, and after a save in progress."""
        self._changes += 1
        self._start()

    async def saved(self) -> None:
        """Wait until every change so far is on disk. Raises OSError if the file cannot be written."""
        if self._saved_changes < self._changes:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self._changes, future))
            self._start()
            await future

    async def close(self) -> None:
        """Save once more in any case, and stop. Raises OSError."""
        self._changes += 1
        try:
            await self.saved()
        finally:
            if self._retry is not None:
                self._retry.cancel()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._save())

    async def _save(self) -> None:
        try:
            while self._saved_changes < self._changes:
                target = self._changes
                await asyncio.to_thread(self._file.save, self._encode())
                self._saved_changes = target
                self._saves += 1
                self._settle(target, None)
        except OSError as error:
            self._failures += 1
            log.error("state not saved file=%r reason=%s retry_s=%.0f", self._file, error, RETRY_S)
            self._settle(self._changes, error)
            if self._retry is not None:
                self._retry.cancel()
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._start)
        finally:
            self._task = None

    def _settle(self, target: int, error: OSError | None) -> None:
        """Wake the tasks that wait for the changes up to `target`."""
        settled = [future for change, future in self._waiting if change <= target]
        self._waiting = [(change, future) for change, future in self._waiting if change > target]
        for future in settled:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
