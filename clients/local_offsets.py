"""Offsets of a broadcasting consumer: every member reads everything, and each keeps in a file how far it is.

The file is replaced as a whole (written beside it, synced, renamed), so that a crash leaves the old one or the new one.
Commits that come together share one write, in a thread. A file that cannot be read stops the start: going on without it
would deliver everything again, or nothing of what was missed. Its layout is that of RocketMQ's Java client,
`{"offsetTable":{queue:offset}}`.
"""

import asyncio
import os
from pathlib import Path

from clients.errors import ClientError
from protocol.bodies.body import BodyError
from protocol.bodies.client_state import ResetOffsets
from protocol.bodies.message_queue import MessageQueue


def default_path(group: str) -> Path:
    """Where a group's offsets lie unless the application says otherwise."""
    return Path.home() / ".skylark_offsets" / group / "offsets.json"


class LocalOffsets:
    """The offsets in one file. ClientError if it is there and cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writing: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._offsets = _read(path)

    def __repr__(self) -> str:
        return f"<LocalOffsets {self.path} {len(self._offsets)} queues>"

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """The offset in the file, None if it has none."""
        return self._offsets.get(queue)

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Keep `offset`; done when it is in the file. ClientError if it cannot be written."""
        self._offsets[queue] = offset
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name=f"write/{self.path.name}")
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
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
