"""One segment of a log: a file of fixed size, written by pwrite, read through a read-only mapping.

The mapping and the file show the same bytes at once, so a reader needs no copy and no read call; writing through the
mapping would fault page by page and turn a full disk into a SIGBUS (docs/architecture.md, "Files"). `flush` of the
mapping is never used: it holds the GIL for the whole sync. Every mutation goes through the segment's `Disk`.

A segment does not know how much of it is written: positions belong to its owner.

Deleted segments. Whoever sends a segment's bytes for longer than one turn holds it (`hold`, `release`). `delete`
unlinks the file at once; mapping and descriptor stay until `close_if_free` finds that no holder and no view is left, so
that a transfer under way ends as it began and the disk gets its space back right behind it. A mapping is never torn
away from under a reader: `revoke` asks the holders to let go, which costs them their transfer.

Lost bytes. A file that is truncated, or whose disk fails, must not end the process when its mapping is read. A reader
calls `check` first: a file that is shorter than the segment has lost what is missing, and the last byte is touched, so
that a fault comes before the bytes are used. Faults in the mapping are handled by broker.page_faults; what they hit is
lost until the file is opened again. `look` does the same between reads, once a second. Lost bytes are logged once, with
file and offset. Only they are refused: readers go on with the rest of the segment, and writers with new messages.

Source: docs/formats.md, "Mapped files", "Retention".
"""

import logging
import mmap
import os
from typing import Protocol, Self

import numpy as np

from skylarkmq.broker.host import page_faults
from skylarkmq.broker.store.disk import Data, Disk
from skylarkmq.broker.store.errors import LostBytesError

log = logging.getLogger(__name__)

_ZEROS_OF_SIZE = 3  # a record begins with its size, of which so many bytes may be zero


class Holder(Protocol):
    """Who needs a segment's bytes beyond the turn in which it found them."""

    def let_go(self) -> None:
        """Give the transfer up and release the segment: now, or when the system call under way is back."""


