"""A disk on which one chosen system call fails.

`fail_at` selects a system call by its number since the disk was created; that call raises the error, or writes only
half. A failed sync has the effect that it has in Linux: the pages count as clean but are not on disk. From then on the
file's bytes never become durable here, however often it is synced, and a power cut may lose them.
"""

import errno
import os
from pathlib import Path
from random import Random
from typing import Final

from skylarkmq.broker.store.files.disk import Data
from tests.harness.simulated_disk import SimulatedDisk

SHORT_WRITE: Final = -1
PROBLEMS: Final = (errno.EIO, errno.ENOSPC, errno.EROFS, SHORT_WRITE)
_SYNCS: Final = {"fdatasync", "fsync"}


class FaultyDisk(SimulatedDisk):
    """`made`: the calls so far, by name. `length`: how many calls in a row fail, starting at `fail_at`."""

    def __init__(self, root: Path, fail_at: int = -1, problem: int = errno.EIO, length: int = 1) -> None:
        super().__init__(root)
        self.made: list[str] = []
        self._failing = range(fail_at, fail_at + length) if fail_at >= 0 else range(0)
        self._problem = problem
        self._poisoned: set[int] = set()  # inode numbers

    @property
    def has_lost_pages(self) -> bool:
        """Return whether a sync failed: the kernel's content of a file differs from that of the disk."""
        return bool(self._poisoned)

    def cut(self, rng: Random) -> None:
        super().cut(rng)
        self._poisoned.clear()

    def heal(self) -> None:
        """Let all further calls succeed; what was lost stays lost."""
        self._failing = range(0)

    def _before(self, call: str, target: str | int) -> None:
        super()._before(call, target)
        number = len(self.made)
        self.made.append(call)
        if number not in self._failing or self._problem == SHORT_WRITE:
            return
        if call in _SYNCS and isinstance(target, int):
            self._poisoned.add(os.fstat(target).st_ino)
        raise OSError(self._problem, f"injected:  {os.strerror(self._problem)}", str(target))

    def make(self, path: str) -> int:
        fd = super().make(path)
        self._poisoned.discard(os.fstat(fd).st_ino)  # emptied, so it has no missing bytes
        return fd

    def make_new(self, path: str, mode: int = 0o644) -> int:
        fd = super().make_new(path, mode)
        self._poisoned.discard(os.fstat(fd).st_ino)
        return fd

    def write_some(self, fd: int, data: Data, at: int) -> int:
        if self._problem == SHORT_WRITE and len(self.made) in self._failing:
            return super().write_some(fd, data[: len(data) // 2], at)
        return super().write_some(fd, data, at)

    def _settle(self, fd: int) -> None:
        if os.fstat(fd).st_ino not in self._poisoned:
            super()._settle(fd)
