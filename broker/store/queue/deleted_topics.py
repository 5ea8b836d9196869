"""Deleted topics with records in the log: `config/deletedTopics.json`, {topic: end of the log at its deletion}.

The log keeps the records of a deleted topic until they expire, and recovery reads them again. Records below the entry
of the topic are not dispatched. So its queues are not created again, and a topic that is created anew begins at queue
offset 0. The entry is on disk before the first queue file is deleted. A deletion may take more syncs than the event
loop can wait for, so they are awaited.

A power cut may undo the unlinking of single queue files. `is_stale` detects such a file by its first unit, which points
below the entry. A power cut may also move back the end of the log, and new records then reuse its bytes; `limit` lowers
the entries to the new end.

Source: docs/reference/disk.md, "Deleted topics", "State files".
"""

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.files.io_thread import Helper
from skylarkmq.broker.store.files.state_file import StateFile
from skylarkmq.protocol.disk import (
    CONFIG_DIRECTORY,
    FILLER_RECORD_SIZE,
    UNIT,
    UNIT_SIZE,
    parse_offset_file_name,
)

log = logging.getLogger(__name__)

DELETED_TOPICS_FILE: Final = "deletedTopics.json"
_DECODER: Final = msgspec.json.Decoder(dict[str, int])


class DeletedTopics:
    """`ends`: topic -> byte of the log; the records of the topic below it are deleted."""

    def __init__(self, root: Path, disk: Disk, helper: Helper) -> None:
        self._file = StateFile(root / CONFIG_DIRECTORY / DELETED_TOPICS_FILE, validate=_DECODER.decode, disk=disk)
        self._helper = helper
        self._log_start = -1
        self.ends: dict[str, int] = {}

    def load(self) -> None:
        """Read the file. Raises StoreError if both the file and its backup are damaged."""
        data = self._file.load()
        self.ends = {} if data is None else _DECODER.decode(data)

    def covers(self, topic: str, physical_offset: int) -> bool:
        """Return whether the record that begins at `physical_offset` was deleted with its topic."""
        return physical_offset < self.ends.get(topic, 0)

    def is_stale(self, topic: str, directory: str) -> bool:
        """Return whether a queue directory has a file that is older than the deletion of its topic."""
        end = self.ends.get(topic)
        if end is None:
            return False
        names = (name for name in os.listdir(directory) if parse_offset_file_name(name) is not None)
        return any(_begins_below(f"{directory}/{name}", end) for name in names)

    def limit(self, log_end: int) -> None:
        """Lower the entries to the end of the log after a recovery. Waits for the disk. Raises OSError."""
        if any(end > log_end for end in self.ends.values()):
            self.ends = {topic: min(end, log_end) for topic, end in self.ends.items()}
            self._file.save(self._encode())

    async def add(self, topic: str, log_end: int) -> None:
        """Add or update the entry of a topic; it is on disk when this returns. Raises OSError if the save fails."""
        if self.ends.get(topic, 0) != log_end:
            self.ends[topic] = log_end
            await asyncio.wrap_future(self._helper.submit(partial(self._file.save, self._encode())))

    def add_blocking(self, topic: str, log_end: int) -> None:
        """Do the same as `add`, while the calling thread waits."""
        self.ends[topic] = log_end
        self._helper.submit(partial(self._file.save, self._encode())).result()

    def follow(self, log_start: int, _now_ms: int) -> None:
        """Remove the entries at or below byte `log_start`; the file is saved in the background."""
        if log_start == self._log_start:
            return
        self._log_start = log_start
        passed = [topic for topic, end in self.ends.items() if end <= log_start]
        for topic in passed:
            del self.ends[topic]
        if passed:
            log.info("deleted topics forgotten topics=%d log_start=%d", len(passed), log_start)
            self._helper.submit(partial(self._save_quietly, self._encode()))

    def _save_quietly(self, data: bytes) -> None:
        try:
            self._file.save(data)
        except OSError as problem:
            log.warning("deleted topics not saved, they are forgotten later file=%r error=%s", self._file, problem)

    def _encode(self) -> bytes:
        return msgspec.json.encode(self.ends, order="sorted")

    def __repr__(self) -> str:
        return f"<DeletedTopics {len(self.ends)}>"


def _begins_below(path: str, log_offset: int) -> bool:
    with open(path, "rb") as file:
        data = file.read(UNIT_SIZE)
    if len(data) < UNIT_SIZE:
        return False
    begin, size, _ = UNIT.unpack(data)
    return bool(0 < size < FILLER_RECORD_SIZE and begin < log_offset)
