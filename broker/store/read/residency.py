"""Which parts of a segment are in memory, according to the kernel (mincore).

Before a long run of records is sent from a file, the broker checks whether that would wait for a disk. A query costs a
few microseconds whatever the length, so the query covers a whole window, and a positive result is cached for a moment:
a consumer that catches up needs one query for many pulls. If a window is not wholly in memory, the run itself is
queried.

Bytes that are evicted while their result is cached cost one blocking disk read. That happens on machines that run out
of memory while consumers read.
"""

import ctypes
import time
from collections.abc import Callable
from typing import Final

import msgspec

from skylarkmq.broker.store.files.mapped_file import MappedFile

WINDOW_BYTES: Final = 4 << 20
RESIDENCY_TTL_S: Final = 0.05
MOST_WINDOWS: Final = 256

_PAGE: Final = 4096
_mincore: Final = ctypes.CDLL(None).mincore
_mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
_pages: Final = ctypes.create_string_buffer(WINDOW_BYTES // _PAGE)
_IS_ABSENT: Final = bytes(not value & 1 for value in range(256))  # the other bits are reserved


def in_memory(file: MappedFile, position: int, size: int) -> bool:
    """Return whether [position, position + size), at most a window, is in the page cache; False if unknown."""
    begin = position & -_PAGE
    count = -(-(position + size - begin) // _PAGE)
    if _mincore(file.address + begin, count * _PAGE, _pages):
        return False
    return 1 not in _pages.raw[:count].translate(_IS_ABSENT)


class ResidencyStatistics(msgspec.Struct, frozen=True):
    """Totals since the start: checked runs, and queries to the kernel."""

    runs: int
    calls: int


class Residency:
    """Caches for a moment which windows are in memory."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._windows: dict[tuple[int, int], float] = {}  # (segment's start, window) -> valid until
        self._runs = 0
        self._calls = 0

    def is_resident(self, file: MappedFile, position: int, size: int) -> bool:
        """Return whether [position, position + size) of a segment can be read without waiting for the disk."""
        self._runs += 1
        now_s = self._now_s()
        last = (position + size - 1) // WINDOW_BYTES
        for window in range(position // WINDOW_BYTES, last + 1):
            if self._windows.get((file.start, window), 0.0) < now_s and not self._ask(file, window, now_s):
                begin = max(position, window * WINDOW_BYTES)
                self._calls += 1
                if not in_memory(file, begin, min(position + size, (window + 1) * WINDOW_BYTES) - begin):
                    return False
        return True

    def _ask(self, file: MappedFile, window: int, now_s: float) -> bool:
        self._calls += 1
        begin = window * WINDOW_BYTES
        if not in_memory(file, begin, min(WINDOW_BYTES, file.size - begin)):
            return False
        if len(self._windows) >= MOST_WINDOWS:
            self._windows.clear()
        self._windows[file.start, window] = now_s + RESIDENCY_TTL_S
        return True

    def statistics(self) -> ResidencyStatistics:
        """Return a snapshot."""
        return ResidencyStatistics(self._runs, self._calls)

    def __repr__(self) -> str:
        return f"<Residency runs={self._runs} calls={self._calls}>"
