"""A disk that forgets what was not synced, as a machine does that loses its power.

It works on real files in a scratch directory: what the kernel would hold in memory. Beside them it keeps, for every
file, its content and size at the last sync and every write since, and for every directory its entries at the last
sync and every change since. `cut` then replaces the files by what a power cut could leave:

    sectors      each of 512 bytes that was written since the last sync, on its own: the old content, that of any
                 write since, or a torn one, made of runs of bytes of two of them
    sizes        the old one, or any since
    directories  the old entries and any number of the changes since, in their order: a journal keeps that within a
                 directory; between directories, and between names and sizes, nothing is promised

A whole cut is now and then one-sided (everything old, everything new), since chance alone hardly ever makes it so.
What is stored through a mapping is seen by comparing whole sectors at each sync and at the cut.

`cut_at` ends the process at one call: that call and all later ones raise PowerCut. A write or rename has happened by
then and a sync has not, which covers both outcomes, because neither is safe before a sync. Whether the power went too,
or only the process, is the caller's choice: without `cut` the files are as the kernel holds them.

All is decided by the `Random` that is passed in. Only one thread may come in here: tests.harness.stepped_helpers.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from skylarkmq.broker.store.disk import Data, Disk

T = TypeVar("T")

SECTOR_BYTES: Final = 512
_OLD, _NEW, _ANY = range(3)  # how one-sided a cut is


class PowerCut(BaseException):
    """The process ends here. Not an Exception: nothing may handle it."""


@dataclass(eq=False, slots=True)
class _File:
    """`stable` is on disk; `writes` (at, bytes) and `sizes` came since, in order."""

    stable: bytes = b""
    size: int = 0
    writes: list[tuple[int, bytes]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def resize(self, size: int) -> None:
        if size < self.size:
            self.writes.append((size, bytes(self.size - size)))
        if size != self.size:
            self.size = size
            self.sizes.append(size)

    def settle(self, content: bytes) -> None:
        self.stable, self.size = content, len(content)
        self.writes.clear()
        self.sizes.clear()

    def after_cut(self, current: bytes | None, rng: Random, side: int) -> bytes:
        """One content that the disk may hold; `current` is what the kernel holds, None for a removed file."""
        size = _choose([len(self.stable), *self.sizes], rng, side)
        longest = max(len(self.stable), self.size, *(at + len(data) for at, data in self.writes), 0, size)
        content = bytearray(self.stable.ljust(longest, b"\0"))
        for sector, versions in self._versions(content, current).items():
            begin = sector * SECTOR_BYTES
            content[begin : begin + SECTOR_BYTES] = _sector_after_cut(versions, rng, side)
        return bytes(content[:size])

    def _versions(self, stable: bytearray, current: bytes | None) -> dict[int, list[bytes]]:
        """For each sector that is not safe, what it held: at the last sync, then after each write."""
        image = bytearray(stable)
        versions: dict[int, list[bytes]] = {}

        def note(sector: int) -> None:
            begin = sector * SECTOR_BYTES
            known = versions.setdefault(sector, [bytes(stable[begin : begin + SECTOR_BYTES])])
            known.append(bytes(image[begin : begin + SECTOR_BYTES]))

        for at, data in self.writes:
            image[at : at + len(data)] = data
            for sector in range(at // SECTOR_BYTES, (at + len(data) - 1) // SECTOR_BYTES + 1):
                note(sector)
        if current is not None and current != image[: len(current)]:  # stored through a mapping
            for begin in range(0, len(current), SECTOR_BYTES):
                if current[begin : begin + SECTOR_BYTES] != image[begin : begin + SECTOR_BYTES]:
                    image[begin : begin + SECTOR_BYTES] = current[begin : begin + SECTOR_BYTES]
                    note(begin // SECTOR_BYTES)
        return versions


def _sector_after_cut(versions: list[bytes], rng: Random, side: int) -> bytes:
    chance = rng.random()
    if side == _ANY and chance < 0.25:
        return _torn(rng.choice(versions), rng.choice(versions), rng)
    return _choose(versions, rng, side)


def _choose(versions: list[T], rng: Random, side: int) -> T:
    """The first, the last, or any of them."""
    if side != _ANY:
        return versions[0 if side == _OLD else -1]
    chance = rng.random()
    return versions[0] if chance < 0.35 else versions[-1] if chance < 0.75 else rng.choice(versions)


def _torn(one: bytes, other: bytes, rng: Random) -> bytes:
    """Runs of bytes of the one and of the other, one to four of them."""
    torn = bytearray(one)
    for _ in range(rng.randint(1, 2)):
        begin, end = sorted((rng.randint(0, len(one)), rng.randint(0, len(one))))
        torn[begin:end] = other[begin:end]
    return bytes(torn)


@dataclass(eq=False, slots=True)
class _Directory:
    """`stable` is on disk; each of `changes` (name -> node, None: gone) came since, in order."""

    entries: "dict[str, _Node]" = field(default_factory=dict)
    stable: "dict[str, _Node]" = field(default_factory=dict)
    changes: "list[dict[str, _Node | None]]" = field(default_factory=list)

    def change(self, changed: "dict[str, _Node | None]") -> None:
        self.changes.append(changed)
        _apply(self.entries, changed)

    def settle(self) -> None:
        self.stable = dict(self.entries)
        self.changes.clear()

    def after_cut(self, rng: Random, side: int) -> "dict[str, _Node]":
        kept = _choose(list(range(len(self.changes) + 1)), rng, side)
        entries = dict(self.stable)
        for changed in self.changes[:kept]:
            _apply(entries, changed)
        return entries


_Node = _File | _Directory


def _apply(entries: dict[str, _Node], changed: "dict[str, _Node | None]") -> None:
    for name, node in changed.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class SimulatedDisk(Disk):
    """The disk below `root`, which exists and is empty. `calls` counts system calls; see `cut_at` above."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.calls = 0
        self.cut_at = -1
        self.used = 0  # percent
        self.before_call: Callable[[str, str], None] = lambda call, path: None
        self._directories: dict[str, _Directory] = {self._root: _Directory()}
        self._files: dict[int, _File] = {}  # by inode number

    # what happens at a call

    def _happened(self) -> None:
        self.calls += 1
        if 0 <= self.cut_at <= self.calls:
            raise PowerCut

    def _before(self, call: str, target: str | int) -> None:
        if 0 <= self.cut_at <= self.calls:
            raise PowerCut
        self.before_call(call, target if isinstance(target, str) else os.readlink(f"/proc/self/fd/{target}"))

    def _place(self, path: str) -> tuple[_Directory, str]:
        directory, _, name = path.rpartition("/")
        return self._directories[directory], name

    def _file(self, fd: int) -> _File:
        return self._files[os.fstat(fd).st_ino]

    def used_percent(self, path: str) -> int:
        return self.used

    # system calls

    def open(self, path: str) -> int:
        self._before("open", path)
        return super().open(path)

    def make(self, path: str) -> int:
        self._before("make", path)
        return self._made(path, super().make(path), is_empty=True)

    def make_new(self, path: str) -> int:
        self._before("make_new", path)
        return self._made(path, super().make_new(path), is_empty=True)

    def open_or_make(self, path: str) -> int:
        self._before("open_or_make", path)
        return self._made(path, super().open_or_make(path), is_empty=False)

    def _made(self, path: str, fd: int, *, is_empty: bool) -> int:
        directory, name = self._place(path)
        file = directory.entries.get(name)
        if not isinstance(file, _File):
            file = self._files[os.fstat(fd).st_ino] = _File()
            directory.change({name: file})
        elif is_empty:
            file.resize(0)
        try:
            self._happened()
        except PowerCut:
            os.close(fd)
            raise
        return fd

    def resize(self, fd: int, size: int) -> None:
        self._before("resize", fd)
        super().resize(fd, size)
        self._file(fd).resize(size)
        self._happened()

    def reserve(self, fd: int, size: int) -> None:
        self._before("reserve", fd)
        super().reserve(fd, size)
        file = self._file(fd)
        file.resize(max(size, file.size))
        self._happened()

    def write_some(self, fd: int, data: Data, at: int) -> int:
        self._before("write_some", fd)
        written = super().write_some(fd, data, at)
        if written:
            file = self._file(fd)
            file.writes.append((at, bytes(data[:written])))
            if at + written > file.size:
                file.resize(at + written)
        self._happened()
        return written

    def fdatasync(self, fd: int) -> None:
        self._before("fdatasync", fd)
        self._settle(fd)

    def fsync(self, fd: int) -> None:
        self._before("fsync", fd)
        self._settle(fd)

    def _settle(self, fd: int) -> None:
        self._happened()
        file = self._file(fd)
        file.settle(os.pread(fd, file.size, 0))

    def rename(self, source: str, target: str) -> None:
        self._before("rename", target)
        super().rename(source, target)
        directory, name = self._place(source)
        new_directory, new_name = self._place(target)
        node = directory.entries[name]
        if new_directory is not directory:  # a cut may keep either name, or both, or none: more than a journal does
            directory.change({name: None})
            new_directory.change({new_name: node})
        elif directory.entries.get(new_name) is not node:  # of two names of one file, rename leaves both
            directory.change({name: None, new_name: node})
        if isinstance(node, _Directory):
            for path in [path for path in self._directories if path == source or path.startswith(source + "/")]:
                self._directories[target + path[len(source) :]] = self._directories.pop(path)
        self._happened()

    def hard_link(self, source: str, target: str) -> None:
        self._before("hard_link", target)
        super().hard_link(source, target)
        directory, name = self._place(source)
        new_directory, new_name = self._place(target)
        new_directory.change({new_name: directory.entries[name]})
        self._happened()

    def unlink(self, path: str) -> None:
        self._before("unlink", path)
        super().unlink(path)
        directory, name = self._place(path)
        directory.change({name: None})
        self._happened()

    def make_one_directory(self, path: str) -> None:
        self._before("make_one_directory", path)
        super().make_one_directory(path)
        directory, name = self._place(path)
        self._directories[path] = made = _Directory()
        directory.change({name: made})
        self._happened()

    def remove_directory(self, path: str) -> None:
        self._before("remove_directory", path)
        super().remove_directory(path)
        directory, name = self._place(path)
        del self._directories[path]
        directory.change({name: None})
        self._happened()

    def sync_directory(self, path: str) -> None:
        self._before("sync_directory", path)
        super().sync_directory(path)
        self._happened()
        self._directories[path].settle()

    # the cut

    def cut(self, rng: Random) -> None:
        """Put in place of the files what a power cut now may leave; all of that is on disk, and calls work again."""
        side = rng.choice((_OLD, _NEW, *(_ANY,) * 8))
        root = self._directories[self._root]
        contents = {file: Path(path).read_bytes() for path, file in _files_below(self._root, root)}
        shutil.rmtree(self._root)
        self._directories.clear()
        self._files.clear()
        self._rebuild(self._root, root, contents, rng, side)
        self.revive()

    def revive(self) -> None:
        """Another process may work here."""
        self.cut_at = -1
        self.calls = 0
        self.used = 0

    def _rebuild(self, path: str, old: _Directory, contents: dict[_File, bytes], rng: Random, side: int) -> None:
        os.mkdir(path, 0o755)
        directory = self._directories[path] = _Directory()
        written: dict[_File, str] = {}
        for name, node in old.after_cut(rng, side).items():
            below = f"{path}/{name}"
            if isinstance(node, _Directory):
                self._rebuild(below, node, contents, rng, side)
                directory.entries[name] = self._directories[below]
                continue
            if node in written:
                os.link(written[node], below)
                directory.entries[name] = self._files[os.stat(below).st_ino]
                continue
            directory.entries[name] = self._write(below, node.after_cut(contents.get(node), rng, side))
            written[node] = below
        directory.settle()

    def _write(self, path: str, content: bytes) -> _File:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        os.pwrite(fd, content, 0)
        file = self._files[os.fstat(fd).st_ino] = _File(content, len(content))
        os.close(fd)
        return file

    def snapshot(self) -> dict[str, bytes]:
        """Every file's path below the root, with its content as the kernel holds it."""
        root = self._directories[self._root]
        return {path[len(self._root) + 1 :]: Path(path).read_bytes() for path, _ in _files_below(self._root, root)}

    def __repr__(self) -> str:
        return f"<SimulatedDisk {self._root} calls={self.calls}>"


def _files_below(path: str, directory: _Directory) -> Iterator[tuple[str, _File]]:
    for name, node in directory.entries.items():
        if isinstance(node, _Directory):
            yield from _files_below(f"{path}/{name}", node)
        else:
            yield f"{path}/{name}", node
