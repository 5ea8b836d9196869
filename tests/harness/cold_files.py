"""Files that appear not to be in the page cache, without a slow disk.

    with ColdFiles() as cold:
        cold.freeze(path)        preadv(RWF_NOWAIT) raises BlockingIOError, mincore reports the file as not resident
        ...                      until a read has waited for some of its bytes

Real system calls do the rest. `waits` lists the reads that waited: the path, and whether the event loop's thread
waited.
"""

import os
import threading
from types import TracebackType
from typing import Any, Self

from skylarkmq.broker.store.files import cold_reads
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.read import residency
from tests.harness.limits import WAIT_LIMIT_S


class ColdFiles:
    """Replaces os.preadv for the store's cold reads."""

    def __init__(self) -> None:
        self._real = os.preadv
        self._real_in_memory = residency.in_memory
        self._frozen: set[str] = set()
        self._loop_thread = threading.get_ident()
        self.never_warm = False
        self.gate = threading.Event()
        self.gate.set()
        self.waits: list[tuple[str, bool]] = []

    def freeze(self, *paths: object) -> None:
        """Make these files cold."""
        self._frozen.update(map(str, paths))

    def _preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0, /) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path in self._frozen:
            if flags & os.RWF_NOWAIT:
                raise BlockingIOError
            in_loop = threading.get_ident() == self._loop_thread
            self.waits.append((path, in_loop))
            if not in_loop:
                assert self.gate.wait(WAIT_LIMIT_S)
            if not self.never_warm:
                self._frozen.discard(path)
        return self._real(fd, buffers, offset, flags)

    def _in_memory(self, file: MappedFile, position: int, size: int) -> bool:
        return file.path not in self._frozen and self._real_in_memory(file, position, size)

    def __enter__(self) -> Self:
        residency.in_memory = self._in_memory
        cold_reads.os.preadv = self._preadv  # type: ignore[attr-defined]  # a module with a replaced part
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.gate.set()
        residency.in_memory = self._real_in_memory
        cold_reads.os.preadv = self._real  # type: ignore[attr-defined]  # as above
