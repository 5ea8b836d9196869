"""The files of all consume queues: a bounded cache of descriptors, and the set of files with unsynced writes.

A broker may have 100,000 queues; a descriptor or a mapping for each would exceed the limits of the process. A queue
file is therefore opened on demand, and the `limit` most recently used files stay open. Closing one loses nothing: its
bytes are in the page cache, and the flusher opens the file again by its path.

Nothing is synced at once, not even the directory entry of a new file, because the log can rebuild a queue. The
checkpoint defines where a rebuild starts. It is written only after all files from `take_dirty` are synced.

`QueuePaths` checks each path before a creation or deletion, whatever its source. Paths found at startup were checked
then, so opening them again needs no check. Creating a segment never replaces a file, which may belong to a live queue;
only remains of a failed deletion are replaced. Deletion removes segments, and directories that contain nothing else.
"""

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

import msgspec

from skylarkmq.broker.store.files.cold_reads import ColdReads
from skylarkmq.broker.store.files.disk import NO_DESCRIPTORS, Data, Disk
from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.broker.store.queue.paths import QueuePaths
from skylarkmq.protocol.disk import parse_offset_file_name

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 4096
_DIRECTORIES: Final = 4  # levels: queue, topic, consumequeue, and the root of the store


class DirtyFile:
    """A file to sync, given by path: the flusher's thread opens, syncs and closes it."""

    __slots__ = ("_disk", "path")

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def sync(self) -> None:
        """Sync all bytes written so far. A file deleted in the meantime needs no sync."""
        try:
            fd = self._disk.open(self.path)
        except FileNotFoundError:
            return
        try:
            self._disk.fdatasync(fd)
        finally:
            os.close(fd)


class DirtyDirectory:
    """A directory to sync."""

    __slots__ = ("_disk", "path")

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def sync(self) -> None:
        """Sync the entries of the directory. A directory deleted in the meantime needs no sync."""
        try:
            self._disk.sync_directory(self.path)
        except FileNotFoundError:
            return


class QueueFilesStatistics(msgspec.Struct, frozen=True):
    """Open descriptors, and files that wait for a sync."""

    open_files: int
    dirty_files: int


