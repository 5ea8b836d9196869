"""The offsets of a broadcasting consumer: each member reads all messages, and keeps its offsets in a file.

The file is replaced as a whole (written to a second file, synced, renamed), so a crash leaves either the old or the new
one. Concurrent commits share one write, in a thread. `start` fails if the file cannot be read: without it the consumer
would receive all messages again, or skip those that it missed. The layout is that of RocketMQ's Java client,
`{"offsetTable":{queue:offset}}`.

A file belongs to one member: two would overwrite each other's offsets. As in RocketMQ's clients, the path contains
group and instance name. A second member with the same file, in any process of the host, is rejected at its start: the
first one locks a file beside it, and the kernel releases the lock if the process dies.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from skylarkmq.clients.sdk.base.errors import ClientError, InvalidArgument
from skylarkmq.clients.sdk.base.file_lock import lock
from skylarkmq.protocol.bodies.body import BodyError
from skylarkmq.protocol.bodies.client_state import ResetOffsets
from skylarkmq.protocol.bodies.message_queue import MessageQueue

DEFAULT_INSTANCE: Final = "DEFAULT"


def default_path(group: str, instance_name: str = DEFAULT_INSTANCE) -> Path:
    """Return the default path of the offsets file of a group's member. Raises InvalidArgument for a bad name."""
    if not instance_name or instance_name in {".", ".."} or "/" in instance_name:
        raise InvalidArgument(f"instance_name={instance_name!r} cannot be the name of a directory")
    return Path.home() / ".skylark_offsets" / group / instance_name / "offsets.json"


class LocalOffsets:
    """The offsets in one file, from `open` to `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offsets: dict[MessageQueue, int] = {}
        self._lock: int | None = None  # descriptor of the lock file
        self._writing: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<LocalOffsets {self.path} {len(self._offsets)} queues>"

    def open(self) -> None:
        """Lock the file and read it. Raises ClientError if another member has locked it, or if it cannot be read."""
        self._lock = _lock(self.path)
        try:
            self._offsets = _read(self.path)
        except BaseException:
            os.close(self._lock)
            raise

    async def close(self) -> None:
        """Finish running writes, and unlock the file."""
        await asyncio.gather(*self._writes, return_exceptions=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def forked(self) -> None:
        """Close the lock's descriptor, in the child of a fork: a copy would keep the lock after the parent's end."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the offset of a queue; None if the file has none."""
        return self._offsets.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Write an offset to the file. Raises ClientError if it cannot be written."""
        self._offsets[queue] = offset
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name=f"write/{self.path.name}")
            self._writes.add(self._writing)
            self._writing.add_done_callback(self._writes.discard)
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        async with self._one_at_a_time:
            self._writing = None  # later commits need another write
            content = ResetOffsets(dict(self._offsets)).encode()
            try:
                await asyncio.to_thread(_replace, self.path, content)
            except OSError as error:
                text = f"the offsets file {self.path} cannot be written: {error}. Free disk space, or permit it."
                raise ClientError(text) from error


def _lock(path: Path) -> int:
    """Return the descriptor that locks the file for this member."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        text = f"the offsets file {path} cannot be created: {error}. Free disk space, or permit it."
        raise ClientError(text) from error
    try:
        lock(descriptor)
    except OSError as error:
        os.close(descriptor)
        raise ClientError(
            f"the offsets file {path} belongs to another running member: give each broadcasting member of the group on "
            "this host an instance_name=... or an offsets_path=... of its own."
        ) from error
    return descriptor


def _read(path: Path) -> dict[MessageQueue, int]:
    try:
        return ResetOffsets.decode(path.read_bytes()).offset_table
    except FileNotFoundError:
        return {}
    except (OSError, BodyError) as error:
        raise ClientError(
            f"the offsets file {path} cannot be read: {error}. Remove it to begin where consume_from points."
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
