"""One round of writes to the files of timers, as the flusher's thread makes it.

    commit log flushed ─▶ timer log synced ─▶ wheel written and synced ─▶ timercheck replaced

A disk that refuses to be written to (it is full, or read-only for now) has lost nothing: what was to be written is
still there, and the next round brings it. That is what `refused` says. A failed sync is something else: nobody knows
what is on disk, and it goes on as an OSError, which ends the flusher. The check is replaced as a whole, under another
name first; whatever fails there leaves the one before it, so that it is tried again too.

Source: docs/formats.md, "Timer files".
"""

import os
from collections.abc import Sequence

from skylarkmq.broker.store.disk import NO_DESCRIPTORS, TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.flush.flusher import Syncable
from skylarkmq.protocol.timers import TimerCheck


class WriteRefused(Exception):
    """The disk took nothing of what was to be written; `problem` is what it said."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class CheckWrite:
    """The check on its way to disk: replaced as a whole."""

    def __init__(self, path: str, check: TimerCheck, disk: Disk) -> None:
        self._path = path
        self.check = check
        self._disk = disk

    def sync(self) -> None:
        """Write and sync it. Called by the flusher's thread. WriteRefused."""
        directory = os.path.dirname(self._path)
        try:
            self._disk.make_directory(directory)
            self._disk.write_file(self._path + TEMPORARY_SUFFIX, self.check.encode())
            self._disk.rename(self._path + TEMPORARY_SUFFIX, self._path)
            self._disk.sync_directory(directory)
        except OSError as problem:
            if problem.errno in NO_DESCRIPTORS:
                raise
            raise WriteRefused(problem) from problem


class RoundWrite:
    """All of a round, in order. `refused`: what the disk said, once it would take no more of it."""

    def __init__(self, files: Sequence[Syncable]) -> None:
        self._files = files
        self.refused: OSError | None = None

    def sync(self) -> None:
        """Write and sync as much of it as the disk takes. OSError: a sync failed."""
        try:
            for file in self._files:
                file.sync()
        except WriteRefused as refusal:
            self.refused = refusal.problem
