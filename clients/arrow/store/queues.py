"""Consume queues, read from their files: the records of the log that belong to a queue.

A queue's units, 20 bytes per message, are in files named after the position of their first byte in the queue. The bytes
after the last unit are zeros. Padding units (docs/reference/disk.md, "Traps") are skipped. Light queues are excluded:
their units refer to records of other topics.

Source: docs/reference/disk.md, "ConsumeQueue".
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.protocol.disk import (
    BATCH_CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    FILLER_RECORD_SIZE,
    UNIT,
    UNIT_SIZE,
    offset_file_name,
    parse_offset_file_name,
)
from skylarkmq.protocol.unit_search import UNIT_DTYPE, first_at_or_after, first_with_record

LIGHT_QUEUE_PREFIX: Final = "%LMQ%"
_UNITS_AT_ONCE: Final = 1 << 15


class Units(NamedTuple):
    """Units without padding: queue offsets, positions and sizes of the records."""

    queue_offsets: Ints
    physical_offsets: Ints
    sizes: Ints


class StoredQueue:
    """Units [begin, end). Every read opens and closes a file: there may be a hundred thousand queues."""

    def __init__(self, directory: str, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._directory = directory
        self._files = _files_of(directory)  # position of the first byte in the queue -> length
        self._size = max(self._files.values(), default=UNIT_SIZE)
        self.begin = min(self._files, default=0) // UNIT_SIZE
        self.end = self._find_end()
        self.first = first_with_record(self.read, self.begin, self.end)

    def _find_end(self) -> int:
        for start in sorted(self._files, reverse=True):
            low, high = start // UNIT_SIZE, (start + self._files[start]) // UNIT_SIZE
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if self._is_unit(middle) else (low, middle)
            if low > start // UNIT_SIZE:
                return low
        return self.begin

    def _is_unit(self, offset: int) -> bool:
        data = self.read(offset, 1)
        return len(data) == UNIT_SIZE and UNIT.unpack(data)[1] > 0

    @property
    def first_record(self) -> int:
        """The position in the log of the queue's first record; a maximum for an empty queue."""
        return self.record_position(self.first)[0] if self.first < self.end else 1 << 62

    @property
    def last_record(self) -> int:
        """The position in the log of its last record; -1 for an empty queue."""
        return self.record_position(self.end - 1)[0] if self.first < self.end else -1

    @property
    def records_end(self) -> int:
        """The position in the log after its last record; 0 for an empty queue."""
        offset, size = self.record_position(self.end - 1) if self.first < self.end else (0, 0)
        return offset + size if size != FILLER_RECORD_SIZE else 1 << 62

    def record_position(self, offset: int) -> tuple[int, int]:
        """Return the position in the log and the size of a unit's record."""
        physical_offset, size, _ = UNIT.unpack(self.read(offset, 1))
        return physical_offset, size

    def first_unit_at(self, physical_offset: int) -> int:
        """Return the first unit whose record begins at or after that position in the log, or `end`."""
        return first_at_or_after(self.read, self.first, self.end, physical_offset)

    def first_record_at(self, physical_offset: int) -> int | None:
        """Return the position of that unit's record, or None."""
        unit = self.first_unit_at(physical_offset)
        return self.record_position(unit)[0] if unit < self.end else None

    def units(self, begin: int, end: int) -> Iterator[Units]:
        """Yield the units among [begin, end) that are not padding, many at a time."""
        at, end = max(begin, self.first), min(end, self.end)
        while at < end:
            data = self.read(at, min(_UNITS_AT_ONCE, end - at))
            count = len(data) // UNIT_SIZE
            if not count:
                return
            found = np.frombuffer(data, UNIT_DTYPE, count)
            sizes = found["size"].astype(np.int64)
            rows = np.flatnonzero((sizes > 0) & (sizes != FILLER_RECORD_SIZE))
            yield Units(at + rows, found["physical_offset"][rows].astype(np.int64), sizes[rows])
            at += count

    def read(self, offset: int, count: int) -> bytes:
        """Read up to `count` units from `offset` on; fewer at the end of a file, none without a file."""
        start = offset * UNIT_SIZE - offset * UNIT_SIZE % self._size
        if start not in self._files:
            return b""
        at = offset * UNIT_SIZE - start
        try:
            fd = os.open(f"{self._directory}/{offset_file_name(start)}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(fd, min(count * UNIT_SIZE, self._size - at), at)
        finally:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<StoredQueue {self.topic}/{self.queue_id} [{self.first}, {self.end})>"


class StoredQueues:
    """The queues of a store, opened on demand. `batch_topics`: topics with queues of another layout."""

    def __init__(self, root: Path) -> None:
        self._root = f"{root}/{CONSUME_QUEUE_DIRECTORY}"
        self.batch_topics = frozenset(_directories(f"{root}/{BATCH_CONSUME_QUEUE_DIRECTORY}"))
        self._known: dict[tuple[str, int], StoredQueue | None] = {}

    @property
    def exist(self) -> bool:
        """Whether the store has queues at all; a copy of the log alone has none."""
        return os.path.isdir(self._root)

    def names(self) -> list[tuple[str, int]]:
        """Return (topic, queue id) of all queues, sorted."""
        topics = [name for name in _directories(self._root) if not name.startswith(LIGHT_QUEUE_PREFIX)]
        found = [(topic, name) for topic in topics for name in _directories(f"{self._root}/{topic}")]
        return sorted((topic, int(name)) for topic, name in found if name.isascii() and name.isdigit())

    def find(self, topic: str, queue_id: int) -> StoredQueue | None:
        """Return that queue; None if it has no directory."""
        key = topic, queue_id
        if key not in self._known:
            directory = f"{self._root}/{topic}/{queue_id}"
            is_name = topic not in {"", ".", ".."} and "/" not in topic and "\0" not in topic
            is_there = is_name and os.path.isdir(directory)
            self._known[key] = StoredQueue(directory, topic, queue_id) if is_there else None
        return self._known[key]

    def all(self) -> list[StoredQueue]:
        """Return all queues."""
        return [queue for name in self.names() if (queue := self.find(*name)) is not None]

    def __repr__(self) -> str:
        return f"<StoredQueues {self._root} known={len(self._known)}>"


def _directories(path: str) -> list[str]:
    if not os.path.isdir(path):
        return []
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


def _files_of(directory: str) -> dict[int, int]:
    with os.scandir(directory) as entries:
        found = ((parse_offset_file_name(entry.name), entry) for entry in entries)
        return {start: entry.stat().st_size for start, entry in found if start is not None and entry.is_file()}
