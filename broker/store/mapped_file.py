"""One segment of a log: a file of fixed size, written by pwrite, read through a read-only mapping.

The mapping and the file show the same bytes at once, so a reader needs no copy and no read call; writing through the
mapping would fault page by page and turn a full disk into a SIGBUS (docs/architecture.md, "Files"). `flush` of the
mapping is never used: it holds the GIL for the whole sync. Every mutation goes through the segment's `Disk`.

A segment does not know how much of it is written: positions belong to its owner.
"""

import logging
import mmap
import os
from typing import Self

from broker.store.disk import Data, Disk

log = logging.getLogger(__name__)


class MappedFile:
    """The segment of `size` bytes that begins at byte `start` of its log."""

    __slots__ = ("_disk", "_map", "fd", "path", "size", "start", "view")

    def __init__(self, path: str, start: int, size: int, fd: int, disk: Disk) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.fd = fd
        self._disk = disk
        self._map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        self.view = memoryview(self._map)

    @classmethod
    def open(cls, path: str, start: int, size: int, disk: Disk) -> Self:
        """An existing segment; its length was checked by the caller."""
        fd = disk.open(path)
        try:
            return cls(path, start, size, fd, disk)
        except OSError:
            os.close(fd)
            raise

    @property
    def end(self) -> int:
        """The first byte of the log that is not in this segment."""
        return self.start + self.size

    def write(self, data: Data, at: int) -> None:
        """Write at byte `at` of the segment. OSError: how much of it arrived is unknown."""
        self._disk.pwrite(self.fd, data, at)

    def sync(self) -> None:
        """Everything written so far is on disk afterwards. Called by the flusher's thread."""
        self._disk.fdatasync(self.fd)

    def zero(self, begin: int, end: int | None = None) -> int:
        """Clear bytes [begin, end) where anything is stored; what was never written is left unwritten.

        Returns how many bytes were not zero already.
        """
        return self._disk.clear(self.fd, begin, self.size if end is None else end)

    def close(self) -> None:
        """Give up mapping and descriptor; a reader that still holds a view keeps the mapping alive by itself."""
        if self.fd < 0:
            return
        try:
            self.view.release()
            self._map.close()
        except BufferError:
            log.debug("segment still read at close path=%s", self.path)
        os.close(self.fd)
        self.fd = -1

    def __repr__(self) -> str:
        return f"<MappedFile {self.path} size={self.size}>"
