"""The directory of an archive: names, the manifest of one broker, and the steps that make files visible.

    messages/BROKER/<20 digits>.parquet              a piece of the log, named after its first byte
    messages/BROKER/.<20 digits>.parquet.<attempt>   the same while it is written and verified
    manifest/BROKER/<20 digits>.json                 a range of the log, named after its first byte: it is archived
    manifest/BROKER/.lock                            locked by a running job, on a local file system

A range is archived from the moment its manifest entry exists. Order: each file is written, synced, verified, renamed;
then the entry is written, synced, renamed. A job that was killed leaves hidden files and files without an entry; the
next attempt of the range removes both (`discard`), so that no message is missing or there twice.

The directory is on any file system of PyArrow: a path, or a URI (`s3://`, `hdfs://`, `gs://`). Syncs and the lock exist
on local ones only; on object stores a rename is a copy.
"""

import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import msgspec
from pyarrow import fs

from skylarkmq.clients.arrow.archive_schema import (
    MANIFEST_DIRECTORY,
    MANIFEST_SUFFIX,
    MESSAGES_DIRECTORY,
    MESSAGES_SUFFIX,
)
from skylarkmq.protocol.disk import offset_file_name, parse_offset_file_name

_BROKER_NAME: Final = re.compile(r"[\w%|-][\w.%|-]{0,254}", re.ASCII)
_LOCK: Final = ".lock"
_ENTRY: Final = "entry"
_READERS: Final = 8
MAX_ENTRY_BYTES: Final = 16 << 20  # a file takes 150 bytes, and a segment of the largest size, 2 GiB, has about 100


class ArchiveError(Exception):
    """The archive cannot be used; the text contains the remedy."""


class FileEntry(msgspec.Struct, frozen=True):
    """A file of messages: the range [begin, end) of the log that it covers, and its size."""

    name: str
    begin: int
    end: int
    rows: int
    bytes: int


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """The archived range [begin, end) of the log.

    `left_out`: records that no consumer could read. `damaged`: damaged records that were skipped. The times (ms) are
    those of all its records, archived or not; 0 without records.
    """

    begin: int
    end: int
    rows: int
    left_out: int
    damaged: int
    first_stored_ms: int
    last_stored_ms: int
    everything: bool
    files: tuple[FileEntry, ...]


_DECODER: Final = msgspec.json.Decoder(Entry)


def file_name(begin: int) -> str:
    """Return the name of the file of messages that begins at this byte of the log."""
    return offset_file_name(begin) + MESSAGES_SUFFIX


