"""One round of writes to the timer files, which the flusher's thread makes.

    commit log flushed ─▶ timer log synced ─▶ wheel written and synced ─▶ timercheck replaced

If the disk refuses a write (because it is full or temporarily read-only), nothing is lost: the data is still in memory,
and the next round writes it. `refused` reports this case. After a failed sync the state of the disk is unknown; it
raises OSError, which ends the flusher. The check file is replaced as a whole, by a rename. If any part of that fails,
the previous check file remains, so the next round repeats it as well.

Source: docs/reference/disk.md, "Timer files".
"""

import os
from collections.abc import Sequence

from skylarkmq.broker.store.files.disk import NO_DESCRIPTORS, TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.flush.flusher import Syncable
from skylarkmq.protocol.timers import TimerCheck


class WriteRefused(Exception):
    """The disk refused a write, and nothing of it counts; `problem` is its error."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem


class CheckWrite:
    """The check file, replaced as a whole."""

    def __init__(self, path: str, check: TimerCheck, disk: Disk) -> None:
        self._path = path
        self.check = check
        self._disk = disk

    def sync(self) -> None:
        """Write and sync the file. The flusher's thread calls this. Raises WriteRefused."""
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
    """All writes of a round, in order. `refused`: the disk's error if it refused one of them."""

    def __init__(self, files: Sequence[Syncable]) -> None:
        self._files = files
        self.refused: OSError | None = None

    def sync(self) -> None:
        """Write and sync the files up to the first refused write. Raises OSError if a sync fails."""
        try:
            for file in self._files:
                file.sync()
        except WriteRefused as refusal:
            self.refused = refusal.problem
