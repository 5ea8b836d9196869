"""A log's segments in order: equal sizes, consecutive offsets, named after their first byte.

`find` is arithmetic. A new segment comes from the allocator, which made it ahead of need; old ones leave from the
front. At load a file of another length, or one missing in the middle, stops the start; an empty last file is a leftover
of a cut and goes.

Only an operator can open a log with a gap (`--force-gap`). Then `find` searches, and whoever walks the log from segment
to segment asks `at_or_behind` for the next one that exists.

Source: docs/formats.md, "Mapped files", "Wrong-size and missing files".
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from skylarkmq.broker.store.disk import TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.errors import StoreError
from skylarkmq.broker.store.log.allocation import Allocator
from skylarkmq.broker.store.log.mapped_file import MappedFile
from skylarkmq.protocol.disk import offset_file_name, parse_offset_file_name
from skylarkmq.protocol.record import BLANK_SIZE

log = logging.getLogger(__name__)

_start_of = attrgetter("start")


def gaps(starts: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Ranges [begin, end) of bytes that no segment holds, between those that begin at `starts`."""
    return ((before + size, start) for before, start in pairwise(starts) if start - before != size)


def segment_starts(directory: str, size: int, disk: Disk, *, is_rebuilt: bool = False) -> list[int]:
    """First offsets of the segments in `directory`, ascending, after the checks that every family of files shares.

    Left-over temporary files and an empty last file are removed. StoreError: wrong length. Files that are `rebuilt`
    from others are made without a sync, so a cut can leave an empty one in the middle too: it becomes one of zeros.
    """
    names = os.listdir(directory) if os.path.isdir(directory) else []
    _remove_half_made(directory, names, "", disk)
    starts = sorted(start for start in map(parse_offset_file_name, names) if start is not None)
    if starts and os.path.getsize(f"{directory}/{offset_file_name(starts[-1])}") == 0:
        log.warning("empty segment removed path=%s/%s", directory, offset_file_name(starts[-1]))
        disk.unlink(f"{directory}/{offset_file_name(starts.pop())}")
    for start in starts:
        path = f"{directory}/{offset_file_name(start)}"
        length = os.path.getsize(path)
        if is_rebuilt and length == 0:
            log.warning("empty segment filled with zeros path=%s", path)
            os.close(disk.create_sparse(path, size))
        elif length != size:
            raise StoreError(f"{path} has {length} bytes, the configured size is {size}")
    return starts


def _remove_half_made(directory: str, names: list[str], prefix: str, disk: Disk) -> None:
    """Unlink what a killed process or a cut left of segments that were being made."""
    for name in names:
        if name.startswith(prefix) and name.endswith(TEMPORARY_SUFFIX):
            segment = name.removeprefix(prefix).removesuffix(TEMPORARY_SUFFIX)
            if parse_offset_file_name(segment) is not None:
                disk.unlink(f"{directory}/{name}")


