"""A disk that loses unsynced data, as in a power cut.

It works on real files in a scratch directory, which stand for the content in the kernel's memory. For every file it
also tracks content and size at the last sync and every write since; for every directory, its entries at the last sync
and every change since. `cut` then replaces the files by a state that a power cut could leave:

    sectors      each sector of 512 bytes written since the last sync independently has the old content, that of any
                 write since, or a torn one, with runs of bytes of two of them
    sizes        the old size, or any since
    directories  the old entries and any number of the changes since, in order: a journal guarantees that within a
                 directory; nothing is guaranteed between directories, or between names and sizes

Some cuts are one-sided (all old, or all new), since chance alone hardly ever produces these. Stores through a mapping
are found by comparing whole sectors at each sync and at the cut.

`cut_at` ends the process at one call: that call and all later ones raise PowerCut. A write or rename has taken effect
by then and a sync has not, which covers both outcomes, because neither is durable before a sync. The caller chooses
whether the power failed, or only the process: without `cut` the files are as the kernel has them.

The `Random` that is passed in decides everything. Only one thread may use the disk: tests.harness.stepped_helpers.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from skylarkmq.broker.store.files.disk import Data, Disk

T = TypeVar("T")

SECTOR_BYTES: Final = 512
_OLD, _NEW, _ANY, _WHOLE = range(4)  # how one-sided a cut is; _WHOLE: any version of each sector, none torn


class PowerCut(BaseException):
    """The process ends here. It is no Exception, so that no handler catches it."""


@dataclass(eq=False, slots=True)
class _File:
    """`stable`: content on disk. `writes` (offset, bytes) and `sizes` came since, in order."""

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
        """Return one possible content on disk. `current`: the kernel's content; None for a removed file."""
        size = _choose([len(self.stable), *self.sizes], rng, side)
        longest = max(len(self.stable), self.size, *(at + len(data) for at, data in self.writes), 0, size)
        content = bytearray(self.stable.ljust(longest, b"\0"))
        for sector, versions in self._versions(content, current).items():
            begin = sector * SECTOR_BYTES
            content[begin : begin + SECTOR_BYTES] = _sector_after_cut(versions, rng, side)
        return bytes(content[:size])

    def _versions(self, stable: bytearray, current: bytes | None) -> dict[int, list[bytes]]:
        """Return the versions of each sector that is not durable: at the last sync, then after each write."""
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
    """Return the first version, the last, or any of them."""
    if side in {_OLD, _NEW}:
        return versions[0 if side == _OLD else -1]
    chance = rng.random()
    return versions[0] if chance < 0.35 else versions[-1] if chance < 0.75 else rng.choice(versions)


def _torn(one: bytes, other: bytes, rng: Random) -> bytes:
    """Return a mix of one to four runs of bytes of both."""
    torn = bytearray(one)
    for _ in range(rng.randint(1, 2)):
        begin, end = sorted((rng.randint(0, len(one)), rng.randint(0, len(one))))
        torn[begin:end] = other[begin:end]
    return bytes(torn)


@dataclass(eq=False, slots=True)
class _Directory:
    """`stable`: entries on disk. Each of `changes` (name -> node, None: removed) came since, in order."""

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
    """The disk below `root`, an existing empty directory. `calls` counts system calls; `cut_at`: see the module."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.calls = 0
        self.cut_at = -1
        self.used = 0  # percent
        self.tears_sectors = True
        self.before_call: Callable[[str, str], None] = lambda call, path: None
        self._directories: dict[str, _Directory] = {self._root: _Directory()}
        self._files: dict[int, _File] = {}  # by inode number

    # effects of a call

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

    def make_new(self, path: str, mode: int = 0o644) -> int:
        self._before("make_new", path)
        return self._made(path, super().make_new(path, mode), is_empty=True)

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
        if new_directory is not directory:  # a cut may keep either name, both, or none: more than a journal allows
            directory.change({name: None})
            new_directory.change({new_name: node})
        elif directory.entries.get(new_name) is not node:  # if both are names of one file, rename keeps both
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

    def durable(self, path: str) -> bytes:
        """Return the content of a file at its last sync; b"" if a power cut may lose its name."""
        node: _Node | None = self._directories[self._root]
        for name in path[len(self._root) + 1 :].split("/"):
            if not isinstance(node, _Directory) or any(name in changed for changed in node.changes):
                return b""
            node = node.stable.get(name)
        return node.stable if isinstance(node, _File) else b""

    def cut(self, rng: Random) -> None:
        """Replace the files by a state that a power cut may leave now. That state is on disk, and calls work again."""
        side = rng.choice((_OLD, _NEW, *(_ANY if self.tears_sectors else _WHOLE,) * 8))
        root = self._directories[self._root]
        contents = {file: Path(path).read_bytes() for path, file in _files_below(self._root, root)}
        shutil.rmtree(self._root)
        self._directories.clear()
        self._files.clear()
        self._rebuild(self._root, root, contents, rng, side)
        self.revive()

    def revive(self) -> None:
        """Allow another process to use the disk."""
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
        """Return every file's path below the root, with the kernel's content."""
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
