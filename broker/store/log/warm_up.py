"""Warm segments: the one that is appended to is kept in memory, so that its reader never waits for the disk.

A new segment was written beforehand (`broker/store/log/allocation.py`), so its pages are in the page cache; here its
mapping is locked, and that of the segment before, which is full now, unlocked. A gigabyte takes its time, so a
short-lived thread does it; nobody waits for that.

With a transient pool the memory that is appended to is locked already, and there is nothing to do here.

Source: docs/formats.md, "Mapped files".
"""

import threading
from typing import Self

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.disk import Disk
from skylarkmq.broker.store.log import locked_memory
from skylarkmq.broker.store.log.mapped_file import MappedFile


class WarmUp:
    """Locks the newest segment of one log."""

    def __init__(self) -> None:
        self._locked: memoryview | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, config: StoreConfig) -> Self | None:
        """The warm-up of a store; None when it does without."""
        return cls() if config.warm_maped_file_enable else None

    def segment(self, path: str, start: int, size: int, fd: int, disk: Disk) -> MappedFile:
        """A new segment, on its way into memory."""
        segment = MappedFile(path, start, size, fd, disk)
        before, self._locked = self._locked, segment.view[:]
        self._thread = threading.Thread(
            target=_turn_over, args=(before, self._locked, path), name="skylark-warm-up", daemon=True
        )
        self._thread.start()
        return segment

    def close(self) -> None:
        """Unlock what is locked; the segment is free to be closed then."""
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
