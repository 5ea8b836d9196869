"""Huge pages for the broker's memory.

The data that a message needs of its topic and queue is spread over the heap. With thousands of queues neither the data
nor its page table entries are in a cache: each page of 4 KiB has an entry of its own, and on a virtual machine reading
one costs as much as reading the memory. A page of 2 MiB needs one entry instead of 512. So a thread checks every ten
seconds whether the memory in use has grown, and then lets the kernel collapse it into huge pages (MADV_COLLAPSE, since
Linux 6.1).

Collapsing a page blocks threads that need memory. So pages are collapsed one at a
time, with pauses, and not from memory that a virtual machine's host has yet to provide, which takes ten times as long:
the kernel reuses the page that was released last, so a spare page is touched and released before.

Only existing memory is collapsed: extents that are nearly full, so that hardly any memory is added. Memory allocated
later uses small pages as usual: the first touch of a huge page clears it as a whole, which takes too long in an event
loop. If huge pages are switched off (`never` in /sys/kernel/mm/transparent_hugepage/enabled), or the kernel cannot
collapse pages, nothing is done.
"""

import ctypes
import logging
import mmap
import threading
from pathlib import Path
from typing import Final

INTERVAL_S: Final = 10.0
GROWTH_BYTES: Final = 8 << 20
PAUSE_S: Final = 0.25

_ENABLED: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_SIZE: Final = Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
_MADV_COLLAPSE: Final = 25
_FULL: Final = 7 / 8  # required share of an extent's pages in memory
_IS_PRESENT: Final = bytes(value & 1 for value in range(256))  # mincore reserves the other bits

_libc: Final = ctypes.CDLL(None)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)

log = logging.getLogger(__name__)


def huge_page_bytes() -> int:
    """Return the size of a huge page in bytes; 0 if there are none, or if they are switched off."""
    try:
        return 0 if "[never]" in _ENABLED.read_text() else int(_SIZE.read_text())
    except OSError:
        return 0


class HugePages:
    """The thread. `size` is the size of a huge page in bytes; `pause_s` is the pause between two."""

    def __init__(self, size: int, interval_s: float = INTERVAL_S, pause_s: float = PAUSE_S) -> None:
        self._size = size
        self._interval_s = interval_s
        self._pause_s = pause_s
        self._seen_bytes = 0  # memory in use at the last pass
        self._gathered: set[int] = set()  # addresses of the huge pages
        self._spare = _Spare(size)
        self._present = ctypes.create_string_buffer(size // mmap.PAGESIZE)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="skylark-huge-pages", daemon=True)

    def __repr__(self) -> str:
        return f"<HugePages size={self._size} seen_bytes={self._seen_bytes}>"

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join()

    def gather(self) -> int:
        """Collapse the memory in use; return how many bytes are in huge pages now."""
        extents = [
            at
            for begin, end in anonymous_ranges()
            for at in range(-(-begin // self._size) * self._size, end - self._size + 1, self._size)
        ]
        self._gathered.intersection_update(extents)
        for at in extents:
            if at not in self._gathered and self._is_full(at):
                self._spare.warm()
                if not _libc.madvise(at, self._size, _MADV_COLLAPSE):
                    self._gathered.add(at)
                if self._stopping.wait(self._pause_s):
                    break
        return len(self._gathered) * self._size

    def _is_full(self, at: int) -> bool:
        if _libc.mincore(at, self._size, self._present):
            return False  # it was unmapped meanwhile
        return self._present.raw.translate(_IS_PRESENT).count(1) >= len(self._present) * _FULL

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            in_use = anonymous_bytes()
            if in_use >= self._seen_bytes + GROWTH_BYTES:
                self._seen_bytes = in_use
                log.debug("memory collapsed into huge pages bytes=%d in_use=%d", self.gather(), in_use)


class _Spare:
    """A huge page without content."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._memory = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._at = -(-begin // size) * size

    def warm(self) -> None:
        """Touch and release the page, so that the kernel uses it for the next huge page."""
        ctypes.memset(self._at, 0, self._size)
        _libc.madvise(self._at, self._size, mmap.MADV_DONTNEED)


def anonymous_bytes() -> int:
    """Return the bytes in memory that belong to no file."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def anonymous_ranges() -> list[tuple[int, int]]:
    """Return the address ranges [begin, end) of the heap and of anonymous mappings."""
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, access, _, _, inode, *name = line.split(maxsplit=5)
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            begin, _, end = addresses.partition("-")
            ranges.append((int(begin, 16), int(end, 16)))
    return ranges
