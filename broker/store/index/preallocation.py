"""The next index file, made ahead of need by a helper thread.

A fresh file costs most with its first keys: they go to as many pages of slots, and each page that is touched for the
first time has to be found and cleared while the event loop waits, 20 ms for the first 2,048 keys. Here a thread
reserves the file, and reads its slots: then their pages stand in the page cache, clean, and not in anybody's memory;
the same keys take less than a millisecond. The loop takes the descriptor, and gives the file its name.

Until then it lies beside the directory of the index, under a name that nobody takes for an index file; what a killed
process leaves there is replaced by the next one. What cannot be made ahead is made when it is needed, or fails then.

Source: docs/formats.md, "IndexFile".
"""

import logging
import os
from concurrent.futures import Future
from typing import Final

import msgspec

from skylarkmq.broker.store.disk import TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.io_thread import Helper
from skylarkmq.protocol.disk import INDEX_DIRECTORY, IndexLayout

_PIECE_BYTES: Final = 256 << 10

AHEAD_FILE: Final = INDEX_DIRECTORY + TEMPORARY_SUFFIX

log = logging.getLogger(__name__)


class Ahead(msgspec.Struct, frozen=True):
    """A file without keys: its descriptor, and how many items have blocks."""

    fd: int
    items: int


class IndexAhead:
    """Makes files of one layout for the index of `root`, one at a time; `items`: as many get blocks beforehand."""

    def __init__(self, root: str, layout: IndexLayout, items: int, disk: Disk, helper: Helper) -> None:
        self._path = f"{root}/{AHEAD_FILE}"
        self._layout = layout
        self._items = min(items, layout.items)
        self._disk = disk
        self._helper = helper
        self._making: Future[Ahead] | None = None

    def __repr__(self) -> str:
        return f"<IndexAhead ready={self._making is not None and self._making.done()}>"

    @property
    def is_making(self) -> bool:
        """Whether a file will be there soon."""
        return self._making is not None and not self._making.done()

    def prepare(self) -> None:
        """Have the next file made, unless there is one."""
        if self._making is None:
            self._making = self._helper.submit(self._make)

    def take(self, path: str) -> Ahead | None:
        """The file that was made, as `path` from now on; None if there is none. OSError: it cannot be had there."""
        making = self._making
        if making is None or not making.done():
            return None
        self._making = None
        try:
            ahead = making.result()
        except OSError as problem:
            log.warning("index file not made ahead path=%s error=%s", self._path, problem)
            return None
        try:
            self._disk.rename(self._path, path)
        except OSError:
            os.close(ahead.fd)
            raise
        return ahead

    def close(self) -> None:
        """Remove what was made and never taken."""
        making, self._making = self._making, None
        if making is None or making.cancel() or making.exception() is not None:
            return
        os.close(making.result().fd)
        try:
            self._disk.unlink(self._path)
        except OSError as problem:
            log.warning("index file made ahead not removed path=%s error=%s", self._path, problem)

    def _make(self) -> Ahead:
        """In the helper's thread."""
        layout = self._layout
        fd = self._disk.create_sparse(self._path, layout.size)
        try:
            self._disk.reserve(fd, layout.item_at(self._items))
            scratch = bytearray(_PIECE_BYTES)
            for at in range(0, layout.item_at(0), _PIECE_BYTES):
                os.preadv(fd, (scratch,), at)
        except OSError:
            os.close(fd)
            self._disk.unlink(self._path)
            raise
        return Ahead(fd, self._items)
