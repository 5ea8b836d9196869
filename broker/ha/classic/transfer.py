"""The writing half of a master's connection to one slave: pieces of the log, and heartbeats between them.

A piece is a header and up to `haTransferBatchSize` bytes of one segment. Its bytes go from the file to the socket by
`sendfile`, so an unread transfer needs no memory of this process, whatever the slave does. Bytes that are not in memory
are sent by a thread, as for consumers (`broker/remoting/sendfile.py`).

    idle ──(bytes after `next_offset`, or a heartbeat is due)──> sending ──(piece is sent)──> idle or the next piece
                         sending ──(socket full, cold bytes, rate)──> waits for the socket, a thread, the next second

The segment of the current piece is held. Retention may delete it meanwhile; if the transfer takes longer than
`destroyMapedFileIntervalForcibly`, the connection is closed.

After `BURST_BYTES` the event loop serves other connections first.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Final, Protocol

from skylarkmq.broker.ha.classic.frames import pack_header
from skylarkmq.broker.ha.classic.rate import TransferRate
from skylarkmq.broker.remoting.sendfile import FileRegion, FileSends

BURST_BYTES: Final = 512 << 10


class Log(Protocol):
    """The log of the master."""

    @property
    def min_physical_offset(self) -> int:
        """The first byte that still exists."""

    @property
    def readable_offset(self) -> int:
        """The end of the bytes in its files."""

    def log_region(self, offset: int, limit: int) -> FileRegion | None:
        """Return up to `limit` bytes from `offset` on in one file; None if there are none. Raises OSError."""


class LogTransfer:
    """Sends the log to one slave. It owns `sock`, a duplicate of the connection's socket.

    `on_failure` is called once, after an error of the socket or a file: the connection cannot continue.
    """

    def __init__(
        self,
        sock: socket.socket,
        log: Log,
        files: FileSends,
        batch_bytes: int,
        rate: TransferRate,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._socket = sock
        self._log = log
        self._files = files
        self._batch_bytes = batch_bytes
        self.rate = rate
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self.next_offset = -1  # the first byte of the log that no piece contains yet; -1 before `begin`
        self.last_write_s = self._loop.time()
        self._is_paused = True  # no log bytes are sent, only heartbeats
        self._header = b""  # the unsent part
        self._region: FileRegion | None = None
        self._region_sent = 0
        self._is_watched = False  # whether the loop waits for space in the socket
        self._thread: asyncio.Future[int] | None = None
        self._timer: asyncio.Handle | None = None  # a later call of `_send`
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<LogTransfer next={self.next_offset} paused={self._is_paused} watched={self._is_watched}>"

    def begin(self, offset: int, *, has_data: bool) -> None:
        """Send the log from `offset` on. Without data only heartbeats with this offset are sent."""
        self.next_offset = offset
        self._is_paused = not has_data
        self.wake()

    def wake(self) -> None:
        """Continue, because the log has grown. Cheap if the transfer waits for something else."""
        if not self._is_paused and self._timer is None and not self._is_busy:
            self._send()

    def heartbeat(self) -> None:
        """Send the next offset without data, unless a piece is being sent."""
        is_idle = self._timer is None and not self._is_busy and not self._header and self._region is None
        if is_idle and self.next_offset >= 0:
            self._header = pack_header(self.next_offset, 0)
            self._send()

    def close(self) -> None:
        """Release the segment and the socket: now, or when the thread that uses them has returned."""
        self._is_closed = True
        self._stop_watching()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._thread is None:
            self._release()
            self._socket.close()

    def abort_transfer(self) -> None:
        """End the connection: the segment that it reads from has been deleted for too long."""
        self._fail(InterruptedError("the log file that the slave reads from was deleted"))

    # ---------------------------------------------------------------------------------------------------------- sending

    @property
    def _is_busy(self) -> bool:
        return self._is_closed or self._is_watched or self._thread is not None

    def _send(self) -> None:
        """Send pieces until the log ends or the transfer has to wait."""
        self._timer = None
        burst = 0
        try:
            while burst < BURST_BYTES:
                if not self._header and self._region is None and not self._take_piece():
                    return
                burst += self._send_some()
                if self._thread is not None:
                    return
        except BlockingIOError:
            self._watch()
        except OSError as problem:
            self._fail(problem)
        else:
            self._timer = self._loop.call_soon(self._send)

    def _take_piece(self) -> bool:
        """Make the next bytes of the log the current piece. Return False if there are none now."""
        if self._is_paused or self._is_closed:
            return False
        allowance = self.rate.allowance
        if allowance == 0:
            self._timer = self._loop.call_later(self.rate.wait_s, self._send)
            return False
        limit = self._batch_bytes if allowance is None else min(self._batch_bytes, allowance)
        region = self._log.log_region(self.next_offset, limit)
        if region is None:
            return False
        region.hold(self)
        self._region = region
        self._header = pack_header(self.next_offset, region.size)
        self.next_offset += region.size
        return True

    def _send_some(self) -> int:
        """Send a part of the current piece, and return its size. Raises OSError, BlockingIOError if the socket is
        full."""
        region = self._region
        if self._header:
            sent = self._socket.send(self._header, 0 if region is None else socket.MSG_MORE)
            self._header = self._header[sent:]
            self._note_sent(sent)
            return sent
        assert region is not None
        at, left = region.position + self._region_sent, region.size - self._region_sent
        if not region.is_hot:
            self._thread = self._files.send_cold(self._socket, region.fd, at, left)
            self._thread.add_done_callback(self._thread_done)
            return 0
        sent = self._files.send_hot(self._socket, region.fd, at, left)
        self._advance(sent)
        return sent

    def _advance(self, count: int) -> None:
        """Count sent bytes of the region."""
        region = self._region
        if not count or region is None:
            raise OSError("a log file is shorter than the log")
        self._note_sent(count)
        self._region_sent += count
        if self._region_sent == region.size:
            self._release()

    def _note_sent(self, count: int) -> None:
        self.last_write_s = self._loop.time()
        self.rate.add(count)

    def _release(self) -> None:
        if self._region is not None:
            self._region.release(self)
            self._region = None
            self._region_sent = 0

    # ---------------------------------------------------------------------------------------------------------- waiting

    def _thread_done(self, future: "asyncio.Future[int]") -> None:
        self._thread = None
        problem = None if future.cancelled() else future.exception()
        if self._is_closed or future.cancelled():
            self.close()
        elif isinstance(problem, BlockingIOError):
            self._watch()
        elif problem is not None:
            self._fail(OSError(problem))
        else:
            self._files.note_cold_sent(future.result())
            try:
                self._advance(future.result())
            except OSError as short:
                self._fail(short)
            else:
                self._send()

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        self._stop_watching()
        self._send()

    def _stop_watching(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_writer(self._socket.fileno())

    def _fail(self, problem: Exception) -> None:
        if not self._is_closed:
            self.close()
            self._on_failure(problem)
