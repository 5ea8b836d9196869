"""The files of all consume queues: a bounded cache of descriptors, and what is written and not yet synced.

A broker may have 100,000 queues; a descriptor or a mapping each would exhaust the process's limits. A queue file is
therefore opened when it is needed and kept among the `open_queue_files` used last; closing one loses nothing, since
its bytes are in the page cache and the flusher opens it again by its path.

Nothing here is synced at once, not even a new file's directory entry: a queue can be rebuilt from the log. The
checkpoint, which says from where, is written only behind everything that `take_dirty` hands to the flusher.

No path is created or deleted without a check by `QueuePaths`, wherever its caller got it; those of a start were checked
when they were found, so to open one again costs nothing more. A segment is never created in the place of a file, which
may be a live queue's; only what a failed deletion left is replaced. Deletion takes segments, and directories that hold
nothing else.
"""

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

import msgspec

from skylarkmq.broker.store.disk import NO_DESCRIPTORS, Data, Disk
from skylarkmq.broker.store.io_thread import Helper
from skylarkmq.broker.store.queue.paths import QueuePaths
from skylarkmq.broker.store.read.cold_reads import ColdReads
from skylarkmq.protocol.disk import parse_offset_file_name

log = logging.getLogger(__name__)

PAGE_BYTES: Final = 4096
_DIRECTORIES: Final = 4  # queue, topic, consumequeue, and the store's root


class DirtyFile:
    """A file to be synced, by path: the flusher's thread opens, syncs and closes it."""

    __slots__ = ("_disk", "path")

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def sync(self) -> None:
        """What was written to it so far is on disk afterwards; a file deleted meanwhile needs nothing."""
        try:
            fd = self._disk.open(self.path)
        except FileNotFoundError:
            return
        try:
            self._disk.fdatasync(fd)
        finally:
            os.close(fd)


class DirtyDirectory:
    """A directory to be synced."""

    __slots__ = ("_disk", "path")

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def sync(self) -> None:
        """Its entries are on disk afterwards; a directory deleted meanwhile needs nothing."""
        try:
            self._disk.sync_directory(self.path)
        except FileNotFoundError:
            return


class QueueFilesStatistics(msgspec.Struct, frozen=True):
    """Descriptors open now, files waiting for a sync."""

    open_files: int
    dirty_files: int


