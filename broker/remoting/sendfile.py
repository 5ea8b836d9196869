"""Bytes of files on their way to a socket: the system calls, the thread pool for those that may wait, and who counts.

A region that is in memory leaves by `os.sendfile` in the event loop. One that may not be is sent by a thread, so that
the disk stops nobody else; the thread makes system calls that release the GIL, and nothing but those. Where there is no
socket of our own to send to (TLS), or `transferMsgByHeap` says so, the thread reads the bytes instead and the transport
writes them.

The transport goes on owning its descriptor. We send to a duplicate, which the event loop can watch beside it, and only
while the transport itself has nothing left to write.
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
"""From so many bytes on a region costs no more by sendfile than by copying it: 20.3 against 19.7 us at 16 KiB, 22.6
against 23.4 at 40 KiB, 179 against 229 at a MiB. See docs/performance.md, "Zero-copy pulls"."""

READ_AHEAD_BYTES: Final = 1 << 20  # what the kernel is asked for at a cold place: readers go on
CHUNK_BYTES: Final = 256 << 10  # read at once, where the bytes have to be copied
THREADS: Final = 4

log = logging.getLogger(__name__)


class Holder(Protocol):
    """Who needs a file's bytes beyond the turn in which it found them."""

    def let_go(self) -> None:
        """Give the transfer up and release the file, now or when the system call under way is back."""


class FileRegion(Protocol):
    """`size` bytes of a file from byte `position`. Descriptor and mapping last as long as it is held."""

    @property
    def fd(self) -> int:
        """The file's descriptor; negative for bytes that are in no file, but in memory of their own."""

    @property
    def position(self) -> int:
        """The first byte."""

    @property
    def size(self) -> int:
        """How many."""

    @property
    def is_hot(self) -> bool:
        """Whether it is in memory, so that it may be touched."""

    def parts_behind(self, head: bytes) -> Sequence[bytes | memoryview]:
        """`head` and the bytes; views of the mapping are not kept beyond the turn without a hold."""

    def hold(self, holder: Holder) -> None:
        """Keep descriptor and mapping until `release`."""

    def release(self, holder: Holder) -> None:
        """Take one hold back."""


class TransferStatistics(msgspec.Struct, frozen=True):
    """How bytes left, in calls and bytes since the start; `waiting` regions and `backlog_bytes` now.

    `copied`: written as bytes, whatever they were. `sent`: by sendfile in the event loop. `cold_sent`: by
    sendfile in a thread. `cold_read`: read by a thread, then copied (and counted there, too). `cut`: transfers that
    ended before their last byte because a file failed or was taken away.
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
    """What all transfers share: threads, which begin with the first cold region, and figures."""

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
        """The figures now."""
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
        """The transport got `count` bytes."""
        self.copied_calls += 1
        self.copied_bytes += count

    def send_hot(self, sock: socket.socket, fd: int, at: int, count: int) -> int:
        """Send what the socket takes of bytes that are in memory; returns how many. OSError, BlockingIOError too."""
        sent = os.sendfile(sock.fileno(), fd, at, count)
        self.sent_calls += 1
        self.sent_bytes += sent
        return sent

    def send_behind_head(self, sock: socket.socket, head: bytes, region: FileRegion) -> tuple[int, OSError | None]:
        """Send `head`, and a region that is in memory in the same packets. Returns how much the socket took, and what
        went wrong."""
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
        """The same of bytes that may not be, in a thread. Socket and file stay open until it is done."""
        return asyncio.get_running_loop().run_in_executor(self._threads(), _send, sock.fileno(), fd, at, count)

    def note_cold_sent(self, count: int) -> None:
        """A thread has sent `count` bytes."""
        self.cold_sent_calls += 1
        self.cold_sent_bytes += count

    def read_cold(self, fd: int, at: int, count: int) -> "asyncio.Future[bytes]":
        """Up to CHUNK_BYTES of the `count` bytes at `at`, read in a thread."""
        return asyncio.get_running_loop().run_in_executor(self._threads(), _read, fd, at, min(count, CHUNK_BYTES))

    def note_cold_read(self, count: int) -> None:
        """A thread has read `count` bytes."""
        self.cold_read_calls += 1
        self.cold_read_bytes += count

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "skylark-transfer")
        return self._pool

    def close(self) -> None:
        """End the threads, after what they are sending."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def takes_files(transport: asyncio.Transport) -> bool:
    """Whether bytes of files may be sent to the transport's socket: it has one, and encrypts nothing."""
    return transport.get_extra_info("socket") is not None and transport.get_extra_info("ssl_object") is None


def duplicate_socket(transport: asyncio.Transport) -> socket.socket | None:
    """A duplicate of the transport's socket, to send to; None if descriptors are used up.

    Whoever gets it closes it: the connection lasts as long as either of the two.
    """
    theirs = transport.get_extra_info("socket")
    try:
        fd = os.dup(theirs.fileno())
    except OSError as problem:
        log.warning("no descriptor to send files with, they are copied error=%s", problem)
        return None
    return socket.socket(theirs.family, theirs.type, theirs.proto, fileno=fd)


def end_sends(sock: socket.socket) -> None:
    """Have a thread that sends to it come back."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the peer did it already


def _send(out: int, fd: int, at: int, count: int) -> int:
    os.posix_fadvise(fd, at, max(count, READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
    return os.sendfile(out, fd, at, count)


def _read(fd: int, at: int, count: int) -> bytes:
    os.posix_fadvise(fd, at, max(count, READ_AHEAD_BYTES), os.POSIX_FADV_WILLNEED)
    return os.pread(fd, count, at)
