"""A log's segments in order: equal sizes, consecutive offsets, named after their first byte.

`find` is arithmetic. New segments come from the allocator, which creates them ahead of need. Old segments are removed
at the front. At load, a file of another length or a missing file in the middle stops the start. An empty last file is
left over from a power cut and is removed.

Only the option `--force-gap` opens a log with a gap. `find` then searches, and code that walks the log from segment to
segment uses `at_or_after` for the next existing one.

Source: docs/reference/disk.md, "Mapped files", "Wrong-size and missing files".
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

from skylarkmq.broker.store.files.allocation import Allocator
from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.files.errors import StoreError
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.protocol.disk import offset_file_name, parse_offset_file_name
from skylarkmq.protocol.record import BLANK_SIZE

log = logging.getLogger(__name__)

_start_of = attrgetter("start")


def gaps(starts: Sequence[int], size: int) -> Iterator[tuple[int, int]]:
    """Return the ranges [begin, end) of bytes that are missing between the segments that begin at `starts`."""
    return ((before + size, start) for before, start in pairwise(starts) if start - before != size)


def segment_starts(directory: str, size: int, disk: Disk, *, is_rebuilt: bool = False) -> list[int]:
    """Check the segments in `directory` and return their first offsets, ascending.

    Temporary files that were left over and an empty last file are removed. Raises StoreError if a file has the wrong
    length. Files with `is_rebuilt` derive from others and are created without a sync, so a power cut can leave an empty
    one in the middle too: it is filled with zeros.
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
    """Unlink incomplete segments that a killed process or a power cut left behind."""
    for name in names:
        if name.startswith(prefix) and name.endswith(TEMPORARY_SUFFIX):
            segment = name.removeprefix(prefix).removesuffix(TEMPORARY_SUFFIX)
            if parse_offset_file_name(segment) is not None:
                disk.unlink(f"{directory}/{name}")


class MappedFileQueue:
    """The segments of one log, `size` bytes each. `force_gap`: open the log even if segments are missing."""

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
        self.damaged = 0  # number of segments with lost bytes

    def load(self) -> None:
        """Open all segments. Raises StoreError as `segment_starts` does, and for a gap unless `force_gap` is set."""
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
        """Remove unwritten files after a gap: they were created ahead of need when the file before them failed."""
        missing = list(gaps(starts, self._size))
        while missing and not _is_written(self._path(starts[-1])):
            log.warning("unused segment after a gap removed path=%s", self._path(starts[-1]))
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
        log.warning("gap in the log skipped because of --force-gap: %s", gap)
        self.gaps.append((begin, end))

    @property
    def min_offset(self) -> int:
        """The first byte that still exists; 0 without segments."""
        return self.segments[0].start if self.segments else 0

    def find(self, offset: int) -> MappedFile | None:
        """Return the segment that contains byte `offset`."""
        segments = self.segments
        if not segments:
            return None
        if self.gaps:
            segment = segments[bisect_right(segments, offset, key=_start_of) - 1]
            return segment if segment.start <= offset < segment.end else None
        index = (offset - segments[0].start) // self._size
        return segments[index] if 0 <= index < len(segments) else None

    def at_or_after(self, offset: int) -> MappedFile | None:
        """Return the segment that contains byte `offset`, else the next one that exists."""
        segments = self.segments
        index = bisect_right(segments, offset, key=_start_of)
        if index and segments[index - 1].end > offset:
            index -= 1
        return segments[index] if index < len(segments) else None

    def is_missing(self, offset: int) -> bool:
        """Return whether byte `offset` lies in a gap."""
        return any(begin <= offset < end for begin, end in self.gaps)

    def before(self, offset: int) -> MappedFile | None:
        """Return the last segment before byte `offset`."""
        index = bisect_right(self.segments, offset - 1, key=_start_of) - 1
        return self.segments[index] if index >= 0 else None

    def segment_at(self, start: int) -> MappedFile:
        """Return the segment that begins at `start`; create it if needed. Raises OSError if that fails."""
        segment = self.find(start)
        if segment is None:
            segment = self._allocator.segment(self._path(start), start, self._size)
            self.segments.append(segment)
        return segment

    def prepare(self, start: int) -> None:
        """Request the segment that begins at `start`, and the next one, from the allocator's thread."""
        for ahead in (start, start + self._size):
            if self.find(ahead) is None:
                self._allocator.request(self._path(ahead), self._size)

    def is_made(self, start: int) -> bool:
        """Return whether the segment that begins at `start` is available. A failed creation is requested again."""
        return self.find(start) is not None or self._allocator.is_made(self._path(start), self._size)

    @property
    def is_on_real_disk(self) -> bool:
        """Whether a sync of a segment is nothing but a system call; tests use other disks."""
        return type(self._disk) is Disk

    def from_offset(self, offset: int) -> list[MappedFile]:
        """Return the segments that contain byte `offset` and later ones: a flush from `offset` must sync these."""
        segments = self.segments
        last = segments[-1] if segments else None
        if last is None or last.start <= offset:
            return segments[-1:]
        return [segment for segment in segments if segment.end > offset]

    def remove_first(self) -> MappedFile:
        """Remove the oldest segment from the log. The caller becomes the owner of its file and mapping."""
        segment = self.segments.pop(0)
        segment.is_deleted = True
        self.gaps = [gap for gap in self.gaps if gap[0] > segment.end]
        return segment

    def check_for_lost_bytes(self) -> None:
        """Count the segments that have lost bytes, and log new ones."""
        self.damaged = sum(not segment.check_for_lost_bytes() for segment in self.segments)

    def truncate(self, offset: int, probe_bytes: int | None = None) -> int:
        """Remove everything from byte `offset` on: unlink later segments; clear and sync the tail of its own segment.

        Return how many bytes of that tail were not zero. With `probe_bytes` the rest of the tail counts as zero if its
        first `probe_bytes` bytes are: a tail that was zero-filled ahead of need would have to be read as a whole.

        Raises LostBytesError if a segment cannot be read as a whole.
        """
        for segment in self.segments:  # an end that was found among unreadable bytes is not valid
            segment.check_faults(0, segment.size)
        self.remove_from(offset)
        if not self.segments:
            return 0
        last = self.segments[-1]
        begin = max(0, offset - last.start)
        looked_at = last.size if probe_bytes is None else min(begin + probe_bytes, last.size)
        cleared = last.zero(begin, looked_at)
        if cleared:
            cleared += last.zero(looked_at)
            last.sync()
        return cleared

    def remove_from(self, offset: int) -> None:
        """Remove the segments that begin at or after byte `offset`, but the first one, and those created ahead."""
        self._allocator.discard()
        while len(self.segments) > 1 and self.segments[-1].start >= offset:
            self._remove_last()

    def remove_all(self) -> None:
        """Remove every segment of a log without messages, and the files created ahead of need."""
        self._allocator.discard()
        while self.segments:
            self._remove_last()

    def _remove_last(self) -> None:
        segment = self.segments.pop()
        segment.close()
        self._disk.unlink(segment.path)
        self._disk.sync_directory(self._directory)
        log.info("segment after the end removed path=%s", segment.path)

    def sync_from(self, offset: int) -> None:
        """Make byte `offset` and all later bytes durable, whichever process wrote them, and the names of the files."""
        for segment in self.from_offset(offset) if self.segments else ():
            segment.sync()
        self.sync_names()

    def sync_names(self) -> None:
        """Make the names of the files durable, whichever process created them."""
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
