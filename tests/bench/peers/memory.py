"""Memory that a broker gets without requests to the host, as on a physical machine.

A virtual machine returns free memory and unused cache to its host. The next process that writes to such a page pays for
the request to the host: 10 to 15 µs per page where we measured, for three messages. A broker that appends does so
continuously, and a table of brokers would measure the host instead. So nothing is left to return: all free memory is
reserved here, touched, and released piece by piece, as fast as the brokers take it. Such a page costs them 1 µs. Memory
that must stay free goes to the host within seconds; so a part is released before each measurement, enough for loads
that need no more: the kernel first allocates the pages that were freed last.
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Final

MIB: Final = 1 << 20
PIECE_BYTES: Final = 32 * MIB
LEFT_FREE: Final = 384 * MIB  # some tenths of a second of the fastest load, and well above the kernel's reserve
FRESH_BYTES: Final = 256 * MIB  # released right before the brokers are measured
LOOKS_EVERY_S: Final = 0.05
MADV_POPULATE_WRITE: Final = 23  # linux/mman.h


class Reserve:
    """Reserved memory: `fill` reserves free memory, a thread releases it on demand."""

    def __init__(self) -> None:
        self._held: list[mmap.mmap] = []
        self._ended = Event()

    def fill(self) -> None:
        """Reserve all free memory (the host takes three seconds to find a GiB of it), and release `FRESH_BYTES`."""
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
        """Release all memory."""
        self._ended.set()


@contextmanager
def used_memory() -> Iterator[Reserve]:
    """Reserve all free memory inside the block, and release it on demand."""
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
    """Return the number of free bytes."""
    with Path("/proc/meminfo").open() as lines:
        line = next(line for line in lines if line.startswith("MemFree:"))
    return int(line.split()[1]) << 10
