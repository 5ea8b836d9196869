"""Warm segments: the newest segment is kept in memory, so that reads of it never wait for the disk.

The pages of a new segment are in the page cache, because the allocator has written them
(`broker/store/files/allocation.py`). This module locks its mapping, and unlocks the mapping of the previous, full
segment. Locking a gigabyte takes long, so a short-lived thread does it, and the caller does not wait.

With a transient pool the memory that receives appends is locked already, so this module is not used.

Source: docs/reference/disk.md, "Mapped files".
"""

import threading
from typing import Self

from skylarkmq.broker.store.files import locked_memory
from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.mapped_file import MappedFile


class WarmUp:
    """Locks the newest segment of one log."""

    def __init__(self) -> None:
        self._locked: memoryview | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, config: StoreConfig) -> Self | None:
        """Return the warm-up of a store; None if it is disabled."""
        return cls() if config.warm_maped_file_enable else None

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """Return a new segment and start to lock it in memory."""
        segment = MappedFile(path, start, size, fd, disk)
        before, self._locked = self._locked, segment.view[:]
        self._thread = threading.Thread(
            target=_turn_over, args=(before, self._locked, path), name="skylark-warm-up", daemon=True
        )
        self._thread.start()
        return segment

    def close(self) -> None:
        """Unlock the locked segment, so that it can be closed."""
        if self._thread is not None and self._locked is not None:
            self._thread.join()
            _turn_over(self._locked, None, "")
            self._thread = self._locked = None

    def __repr__(self) -> str:
        return f"<WarmUp locked={0 if self._locked is None else self._locked.nbytes}>"


def _turn_over(before: memoryview | None, now: memoryview | None, name: str) -> None:
    if before is not None:
        locked_memory.unlock(before)
        before.release()
    if now is not None:
        locked_memory.lock(now, name)
