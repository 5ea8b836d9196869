"""A log's segments in order: equal sizes, consecutive offsets, named after their first byte.

`find` is arithmetic. A new segment comes from the allocator, which made it ahead of need. At load a file of another
length, or one missing in the middle, stops the start; an empty last file is a leftover of a cut and goes.

Source: docs/formats.md, "Mapped files", "Wrong-size and missing files".
"""

import logging
import os
from pathlib import Path

from broker.store.allocate import Allocator
from broker.store.disk import TEMPORARY_SUFFIX, Disk
from broker.store.errors import StoreError
from broker.store.mapped_file import MappedFile
from protocol.disk import offset_file_name, parse_offset_file_name

log = logging.getLogger(__name__)


def segment_starts(directory: str, size: int, disk: Disk) -> list[int]:
    """First offsets of the segments in `directory`, ascending, after the checks that every family of files shares.

    Left-over temporary files and an empty last file are removed. StoreError: wrong length or a gap.
    """
    names = os.listdir(directory) if os.path.isdir(directory) else []
    for name in names:
        if name.endswith(TEMPORARY_SUFFIX) and parse_offset_file_name(name.removesuffix(TEMPORARY_SUFFIX)) is not None:
            disk.unlink(f"{directory}/{name}")
    starts = sorted(start for start in map(parse_offset_file_name, names) if start is not None)
    if starts and os.path.getsize(f"{directory}/{offset_file_name(starts[-1])}") == 0:
        log.warning("empty segment removed path=%s/%s", directory, offset_file_name(starts[-1]))
        disk.unlink(f"{directory}/{offset_file_name(starts.pop())}")
    for before, start in zip([None, *starts], starts, strict=False):
        path = f"{directory}/{offset_file_name(start)}"
        length = os.path.getsize(path)
        if length != size:
            raise StoreError(f"{path} has {length} bytes, the configured size is {size}")
        if before is not None and start - before != size:
            raise StoreError(f"{directory}: the file before {offset_file_name(start)} is missing")
    return starts


class MappedFileQueue:
    """The segments of one log, all of `size` bytes."""

    def __init__(self, directory: Path, size: int, disk: Disk, allocator: Allocator) -> None:
        self._directory = str(directory)
        self._size = size
        self._disk = disk
        self._allocator = allocator
        self.segments: list[MappedFile] = []

    def load(self) -> None:
        """Open what is there. StoreError as `segment_starts`."""
        for start in segment_starts(self._directory, self._size, self._disk):
            self.segments.append(MappedFile.open(self._path(start), start, self._size, self._disk))

    @property
    def min_offset(self) -> int:
        """The first byte that still exists; 0 without segments."""
        return self.segments[0].start if self.segments else 0

    def find(self, offset: int) -> MappedFile | None:
        """The segment that holds byte `offset`."""
        segments = self.segments
        if not segments:
            return None
        index = (offset - segments[0].start) // self._size
        return segments[index] if 0 <= index < len(segments) else None

    def segment_at(self, start: int) -> MappedFile:
        """The segment that begins at `start`, made now if it does not exist. OSError when it cannot be made."""
        segment = self.find(start)
        if segment is None:
            fd = self._allocator.take(self._path(start), self._size)
            segment = MappedFile(self._path(start), start, self._size, fd, self._disk)
            self.segments.append(segment)
        return segment

    def prepare(self, start: int) -> None:
        """Have the segment that begins at `start` made in the background."""
        if self.find(start) is None:
            self._allocator.request(self._path(start), self._size)

    def from_offset(self, offset: int) -> list[MappedFile]:
        """The segments that hold byte `offset` and later ones: what a flush from there must sync."""
        segments = self.segments
        last = segments[-1] if segments else None
        if last is None or last.start <= offset:
            return segments[-1:]
        return [segment for segment in segments if segment.end > offset]

    def truncate(self, offset: int) -> int:
        """Nothing is left at or behind byte `offset`: later segments go, the tail of its own is cleared and synced.

        Returns how many bytes of that tail were not zero.
        """
        while len(self.segments) > 1 and self.segments[-1].start >= offset:
            segment = self.segments.pop()
            segment.close()
            self._disk.unlink(segment.path)
            self._disk.sync_directory(self._directory)
            log.info("segment behind the end removed path=%s", segment.path)
        if not self.segments:
            return 0
        last = self.segments[-1]
        cleared = last.zero(max(0, offset - last.start))
        if cleared:
            last.sync()
        return cleared

    def close(self) -> None:
        """Close every segment."""
        for segment in self.segments:
            segment.close()
        self.segments.clear()

    def _path(self, start: int) -> str:
        return f"{self._directory}/{offset_file_name(start)}"

    def __repr__(self) -> str:
        return f"<MappedFileQueue {self._directory} segments={len(self.segments)}>"
