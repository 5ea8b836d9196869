"""One segment of a log: a file of fixed size, written by pwrite, read through a read-only mapping.

Mapping and file always show the same bytes, so a reader needs no copy and no read call. Writing through the mapping
would fault page by page and turn a full disk into a SIGBUS (docs/decisions/0003-pwrite-not-mmap.md). `flush` of the
mapping is never used: it holds the GIL for the whole sync. Every mutation goes through the segment's `Disk`.

A segment does not track how much of it is written. Its owner tracks positions.

Deleted segments. A transfer that sends a segment's bytes for longer than one event-loop iteration holds the segment
(`hold`, `release`). `delete` unlinks the file at once. Mapping and descriptor stay until `close_if_free` finds no
holder and no view. So a running transfer completes, and the disk space is freed right after it. No mapping is removed
while a reader uses it: `revoke` asks the holders to abort their transfers.

Lost bytes. A truncated file or a failing disk must not end the process when its mapping is read. A reader calls `check`
first. A file that is shorter than the segment has lost the missing bytes. `check` also touches the last byte, so that a
fault comes before the bytes are used. broker.page_faults handles faults in the mapping. Bytes that a fault hit are lost
until the file is reopened. `check_for_lost_bytes` does the same between reads, once a second. A segment's first loss is
logged with file and offset. Only reads of lost bytes fail: other reads of the segment and new messages still succeed.

Source: docs/reference/disk.md, "Mapped files", "Retention".
"""

import logging
import mmap
import os
from typing import Protocol, Self

import numpy as np

from skylarkmq.broker.base import page_faults
from skylarkmq.broker.store.files.disk import Data, Disk
from skylarkmq.broker.store.files.errors import LostBytesError

log = logging.getLogger(__name__)

_ZEROS_OF_SIZE = 3  # a record begins with its size, of which this many bytes may be zero


class Holder(Protocol):
    """A transfer that needs a segment's bytes beyond the event-loop iteration in which it found them."""

    def abort_transfer(self) -> None:
        """Abort the transfer and release the segment: now, or when the system call under way has returned."""


