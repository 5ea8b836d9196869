"""Files that are not in memory, without a disk that is slow: preadv(RWF_NOWAIT) of a cold path says "not now", mincore
says no.

    with ColdFiles() as cold:
        cold.freeze(path)        asked without waiting, its bytes are not there
        ...                      until somebody has waited for some of them

Real system calls do the rest. `waits` lists who waited: path and whether that was the event loop's thread.
"""

import os
import threading
from types import TracebackType
from typing import Any, Self

from skylarkmq.broker.store.log.mapped_file import MappedFile
from skylarkmq.broker.store.read import cold_reads, residency


class ColdFiles:
    """Stands for os.preadv as the store's cold reads see it."""

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
        """From now on these are cold."""
        self._frozen.update(map(str, paths))

    def _preadv(self, fd: int, buffers: Any, offset: int, flags: int = 0, /) -> int:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path in self._frozen:
            if flags & os.RWF_NOWAIT:
                raise BlockingIOError
            in_loop = threading.get_ident() == self._loop_thread
            self.waits.append((path, in_loop))
            if not in_loop:
                assert self.gate.wait(10)
            if not self.never_warm:
                self._frozen.discard(path)
        return self._real(fd, buffers, offset, flags)

    def _in_memory(self, file: MappedFile, position: int, size: int) -> bool:
        return file.path not in self._frozen and self._real_in_memory(file, position, size)

    def __enter__(self) -> Self:
        residency.in_memory = self._in_memory
        cold_reads.os.preadv = self._preadv  # type: ignore[attr-defined]  # a module that a test replaces part of
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.gate.set()
        residency.in_memory = self._real_in_memory
        cold_reads.os.preadv = self._real  # type: ignore[attr-defined]  # as above
