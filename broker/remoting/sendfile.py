"""Sending file data to a socket: the system calls, the thread pool for those that may block, and the counters.

A region that is in memory leaves by `os.sendfile` in the event loop. A region that may not be in memory is sent by a
thread, so that the disk delays no other connection; the thread only makes system calls that release the GIL. If there
is no plain socket to send to (TLS), or `transferMsgByHeap` is set, the thread reads the bytes and the transport writes
them.

The transport keeps its descriptor. Data is sent to a duplicate, which the event loop can watch separately, and only
while the transport has nothing left to write.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

import msgspec

SENDFILE_FROM_BYTES: Final = 32 << 10
"""From this size on, sendfile of a region costs no more than copying: 20.3 against 19.7 µs at 16 KiB, 22.6 against
23.4 at 40 KiB, 179 against 229 at 1 MiB. See docs/benchmarks/broker.md, "Zero-copy pulls"."""

READ_AHEAD_BYTES: Final = 1 << 20  # requested from the kernel at a cold position: reads continue there
CHUNK_BYTES: Final = 256 << 10  # read at a time if the bytes have to be copied
THREADS: Final = 4

log = logging.getLogger(__name__)


class Holder(Protocol):
    """A user of a file's bytes beyond the read batch in which it found them."""

    def abort_transfer(self) -> None:
        """Give up the transfer and release the file, at once or when the system call in progress returns."""


class FileRegion(Protocol):
    """`size` bytes of a file from byte `position`. Descriptor and mapping stay valid while the file is pinned."""

    @property
    def fd(self) -> int:
        """Return the file's descriptor; negative for bytes in memory of their own."""

    @property
    def position(self) -> int:
        """Return the offset of the first byte in the file."""

    @property
    def size(self) -> int:
        """Return the number of bytes."""

    @property
    def is_hot(self) -> bool:
        """Return whether the bytes are in memory, so that reading them does not block."""

    def parts_after(self, head: bytes) -> Sequence[bytes | memoryview]:
        """Return `head` and the bytes; views of the mapping are valid beyond the read batch only while the file is
        pinned."""

    def hold(self, holder: Holder) -> None:
        """Pin descriptor and mapping until `release`."""

    def release(self, holder: Holder) -> None:
        """Undo one `hold`."""


class TransferStatistics(msgspec.Struct, frozen=True):
    """How bytes were sent: calls and bytes since the start; `waiting` regions and `backlog_bytes` now.

    `copied`: written as bytes. `sent`: by sendfile in the event loop. `cold_sent`: by sendfile in a thread.
    `cold_read`: read by a thread, then copied (and counted there, too). `cut`: transfers that ended before their last
    byte because a file failed or was deleted.
    """

    copied_calls: int
    copied_bytes: int
    sent_calls: int
    sent_bytes: int
    cold_sent_calls: int
    cold_sent_bytes: int
    cold_read_calls: int
    cold_read_bytes: int
    cut: int
    waiting: int
    backlog_bytes: int


class FileSends:
    """The state shared by all transfers: counters, and threads that start with the first cold region."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self.copied_calls = self.copied_bytes = 0
        self.sent_calls = self.sent_bytes = 0
        self.cold_sent_calls = self.cold_sent_bytes = 0
        self.cold_read_calls = self.cold_read_bytes = 0
        self.cut = 0
        self.waiting = 0

    def __repr__(self) -> str:
        return f"<FileSends waiting={self.waiting}>"

    def statistics(self, backlog_bytes: int) -> TransferStatistics:
        """Return the current figures."""
        return TransferStatistics(
            copied_calls=self.copied_calls,
            copied_bytes=self.copied_bytes,
            sent_calls=self.sent_calls,
            sent_bytes=self.sent_bytes,
            cold_sent_calls=self.cold_sent_calls,
            cold_sent_bytes=self.cold_sent_bytes,
            cold_read_calls=self.cold_read_calls,
            cold_read_bytes=self.cold_read_bytes,
            cut=self.cut,
            waiting=self.waiting,
            backlog_bytes=backlog_bytes,
        )

    def note_copied(self, count: int) -> None:
        """Count `count` bytes handed to a transport."""
        self.copied_calls += 1
        self.copied_bytes += count

    def send_hot(self, sock: socket.socket, fd: int, at: int, count: int) -> int:
        """Send bytes that are in memory; return how many the socket took. Raises OSError, also BlockingIOError."""
        sent = os.sendfile(sock.fileno(), fd, at, count)
        self.sent_calls += 1
        self.sent_bytes += sent
        return sent

    def send_behind_head(self, sock: socket.socket, head: bytes, region: FileRegion) -> tuple[int, OSError | None]:
        """Send `head`, and a region that is in memory in the same packets. Return the number of bytes that the socket
        took, and the error, if any."""
        sent = 0
        try:
            sent = sock.send(head, socket.MSG_MORE)
            self.note_copied(sent)
            if sent == len(head):
                sent += self.send_hot(sock, region.fd, region.position, region.size)
        except BlockingIOError:
            pass
        except OSError as problem:
            return sent, problem
        return sent, None

    def send_cold(self, sock: socket.socket, fd: int, at: int, count: int) -> "asyncio.Future[int]":
        """Send bytes that may not be in memory, in a thread. Socket and file must stay open until it is done."""
        return asyncio.get_running_loop().run_in_executor(self._threads(), _send, sock.fileno(), fd, at, count)

    def note_cold_sent(self, count: int) -> None:
        """Count `count` bytes sent by a thread."""
        self.cold_sent_calls += 1
        self.cold_sent_bytes += count

    def read_cold(self, fd: int, at: int, count: int) -> "asyncio.Future[bytes]":
        """Read up to CHUNK_BYTES of the `count` bytes at `at` in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._threads(), _read, fd, at, min(count, CHUNK_BYTES))

    def note_cold_read(self, count: int) -> None:
        """Count `count` bytes read by a thread."""
        self.cold_read_calls += 1
        self.cold_read_bytes += count

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "skylark-transfer")
        return self._pool

    def close(self) -> None:
        """Stop the threads after their current calls."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def takes_files(transport: asyncio.Transport) -> bool:
    """Return whether sendfile to the transport's socket is possible: it has one and does not encrypt."""
    return transport.get_extra_info("socket") is not None and transport.get_extra_info("ssl_object") is None


def duplicate_socket(transport: asyncio.Transport) -> socket.socket | None:
    """Return a duplicate of the transport's socket to send to; None if no descriptor is left.

    The caller closes it. The connection stays open until both are closed.
    """
    theirs = transport.get_extra_info("socket")
    try:
        fd = os.dup(theirs.fileno())
    except OSError as problem:
        log.warning("no descriptor to send files with, they are copied error=%s", problem)
        return None
    return socket.socket(theirs.family, theirs.type, theirs.proto, fileno=fd)


def end_sends(sock: socket.socket) -> None:
    """Make a thread that sends to `sock` return."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the peer has closed it already


def _send(out: int, fd: int, at: int, count: int) -> int:
    os.posix_fadvise(fd, at, max(count, READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
    return os.sendfile(out, fd, at, count)


def _read(fd: int, at: int, count: int) -> bytes:
    os.posix_fadvise(fd, at, max(count, READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
    return os.pread(fd, count, at)
