"""Copies byte ranges of files.

A copy shares the blocks of the source (FICLONE) if the file system can do that. Else the kernel copies them, and if it
cannot, reads and writes do.

A copy is made in pieces, so that

    the rate       stays below a limit: the broker needs the disk, too
    dirty pages    are written continuously: a broker's sync would otherwise wait for gigabytes of them
    the checksum   of the source is computed while a piece is in memory, to be compared with what the copy contains
    page cache     keeps what the broker uses: pages of the source that the copy brought in are dropped again

A file that shares its blocks needs none of this.
"""

import errno
import os
import time
from collections.abc import Callable
from typing import Final

from isal.isal_zlib import crc32

from skylarkmq.broker.store.files.disk import Disk

PIECE_BYTES: Final = 8 << 20
_SYNC_EVERY_BYTES: Final = 64 << 20
_CANNOT: Final = frozenset(
    (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM, errno.EBADF, errno.ETXTBSY)
)
"""Errors of a file system that cannot share blocks, or cannot copy inside the kernel."""


class Pace:
    """Keeps work below `bytes_per_s` on average; 0: no limit."""

    def __init__(
        self,
        bytes_per_s: int,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_s
        self._now_s = now_s
        self._sleep = sleep
        self._free_at = now_s()

    def spend(self, count: int) -> None:
        """Wait until `count` more bytes are within the rate. Time without work is not saved up."""
        if not self._rate:
            return
        now_s = self._now_s()
        self._free_at = max(self._free_at, now_s) + count / self._rate
        if self._free_at > now_s:
            self._sleep(self._free_at - now_s)


class Copier:
    """Copies ranges. `shared` and `copied` count bytes, by how they were copied."""

    def __init__(self, disk: Disk, bytes_per_s: int, on_bytes: Callable[[int], None] = lambda _count: None) -> None:
        self._disk = disk
        self._pace = Pace(bytes_per_s)
        self._on_bytes = on_bytes
        self._can_share = True
        self._can_copy_in_kernel = True
        self.shared = 0
        self.copied = 0

    def share(self, source: int, fd: int, size: int) -> bool:
        """Make the file share all blocks of `source`, which has `size` bytes. False: the file system cannot."""
        if not self._can_share:
            return False
        try:
            self._disk.clone(source, fd)
        except OSError as problem:
            if problem.errno not in _CANNOT:
                raise
            self._can_share = False
            return False
        self.shared += size
        self._on_bytes(size)
        return True

    def copy(self, source: int, fd: int, begin: int, end: int, crc: int = 0) -> int:
        """Copy the bytes [begin, end) to the same place. Return `crc` continued over the bytes of the source.

        Raises OSError if the source is shorter.
        """
        unsynced = 0
        for at in range(begin, end, PIECE_BYTES):
            count = min(PIECE_BYTES, end - at)
            was_cached = _is_cached(source, at)
            crc = crc32(self._copy_piece(source, fd, at, count), crc)
            if not was_cached:
                os.posix_fadvise(source, at, count, os.POSIX_FADV_DONTNEED)
            unsynced += count
            if unsynced >= _SYNC_EVERY_BYTES:
                self._disk.fdatasync(fd)
                unsynced = 0
            self.copied += count
            self._on_bytes(count)
            self._pace.spend(count)
        return crc

    def _copy_piece(self, source: int, fd: int, at: int, count: int) -> bytes:
        """Copy a piece and return its bytes as the source contains them."""
        done = 0
        while self._can_copy_in_kernel and done < count:
            try:
                copied = self._disk.copy_range(source, fd, count - done, at + done)
            except OSError as problem:
                if problem.errno not in _CANNOT:
                    raise
                self._can_copy_in_kernel = False
                break
            if not copied:
                break
            done += copied
        data = read_range(source, at, count)
        if done < count:
            self._disk.pwrite(fd, memoryview(data)[done:], at + done)
        return data


def read_range(fd: int, at: int, count: int) -> bytes:
    """Return exactly `count` bytes. Raises OSError if the file is shorter."""
    data = os.pread(fd, count, at)
    while len(data) < count:
        more = os.pread(fd, count - len(data), at + len(data))
        if not more:
            raise OSError(errno.EIO, f"the file ends at byte {at + len(data)}, {count - len(data)} bytes are missing")
        data += more
    return data


def checksum(fd: int, begin: int, end: int, crc: int = 0, on_bytes: Callable[[int], None] = lambda _count: None) -> int:
    """Return `crc` continued over the bytes [begin, end) of a file."""
    for at in range(begin, end, PIECE_BYTES):
        count = min(PIECE_BYTES, end - at)
        crc = crc32(read_range(fd, at, count), crc)
        on_bytes(count)
    return crc


def _is_cached(fd: int, at: int) -> bool:
    """Return whether a byte is in the page cache. False if the kernel cannot tell."""
    try:
        return bool(os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT))
    except OSError:
        return False
