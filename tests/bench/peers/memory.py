"""Memory that a broker can have without asking the host for it, as on a machine of its own.

A virtual machine gives memory that is free, and cache that nobody looks at, back to its host; whoever writes to such
a page next pays for getting it again: 10 to 15 µs a page where we measured, for three messages. A broker that appends
meets one all the time, and a table of brokers says more of the host than of them. So nothing is left to give back:
all free memory is held here, touched, and let go piece by piece, just as fast as the brokers take it. A page that
comes from here costs them 1 µs. What has to be left free goes to the host within seconds; so before each measurement a
part is let go, enough for what does not need more: the kernel hands out first what was freed last.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

MIB: Final = 1 << 20
PIECE_BYTES: Final = 32 * MIB
LEFT_FREE: Final = 384 * MIB  # some tenths of a second of the fastest load, and well above what the kernel wants
FRESH_BYTES: Final = 256 * MIB  # let go as the brokers are about to be measured
LOOKS_EVERY_S: Final = 0.05
MADV_POPULATE_WRITE: Final = 23  # linux/mman.h


class Reserve:
    """Held memory: `fill` takes what has become free, a thread gives back what is asked for."""

    def __init__(self) -> None:
        self._held: list[mmap.mmap] = []
        self._ended = Event()

    def fill(self) -> None:
        """Hold all that is free (the host takes three seconds to find a GiB of it), and let go of `FRESH_BYTES`."""
        while free_bytes() > LEFT_FREE + PIECE_BYTES:
            piece = mmap.mmap(-1, PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            piece.madvise(mmap.MADV_HUGEPAGE)
            piece.madvise(MADV_POPULATE_WRITE)
            self._held.append(piece)
        for _ in range(min(FRESH_BYTES // PIECE_BYTES, len(self._held))):
            self._held.pop().close()

    def give(self) -> None:
        """Keep `LEFT_FREE` free until `end`."""
        while not self._ended.wait(LOOKS_EVERY_S):
            while self._held and free_bytes() < LEFT_FREE:
                self._held.pop().close()

    def end(self) -> None:
        """Let go of all."""
        self._ended.set()


@contextmanager
def used_memory() -> Iterator[Reserve]:
    """All memory is in use, but for what is given back on demand."""
    reserve = Reserve()
    giver = Thread(target=reserve.give, name="reserve", daemon=True)
    giver.start()
    try:
        reserve.fill()
        yield reserve
    finally:
        reserve.end()
        giver.join()


def free_bytes() -> int:
    """Bytes that nobody uses."""
    with Path("/proc/meminfo").open() as lines:
        line = next(line for line in lines if line.startswith("MemFree:"))
    return int(line.split()[1]) << 10
