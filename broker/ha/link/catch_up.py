"""Catch-up: long ranges of the log leave by `sendfile`, in threads, at a bounded rate for all followers together.

The bytes go from the page cache or the disk to the socket without a copy, and their frames are UNCHECKED: the records
in them have checksums of their own. A duplicate of the socket's descriptor is used only while the transport has nothing
left to write; messages of the connection wait until the range is sent.

A thread waits for the disk and never for a peer: it sends what the socket takes, and the event loop waits until the
socket takes more. So peers that read slowly, or not at all, delay no other follower.

Over TLS the thread reads the bytes, and the transport writes them in a checked frame.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from skylarkmq.broker.ha.link.connection import STALLED_S, LinkConnection
from skylarkmq.broker.ha.link.frames import data_head, unchecked_data_head
from skylarkmq.broker.ha.link.log_bytes import FileRange

CHUNK_BYTES: Final = 2 << 20
THREADS: Final = 2
DRAIN_POLL_S: Final = 0.002
SLACK_S: Final = 0.1

Result = TypeVar("Result")


class CatchUp:
    """`bytes_per_s`: 0 is unlimited."""

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0  # when the rate allows the next chunk
        self._threads = ThreadPoolExecutor(THREADS, "skylark-catch-up")

    def __repr__(self) -> str:
        return f"<CatchUp bytes_per_s={self._bytes_per_s}>"

    async def send(
        self,
        connection: LinkConnection,
        part: FileRange,
        whole_records: Callable[[FileRange], int],
        epoch: int,
        offset: int,
        committed: Callable[[], int],
    ) -> int:
        """Send whole records from the begin of a range as one DATA frame, and close the file. Return their size.

        Raises OSError.
        """
        try:
            sizing = asyncio.get_running_loop().run_in_executor(self._threads, whole_records, part)
            part = part._replace(size=await _finished(sizing))
            await self._wait_for_rate(part.size)
            await _drained(connection)
            sock = None
            if connection.transport.get_extra_info("ssl_object") is None:
                sock = connection.transport.get_extra_info("socket")
            if sock is None:
                await self._copy(connection, part, epoch, offset, committed())
            else:
                head = unchecked_data_head(epoch, offset, committed(), part.size)
                await self._transfer(connection, part, sock.fileno(), head)
            return part.size
        finally:
            os.close(part.fd)

    def close(self) -> None:
        """End the threads. Transfers under way end with their connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_rate(self, size: int) -> None:
        delay_s = self.delay_s(size, asyncio.get_running_loop().time())
        if delay_s > 0:
            await asyncio.sleep(delay_s)

    def delay_s(self, size: int, now: float) -> float:
        """Return how long the next chunk, of this size, has to wait. Late wake-ups of a busy loop cost no rate: what
        was not sent within the last SLACK_S is made up for."""
        if not self._bytes_per_s:
            return 0.0
        begin = max(now - SLACK_S, self._free_at)
        self._free_at = begin + size / self._bytes_per_s
        return max(0.0, begin - now)

    async def _transfer(self, connection: LinkConnection, part: FileRange, fd: int, head: bytes) -> None:
        to = socket.socket(fileno=os.dup(fd))
        connection.hold()
        try:
            sending = _Sending(to, head, part)
            # The thread uses both descriptors: they stay open until it has ended.
            while not await _finished(asyncio.get_running_loop().run_in_executor(self._threads, sending.run)):
                await _writable(to)
        finally:
            to.close()
            connection.release(len(head) + part.size)

    async def _copy(self, connection: LinkConnection, part: FileRange, epoch: int, offset: int, committed: int) -> None:
        reading = asyncio.get_running_loop().run_in_executor(self._threads, os.pread, part.fd, part.size, part.position)
        payload = await _finished(reading)
        if len(payload) < part.size:
            raise OSError(f"the segment ends {part.size - len(payload)} bytes too early")
        connection.send_data(data_head(epoch, offset, committed, payload), payload)


class _Sending:
    """One frame on its way: `head`, then a range of a file."""

    def __init__(self, to: socket.socket, head: bytes, part: FileRange) -> None:
        self._to = to
        self._head = memoryview(head)
        self._fd = part.fd
        self._at = part.position
        self._end = part.position + part.size

    def __repr__(self) -> str:
        return f"<_Sending at={self._at} end={self._end}>"

    def run(self) -> bool:
        """Send what the socket takes now, in a thread. Return whether the frame is complete. Raises OSError."""
        try:
            while self._head:
                self._head = self._head[self._to.send(self._head, socket.MSG_MORE) :]
            while self._at < self._end:
                sent = os.sendfile(self._to.fileno(), self._fd, self._at, self._end - self._at)
                if not sent:
                    raise OSError("the segment is shorter than the log")
                self._at += sent
        except BlockingIOError:
            return False
        return True


async def _finished(future: "asyncio.Future[Result]") -> Result:
    """Return the result of a thread. In case of a cancellation, wait for the thread's end, too."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


async def _writable(to: socket.socket) -> None:
    """Wait until a socket takes bytes. Raises TimeoutError if it takes none for STALLED_S."""
    loop, is_writable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(to.fileno(), is_writable.set)
    try:
        async with asyncio.timeout(STALLED_S):
            await is_writable.wait()
    except TimeoutError:
        raise TimeoutError(f"the peer took no byte for {STALLED_S:g} s") from None
    finally:
        loop.remove_writer(to.fileno())


async def _drained(connection: LinkConnection) -> None:
    """Wait for an empty buffer: the transport only reports its low-water mark."""
    while connection.backlog:
        if connection.is_closed:
            raise OSError("the connection is closed")
        await asyncio.sleep(DRAIN_POLL_S)
