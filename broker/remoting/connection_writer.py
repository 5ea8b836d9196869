"""The writing half of one connection: the output collected in a read batch, and the queue of unsent pieces.

`pending_writes.py` describes which data leaves how, and why nothing overtakes. The steps are:

    write, write_regions            collect
    flush                           write everything at once if it is bytes, or a head with one region in memory; else
                                    enqueue
    _send                           send from the front of the queue until the transport, the socket or a thread has to
                                    be waited for; `resume`, `_send_done` and `_read_done` are called afterwards
    close, lost, abort_transfer     the three ends: after the last byte, without a peer, without a file
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.read_control import NoReadControl, ReadControl
from skylarkmq.broker.remoting.sendfile import (
    SENDFILE_FROM_BYTES,
    FileRegion,
    FileSends,
    duplicate_socket,
    end_sends,
    takes_files,
)
from skylarkmq.broker.remoting.write_buffers import joined, write_gathered
from skylarkmq.protocol.unit_runs import Gathered

HOT_FOR_S: Final = 1.0
"""How long a queued region counts as still in memory."""
_NEVER: Final = 1 << 62
_BYTES: Final = (bytes, memoryview, Gathered)

log = logging.getLogger(__name__)


class Shared(Protocol):
    """The part of `PendingWrites` that a writer needs."""

    config: RemotingConfig
    files: FileSends
    backlog_bytes: int

    def schedule_flush(self, writer: "ConnectionWriter") -> None:
        """Have the writer flushed at the end of the read batch."""


class ConnectionWriter:
    """The writing half of one connection."""

    def __init__(self, pending_writes: Shared, read_control: ReadControl) -> None:
        self._pending_writes = pending_writes
        self._files = pending_writes.files
        self._read_control: ReadControl = read_control
        self._transport: asyncio.Transport | None = None
        self._may_send_files = False
        self._fd = -1  # the transport's socket, if sendfile to it is possible
        self._socket: socket.socket | None = None
        self._gathered: list[bytes | memoryview | FileRegion] = []
        self._regions = 0  # number of regions in `_gathered`
        self._has_views = False  # whether `_gathered` contains views of mapped files
        self._queue: deque[bytes | tuple[FileRegion, float]] = deque()  # regions with their time of queueing
        self._queued_bytes = 0
        self._sent_of_first = 0  # bytes of the queue's first piece
        self._is_full = False  # the socket's send buffer; the loop watches the socket
        self._is_watched = False
        self._thread: asyncio.Future[int] | asyncio.Future[bytes] | None = None  # its job: the first piece
        self._flushed_bytes = 0  # all output of earlier read batches
        self.gathered_bytes = 0  # written in this read batch, not flushed yet
        self.backlog_bytes = 0  # bytes that the peer has not taken yet
        self.is_closing = False  # no more output is accepted, the remaining output is sent

    def __repr__(self) -> str:
        sizes = f"gathered={self.gathered_bytes} queued={self._queued_bytes} backlog={self.backlog_bytes}"
        return f"<ConnectionWriter {sizes}>"

    @property
    def output_bytes(self) -> int:
        """Return all bytes written here, sent or not."""
        return self._flushed_bytes + self.gathered_bytes

    @property
    def has_queued(self) -> bool:
        """Return whether pieces are queued here that the transport does not have."""
        return bool(self._queue)

    @property
    def memory_bytes(self) -> int:
        """Return the unsent bytes that are in memory, not in files."""
        written = self._transport.get_write_buffer_size() if self._transport is not None else 0
        return written + sum(len(piece) for piece in self._queue if isinstance(piece, bytes))

    def opened(self, transport: asyncio.Transport) -> None:
        """Write to `transport` from now on."""
        self._transport = transport
        self._may_send_files = takes_files(transport) and not self._pending_writes.config.transfer_by_copying
        self._fd = transport.get_extra_info("socket").fileno() if self._may_send_files else -1
        transport.set_write_buffer_limits(high=0)  # resume_writing is called when its buffer is empty

    # -------------------------------------------------------------------------------------------------------- gathering

    def write(self, data: bytes | memoryview) -> None:
        """Add bytes to the output of this read batch; they are dropped if the peer is gone."""
        if self._transport is None or self.is_closing:
            return
        if not self._gathered:
            self._pending_writes.schedule_flush(self)
        self._gathered.append(data)
        self.gathered_bytes += len(data)

    def write_regions(self, regions: Sequence[FileRegion], head: bytes = b"") -> None:
        """Add `head`, and the regions after it in order. Regions in memory of their own, and short ones in memory, are
        collected as bytes."""
        if self._transport is None or self.is_closing:
            return
        if not self._gathered:
            self._pending_writes.schedule_flush(self)
        gathered = self._gathered
        gathered_bytes = self.gathered_bytes + len(head)
        shortest_sent = SENDFILE_FROM_BYTES if self._may_send_files else _NEVER
        for region in regions:
            size = region.size
            gathered_bytes += size
            if region.fd < 0 or (size < shortest_sent and region.is_hot):
                gathered += region.parts_after(head)
                self._has_views = True
            else:
                self._regions += 1
                gathered += (head, region)
            head = b""
        if head:
            gathered.append(head)
        self.gathered_bytes = gathered_bytes

    def flush(self) -> None:
        """Write the output of this read batch."""
        try:
            self._flush()
        except EOFError as problem:  # a file lost bytes while they were copied
            self._clear_gathered()
            self._abort(problem)

    def _flush(self) -> None:
        gathered = self._gathered
        if not gathered:
            return
        self._flushed_bytes += self.gathered_bytes
        transport = self._transport
        if transport is None or transport.is_closing():
            self._clear_gathered()
        elif self._regions or self._queue:
            if self._queue or not self._send_at_once(transport, gathered):
                self._enqueue(gathered)
                self._send()
        else:
            size, fd = self.gathered_bytes, self._fd if self._has_views else -1
            self._clear_gathered()
            write_gathered(transport, fd, gathered, size)  # type: ignore[arg-type]  # no regions
            self._files.note_copied(size)
            self._update_backlog(transport)

    def _clear_gathered(self) -> None:
        self._gathered = []
        self._regions = 0
        self._has_views = False
        self.gathered_bytes = 0

    def _send_at_once(self, transport: asyncio.Transport, gathered: list[bytes | memoryview | FileRegion]) -> bool:
        """Send a head with one region that is in memory, as most pulls get, without queue and pin. The part that the
        socket
        does not take is queued. Return False if the output is of another form; then nothing was sent."""
        region, sock = gathered[-1], self._socket
        if sock is None or self._regions > 1 or isinstance(region, _BYTES) or not region.is_hot:
            return False
        if transport.get_write_buffer_size():
            return False
        head = joined(gathered[:-1])  # type: ignore[arg-type]  # the last one is the only region
        sent, problem = self._files.send_behind_head(sock, head, region)
        if problem is not None:
            self._abort(problem)
        elif sent < self.gathered_bytes:
            self.gathered_bytes -= sent
            rest = head[sent:]
            self._enqueue((rest, region) if rest else (region,))
            self._sent_of_first = max(0, sent - len(head))
            self._wait_for_socket()
        self._clear_gathered()
        self._update_backlog(transport)
        return True

    # -------------------------------------------------------------------------------------------------------- the queue

    def _enqueue(self, gathered: Sequence[bytes | memoryview | FileRegion]) -> None:
        """Append pieces to the queue: files are pinned, bytes are copied."""
        run: list[bytes | memoryview] = []
        now_s = asyncio.get_running_loop().time()
        for piece in gathered:
            if isinstance(piece, _BYTES):
                run.append(piece)
                continue
            if run:
                self._queue.append(joined(run))
                run.clear()
            piece.hold(self)
            self._files.waiting += 1
            self._queue.append((piece, now_s))
        if run:
            self._queue.append(joined(run))
        self._queued_bytes += self.gathered_bytes
        self._clear_gathered()

    def _send(self) -> None:
        """Send from the front of the queue until something has to be waited for."""
        transport, queue = self._transport, self._queue
        if transport is None:
            return
        while queue and self._thread is None and not self._is_full:
            piece = queue[0]
            if isinstance(piece, bytes):
                self._send_bytes(transport, piece)
            elif transport.get_write_buffer_size():
                break  # the transport calls `resume` when its buffer is empty
            else:
                self._send_region(transport, *piece)
        self._update_backlog(transport)

    def _send_bytes(self, transport: asyncio.Transport, data: bytes) -> None:
        """Send `data` or hand it to the transport. Before a region it is sent with MSG_MORE, not as its own packet."""
        sock = self._socket
        rest: bytes | memoryview = data
        if sock is not None and len(self._queue) > 1 and not transport.get_write_buffer_size():
            try:
                rest = memoryview(data)[sock.send(data, socket.MSG_MORE) :]
            except OSError:
                pass  # the transport gets the same error
        if rest:
            transport.write(rest)
        self._files.note_copied(len(data))
        self._advance_first(len(data))

    def _send_region(self, transport: asyncio.Transport, region: FileRegion, since_s: float) -> None:
        at, left = region.position + self._sent_of_first, region.size - self._sent_of_first
        if self._may_send_files and self._socket is None:
            self._socket = duplicate_socket(transport)
            self._may_send_files = self._socket is not None
        if self._socket is None:
            self._thread = self._files.read_cold(region.fd, at, left)
            self._thread.add_done_callback(self._read_done)
        elif not region.is_hot or asyncio.get_running_loop().time() - since_s > HOT_FOR_S:
            self._thread = self._files.send_cold(self._socket, region.fd, at, left)
            self._thread.add_done_callback(self._send_done)
        else:
            try:
                sent = self._files.send_hot(self._socket, region.fd, at, left)
                self._note_sent(sent)
                if 0 < sent < left:
                    self._wait_for_socket()
            except BlockingIOError:
                self._wait_for_socket()
            except OSError as problem:
                self._abort(problem)

    def _note_sent(self, count: int) -> None:
        """Count `count` sent bytes of the first region."""
        if not count:
            self._abort(EOFError("file too short"))
            return
        self._advance_first(count)
        self._read_control.progressed()

    def _advance_first(self, count: int) -> None:
        """Count `count` bytes of the queue's first piece as sent; remove the piece if it is complete."""
        self._queued_bytes -= count
        self._sent_of_first += count
        piece = self._queue[0]
        if isinstance(piece, bytes):
            self._queue.popleft()
            self._sent_of_first = 0
        elif self._sent_of_first == piece[0].size:
            self._queue.popleft()
            self._sent_of_first = 0
            self._release(piece[0])

    # ------------------------------------------------------------------------------------------ a full socket, a thread

    def _wait_for_socket(self) -> None:
        self._is_full = True
        if self._socket is not None and not self._is_watched:
            self._is_watched = True
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self.resume)

    def _stop_waiting(self) -> None:
        self._is_full = False
        if self._socket is not None and self._is_watched:
            self._is_watched = False
            asyncio.get_running_loop().remove_writer(self._socket.fileno())

    def resume(self) -> None:
        """Continue after the socket or the transport has space again; watch the socket further only if it is full
        again."""
        self._is_full = False
        self._send()
        if not self._is_full:
            self._stop_waiting()

    def _send_done(self, future: "asyncio.Future[int]") -> None:
        """Continue after a thread has sent a part of the first region."""
        if not self._is_needed(future):
            return
        try:
            count = future.result()
            self._files.note_cold_sent(count)
            self._note_sent(count)
            if self._sent_of_first:
                self._wait_for_socket()
        except BlockingIOError:
            self._wait_for_socket()
        except OSError as problem:
            self._abort(problem)
        self._send()

    def _read_done(self, future: "asyncio.Future[bytes]") -> None:
        """Continue after a thread has read a part of the first region."""
        if not self._is_needed(future) or self._transport is None:
            return
        try:
            data = future.result()
        except OSError as problem:
            self._abort(problem)
            return
        self._files.note_cold_read(len(data))
        if data:
            self._transport.write(data)
            self._files.note_copied(len(data))
        self._note_sent(len(data))
        self._send()

    def _is_needed(self, future: "asyncio.Future[int] | asyncio.Future[bytes]") -> bool:
        """Return whether the connection still needs the result of a thread. Otherwise release its file and socket."""
        self._thread = None
        transport = self._transport
        if transport is not None and not transport.is_closing() and not future.cancelled():
            return True
        if not future.cancelled():
            future.exception()  # retrieved, so that asyncio does not report it as unhandled
        self._clear_queue()
        return False

    # --------------------------------------------------------------------------------------------- accounts and the end

    def note_progress(self) -> None:
        """Record how much a slow peer has taken since the last call."""
        if self.backlog_bytes and self._transport is not None:
            backlog = self._transport.get_write_buffer_size() + self._queued_bytes
            if backlog < self.backlog_bytes:
                self._read_control.progressed()
                self._set_backlog(backlog)

    def _update_backlog(self, transport: asyncio.Transport) -> None:
        backlog = transport.get_write_buffer_size() + self._queued_bytes
        if backlog or self.backlog_bytes:
            self._set_backlog(backlog)
        if self.is_closing and not self._queue:
            transport.close()
        elif not self.backlog_bytes:
            self._read_control.drained()

    def _set_backlog(self, backlog: int) -> None:
        """Update the number of bytes that wait for this peer."""
        pending_writes, config = self._pending_writes, self._pending_writes.config
        pending_writes.backlog_bytes += backlog - self.backlog_bytes
        self.backlog_bytes = backlog
        if backlog > config.peer_backlog_bytes or (
            backlog and pending_writes.backlog_bytes > config.total_backlog_bytes
        ):
            self._read_control.pause_for_backlog()

    def close(self) -> None:
        """Accept no more output; close the transport after the remaining output."""
        self.flush()
        self.is_closing = True
        if self._transport is not None and not self._queue:
            self._transport.close()

    def lost(self) -> None:
        """Release everything: the connection is closed."""
        self._transport = None
        self._read_control = NoReadControl()
        self._set_backlog(0)
        self._clear_gathered()
        self._clear_queue()

    def abort_transfer(self) -> None:
        """Close the connection because a file that it sends from is deleted."""
        if self._transport is not None and not self._transport.is_closing():
            self._abort(InterruptedError("the file is deleted"))

    def _abort(self, problem: Exception) -> None:
        """Drop all unsent output and abort. A partial response cannot be completed, so the connection ends."""
        self._files.cut += 1
        transport = self._transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        log.info("transfer cut peer=%s unsent_bytes=%d reason=%s", peer, self._queued_bytes, problem)
        self._clear_queue()
        if transport is not None:
            transport.abort()

    def _clear_queue(self) -> None:
        """Release every file and the socket, except those that a thread is using: these are released when it
        returns."""
        self._stop_waiting()
        kept = [self._queue.popleft()] if self._thread is not None and self._queue else []
        for piece in self._queue:
            if not isinstance(piece, bytes):
                self._release(piece[0])
        self._queue.clear()  # in place: a caller may be iterating over it
        self._queue.extend(kept)
        self._queued_bytes = 0
        if not kept:
            self._sent_of_first = 0
        if self._socket is not None and kept:
            end_sends(self._socket)
        elif self._socket is not None:
            self._socket.close()
            self._socket = None

    def _release(self, region: FileRegion) -> None:
        region.release(self)
        self._files.waiting -= 1
