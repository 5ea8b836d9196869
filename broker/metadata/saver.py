"""Savers: tables get to disk without the event loop waiting for it.

A table that has changed is encoded on the loop, which owns it, and written and synced by a thread, which does nothing
else. One save of a file is under way at a time; what changes meanwhile is in the next one. So any number of changes in
one turn, or during one slow save, is one more save.

A save that failed (disk full, read-only file system) leaves the old file, is logged, fails whoever waits for it, and is
tried again after RETRY_S. Source: docs/formats.md, "State files".
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.store.state_file import StateFile

RETRY_S: Final = 5.0

log = logging.getLogger(__name__)


class Table(Protocol):
    """What can be kept in a state file."""

    def load(self, data: bytes | None) -> None:
        """Take a file's content; ValueError if it is none of this table."""

    def encode(self) -> bytes:
        """The content for the file."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the table wants to be saved."""


class SaverStatistics(msgspec.Struct, frozen=True):
    """A file at one moment; counters are totals since the start."""

    saves: int
    failures: int
    is_behind: bool


class Saver:
    """Keeps one table in one file. Make it inside the event loop, with `open`."""

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
    def open(cls, table: Table, path: Path, validate: Callable[[bytes], object]) -> "Saver":
        """Load `table` from `path` and keep it there. StoreError if the file and its backup are damaged."""
        file = StateFile(path, validate=validate)
        saver = cls(file, table.encode)
        table.on_change(saver.changed)
        table.load(file.load())
        return saver

    def __repr__(self) -> str:
        return f"<Saver {self._file!r} saves={self._saves} behind={self._changes - self._saved_changes}>"

    def statistics(self) -> SaverStatistics:
        """The saver's figures now."""
        return SaverStatistics(
            saves=self._saves, failures=self._failures, is_behind=self._saved_changes < self._changes
        )

    def changed(self) -> None:
        """Save the table: after this turn, and after a save that is under way."""
        self._changes += 1
        self._start()

    async def saved(self) -> None:
        """Wait until every change so far is on disk; OSError if it cannot be written."""
        if self._saved_changes < self._changes:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self._changes, future))
            self._start()
            await future

    async def close(self) -> None:
        """Save once more, whatever has changed, and stop trying. OSError."""
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
        """Tell whoever waited for the changes up to `target`."""
        settled = [future for change, future in self._waiting if change <= target]
        self._waiting = [(change, future) for change, future in self._waiting if change > target]
        for future in settled:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
