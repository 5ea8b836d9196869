"""Offsets of a broadcasting consumer: every member reads everything, and each keeps in a file how far it is.

The file is replaced as a whole (written beside it, synced, renamed), so that a crash leaves the old one or the new one.
Commits that come together share one write, in a thread. A file that cannot be read stops the start: going on without it
would deliver everything again, or nothing of what was missed. Its layout is that of RocketMQ's Java client,
`{"offsetTable":{queue:offset}}`.

A file belongs to one member: offsets of two would overwrite each other. RocketMQ's clients find theirs by group and
instance name, and so do these; but a second member that asks for the same file, in this process or another one of the
host, is refused when it starts (flock on a file beside it, which the kernel releases if the member dies).
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from skylarkmq.clients.errors import ClientError
from skylarkmq.clients.file_lock import lock
from skylarkmq.protocol.bodies.body import BodyError
from skylarkmq.protocol.bodies.client_state import ResetOffsets
from skylarkmq.protocol.bodies.message_queue import MessageQueue

DEFAULT_INSTANCE: Final = "DEFAULT"


def default_path(group: str, instance_name: str = DEFAULT_INSTANCE) -> Path:
    """Where the offsets of a group's member lie unless the application says otherwise. ValueError for a bad name."""
    if not instance_name or instance_name in {".", ".."} or "/" in instance_name:
        raise ValueError(f"instance_name={instance_name!r} cannot be the name of a directory")
    return Path.home() / ".skylark_offsets" / group / instance_name / "offsets.json"


class LocalOffsets:
    """The offsets in one file, from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._lock: int | None = None  # descriptor of the file beside it
        self._writing: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<LocalOffsets {self.path} {len(self._offsets)} queues>"

    def open(self) -> None:
        """Take the file and read it. ClientError if it is another member's, or cannot be read."""
        self._lock = _lock(self.path)
        try:
            self._offsets = _read(self.path)
        except BaseException:
            os.close(self._lock)
            raise

    async def close(self) -> None:
        """Finish what is being written, and let another member have the file."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def forked(self) -> None:
        """Leave the file to the parent, in the child of a fork: a copy of the lock would outlive the parent's."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """The offset in the file, None if it has none."""
        return self._offsets.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Keep `offset`; done when it is in the file. ClientError if it cannot be written."""
        self._offsets[queue] = offset
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name=f"write/{self.path.name}")
            self._writes.add(self._writing)
            self._writing.add_done_callback(self._writes.discard)
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        async with self._one_at_a_time:
            self._writing = None  # what comes from now on is for the next write
            content = ResetOffsets(dict(self._offsets)).encode()
            try:
                await asyncio.to_thread(_replace, self.path, content)
            except OSError as error:
                text = f"the offsets file {self.path} cannot be written: {error}. Make room, or allow it."
                raise ClientError(text) from error


def _lock(path: Path) -> int:
    """A descriptor that holds the file for this member."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise ClientError(f"the offsets file {path} cannot be made: {error}. Make room, or allow it.") from error
    try:
        lock(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise ClientError(
            f"the offsets file {path} is another running member's: give each broadcasting member of the group on this "
            "host an instance_name=... or an offsets_path=... of its own."
        ) from error
    return descriptor


def _read(path: Path) -> dict[MessageQueue, int]:
    try:
        return ResetOffsets.decode(path.read_bytes()).offset_table
    except FileNotFoundError:
        return {}
    except (OSError, BodyError) as error:
        raise ClientError(
            f"the offsets file {path} cannot be read: {error}. Remove it to begin where consume_from says."
        ) from error


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    if sys.platform == "win32":
        return  # directories cannot be opened, and NTFS logs the renaming itself
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
