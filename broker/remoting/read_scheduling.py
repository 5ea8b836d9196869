"""Rounds: how much is read from whom before the others are looked at again.

A round is one turn of the event loop: all reads that one poll found possible. Each of them may bring as much as the
window is large. Who fills it may have more to say than is fair: it is not read from again before its place in a line
comes up. So a round costs about ROUND_BYTES, however many peers talk as fast as they can, and a peer that says little
waits for one round, not for all of them.

        round ─▶ read, read, read (fills the window: into the line) ─▶ the first of the line are let in ─▶ round

The window is the round's bytes over those who stand in line, within SMALLEST_READ and the receive buffer: few busy
peers are read from in large pieces. When a round has brought its bytes already, or memory is short (`is_short`), it is
SMALLEST_READ: a thousand peers that begin to talk in the same moment bring 6 MiB, not 250. How many bytes a round may
bring depends on what they cost: half of what they were after a round that took LONG_S, up to ROUND_BYTES.

`began_s` is when the requests of a read began to wait: the last of a round have waited for all others. ReadScheduler of a few
small reads are not told apart, which would cost as much as the reads, unless one of them took long (`stalled`).

What a read brought stays in the receive buffer until the turn that serves it has ended (selector.py): it is taken out
of the window, and the next read goes behind it.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

import msgspec

RECEIVE_BUFFER_BYTES: Final = 512 * 1024  # a hundred sends of a KiB cost a read 100 µs more than two hundred in one do
ROUND_BYTES: Final = 2048 * 1024
"""Some 1,600 messages of 1 KiB: a few ms of work. Half as much would end the reads of four who have several batches of
100 KB under way in the middle of one, which is then put together from pieces."""
SMALLEST_READ: Final = 4096
LONG_S: Final = 0.016
USUAL_READ: Final = 64 * 1024  # with so many frames the costs of a read and of a write are shared by enough
_FEW_READS: Final = 16


class Reading(Protocol):
    """What a round wants of a connection."""

    def try_resume_reading(self) -> None:
        """Read from the peer again, unless something else forbids it."""


class ReadSchedulerStatistics(msgspec.Struct, frozen=True):
    """`queued` connections at this moment; totals since the start."""

    queued: int
    window_bytes: int
    rounds: int
    filled: int


class Rounds:
    """The rounds of one event loop. `clock` counts the seconds that reads are told in."""

    def __init__(self, is_short: Callable[[], bool], clock: Callable[[], float]) -> None:
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.window = self.receive_buffer
        self.began_s = 0.0  # the loop's time at the round's first read
        self._is_short = is_short
        self._clock = clock
        self.taken_bytes = 0  # of the receive buffer, in front of the window
        self._window_bytes = RECEIVE_BUFFER_BYTES
        self._is_begun = False
        self._is_end_due = False
        self._reads = 0
        self._read_bytes = 0
        self._round_bytes = ROUND_BYTES
        self._line: dict[Reading, None] = {}
        self._rounds = 0
        self._filled = 0

    def __repr__(self) -> str:
        return f"<ReadScheduler window={self._window_bytes} queued={len(self._line)}>"

    def statistics(self) -> ReadSchedulerStatistics:
        """The figures now."""
        return ReadSchedulerStatistics(len(self._line), self._window_bytes, self._rounds, self._filled)

    def note(self, size: int, now_s: float) -> bool:
        """A read brought `size` bytes; returns whether it filled the window, and its connection is to stand in line."""
        is_full = size >= self._window_bytes
        self._read_bytes += size
        if not self._is_begun:
            self.began_s = now_s
            self._reads += 1
            if self._read_bytes < USUAL_READ and self._reads <= _FEW_READS and not is_full:
                return False
            self._begin()
        if self._read_bytes >= self._round_bytes and self._window_bytes > SMALLEST_READ:
            self._set_window(SMALLEST_READ)
        return is_full

    def take(self, size: int) -> None:
        """Of what stands in the window, so much is still looked at."""
        self.taken_bytes += size
        self._move_window()

    def release(self) -> None:
        """Nothing that was read is looked at any more."""
        if self.taken_bytes:
            self.taken_bytes = 0
            self._move_window()

    def stalled(self, began_s: float) -> None:
        """Something took long: what is read from now on in this round has waited since `began_s`."""
        if not self._is_begun:
            self.began_s = began_s
            self._begin()

    def enqueue(self, reading: Reading) -> None:
        """Have `reading` go on when those before it had their turn."""
        self._filled += 1
        self._line[reading] = None
        self._have_it_ended()

    def forget(self, reading: Reading) -> None:
        """A connection is gone."""
        self._line.pop(reading, None)

    def _begin(self) -> None:
        self._is_begun = True
        self._have_it_ended()

    def _have_it_ended(self) -> None:
        if not self._is_end_due:
            self._is_end_due = True
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        """The round is over: see what the next one may bring."""
        self._rounds += 1
        if self._is_begun:
            took_s = self._clock() - self.began_s
            if took_s >= LONG_S or self._round_bytes < ROUND_BYTES:
                self._weigh(took_s)
        self._is_begun = self._is_end_due = False
        self._reads = 0
        self._read_bytes = 0
        if self._line or self._window_bytes < RECEIVE_BUFFER_BYTES or self._is_short():
            self._begin_next()

    def _begin_next(self) -> None:
        """Set the window, and let the first of the line in."""
        line, round_bytes = self._line, self._round_bytes
        if self._is_short():
            self._set_window(SMALLEST_READ)
        else:
            self._set_window(min(max(round_bytes // (len(line) or 1), USUAL_READ), RECEIVE_BUFFER_BYTES))
        for reading in list(islice(line, round_bytes // max(self._window_bytes, USUAL_READ))):
            del line[reading]
            reading.try_resume_reading()
        if line:
            self._have_it_ended()

    def _weigh(self, took_s: float) -> None:
        """Let the next round bring less or more, by what this one took."""
        if took_s >= LONG_S:
            self._round_bytes = max(self._round_bytes // 2, USUAL_READ)
            self._set_window(min(self._window_bytes, self._round_bytes))
        elif took_s < LONG_S / 2:
            self._round_bytes = min(self._round_bytes * 2, ROUND_BYTES)

    def _set_window(self, size: int) -> None:
        if size != self._window_bytes:
            self._window_bytes = size
            self._move_window()

    def _move_window(self) -> None:
        self.window = self.receive_buffer[self.taken_bytes : self.taken_bytes + self._window_bytes]