class MappedFileQueue:
    """The segments of one log, all of `size` bytes. `force_gap`: serve what is there even if segments are missing."""

    def __init__(
        self, directory: Path, size: int, disk: Disk, allocator: Allocator, *, force_gap: bool = False
    ) -> None:
        self._directory = str(directory)
        self._size = size
        self._disk = disk
        self._allocator = allocator
        self._force_gap = force_gap
        self.segments: list[MappedFile] = []
        self.gaps: list[tuple[int, int]] = []  # [begin, end) of bytes that are missing in the middle
        self.damaged = 0  # segments that are known to have lost bytes

    def load(self) -> None:
        """Open what is there. StoreError as `segment_starts`, and for a gap that nobody asked to pass over."""
        beside, own_name = os.path.split(self._directory)
        if os.path.isdir(beside):
            _remove_half_made(beside, os.listdir(beside), f"{own_name}.", self._disk)
        starts = segment_starts(self._directory, self._size, self._disk)
        self._drop_unused(starts)
        for begin, end in gaps(starts, self._size):
            self._check_gap(begin, end)
        for start in starts:
            self.segments.append(MappedFile.open(self._path(start), start, self._size, self._disk))

    def _drop_unused(self, starts: list[int]) -> None:
        """Files behind a gap that nobody wrote to were made ahead of need, while the one before them could not be."""
        missing = list(gaps(starts, self._size))
        while missing and not _is_written(self._path(starts[-1])):
            log.warning("unused segment behind a gap removed path=%s", self._path(starts[-1]))
            self._disk.unlink(self._path(starts.pop()))
            missing = list(gaps(starts, self._size))

    def _check_gap(self, begin: int, end: int) -> None:
        gap = (
            f"{self._directory}: bytes {begin} to {end} are missing, "
            f"files {offset_file_name(begin)} to {offset_file_name(end - self._size)}"
        )
        if (end - begin) % self._size or end < begin:
            raise StoreError(f"{self._path(end)} does not begin where a file of {self._size} bytes can")
        if not self._force_gap:
            raise StoreError(f"{gap}; mqbroker --force-gap serves the rest")
        log.warning("gap in the log passed over, as --force-gap says: %s", gap)
        self.gaps.append((begin, end))

    @property
    def min_offset(self) -> int:
        """The first byte that still exists; 0 without segments."""
        return self.segments[0].start if self.segments else 0

    def find(self, offset: int) -> MappedFile | None:
        """The segment that holds byte `offset`."""
        segments = self.segments
        if not segments:
            return None
        if self.gaps:
            segment = segments[bisect_right(segments, offset, key=_start_of) - 1]
            return segment if segment.start <= offset < segment.end else None
        index = (offset - segments[0].start) // self._size
        return segments[index] if 0 <= index < len(segments) else None

    def at_or_behind(self, offset: int) -> MappedFile | None:
        """The segment that holds byte `offset`, or if none does the next one that exists."""
        segments = self.segments
        index = bisect_right(segments, offset, key=_start_of)
        if index and segments[index - 1].end > offset:
            index -= 1
        return segments[index] if index < len(segments) else None

    def is_missing(self, offset: int) -> bool:
        """Whether byte `offset` lies in a gap."""
        return any(begin <= offset < end for begin, end in self.gaps)

    def before(self, offset: int) -> MappedFile | None:
        """The segment in front of the one that begins at `offset`."""
        index = bisect_right(self.segments, offset - 1, key=_start_of) - 1
        return self.segments[index] if index >= 0 else None

    def segment_at(self, start: int) -> MappedFile:
        """The segment that begins at `start`, made now if it does not exist. OSError when it cannot be made."""
        segment = self.find(start)
        if segment is None:
            segment = self._allocator.segment(self._path(start), start, self._size)
            self.segments.append(segment)
        return segment

    def prepare(self, start: int) -> None:
        """Have the segment that begins at `start`, and the one behind it, made in the background."""
        for ahead in (start, start + self._size):
            if self.find(ahead) is None:
                self._allocator.request(self._path(ahead), self._size)

    def is_made(self, start: int) -> bool:
        """Whether the segment that begins at `start` is there or ready to be; asks for it again if it failed."""
        return self.find(start) is not None or self._allocator.is_made(self._path(start), self._size)

    @property
    def is_on_real_disk(self) -> bool:
        """Whether a sync of a segment is a system call and nothing else; tests have other disks."""
        return type(self._disk) is Disk

    def from_offset(self, offset: int) -> list[MappedFile]:
        """The segments that hold byte `offset` and later ones: what a flush from there must sync."""
        segments = self.segments
        last = segments[-1] if segments else None
        if last is None or last.start <= offset:
            return segments[-1:]
        return [segment for segment in segments if segment.end > offset]

    def remove_first(self) -> MappedFile:
        """The oldest segment leaves the log; its file and its mapping are the caller's from now on."""
        segment = self.segments.pop(0)
        segment.is_deleted = True
        self.gaps = [gap for gap in self.gaps if gap[0] > segment.end]
        return segment

    def look(self) -> None:
        """Find out which segments have lost bytes, and log them."""
        self.damaged = sum(not segment.look() for segment in self.segments)

    def truncate(self, offset: int, look_at: int | None = None) -> int:
        """Nothing is left at or behind byte `offset`: later segments go, the tail of its own is cleared and synced.

        LostBytesError: a segment could not be read whole.

        Returns how many bytes of that tail were not zero. With `look_at` the rest of the tail is taken to be zero if
        its first `look_at` bytes are: a tail that was written beforehand would have to be read whole.
        """
        for segment in self.segments:  # an end that was found where bytes cannot be read is none
            segment.check_faults(0, segment.size)
        while len(self.segments) > 1 and self.segments[-1].start >= offset:
            segment = self.segments.pop()
            segment.close()
            self._disk.unlink(segment.path)
            self._disk.sync_directory(self._directory)
            log.info("segment behind the end removed path=%s", segment.path)
        if not self.segments:
            return 0
        last = self.segments[-1]
        begin = max(0, offset - last.start)
        looked_at = last.size if look_at is None else min(begin + look_at, last.size)
        cleared = last.zero(begin, looked_at)
        if cleared:
            cleared += last.zero(looked_at)
            last.sync()
        return cleared

    def sync_from(self, offset: int) -> None:
        """What stands at byte `offset` and behind it is on disk, whoever wrote it, and so are the files' names."""
        for segment in self.from_offset(offset) if self.segments else ():
            segment.sync()
        self.sync_names()

    def sync_names(self) -> None:
        """The files' names are on disk, whoever made them."""
        if self.segments:
            self._disk.sync_directory(self._directory)
            self._disk.sync_directory(os.path.dirname(self._directory))

    def close(self) -> None:
        """Close every segment."""
        for segment in self.segments:
            segment.close()
        self.segments.clear()

    def _path(self, start: int) -> str:
        return f"{self._directory}/{offset_file_name(start)}"

    def __repr__(self) -> str:
        return f"<MappedFileQueue {self._directory} segments={len(self.segments)}>"


def _is_written(path: str) -> bool:
    with open(path, "rb") as file:
        return any(file.read(BLANK_SIZE))