class QueueFiles:
    """Creates, writes and reads queue segments of `file_size` bytes by path, below the directory `root`."""

    def __init__(self, root: str, file_size: int, limit: int, disk: Disk) -> None:
        self.paths = QueuePaths(root)
        self.file_size = file_size
        self._limit = limit
        self._disk = disk
        self._descriptors: dict[str, int] = {}  # in the order of last use
        self._dirty: dict[str, int] = {}  # path -> bytes written since its last sync
        self._dirty_directories: dict[str, None] = {}  # with new entries, outer ones first
        self._left: set[str] = set()  # directories of removed queues whose files could not all be deleted
        self._expiry: Future[None] | None = None

    def create(self, path: str) -> None:
        """A new segment, sparse: 100,000 queues must not reserve 600 GB. FileExistsError if there is such a file."""
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
        """Write at byte `at`. OSError as the disk gives it."""
        self._disk.pwrite(self._descriptor(path), data, at)
        self._dirty[path] = self._dirty.get(path, 0) + len(data)

    def read(self, path: str, at: int, count: int) -> bytes:
        """Up to `count` bytes from byte `at`; b"" when there is no such file."""
        try:
            return os.pread(self._descriptor(path), count, at)
        except FileNotFoundError:
            return b""

    def read_nowait(self, path: str, at: int, count: int, reads: ColdReads) -> bytes | bytearray:
        """`count` bytes from byte `at`, b"" when there is no such file. ColdRead when they are not in memory."""
        try:
            return reads.read(self._descriptor(path), path, at, count)
        except FileNotFoundError:
            return b""

    def clear(self, path: str, begin: int) -> int:
        """Zero what stands at and behind byte `begin`. Returns how many bytes were not zero."""
        cleared = self._disk.clear(self._descriptor(path), begin, self.file_size)
        if cleared:
            self._dirty[path] = self._dirty.get(path, 0) + cleared
        return cleared

    def distrust(self, path: str) -> None:
        """Someone else wrote it and may not have synced it: it counts as written just now."""
        self._dirty.setdefault(path, 0)

    def distrust_directory(self, directory: str) -> None:
        """Someone else made or removed files there, or made it, and may not have synced that."""
        for _ in range(_DIRECTORIES):
            self._dirty_directories[directory] = None
            directory = os.path.dirname(directory)

    def expire(self, paths: list[str], helper: Helper) -> "Future[None]":
        """Have segments of one queue unlinked by a helper thread, in order, each lasting before the next."""
        for path in paths:
            self.paths.check(path)
            self._forget(path)
            self._dirty.pop(path, None)
        self._expiry = helper.submit(lambda: _unlink_all(paths, self._disk))
        return self._expiry

    def finish_expiry(self) -> None:
        """Wait until what `expire` was asked for is over, well or not: its paths may be used again then."""
        if self._expiry is not None:
            self._expiry.exception()

    def remove(self, path: str) -> None:
        """Unlink a segment; lasting after the next flush."""
        self.paths.check(path)
        self._forget(path)
        self._dirty.pop(path, None)
        self._disk.unlink(path)
        self._dirty_directories[os.path.dirname(path)] = None

    def remove_all(self, directory: str) -> None:
        """Remove a queue's segments, the first one last: what a cut leaves begins where it began. Then its directory,
        unless that holds anything else, which is logged and stays. OSError: what is left goes before a new segment is
        created there."""
        self.paths.check_directory(directory)
        self._left.add(directory)
        self._remove_left(directory)
        self.remove_directory(directory)

    def _remove_left(self, directory: str) -> None:
        for name in sorted(_segments_in(directory), reverse=True):
            self.remove(f"{directory}/{name}")
        self._left.discard(directory)

    def remove_directory(self, path: str) -> None:
        """Remove a directory, unless it holds anything; its parent is synced with what is dirty."""
        if kept := os.listdir(path):
            log.warning("directory stays, it holds other files path=%s files=%d first=%s", path, len(kept), kept[0])
            return
        self._disk.remove_directory(path)
        self._dirty_directories[os.path.dirname(path)] = None

    def take_dirty(self, least_pages: int) -> list[DirtyFile | DirtyDirectory]:
        """New directory entries, and files with at least that many pages unsynced (0: all); clean from now on."""
        directories, self._dirty_directories = self._dirty_directories, {}
        least = least_pages * PAGE_BYTES
        taken = [path for path, count in self._dirty.items() if count >= least]
        for path in taken:
            del self._dirty[path]
        files = [DirtyFile(path, self._disk) for path in taken]
        return [*files, *(DirtyDirectory(path, self._disk) for path in directories)]

    def close(self) -> None:
        """Close every descriptor; nothing is synced here."""
        for fd in self._descriptors.values():
            os.close(fd)
        self._descriptors.clear()

    def statistics(self) -> QueueFilesStatistics:
        """Counts for operators."""
        return QueueFilesStatistics(len(self._descriptors), len(self._dirty))

    def _descriptor(self, path: str) -> int:
        fd = self._descriptors.pop(path, None)
        if fd is None:
            fd = self._opened(partial(self._disk.open, path))
        self._keep(path, fd)
        return fd

    def _keep(self, path: str, fd: int) -> None:
        """The last one used stands last; the first one goes, if they are too many."""
        descriptors = self._descriptors
        if len(descriptors) >= self._limit:
            os.close(descriptors.pop(next(iter(descriptors))))
        descriptors[path] = fd

    def _opened(self, call: Callable[[], int]) -> int:
        """A new descriptor. When the process has none to spare, ours go: half of them, the longest unused."""
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
    """Names of the regular files that have the names of segments."""
    with os.scandir(directory) as entries:
        segments = (entry for entry in entries if parse_offset_file_name(entry.name) is not None)
        return [entry.name for entry in segments if entry.is_file(follow_symlinks=False)]


def _unlink_all(paths: list[str], disk: Disk) -> None:
    for path in paths:
        try:
            disk.unlink(path)
        except FileNotFoundError:
            continue  # tried before
        disk.sync_directory(os.path.dirname(path))
