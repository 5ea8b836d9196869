"""The segments of a commit log, and its records in the order of the log.

Nothing is mapped and nothing is written: bytes are read into a buffer, windows of records at a time. So a disk failure
is an exception and not a signal, and a broker that runs on the same files is not disturbed. Descriptors stay open as
long as their `Log`; segments that a running broker deletes in the meantime are read to their end.

A broker may spread its log over several directories; the file names still order the segments.

Source: docs/reference/disk.md, "Store directory", "CommitLog record", "Wrong-size and missing files".
"""

import logging
import mmap
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self

from skylarkmq.clients.arrow.record_layout import Ints, walk
from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.protocol.disk import parse_offset_file_name
from skylarkmq.protocol.record import Blank, Damaged, Parsed, Record, parse

log = logging.getLogger(__name__)

WINDOW_BYTES: Final = 4 << 20


def large_buffer(size: int) -> mmap.mmap:
    """Return a buffer of `size` bytes, more than 0, for windows of many records.

    Its memory is in huge pages where the kernel has them, because records are read in the order of their queues: with
    pages of 4 KiB almost every record is a miss of the TLB.
    """
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        buffer.madvise(mmap.MADV_HUGEPAGE)
    return buffer


class Segment(NamedTuple):
    """A file of the log, named after the offset of its first byte. Lengths are in bytes."""

    start: int
    length: int
    path: str

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.start + self.length


class Window(NamedTuple):
    """Consecutive records in `view`, whose first byte is at offset `base` of the log."""

    base: int
    view: memoryview
    starts: Ints


class Log:
    """The segments, oldest first."""

    def __init__(self, segments: tuple[Segment, ...]) -> None:
        self.segments = segments
        self._starts = [segment.start for segment in segments]
        self._descriptors: dict[str, int] = {}

    @classmethod
    def at(cls, directories: Iterable[Path], *, force_gap: bool = False) -> Self:
        """Return the log in these directories. Raises StoreUnreadable for an invalid segment or a gap."""
        segments = sorted(segment for directory in directories for segment in _segments_in(directory) if segment.length)
        _check(segments, force_gap)
        return cls(tuple(segments))

    @property
    def start(self) -> int:
        """The offset of the log's first byte; 0 without segments."""
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        """The offset after its last segment."""
        return self.segments[-1].end if self.segments else 0

    def find(self, offset: int) -> Segment | None:
        """Return the segment that contains this offset."""
        at = bisect_right(self._starts, offset) - 1
        return self.segments[at] if at >= 0 and offset < self.segments[at].end else None

    def next_segment(self, segment: Segment) -> Segment | None:
        """Return the next segment."""
        at = bisect_right(self._starts, segment.start)
        return self.segments[at] if at < len(self.segments) else None

    def read(self, offset: int, into: memoryview) -> int:
        """Read into `into` from `offset` up to the end of the segment at most; return the number of bytes."""
        segment = self.find(offset)
        if segment is None:
            return 0
        into = into[: segment.end - offset]
        done = 0
        try:
            fd = self._descriptor(segment)
            while done < len(into):
                count = os.preadv(fd, [into[done:]], offset - segment.start + done)
                if not count:
                    break
                done += count
        except FileNotFoundError:
            what = f"{segment.path} was deleted after the query was planned: a running broker deletes old segments"
            raise StoreUnreadable(f"{what}; read a copy, or start later (startingTimestamp)") from None
        except OSError as problem:
            raise _denied(problem) from None
        return done

    def parse(self, offset: int, size: int = 1 << 12) -> Parsed:
        """Parse the record at this offset; checks its lengths and its body's checksum."""
        buffer = memoryview(bytearray(size))
        found = parse(buffer[: self.read(offset, buffer)])
        segment = self.find(offset)
        if isinstance(found, Damaged) and segment is not None:
            claimed = int.from_bytes(buffer[:4], "big", signed=True)
            if size < claimed <= segment.end - offset:
                return self.parse(offset, claimed)
        return found

    def windows(self, begin: int, end: int, buffer: bytearray | mmap.mmap) -> Iterator[Window]:
        """Yield the records that begin in [begin, end), which must be within one segment. `buffer` is reused.

        The windows end early at bytes that are not a record: the caller compares where the last record ended.
        """
        segment = self.find(begin)
        at = begin
        while segment is not None and at < end:
            view = memoryview(buffer)
            view = view[: self.read(at, view)]
            starts = walk(view)
            if not len(starts):
                claimed = int.from_bytes(view[:4], "big", signed=True)
                if not len(view) < claimed <= segment.end - at or not isinstance(self.parse(at), Record):
                    return
                buffer = bytearray(claimed)
                continue
            last = int(starts[-1])
            following = at + last + int.from_bytes(view[last : last + 4], "big")
            yield Window(at, view, starts[: int(starts.searchsorted(end - at))])
            at = following

    def is_closed_at(self, offset: int) -> bool:
        """Return whether the rest of the segment is a blank: space that is too small for the next record."""
        segment = self.find(offset)
        return segment is None or isinstance(self.parse(offset), Blank)

    def close(self) -> None:
        """Close the descriptors."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def _descriptor(self, segment: Segment) -> int:
        fd = self._descriptors.get(segment.path)
        if fd is None:
            fd = self._descriptors[segment.path] = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        return fd

    def __repr__(self) -> str:
        return f"<Log segments={len(self.segments)} [{self.start}, {self.end})>"


def _segments_in(directory: Path) -> list[Segment]:
    try:
        with os.scandir(directory) as entries:
            found = [(parse_offset_file_name(entry.name), entry) for entry in entries if entry.is_file()]
            return [Segment(start, entry.stat().st_size, entry.path) for start, entry in found if start is not None]
    except FileNotFoundError:
        advice = "set path to the broker's storePathRootDir; with Spark, the path must be the same on every executor"
        what = f"{directory.parent} is not a store: it has no {directory.name}/; {advice}"
        raise StoreUnreadable(f"{what}. Set storePathCommitLog if the log is elsewhere") from None
    except OSError as problem:
        raise _denied(problem) from None


def _denied(problem: OSError) -> StoreUnreadable:
    advice = "the user of this process needs permission to read the whole directory"
    return StoreUnreadable(f"cannot read {problem.filename or 'the store'}: {problem.strerror}; {advice}")


def _check(segments: list[Segment], force_gap: bool) -> None:
    size = max((segment.length for segment in segments), default=0)
    for earlier, later in pairwise(segments):
        if later.start == earlier.start:
            what = f"{earlier.path} and {later.path} cover the same bytes of the log"
            raise StoreUnreadable(f"{what}: storePathCommitLog must contain each segment once, without copies")
        if earlier.length != size:
            what = f"{earlier.path} has {earlier.length} bytes, its neighbours have {size}"
            raise StoreUnreadable(f"{what}: the copy is incomplete; copy it again")
        if later.start != earlier.end and not force_gap:
            what = f"{later.start - earlier.end} bytes of the log are missing before {later.path}"
            advice = "restore the segment, add the log's other directories (storePathCommitLog)"
            raise StoreUnreadable(f"{what}: {advice}, or set forceGap=true to read the rest")
