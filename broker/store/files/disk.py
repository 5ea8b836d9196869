"""The only module through which the store changes files.

Every create, write, sync, rename and unlink of mapped files, queue files and state files is a method here. The first
methods are the store's operations, each a short fixed sequence of calls. Below "system calls" are those calls, one per
method. Tests replace these with a disk that fails or loses what was not synced. Reads do not need this module, because
they change nothing.

A file exists reliably only after its directory was synced. So `create` creates it under a temporary name at full size,
syncs it, renames it and syncs the directory: after a power cut it is complete or does not exist.

All calls release the GIL while they wait. Other threads may make them only if they change no table of the event loop.
"""

import errno
import fcntl
import mmap
import os
import stat
import threading
from collections.abc import Callable
from typing import Final

from skylarkmq.protocol.disk import parse_offset_file_name

NO_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errors of an open only: this process, or the machine, has too many open files."""

TEMPORARY_SUFFIX: Final = ".tmp"
PRIVATE: Final = 0o600
"""Mode of files with secrets."""
_ZEROS: Final = bytes(1 << 16)
_NO_WAIT: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # no open may wait for another process
_MAKING_DIRECTORIES: Final = threading.RLock()
_FICLONE: Final = 0x40049409  # ioctl of btrfs, XFS and others: see ioctl_ficlone(2)

Data = bytes | bytearray | memoryview


def temporary_path(path: str) -> str:
    """Return the path of a file before it gets its final name.

    RocketMQ does not start on a directory of segments with any other file in it, and a process may be killed at any
    time. So the temporary file of a segment is beside the directory: `commitlog.00000000000000000000.tmp`.
    """
    directory, name = os.path.split(path)
    separator = "/" if parse_offset_file_name(name) is None else "."
    return f"{directory}{separator}{name}{TEMPORARY_SUFFIX}"


def open_untrusted(path: str | os.PathLike[str]) -> int:
    """Return a descriptor for reading a file that another user may have put there: a regular file, and no link.

    Raises OSError. A pipe is refused and never waited for.
    """
    fd = os.open(path, _NO_WAIT)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return fd


def read_untrusted(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the content of such a file. Raises OSError, also if it has more than `limit` bytes."""
    with open(open_untrusted(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"{size} bytes, the limit is {limit}", os.fspath(path))
        return file.read(size)


class Disk:
    """Real system calls. Every method raises the kernel's OSError."""

    def create_sparse(self, path: str, size: int) -> int:
        """Create a file of `size` zero bytes without blocks, for data that can be rebuilt. Nothing is synced."""
        fd = self.make(path)
        try:
            self.resize(fd, size)
        except OSError:
            os.close(fd)
            raise
        return fd

    def create_new(self, path: str, size: int) -> int:
        """Do the same, but raise FileExistsError if the file exists. If the resize fails, the file is removed."""
        fd = self.make_new(path)
        try:
            self.resize(fd, size)
        except OSError:
            os.close(fd)
            self._discard(path)
            raise
        return fd

    def create(self, path: str, size: int, prepare: Callable[[int], None] | None = None) -> int:
        """Create a file of `size` zero bytes, safe against a power cut. An existing file is replaced.

        Its blocks are reserved now, so that a full disk fails here and not at a later write. `prepare` may write to the
        descriptor before the file gets its name.
        """
        try:
            return self._create_as(temporary_path(path), path, size, prepare)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
        return self._create_as(path + TEMPORARY_SUFFIX, path, size, prepare)  # its directory is a mount point

    def _create_as(self, temporary: str, path: str, size: int, prepare: Callable[[int], None] | None) -> int:
        fd = self.make(temporary)
        try:
            self.reserve(fd, size)
            if prepare is not None:
                prepare(fd)
            self.fsync(fd)
            self.rename(temporary, path)
            self.sync_directory(os.path.dirname(path))
        except OSError:
            os.close(fd)
            self._discard(temporary)
            raise
        return fd

    def pwrite(self, fd: int, data: Data, at: int) -> None:
        """Write all of `data` at byte `at`. A short write raises ENOSPC, because that is its cause."""
        written = self.write_some(fd, data, at)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"short write: {written} of {len(data)} bytes")

    def clear(self, fd: int, begin: int, end: int) -> int:
        """Clear bytes [begin, end) where data is stored. Unwritten blocks stay unwritten.

        Return how many bytes were not zero before.
        """
        cleared = 0
        for chunk_begin, chunk_end in _stored_chunks(fd, begin, end):
            chunk = os.pread(fd, chunk_end - chunk_begin, chunk_begin)
            if chunk != _ZEROS[: len(chunk)]:
                self.pwrite(fd, _ZEROS[: len(chunk)], chunk_begin)
                cleared += len(chunk) - chunk.count(0)
        return cleared

    def link(self, source: str, target: str) -> None:
        """Create a second name for a file. An existing `target` is replaced."""
        temporary = target + TEMPORARY_SUFFIX
        self._discard(temporary)
        self.hard_link(source, temporary)
        self.rename(temporary, target)

    def make_directory(self, path: str) -> None:
        """Create `path` and its missing parents, each safe against a power cut.

        Several threads may need the same directory. The others wait until the first one has synced it.
        """
        with _MAKING_DIRECTORIES:
            for parent in self.make_directory_unsynced(path):
                self.sync_directory(parent)

    def make_directory_unsynced(self, path: str) -> list[str]:
        """Create `path` and its missing parents. Return the directories to sync afterwards, outermost first."""
        if os.path.isdir(path):
            return []
        parent = os.path.dirname(path) or os.curdir
        changed = self.make_directory_unsynced(parent)
        self.make_one_directory(path)
        return [*changed, parent]

    def write_file(self, path: str, data: Data) -> None:
        """Write and sync a file with exactly `data`. Not atomic, so only for temporary files and markers."""
        self._write_new(self.make(path), data)

    def write_private_file(self, path: str, data: Data) -> None:
        """Do the same for a file that only this user may read. An existing file is removed first."""
        self._discard(path)
        self._write_new(self.make_new(path, PRIVATE), data)

    def _write_new(self, fd: int, data: Data) -> None:
        try:
            self.pwrite(fd, data, 0)
            self.fsync(fd)
        finally:
            os.close(fd)

    def _discard(self, path: str) -> None:
        try:
            self.unlink(path)
        except FileNotFoundError:
            pass

    def free_bytes(self, path: str) -> int:
        """Return how many bytes this process may still write to the file system of `path`. Tests override it."""
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize

    def used_percent(self, path: str) -> int:
        """Return how full the file system of `path` is, in percent of the usable space, rounded up.

        Tests override it.
        """
        space = os.statvfs(path)
        used = space.f_blocks - space.f_bfree
        usable = used + space.f_bavail
        return -(-100 * used // usable) if usable else 100

    # system calls

    def open(self, path: str) -> int:
        """Return a descriptor of an existing file, for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def make(self, path: str) -> int:
        """Create an empty file and return its descriptor. An existing file is truncated. Nothing is synced."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def make_new(self, path: str, mode: int = 0o644) -> int:
        """Create an empty file and return its descriptor. Raises FileExistsError. Nothing is synced."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)

    def open_or_make(self, path: str) -> int:
        """Return a descriptor of an existing file, or create it empty."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def resize(self, fd: int, size: int) -> None:
        """Set the file's size. New bytes are zero and have no blocks."""
        os.ftruncate(fd, size)

    def reserve(self, fd: int, size: int) -> None:
        """Reserve blocks for the first `size` bytes. New bytes are zero."""
        os.posix_fallocate(fd, 0, size)

    def map(self, fd: int, size: int) -> mmap.mmap:
        """Return a writable mapping. The next sync of `fd` writes changes made in it.

        Use it only where blocks are reserved: a store into a hole would end the process if the disk is full.
        """
        return mmap.mmap(fd, size)

    def write_some(self, fd: int, data: Data, at: int) -> int:
        """Write at byte `at`. Return the number of bytes written."""
        return os.pwrite(fd, data, at)

    def clone(self, source: int, fd: int) -> None:
        """Make a file share all blocks of another one. Raises OSError if the file system cannot do that."""
        fcntl.ioctl(fd, _FICLONE, source)

    def copy_range(self, source: int, fd: int, count: int, at: int) -> int:
        """Copy up to `count` bytes at byte `at` inside the kernel. Return the number of bytes copied."""
        return os.copy_file_range(source, fd, count, at, at)

    def fdatasync(self, fd: int) -> None:
        """Make the file's bytes durable."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """Make the file's bytes and size durable."""
        os.fsync(fd)

    def rename(self, source: str, target: str) -> None:
        """Atomically rename `source` to `target`. Durable only after `sync_directory`."""
        os.replace(source, target)

    def hard_link(self, source: str, target: str) -> None:
        """Create a second name for a file. Raises FileExistsError if `target` exists."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        """Remove the name. Durable only after `sync_directory`."""
        os.unlink(path)

    def make_one_directory(self, path: str) -> None:
        """Create a directory in an existing one."""
        os.mkdir(path, 0o755)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory. Durable only after `sync_directory` of its parent."""
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in `path` durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _stored_chunks(fd: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Return where [begin, end) may contain data, in pieces of 64 KiB.

    All pieces are found before any is read, because pages that a read brings into the page cache count as data.
    """
    chunks: list[tuple[int, int]] = []
    while begin < end:
        try:
            begin = os.lseek(fd, begin, os.SEEK_DATA)
        except OSError as problem:
            if problem.errno == errno.ENXIO:  # only holes follow
                break
            raise
        range_end = min(os.lseek(fd, begin, os.SEEK_HOLE), end)
        chunks += [(at, min(at + len(_ZEROS), range_end)) for at in range(begin, range_end, len(_ZEROS))]
        begin = max(range_end, begin + 1)
    return chunks