class QueueFiles:
    """Creates, writes and reads queue segments of `file_size` bytes by path, below the directory `root`.

    At most `limit` descriptors are open.
    """

    def __init__(self, root: str, file_size: int, limit: int, disk: Disk) -> None:
        self.paths = QueuePaths(root)
        self.file_size = file_size
        self._limit = limit
        self._disk = disk
        self._descriptors: dict[str, int] = {}  # least recently used first
        self._dirty: dict[str, int] = {}  # path -> bytes written since its last sync
        self._dirty_directories: dict[str, None] = {}  # with new entries, outer ones first
        self._left: set[str] = set()  # directories of removed queues, in which a deletion failed
        self._expiry: Future[None] | None = None

    def create(self, path: str) -> None:
        """Create a sparse segment: 100,000 queues must not reserve 600 GB. Raises FileExistsError if it exists."""
        self.paths.check(path)
        directory = os.path.dirname(path)
        if directory in self._left:
            self._remove_left(directory)
        for changed in self._disk.make_directory_unsynced(directory):
            self._dirty_directories[changed] = None
        self._dirty_directories[directory] = None
        self._forget(path)
        self._keep(path, self._opened(partial(self._disk.create_new, path, self.file_size)))

    def write(self, path: str, data: Data, at: int) -> None:
        """Write `data` at byte `at`. Raises the OSError of the disk."""
        self._disk.pwrite(self._descriptor(path), data, at)
        self._dirty[path] = self._dirty.get(path, 0) + len(data)

    def read(self, path: str, at: int, count: int) -> bytes:
        """Return up to `count` bytes from byte `at`; b"" if the file does not exist."""
        try:
            return os.pread(self._descriptor(path), count, at)
        except FileNotFoundError:
            return b""

    def read_nowait(self, path: str, at: int, count: int, reads: ColdReads) -> bytes | bytearray:
        """Return `count` bytes from byte `at`; b"" if there is no file. Raises ColdRead if they are not cached."""
        try:
            return reads.read(self._descriptor(path), path, at, count)
        except FileNotFoundError:
            return b""

    def clear(self, path: str, begin: int) -> int:
        """Zero all bytes from byte `begin` on. Returns how many of them were not zero."""
        cleared = self._disk.clear(self._descriptor(path), begin, self.file_size)
        if cleared:
            self._dirty[path] = self._dirty.get(path, 0) + cleared
        return cleared

    def mark_unsynced(self, path: str) -> None:
        """Have the next flush sync this file: another process may have written it without a sync."""
        self._dirty.setdefault(path, 0)

    def mark_directory_unsynced(self, directory: str) -> None:
        """Have the next flush sync this directory and its parents: another process may have changed entries."""
        for _ in range(_DIRECTORIES):
            self._dirty_directories[directory] = None
            directory = os.path.dirname(directory)

    def expire(self, paths: list[str], helper: Helper) -> "Future[None]":
        """Have a helper thread unlink segments of one queue, in order; each unlink is synced before the next."""
        for path in paths:
            self.paths.check(path)
            self._forget(path)
            self._dirty.pop(path, None)
        self._expiry = helper.submit(lambda: _unlink_all(paths, self._disk))
        return self._expiry

    def finish_expiry(self) -> None:
        """Wait for the last `expire`, successful or not: its paths may be reused afterwards."""
        if self._expiry is not None:
            self._expiry.exception()

    def remove(self, path: str) -> None:
        """Unlink a segment. The next flush syncs the deletion."""
        self.paths.check(path)
        self._forget(path)
        self._dirty.pop(path, None)
        self._disk.unlink(path)
        self._dirty_directories[os.path.dirname(path)] = None

    def remove_all(self, directory: str) -> None:
        """Remove the segments of a queue, and then its directory.

        The first segment goes last, so that after an interruption the queue still begins where it began. A directory
        that contains other files stays, with a warning. After an OSError the remaining segments are removed before a
        new segment is created in the directory.
        """
        self.paths.check_directory(directory)
        self._left.add(directory)
        self._remove_left(directory)
        self.remove_directory(directory)

    def _remove_left(self, directory: str) -> None:
        for name in sorted(_segments_in(directory), reverse=True):
            self.remove(f"{directory}/{name}")
        self._left.discard(directory)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; one with entries stays, with a warning. The next flush syncs its parent."""
        if kept := os.listdir(path):
            log.warning("directory kept: it holds other files path=%s files=%d first=%s", path, len(kept), kept[0])
            return
        self._disk.remove_directory(path)
        self._dirty_directories[os.path.dirname(path)] = None

    def take_dirty(self, least_pages: int) -> list[DirtyFile | DirtyDirectory]:
        """Return new directory entries, and files with at least `least_pages` unsynced pages (0: all), and mark them
        as synced."""
        directories, self._dirty_directories = self._dirty_directories, {}
        least = least_pages * PAGE_BYTES
        taken = [path for path, count in self._dirty.items() if count >= least]
        for path in taken:
            del self._dirty[path]
        files = [DirtyFile(path, self._disk) for path in taken]
        return [*files, *(DirtyDirectory(path, self._disk) for path in directories)]

    def close(self) -> None:
        """Close all descriptors without a sync."""
        for fd in self._descriptors.values():
            os.close(fd)
        self._descriptors.clear()

    def statistics(self) -> QueueFilesStatistics:
        """Return counts for operators."""
        return QueueFilesStatistics(len(self._descriptors), len(self._dirty))

    def _descriptor(self, path: str) -> int:
        fd = self._descriptors.pop(path, None)
        if fd is None:
            fd = self._opened(partial(self._disk.open, path))
        self._keep(path, fd)
        return fd

    def _keep(self, path: str, fd: int) -> None:
        """Store the descriptor as the most recently used one; close the least recently used one at the limit."""
        descriptors = self._descriptors
        if len(descriptors) >= self._limit:
            os.close(descriptors.pop(next(iter(descriptors))))
        descriptors[path] = fd

    def _opened(self, call: Callable[[], int]) -> int:
        """Return a new descriptor. If the process has none left, close the least recently used half of ours first."""
        try:
            return call()
        except OSError as problem:
            if problem.errno not in NO_DESCRIPTORS or not self._descriptors:
                raise
            given_up = list(self._descriptors)[: len(self._descriptors) // 2 + 1]
            log.warning("too many open files, queue files closed count=%d error=%s", len(given_up), problem)
            for other in given_up:
                self._forget(other)
            return call()

    def _forget(self, path: str) -> None:
        fd = self._descriptors.pop(path, None)
        if fd is not None:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<QueueFiles open={len(self._descriptors)} dirty={len(self._dirty)}>"


def _segments_in(directory: str) -> list[str]:
    """Return the names of regular files that are segment names."""
    with os.scandir(directory) as entries:
        segments = (entry for entry in entries if parse_offset_file_name(entry.name) is not None)
        return [entry.name for entry in segments if entry.is_file(follow_symlinks=False)]


def _unlink_all(paths: list[str], disk: Disk) -> None:
    for path in paths:
        try:
            disk.unlink(path)
        except FileNotFoundError:
            continue  # unlinked by an earlier attempt
        disk.sync_directory(os.path.dirname(path))
