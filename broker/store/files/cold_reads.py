"""Reads that do not wait for a disk, and the threads that wait instead.

A page fault on a cold mapping stops the event loop, and every connection with it, until the disk has delivered the
page. So bytes that may be cold are read with `preadv(RWF_NOWAIT)`: the kernel returns them if they are in memory, and
an error if they are not. Then `read` raises `ColdRead`. The caller fetches the range and runs the request again from
the start:

    try: result = handler()                     a plain call, as long as everything is in memory
    except ColdRead as cold: await fetch(cold)  a thread reads the bytes into the page cache; other requests go on

Code that reads through this module must be repeatable: it changes nothing before it has read everything.

A range that was fetched and is cold again when it is read means that memory is short. The loop then waits for it, so
that every request ends. At most `threads` fetches run at a time, each with a buffer of 256 KiB. A range that several
requests need is fetched once. Until `start`, and on file systems without RWF_NOWAIT, reads wait.
"""

import asyncio
import errno
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

import msgspec

from skylarkmq.broker.store.files.errors import LostBytesError

log = logging.getLogger(__name__)

READ_AHEAD_BYTES: Final = 1 << 20
"""Bytes requested from the kernel at a cold offset: a consumer that catches up finds its next pulls in memory."""

_SCRATCH_BYTES: Final = 256 << 10
_FETCHED_FOR_S: Final = 1.0  # for how long a fetched range that is cold again is read in the loop
_FETCHED_KEPT: Final = 1_024


class Range(NamedTuple):
    """`size` bytes of a file from byte `at` on."""

    path: str
    at: int
    size: int


class ColdRead(Exception):
    """The bytes of `range` are not in memory."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(f"{wanted.size} bytes of {wanted.path} from {wanted.at} are not in memory")
        self.range = wanted


class ColdReadStatistics(msgspec.Struct, frozen=True):
    """`under_way`: current fetches. Totals since the start: cold ranges, fetched ranges, ranges read in the loop."""

    under_way: int
    cold: int
    fetched: int
    waited: int


class ColdReads:
    """Reads of files that may be cold. Everything except the fetch runs in the event loop's thread."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._flags = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: dict[Range, asyncio.Future[None]] = {}
        self._fetched_at: dict[Range, float] = {}
        self._cold = 0
        self._fetched = 0
        self._waited = 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Stop waiting: from now on `read` raises ColdRead."""
        self._loop = loop
        self._flags = os.RWF_NOWAIT

    def close(self) -> None:
        """End the threads after their current reads. Later reads wait again."""
        self._flags = 0
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def read(self, fd: int, path: str, at: int, count: int) -> bytearray:
        """Read `count` bytes at `at` of `path`, open as `fd`.

        Raises ColdRead if they are not in memory, LostBytesError if the file is too short, OSError if the disk fails.
        """
        buffer = bytearray(count)
        try:
            got = os.preadv(fd, (buffer,), at, self._flags)
        except BlockingIOError:
            got = 0
        except OSError as problem:
            if problem.errno != errno.EOPNOTSUPP or not self._flags:
                raise
            log.warning("file system does not support RWF_NOWAIT, cold reads block the event loop path=%s", path)
            self._flags = got = 0
        if got != count:
            self._read_rest(fd, Range(path, at, count), buffer, got)
        return buffer

    def _read_rest(self, fd: int, wanted: Range, buffer: bytearray, got: int) -> None:
        if self._flags and self._loop is not None:
            self._cold += 1
            if self._fetched_at.get(wanted, -_FETCHED_FOR_S) + _FETCHED_FOR_S < self._loop.time():
                raise ColdRead(wanted)
            self._waited += 1
        view = memoryview(buffer)
        while got < wanted.size:
            more = os.preadv(fd, (view[got:],), wanted.at + got)
            if not more:
                raise LostBytesError(wanted.path, wanted.at + got, "file truncated")
            got += more

    def fetch(self, cold: ColdRead) -> asyncio.Future[None]:
        """Return a future that is done once the range is in memory or has failed: then read again.

        Do not cancel it: other requests may share it.
        """
        wanted = cold.range
        future = self._under_way.get(wanted)
        if future is None:
            loop = self._loop or asyncio.get_running_loop()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "skylark-cold-read")
            future = self._under_way[wanted] = loop.run_in_executor(self._pool, _load_into_page_cache, wanted)
            future.add_done_callback(partial(self._note_fetched, wanted))
        return future

    def _note_fetched(self, wanted: Range, future: asyncio.Future[None]) -> None:
        del self._under_way[wanted]
        self._fetched += 1
        fetched_at = self._fetched_at
        fetched_at.pop(wanted, None)
        fetched_at[wanted] = future.get_loop().time()
        if len(fetched_at) > _FETCHED_KEPT:
            del fetched_at[next(iter(fetched_at))]

    def statistics(self) -> ColdReadStatistics:
        """Return a snapshot."""
        return ColdReadStatistics(len(self._under_way), self._cold, self._fetched, self._waited)

    def __repr__(self) -> str:
        return f"<ColdReads under_way={len(self._under_way)} fetched={self._fetched}>"


def _load_into_page_cache(wanted: Range) -> None:
    """Read a range into the page cache, in a thread. The next read of the range reports its errors."""
    try:
        fd = os.open(wanted.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        log.debug("cold range not opened path=%s error=%s", wanted.path, problem)
        return
    try:
        os.posix_fadvise(fd, wanted.at, max(wanted.size, READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
        scratch = memoryview(bytearray(min(wanted.size, _SCRATCH_BYTES)))
        at, end = wanted.at, wanted.at + wanted.size
        while at < end and (got := os.preadv(fd, (scratch[: end - at],), at)):
            at += got
    except OSError as problem:
        log.warning("cold range not read path=%s at=%d error=%s", wanted.path, wanted.at, problem)
    finally:
        os.close(fd)