class MappedFile:
    """The segment of `size` bytes that begins at byte `start` of its log."""

    __slots__ = (
        *("_disk", "_faults", "_holders", "_is_lost_logged", "_map"),
        *("address", "end", "fd", "is_deleted", "path", "size", "start", "view"),
    )

    def __init__(self, path: str, start: int, size: int, fd: int, disk: Disk) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size  # the first byte of the log that is not in this segment
        self.fd = fd
        self.is_deleted = False  # no longer part of the log; its bytes last as long as its holders
        self._holders: list[Holder] = []
        self._disk = disk
        self._map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        self._faults = page_faults.Range(self._map)
        self._is_lost_logged = False
        self.view = memoryview(self._map)
        self.address = np.frombuffer(self._map, np.uint8).ctypes.data  # of the mapping

    @classmethod
    def open(cls, path: str, start: int, size: int, disk: Disk) -> Self:
        """An existing segment; its length was checked by the caller."""
        fd = disk.open(path)
        try:
            return cls(path, start, size, fd, disk)
        except OSError:
            os.close(fd)
            raise

    def opened_again(self) -> "MappedFile":
        """The same file by a descriptor of its own, which is told of failed syncs for itself; to be closed."""
        return MappedFile.open(self.path, self.start, self.size, self._disk)

    def write(self, data: Data, at: int) -> None:
        """Write at byte `at` of the segment. OSError: how much of it arrived is unknown."""
        self._disk.pwrite(self.fd, data, at)

    def sync(self) -> None:
        """Everything written so far is on disk afterwards. Called by the flusher's thread."""
        try:
            self._disk.fdatasync(self.fd)
        except OSError:
            if not self.is_deleted:  # of a deleted segment nothing needs to last
                raise

    def distrust_cache(self) -> None:
        """Have what is read next come from the disk: after a failed sync the page cache shows what never got there.

        Pages that are still to be written stay, and so do mapped ones: to be called before the first look.
        """
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def stored_end(self, at: int) -> int:
        """Up to where bytes from `at` on are stored, be it as zeros; behind that, blocks are only reserved."""
        return os.lseek(self.fd, at, os.SEEK_HOLE)

    def zero(self, begin: int, end: int | None = None) -> int:
        """Clear bytes [begin, end) where anything is stored; what was never written is left unwritten.

        Returns how many bytes were not zero already.
        """
        return self._disk.clear(self.fd, begin, self.size if end is None else end)

    # lost bytes

    def check(self, begin: int, end: int) -> None:
        """Have bytes [begin, end) of the segment, which are in memory, be read without a fault. LostBytesError: some of
        them are lost."""
        if os.lseek(self.fd, 0, os.SEEK_END) < self.size:
            self._refuse_missing(begin, end)
        self._faults.touch(end - 1)
        self.check_faults(begin, end)

    def check_length(self, end: int) -> None:
        """The same of bytes up to `end` that are read from the file, and may be cold: LostBytesError if it is too
        short."""
        if os.lseek(self.fd, 0, os.SEEK_END) < self.size:
            self._refuse_missing(0, end)

    def check_faults(self, begin: int, end: int) -> None:
        """LostBytesError if a byte of [begin, end) had a fault."""
        first, behind = self._faults.lost
        if behind and begin < behind and end > first:
            self._note_lost(first, "cannot be read")
            raise LostBytesError(self.path, first, "cannot be read")

    def look(self) -> bool:
        """Whether no byte is known to be lost; the first time that one is, it is logged."""
        try:
            if self.fd >= 0:
                self.check_length(self.size)
                self.check_faults(0, self.size)
        except LostBytesError:
            return False
        return True

    def _refuse_missing(self, begin: int, end: int) -> None:
        """The file is too short: what was cut off is a hole, up to what was appended since."""
        first = behind = 0
        if os.lseek(self.fd, 0, os.SEEK_END):
            first = os.lseek(self.fd, 0, os.SEEK_HOLE)
        try:
            behind = os.lseek(self.fd, first, os.SEEK_DATA)
            page = os.pread(self.fd, mmap.PAGESIZE, behind)  # holes are whole pages: zeros in front of the first record
            behind += max(0, len(page) - len(page.lstrip(b"\0")) - _ZEROS_OF_SIZE)
        except OSError:
            behind = self.size  # nothing was
        self._note_lost(first, "file truncated")
        if begin < behind and end > first:
            raise LostBytesError(self.path, first, "file truncated")

    def _note_lost(self, at: int, reason: str) -> None:
        if not self._is_lost_logged:
            self._is_lost_logged = True
            log.error("log segment has lost bytes, reads of them fail file=%s at=%d reason=%s", self.path, at, reason)

    # holders

    @property
    def holders(self) -> int:
        """How many transfers need the bytes."""
        return len(self._holders)

    def hold(self, holder: Holder) -> None:
        """Keep mapping and descriptor until `release`; a holder may hold several times."""
        self._holders.append(holder)

    def release(self, holder: Holder) -> None:
        """Take one hold back. ValueError: it has none."""
        self._holders.remove(holder)

    def revoke(self) -> None:
        """Have every holder let go."""
        for holder in tuple(self._holders):
            holder.let_go()

    # the end

    def delete(self) -> None:
        """Unlink the file. It may take long and is called by a helper thread; OSError as the disk gives it."""
        try:
            self._disk.unlink(self.path)
        except FileNotFoundError:
            log.warning("segment was gone before its deletion path=%s", self.path)
        self._disk.sync_directory(os.path.dirname(self.path))

    def close_if_free(self) -> bool:
        """Give up mapping and descriptor if nobody needs them. The last one of a deleted file frees its blocks, which
        may take long: called by a helper thread, once nothing but the holders knows the segment."""
        if self.fd >= 0 and not self._holders and self._unmap():
            os.close(self.fd)
            self.fd = -1
        return self.fd < 0

    def close(self) -> None:
        """Give up mapping and descriptor; a reader that still holds a view keeps the mapping alive by itself."""
        if self.fd < 0:
            return
        if not self._unmap():
            log.debug("segment still read at close path=%s", self.path)
        os.close(self.fd)
        self.fd = -1

    def _unmap(self) -> bool:
        try:
            self.view.release()
            self._map.close()
            self._faults.forget()
        except BufferError:
            self.view = memoryview(self._map)
            return False
        return True

    def __repr__(self) -> str:
        return f"<MappedFile {self.path} size={self.size}>"
