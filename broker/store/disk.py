"""The one door through which the store changes anything on disk.

Every create, write, sync, rename and unlink of mapped files, queue files and state files is a method here: first
what the store asks for, each a short fixed order of calls; then, below "system calls", those calls themselves, one
each. Tests replace the latter by a disk that fails, or loses what was not synced. Reading goes past this door: it
changes nothing.

A file counts only once its directory was synced, so `create` makes it under a temporary name, at full size, syncs it,
renames it and syncs the directory: a power cut leaves it whole or not at all.

All calls release the GIL while they wait; none of them may be made on a table's behalf from another thread.
"""

import errno
import mmap
import os
from collections.abc import Callable
from typing import Final

from skylarkmq.protocol.disk import parse_offset_file_name

NO_DESCRIPTORS: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""Errors of an open, and of nothing else: this process, or the machine, has too many files open."""

TEMPORARY_SUFFIX: Final = ".tmp"
_ZEROS: Final = bytes(1 << 16)

Data = bytes | bytearray | memoryview


def temporary_path(path: str) -> str:
    """Where a file is made before it has its name.

    RocketMQ does not start on a directory of segments with anything else in it, and a process may be killed at any
    time: so that of a segment lies beside the directory, `commitlog.00000000000000000000.tmp`.
    """
    directory, name = os.path.split(path)
    separator = "/" if parse_offset_file_name(name) is None else "."
    return f"{directory}{separator}{name}{TEMPORARY_SUFFIX}"


class Disk:
    """Real system calls. Every method raises OSError as the kernel gives it."""

    def create_sparse(self, path: str, size: int) -> int:
        """A new file of `size` zero bytes without blocks, for what can be rebuilt: nothing is synced here."""
        fd = self.make(path)
        try:
            self.resize(fd, size)
        except OSError:
            os.close(fd)
            raise
        return fd

    def create_new(self, path: str, size: int) -> int:
        """The same, never in the place of another file: FileExistsError. What cannot get its size is removed again."""
        fd = self.make_new(path)
        try:
            self.resize(fd, size)
        except OSError:
            os.close(fd)
            self._discard(path)
            raise
        return fd

    def create(self, path: str, size: int, prepare: Callable[[int], None] | None = None) -> int:
        """A new file of `size` zero bytes, safe against a cut; an old one of that name is replaced.

        Its blocks are taken now, so that a full disk shows here and not at a later write. `prepare` may do something
        with the descriptor before anybody knows the file.
        """
        try:
            return self._create_as(temporary_path(path), path, size, prepare)
        except OSError as problem:
            if problem.errno != errno.EXDEV:
                raise
        return self._create_as(path + TEMPORARY_SUFFIX, path, size, prepare)  # its directory is a mount of its own

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
        """Write all of `data` at byte `at`; a short write is an ENOSPC, which is what it announces."""
        written = self.write_some(fd, data, at)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"short write: {written} of {len(data)} bytes")

    def clear(self, fd: int, begin: int, end: int) -> int:
        """Zero bytes [begin, end) wherever something else is stored; what was never written stays unwritten.

        Returns how many bytes were not zero.
        """
        cleared = 0
        for chunk_begin, chunk_end in _stored_chunks(fd, begin, end):
            chunk = os.pread(fd, chunk_end - chunk_begin, chunk_begin)
            if chunk != _ZEROS[: len(chunk)]:
                self.pwrite(fd, _ZEROS[: len(chunk)], chunk_begin)
                cleared += len(chunk) - chunk.count(0)
        return cleared

    def link(self, source: str, target: str) -> None:
        """A second name for a file; an older `target` is replaced."""
        temporary = target + TEMPORARY_SUFFIX
        self._discard(temporary)
        self.hard_link(source, temporary)
        self.rename(temporary, target)

    def make_directory(self, path: str) -> None:
        """`path` and its missing parents, each safe against a cut."""
        for parent in self.make_directory_unsynced(path):
            self.sync_directory(parent)

    def make_directory_unsynced(self, path: str) -> list[str]:
        """`path` and its missing parents; returns the directories to be synced for them to last, outermost first."""
        if os.path.isdir(path):
            return []
        parent = os.path.dirname(path)
        changed = self.make_directory_unsynced(parent)
        self.make_one_directory(path)
        return [*changed, parent]

    def write_file(self, path: str, data: Data) -> None:
        """A file that holds exactly `data`, synced; replaced in place, so for temporary names and markers only."""
        fd = self.make(path)
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

    def used_percent(self, path: str) -> int:
        """How full the file system of `path` is, of what we may use; rounded up. A method for tests to fill it."""
        space = os.statvfs(path)
        used = space.f_blocks - space.f_bfree
        usable = used + space.f_bavail
        return -(-100 * used // usable) if usable else 100

    # system calls

    def open(self, path: str) -> int:
        """A descriptor of an existing file, for reading and writing."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def make(self, path: str) -> int:
        """A descriptor of a new, empty file; an old one of that name is emptied. Nothing is synced."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def make_new(self, path: str) -> int:
        """A descriptor of a new, empty file; FileExistsError if there is anything of that name. Nothing is synced."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)

    def open_or_make(self, path: str) -> int:
        """A descriptor of a file as it is, or of a new, empty one."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def resize(self, fd: int, size: int) -> None:
        """The file has `size` bytes from now on, new ones zero and without blocks."""
        os.ftruncate(fd, size)

    def reserve(self, fd: int, size: int) -> None:
        """The first `size` bytes have blocks; new ones are zero."""
        os.posix_fallocate(fd, 0, size)

    def map(self, fd: int, size: int) -> mmap.mmap:
        """A mapping that is stored through: what changes in it between two syncs of `fd` is written by the second.

        Only where blocks are reserved: a store into a hole of a full disk would end the process.
        """
        return mmap.mmap(fd, size)

    def write_some(self, fd: int, data: Data, at: int) -> int:
        """Write at byte `at`; returns how many bytes were taken."""
        return os.pwrite(fd, data, at)

    def fdatasync(self, fd: int) -> None:
        """The file's bytes are on disk afterwards."""
        os.fdatasync(fd)

    def fsync(self, fd: int) -> None:
        """The file's bytes and its size are on disk afterwards."""
        os.fsync(fd)

    def rename(self, source: str, target: str) -> None:
        """`target` becomes `source`, at once; lasting only after `sync_directory`."""
        os.replace(source, target)

    def hard_link(self, source: str, target: str) -> None:
        """A second name for a file; FileExistsError if there is a `target`."""
        os.link(source, target)

    def unlink(self, path: str) -> None:
        """The name goes; lasting only after `sync_directory`."""
        os.unlink(path)

    def make_one_directory(self, path: str) -> None:
        """A new directory in one that exists."""
        os.mkdir(path, 0o755)

    def remove_directory(self, path: str) -> None:
        """An empty directory goes; lasting only after `sync_directory` of its parent."""
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        """Creations, renames and removals in `path` are on disk afterwards."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _stored_chunks(fd: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Where [begin, end) may hold anything, in pieces of 64 KiB.

    All of it is found before any of it is read: what a read brings into the page cache counts as stored from then on.
    """
    chunks: list[tuple[int, int]] = []
    while begin < end:
        try:
            begin = os.lseek(fd, begin, os.SEEK_DATA)
        except OSError as problem:
            if problem.errno == errno.ENXIO:  # only holes from here on
                break
            raise
        range_end = min(os.lseek(fd, begin, os.SEEK_HOLE), end)
        chunks += [(at, min(at + len(_ZEROS), range_end)) for at in range(begin, range_end, len(_ZEROS))]
        begin = max(range_end, begin + 1)
    return chunks
