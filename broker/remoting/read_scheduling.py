"""Read scheduling: how much is read from a connection before the others are served again.

A round is one event-loop iteration: all reads that one poll found possible. Each read may bring as many bytes as the
window has. A connection whose read fills the window may have more data than its fair share, so it is queued and not
read from again until it is its turn. So a round costs about ROUND_BYTES, however many peers send at full speed, and a
peer that sends little waits for one round, not for all other peers.

        round ─▶ read, read, read (fills the window: queue) ─▶ the first connections of the queue resume ─▶ round

The window is the round's bytes divided by the number of queued connections, at least SMALLEST_READ and at most the
receive buffer: a few busy peers are read in large pieces. When a round has received its bytes, or memory is short
(`is_short`), the window is SMALLEST_READ: a thousand peers that begin to send at the same moment then bring 6 MiB
instead of 250. The bytes of a round depend on their cost: half as many after a round that took LONG_S, up to
ROUND_BYTES.

`began_s` is the time from which the requests of a read have waited: the last read of a round has waited for all
others. Rounds of a few small reads share one time, since separate ones would cost as much as the reads, unless a read
took long (`record_stall`).

Received bytes stay in the receive buffer until the read batch that handles them has ended (read_batch.py): they are
excluded from the window, and the next read is placed after them.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

import msgspec

RECEIVE_BUFFER_BYTES: Final = 512 * 1024  # 100 sends of 1 KiB cost 100 µs more alone than in a read of 200
ROUND_BYTES: Final = 2048 * 1024
"""About 1,600 messages of 1 KiB: a few ms of work. With half as much, reads of four producers with several batches of
100 KB in flight would end within a batch, which then has to be assembled from pieces."""
SMALLEST_READ: Final = 4096
LONG_S: Final = 0.016
USUAL_READ: Final = 64 * 1024  # enough frames to share the costs of a read and a write
_FEW_READS: Final = 16


class ReadableConnection(Protocol):
    """The part of a connection that is needed here."""

    def try_resume_reading(self) -> None:
        """Resume reads, unless they are paused for another reason."""


class ReadSchedulerStatistics(msgspec.Struct, frozen=True):
    """`queued` connections now; totals since the start."""

    queued: int
    window_bytes: int
    rounds: int
    filled: int


class ReadScheduler:
    """The read scheduler of one event loop. `clock` returns seconds of the clock that read times use."""

    def __init__(self, is_short: Callable[[], bool], clock: Callable[[], float]) -> None:
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.window = self.receive_buffer
        self.began_s = 0.0  # the loop's time at the round's first read
        self._is_short = is_short
        self._clock = clock
        self.excluded_bytes = 0  # bytes of the receive buffer before the window
        self._window_bytes = RECEIVE_BUFFER_BYTES
        self._is_started = False
        self._is_end_due = False
        self._reads = 0
        self._read_bytes = 0
        self._round_bytes = ROUND_BYTES
        self.received_bytes = 0  # since the start
        self._waiting: dict[ReadableConnection, None] = {}
        self._rounds = 0
        self._filled = 0

    def __repr__(self) -> str:
        return f"<ReadScheduler window={self._window_bytes} queued={len(self._waiting)}>"

    def statistics(self) -> ReadSchedulerStatistics:
        """Return the current figures."""
        return ReadSchedulerStatistics(len(self._waiting), self._window_bytes, self._rounds, self._filled)

    def record_read(self, size: int, now_s: float) -> bool:
        """Record a read of `size` bytes; return whether it filled the window, so that its connection has to be
        queued."""
        is_full = size >= self._window_bytes
        self.received_bytes += size
        self._read_bytes += size
        if not self._is_started:
            self.began_s = now_s
            self._reads += 1
            if self._read_bytes < USUAL_READ and self._reads <= _FEW_READS and not is_full:
                return False
            self._start()
        if self._read_bytes >= self._round_bytes and self._window_bytes > SMALLEST_READ:
            self._set_window(SMALLEST_READ)
        return is_full

    def exclude(self, size: int) -> None:
        """Exclude the first `size` bytes of the window: they are still in use."""
        self.excluded_bytes += size
        self._move_window()

    def release(self) -> None:
        """Allow reads to overwrite the received bytes: none is in use any more."""
        if self.excluded_bytes:
            self.excluded_bytes = 0
            self._move_window()

    def record_stall(self, began_s: float) -> None:
        """Record a long operation: reads from now on in this round have waited since `began_s`."""
        if not self._is_started:
            self.began_s = began_s
            self._start()

    def enqueue(self, connection: ReadableConnection) -> None:
        """Resume reads from `connection` after those queued before it."""
        self._filled += 1
        self._waiting[connection] = None
        self._schedule_end()

    def forget(self, connection: ReadableConnection) -> None:
        """Remove a closed connection."""
        self._waiting.pop(connection, None)

    def _start(self) -> None:
        self._is_started = True
        self._schedule_end()

    def _schedule_end(self) -> None:
        if not self._is_end_due:
            self._is_end_due = True
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """End the round, and decide what the next one may bring."""
        self._rounds += 1
        if self._is_started:
            duration_s = self._clock() - self.began_s
            if duration_s >= LONG_S or self._round_bytes < ROUND_BYTES:
                self._adapt(duration_s)
        self._is_started = self._is_end_due = False
        self._reads = 0
        self._read_bytes = 0
        if self._waiting or self._window_bytes < RECEIVE_BUFFER_BYTES or self._is_short():
            self._start_next()

    def _start_next(self) -> None:
        """Set the window, and resume the first queued connections."""
        waiting, round_bytes = self._waiting, self._round_bytes
        if self._is_short():
            self._set_window(SMALLEST_READ)
        else:
            self._set_window(min(max(round_bytes // (len(waiting) or 1), USUAL_READ), RECEIVE_BUFFER_BYTES))
        for connection in list(islice(waiting, round_bytes // max(self._window_bytes, USUAL_READ))):
            del waiting[connection]
            connection.try_resume_reading()
        if waiting:
            self._schedule_end()

    def _adapt(self, duration_s: float) -> None:
        """Change the bytes of the next round according to the duration of this one."""
        if duration_s >= LONG_S:
            self._round_bytes = max(self._round_bytes // 2, USUAL_READ)
            self._set_window(min(self._window_bytes, self._round_bytes))
        elif duration_s < LONG_S / 2:
            self._round_bytes = min(self._round_bytes * 2, ROUND_BYTES)

    def _set_window(self, size: int) -> None:
        if size != self._window_bytes:
            self._window_bytes = size
            self._move_window()

    def _move_window(self) -> None:
        self.window = self.receive_buffer[self.excluded_bytes : self.excluded_bytes + self._window_bytes]