class ArchiveDirectory:
    """The part of one broker in an archive. Raises ArchiveError for a URI or a broker name that cannot be used."""

    def __init__(self, uri: str, broker_name: str) -> None:
        if not _BROKER_NAME.fullmatch(broker_name):
            raise ArchiveError(f"{broker_name!r} is not the name of a broker: set --broker-name to its brokerName")
        self.uri = uri
        self.broker_name = broker_name
        try:
            self._fs, root = fs.FileSystem.from_uri(uri) if "://" in uri else _local(uri)
        except (OSError, ValueError, NotImplementedError) as problem:
            raise ArchiveError(f"the archive {uri} cannot be opened: {problem}") from problem
        self._is_local = isinstance(self._fs, fs.LocalFileSystem)
        self._root = f"file://{root}" if self._is_local else uri.rstrip("/")
        self._messages = f"{root}/{MESSAGES_DIRECTORY}/{broker_name}"
        self._manifest = f"{root}/{MANIFEST_DIRECTORY}/{broker_name}"

    def prepare(self) -> None:
        """Create the directories. Raises ArchiveError."""
        try:
            for directory in (self._messages, self._manifest):
                self._fs.create_dir(directory, recursive=True)
        except OSError as problem:
            raise ArchiveError(f"the archive {self.uri} cannot be written: {problem}") from problem

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of this broker's part. Raises ArchiveError if another job holds it."""
        if not self._is_local:
            yield
            return
        with open(f"{self._manifest}/{_LOCK}", "ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                what = f"another job is writing the part of {self.broker_name} in {self.uri}"
                raise ArchiveError(f"{what}: wait until it has finished") from None
            yield

    # --- manifest ---------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """Return all archived ranges in the order of the log. Raises ArchiveError for a damaged or overlapping one."""
        with ThreadPoolExecutor(_READERS) as pool:  # object stores take long for each
            found = sorted(pool.map(self._read, self._names(self._manifest, MANIFEST_SUFFIX)), key=_begin_of)
        for earlier, later in pairwise(found):
            if later.begin < earlier.end:
                what = f"the ranges [{earlier.begin}, {earlier.end}) and [{later.begin}, {later.end})"
                raise ArchiveError(f"{what} in {self._manifest} overlap: archive each broker under a name of its own")
        return found

    def _read(self, path: str) -> Entry:
        try:
            with self._fs.open_input_stream(path) as stream:
                data = stream.read(MAX_ENTRY_BYTES + 1)
            if len(data) > MAX_ENTRY_BYTES:
                raise ValueError(f"it is larger than {MAX_ENTRY_BYTES} bytes")
            return _DECODER.decode(data)
        except (OSError, ValueError, RecursionError) as problem:
            advice = "restore it, or remove it to archive its range again"
            raise ArchiveError(f"the manifest entry {path} cannot be read: {problem}; {advice}") from problem

    def record(self, entry: Entry) -> None:
        """Add an entry; its range is archived from then on."""
        final = f"{self._manifest}/{offset_file_name(entry.begin)}{MANIFEST_SUFFIX}"
        temporary = f"{self._manifest}/.{offset_file_name(entry.begin)}{MANIFEST_SUFFIX}.{_ENTRY}"
        with self._fs.open_output_stream(temporary) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(entry)))
        self.settle(temporary)
        self._move(temporary, final)

    # --- files of messages ------------------------------------------------------------------------

    def uri_of(self, name: str) -> str:
        """Return the URI of a file of messages."""
        return f"{self._root}/{MESSAGES_DIRECTORY}/{self.broker_name}/{name}"

    def temporary(self, name: str, attempt: str) -> str:
        """Return the path of a file while this attempt writes it."""
        return f"{self._messages}/.{name}.{attempt}"

    def open_output(self, path: str) -> Any:
        """Return a new file as an output stream."""
        return self._fs.open_output_stream(path)

    def open_input(self, path: str) -> Any:
        """Return a file for reading at any position."""
        return self._fs.open_input_file(path)

    def settle(self, path: str) -> int:
        """Make a written file durable; return its size."""
        if self._is_local:
            _sync(path, os.O_RDONLY)
        return int(self._fs.get_file_info(path).size)

    def publish(self, temporary: str, name: str) -> None:
        """Give a verified file its name. An existing file, from an earlier attempt, is replaced."""
        self._move(temporary, f"{self._messages}/{name}")

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        if self._fs.get_file_info(path).type != fs.FileType.NotFound:
            self._fs.delete_file(path)

    def discard(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Remove what interrupted jobs left: unfinished files, and files in these ranges [begin, end) without entries.

        Files outside of the ranges stay, whether they have an entry or not: their messages may exist nowhere else.
        """
        for path in self._paths(self._messages):
            name = path.rpartition("/")[2]
            start = _offset_of(name, MESSAGES_SUFFIX)
            is_unfinished = name.startswith(".") and parse_offset_file_name(name[1:].partition(".")[0]) is not None
            if is_unfinished or (start is not None and any(begin <= start < end for begin, end in ranges)):
                self.remove(path)

    def _move(self, source: str, target: str) -> None:
        self._fs.move(source, target)
        if self._is_local:
            _sync(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)

    def _paths(self, directory: str) -> list[str]:
        found = self._fs.get_file_info(fs.FileSelector(directory, allow_not_found=True))
        return [info.path for info in found if info.type == fs.FileType.File]

    def _names(self, directory: str, suffix: str) -> list[str]:
        """Return the paths of files whose name is an offset and the suffix."""
        paths = self._paths(directory)
        return [path for path in paths if _offset_of(path.rpartition("/")[2], suffix) is not None]

    def __repr__(self) -> str:
        return f"<ArchiveDirectory {self.uri} {self.broker_name}>"


def _offset_of(name: str, suffix: str) -> int | None:
    return parse_offset_file_name(name.removesuffix(suffix)) if name.endswith(suffix) else None


def _local(path: str) -> tuple[fs.FileSystem, str]:
    return fs.LocalFileSystem(), os.path.abspath(path)


def _begin_of(entry: Entry) -> int:
    return entry.begin


def _sync(path: str, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