class MappedFile:
    """The segment of `size` bytes that begins at byte `start` of its log."""

    __slots__ = (
        "_disk", "_faults", "_holders", "_is_lost_logged", "_map",
        "address", "end", "fd", "is_deleted", "path", "size", "start", "view",
    )  # fmt: skip

    def __init__(self, path: str, start: int, size: int, fd: int, disk: Disk) -> None:
        self.path = path
        self.start = start
        self.size = size
        self.end = start + size  # the first byte of the log that is not in this segment
        self.fd = fd
        self.is_deleted = False  # no longer part of the log; its bytes stay readable while it has holders
        self._holders: list[Holder] = []
        self._disk = disk
        self._map = mmap.mmap(fd, size, access=mmap.ACCESS_READ)
        self._faults = page_faults.Range(self._map)
        self._is_lost_logged = False
        self.view = memoryview(self._map)
        self.address = np.frombuffer(self._map, np.uint8).ctypes.data  # address of the mapping

    @classmethod
    def open(cls, path: str, start: int, size: int, disk: Disk) -> Self:
        """Open an existing segment. The caller has checked its length."""
        fd = disk.open(path)
        try:
            return cls(path, start, size, fd, disk)
        except OSError:
            os.close(fd)
            raise

    def opened_again(self) -> "MappedFile":
        """Open the file once more; the caller closes it. The kernel reports failed syncs to each descriptor."""
        return MappedFile.open(self.path, self.start, self.size, self._disk)

    def write(self, data: Data, at: int) -> None:
        """Write at byte `at` of the segment. Raises OSError: the number of bytes written is then unknown."""
        self._disk.pwrite(self.fd, data, at)

    def sync(self) -> None:
        """Make everything written so far durable. The flusher's thread calls this."""
        try:
            self._disk.fdatasync(self.fd)
        except OSError:
            if not self.is_deleted:  # a deleted segment needs no durability
                raise

    def drop_page_cache(self) -> None:
        """Drop the file's clean pages, so that later reads come from the disk.

        After a failed sync the page cache shows bytes that never reached the disk. Dirty pages and mapped pages stay:
        call this before the first read through the mapping.
        """
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def stored_end(self, at: int) -> int:
        """Return the end of the allocated data from `at` on, zeros included; blocks after it are only reserved."""
        return os.lseek(self.fd, at, os.SEEK_HOLE)

    def zero(self, begin: int, end: int | None = None) -> int:
        """Clear bytes [begin, end) where data is stored. Unwritten blocks stay unwritten.

        Return how many bytes were not zero before.
        """
        return self._disk.clear(self.fd, begin, self.size if end is None else end)

    # lost bytes

    def check(self, begin: int, end: int) -> None:
        """Ensure that reading bytes [begin, end) of the segment, which are in memory, cannot fault.

        Raises LostBytesError if some of them are lost.
        """
        if os.lseek(self.fd, 0, os.SEEK_END) < self.size:
            self._refuse_missing(begin, end)
        self._faults.touch(end - 1)
        self.check_faults(begin, end)

    def check_length(self, end: int) -> None:
        """Check bytes up to `end` that are read from the file and may be cold.

        Raises LostBytesError if the file is too short.
        """
        if os.lseek(self.fd, 0, os.SEEK_END) < self.size:
            self._refuse_missing(0, end)

    def check_faults(self, begin: int, end: int) -> None:
        """Raise LostBytesError if a byte of [begin, end) had a fault."""
        first, lost_end = self._faults.lost
        if lost_end and begin < lost_end and end > first:
            self._note_lost(first, "cannot be read")
            raise LostBytesError(self.path, first, "cannot be read")

    def check_for_lost_bytes(self) -> bool:
        """Return whether no byte is known to be lost. The first loss is logged."""
        try:
            if self.fd >= 0:
                self.check_length(self.size)
                self.check_faults(0, self.size)
        except LostBytesError:
            return False
        return True

    def _refuse_missing(self, begin: int, end: int) -> None:
        """Raise LostBytesError if [begin, end) overlaps the missing part of a file that is too short.

        The missing part is a hole of the file, up to what was appended since.
        """
        first = lost_end = 0
        if os.lseek(self.fd, 0, os.SEEK_END):
            first = os.lseek(self.fd, 0, os.SEEK_HOLE)
        try:
            lost_end = os.lseek(self.fd, first, os.SEEK_DATA)
            page = os.pread(self.fd, mmap.PAGESIZE, lost_end)  # holes are whole pages: zeros precede the first record
            lost_end += max(0, len(page) - len(page.lstrip(b"\0")) - _ZEROS_OF_SIZE)
        except OSError:
            lost_end = self.size  # nothing was appended
        self._note_lost(first, "file truncated")
        if begin < lost_end and end > first:
            raise LostBytesError(self.path, first, "file truncated")

    def _note_lost(self, at: int, reason: str) -> None:
        if not self._is_lost_logged:
            self._is_lost_logged = True
            log.error("log segment has lost bytes, reads of them fail file=%s at=%d reason=%s", self.path, at, reason)

    # holders

    @property
    def holders(self) -> int:
        """Number of transfers that hold the segment."""
        return len(self._holders)

    def hold(self, holder: Holder) -> None:
        """Keep mapping and descriptor until `release`. A holder may hold a segment several times."""
        self._holders.append(holder)

    def release(self, holder: Holder) -> None:
        """Remove one hold. Raises ValueError if the holder has none."""
        self._holders.remove(holder)

    def revoke(self) -> None:
        """Ask every holder to abort its transfer."""
        for holder in tuple(self._holders):
            holder.abort_transfer()

    # the end

    def delete(self) -> None:
        """Unlink the file. This may take long, so a helper thread calls it. Raises OSError from the disk."""
        try:
            self._disk.unlink(self.path)
        except FileNotFoundError:
            log.warning("segment file was already deleted path=%s", self.path)
        self._disk.sync_directory(os.path.dirname(self.path))

    def close_if_free(self) -> bool:
        """Close mapping and descriptor if no holder and no view is left. Return whether they are closed.

        Closing the last descriptor of a deleted file frees its blocks, which may take long. So a helper thread calls
        this, once only the holders refer to the segment.
        """
        if self.fd >= 0 and not self._holders and self._unmap():
            os.close(self.fd)
            self.fd = -1
        return self.fd < 0

    def close(self) -> None:
        """Close mapping and descriptor. A reader with a view keeps the mapping alive by itself."""
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
