"""The files of one consume queue: where its units begin and end, read without open descriptors.

The state of a queue is derived from its files in three steps: the files themselves; the units from the first byte on,
up to the first invalid one (size or offset not positive); then only zeros. Filler units at the front count as units.

Light queues (%LMQ%) have normal units, of records that belong to other topics.

Source: docs/reference/disk.md, "ConsumeQueue".
"""

import os
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from skylarkmq.broker.store.fsck.findings import Finding, Findings, Severity
from skylarkmq.broker.store.fsck.segments import (
    SegmentFile,
    check_foreign_files,
    check_segments,
    segment_files,
    written,
)
from skylarkmq.broker.store.queue.paths import LIGHT_QUEUE_PREFIX
from skylarkmq.protocol.disk import CONSUME_QUEUE_DIRECTORY, FILLER_RECORD_SIZE, UNIT_SIZE, offset_file_name
from skylarkmq.protocol.unit_search import UNIT_DTYPE

_FIRST_UNITS: Final = 200
_MOST_UNITS: Final = 1 << 16

Units = npt.NDArray[np.void]


class QueueOnDisk:
    """Offsets in units: the files hold units [`begin`, `end`), of which the first `fillers` are filler units."""

    __slots__ = ("_directory", "_root", "_size", "begin", "end", "fillers", "queue_id", "topic")

    def __init__(self, root: Path, topic: str, queue_id: int, size: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.begin = self.end = self.fillers = 0
        self._root = root
        self._directory = f"{CONSUME_QUEUE_DIRECTORY}/{topic}/{queue_id}"
        self._size = size

    @property
    def is_light(self) -> bool:
        """Whether its records belong to other topics."""
        return self.topic.startswith(LIGHT_QUEUE_PREFIX)

    def location_of(self, offset: int) -> tuple[str, int]:
        """Return the file (relative to the root) and the byte in it of a unit, even if it does not exist."""
        at = offset * UNIT_SIZE
        start = at - at % self._size
        return f"{self._directory}/{offset_file_name(start)}", at - start

    def read(self, offset: int, count: int) -> bytes:
        """Return up to `count` units from `offset` on, across files; fewer if a file ends or is missing."""
        parts = []
        while count > 0:
            name, at = self.location_of(offset)
            part = _read(f"{self._root}/{name}", at, min(count * UNIT_SIZE, self._size - at))
            parts.append(part)
            offset += len(part) // UNIT_SIZE
            count -= len(part) // UNIT_SIZE
            if len(part) < UNIT_SIZE:
                break
        return b"".join(parts)

    def check(self, found: Findings, rest: Severity) -> None:
        """Check the files. `rest`: severity of bytes after the last unit."""
        check_foreign_files(self._root, self._directory, found)
        segments = segment_files(self._root, self._directory)
        check_segments(segments, self._size, found)
        if not segments:
            return
        self.begin = self.end = segments[0].start // UNIT_SIZE
        for segment in segments:
            follows = self.end * UNIT_SIZE == segment.start
            count = self._count(segment, found) if follows else 0
            self.end += count
            self._check_rest(segment, count * UNIT_SIZE, found, rest)
        last = segments[-1]
        if self.end * UNIT_SIZE == last.start and len(segments) > 1 and last.length:
            what, follows_from_it = "the last file holds no unit", "RocketMQ would read it as one empty unit"
            found.add("empty", Finding(Severity.WARNING, last.name, 0, what, follows_from_it))

    def _count(self, segment: SegmentFile, found: Findings) -> int:
        """Return the number of units at the beginning of a file."""
        count, at_once = 0, _FIRST_UNITS
        limit = min(segment.length, self._size) // UNIT_SIZE
        while count < limit:
            data = _read(segment.path, count * UNIT_SIZE, min(at_once, limit - count) * UNIT_SIZE)
            units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
            bad = np.flatnonzero((units["size"] <= 0) | (units["physical_offset"] < 0))
            good = int(bad[0]) if len(bad) else len(units)
            self._count_fillers(units[:good], segment, count, found)
            count += good
            if len(bad) or not len(units):
                break
            at_once = min(at_once * 4, _MOST_UNITS)
        return count

    def _count_fillers(self, units: Units, segment: SegmentFile, at: int, found: Findings) -> None:
        fillers = np.flatnonzero(units["size"] == FILLER_RECORD_SIZE)
        if not len(fillers):
            return
        first = segment.start // UNIT_SIZE + at
        if first == self.begin + self.fillers:
            in_front = int(np.sum(fillers == np.arange(len(fillers))))
            self.fillers += in_front
            fillers = fillers[in_front:]
        for run in np.split(fillers, np.flatnonzero(np.diff(fillers) != 1) + 1) if len(fillers) else ():
            begin, end = first + int(run[0]), first + int(run[-1])
            name = f"{self.topic}-{self.queue_id}@{begin}" + (f" to @{end}" if end > begin else "")
            what = f"{name}: {len(run)} filler units after units of messages"
            offset = (at + int(run[0])) * UNIT_SIZE
            follows = "a gap: consumers skip these offsets, which have no messages"
            found.add("filler", Finding(Severity.WARNING, segment.name, offset, what, follows))

    def _check_rest(self, segment: SegmentFile, at: int, found: Findings, severity: Severity) -> None:
        rest = written(segment.path, at, segment.length)
        if rest is not None:
            what = f"{rest[1]} bytes after the last unit, {self.topic}-{self.queue_id}@{self.end - 1}, are not zero"
            follows = "they may be read as units after the next one"
            found.add("rest", Finding(severity, segment.name, rest[0], what, follows))

    def __repr__(self) -> str:
        return f"<QueueOnDisk {self.topic}/{self.queue_id} [{self.begin}, {self.end})>"


def _read(path: str, at: int, count: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, count, at)
    finally:
        os.close(fd)
