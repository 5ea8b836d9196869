"""The segments of a commit log, and its records in the order in which they were written.

Nothing is mapped and nothing is written: bytes are read into a buffer, windows of records at a time, so that a disk
that fails is an error and no signal, and a broker that runs on the same files is not disturbed. A descriptor stays open
as long as its `Log`; segments that a running broker deletes meanwhile are read to their end.

A broker may spread its log over several directories; by their names the segments are one row all the same.

Source: docs/formats.md, "Store directory", "CommitLog record", "Wrong-size and missing files".
"""

import logging
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self

from skylarkmq.clients.spark.arrow.record_layout import Ints, walk
from skylarkmq.clients.spark.store.errors import StoreUnreadable
from skylarkmq.protocol.disk import parse_offset_file_name
from skylarkmq.protocol.record import Blank, Damaged, Parsed, Record, parse

log = logging.getLogger(__name__)

WINDOW_BYTES: Final = 4 << 20


class Segment(NamedTuple):
    """A file of the log, named after the offset of its first byte. Lengths in bytes."""

    start: int
    length: int
    path: str

    @property
    def end(self) -> int:
        """The byte behind it."""
        return self.start + self.length


class Window(NamedTuple):
    """Records that stand one behind the other in `view`, whose first byte is the log's byte `base`."""

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
        """The log whose segments lie in these directories. StoreUnreadable if one is none, or there are gaps."""
        segments = sorted(segment for directory in directories for segment in _segments_in(directory) if segment.length)
        _check(segments, force_gap)
        return cls(tuple(segments))

    @property
    def start(self) -> int:
        """The log's first byte; 0 without segments."""
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        """The byte behind its last segment."""
        return self.segments[-1].end if self.segments else 0

    def find(self, offset: int) -> Segment | None:
        """The segment with that byte of the log."""
        at = bisect_right(self._starts, offset) - 1
        return self.segments[at] if at >= 0 and offset < self.segments[at].end else None

    def behind(self, segment: Segment) -> Segment | None:
        """The next one."""
        at = bisect_right(self._starts, segment.start)
        return self.segments[at] if at < len(self.segments) else None

    def read(self, offset: int, into: memoryview) -> int:
        """Fill `into` with the log's bytes from `offset` on, up to the end of that segment; how many there are."""
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
            what = f"{segment.path} is gone since the query was planned: a broker that runs on it deletes old segments"
            raise StoreUnreadable(f"{what}; read a copy, or begin later (startingTimestamp)") from None
        except OSError as problem:
            raise _denied(problem) from None
        return done

    def parse(self, offset: int, room: int = 1 << 12) -> Parsed:
        """What stands at that byte of the log, by its lengths and its body's checksum."""
        buffer = memoryview(bytearray(room))
        found = parse(buffer[: self.read(offset, buffer)])
        segment = self.find(offset)
        if isinstance(found, Damaged) and segment is not None:
            claimed = int.from_bytes(buffer[:4], "big", signed=True)
            if room < claimed <= segment.end - offset:
                return self.parse(offset, claimed)
        return found

    def windows(self, begin: int, end: int, buffer: bytearray) -> Iterator[Window]:
        """The records that begin in [begin, end), which lies in one segment; the buffer is filled anew each time.

        They end early at whatever is no record: the caller compares where the last one ended.
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
        """Whether the rest of the segment from there on is the blank that no record fits into."""
        segment = self.find(offset)
        return segment is None or isinstance(self.parse(offset), Blank)

    def close(self) -> None:
        """Give back the descriptors."""
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
        advice = "path has to name what the broker calls storePathRootDir, and be there on every executor"
        what = f"{directory.parent} is no store: it has no {directory.name}/; {advice}"
        raise StoreUnreadable(f"{what}. A log that lies elsewhere is named by storePathCommitLog") from None
    except OSError as problem:
        raise _denied(problem) from None


def _denied(problem: OSError) -> StoreUnreadable:
    advice = "the user that runs Spark's executors needs to read the whole directory"
    return StoreUnreadable(f"cannot read {problem.filename or 'the store'}: {problem.strerror}; {advice}")


def _check(segments: list[Segment], force_gap: bool) -> None:
    size = max((segment.length for segment in segments), default=0)
    for earlier, later in pairwise(segments):
        if later.start == earlier.start:
            what = f"{earlier.path} and {later.path} are the same bytes of the log"
            raise StoreUnreadable(f"{what}: storePathCommitLog may name each segment's directory once, and no copies")
        if earlier.length != size:
            what = f"{earlier.path} has {earlier.length} bytes, its neighbours have {size}"
            raise StoreUnreadable(f"{what}: the copy is not complete; copy it again")
        if later.start != earlier.end and not force_gap:
            what = f"{later.start - earlier.end} bytes of the log are missing before {later.path}"
            advice = "bring the segment back, name the log's other directories (storePathCommitLog)"
            raise StoreUnreadable(f"{what}: {advice}, or set forceGap=true to read the rest")
