"""The next index file, created ahead of need by a helper thread.

The first keys of a new file are the most expensive: they are stored on many pages of slots, and the kernel has to
allocate and clear each page while the event loop waits, 20 ms for the first 2,048 keys. Here a thread reserves the
blocks of the file and reads its slots. Their pages are then in the page cache, clean, and not in the memory of the
process. The same keys then take less than a millisecond. The event loop takes the descriptor and renames the file.

Until then the file is next to the index directory, under a name that is not the name of an index file. A leftover of a
killed process is overwritten by the next one. If the preallocation fails, the file is created when it is needed.

Source: docs/reference/disk.md, "IndexFile".
"""

import logging
import os
from concurrent.futures import Future
from typing import Final

import msgspec

from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.protocol.disk import INDEX_DIRECTORY, IndexLayout

_PIECE_BYTES: Final = 256 << 10

PREALLOCATED_FILE: Final = INDEX_DIRECTORY + TEMPORARY_SUFFIX

log = logging.getLogger(__name__)


class Preallocated(msgspec.Struct, frozen=True):
    """A file without keys: its descriptor, and the number of items with reserved blocks."""

    fd: int
    items: int


class IndexPreallocation:
    """Creates files of one layout for the index of `root`, one at a time, with blocks reserved for `items` items."""

    def __init__(self, root: str, layout: IndexLayout, items: int, disk: Disk, helper: Helper) -> None:
        self._path = f"{root}/{PREALLOCATED_FILE}"
        self._layout = layout
        self._items = min(items, layout.items)
        self._disk = disk
        self._helper = helper
        self._making: Future[Preallocated] | None = None

    def __repr__(self) -> str:
        return f"<IndexPreallocation ready={self._making is not None and self._making.done()}>"

    @property
    def is_making(self) -> bool:
        """Return whether a file is being created."""
        return self._making is not None and not self._making.done()

    def prepare(self) -> None:
        """Have the helper create the next file, unless there is one already."""
        if self._making is None:
            self._making = self._helper.submit(self._make)

    def take(self, path: str) -> Preallocated | None:
        """Rename the created file to `path` and return it; None without one. Raises OSError if the rename fails."""
        making = self._making
        if making is None or not making.done():
            return None
        self._making = None
        try:
            created = making.result()
        except OSError as problem:
            log.warning("index file not preallocated path=%s error=%s", self._path, problem)
            return None
        try:
            self._disk.rename(self._path, path)
        except OSError:
            os.close(created.fd)
            raise
        return created

    def close(self) -> None:
        """Remove a created file that was not taken."""
        making, self._making = self._making, None
        if making is None or making.cancel() or making.exception() is not None:
            return
        os.close(making.result().fd)
        try:
            self._disk.unlink(self._path)
        except OSError as problem:
            log.warning("preallocated index file not removed path=%s error=%s", self._path, problem)

    def _make(self) -> Preallocated:
        """Create the file. Runs in the helper thread."""
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
        return Preallocated(fd, self._items)
