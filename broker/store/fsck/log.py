"""Checks the log, record by record, from its first byte to its last.

A record is valid if its magic, lengths and body CRC agree, it lies at the physical offset that it states, and its
record checksum matches if it has one (`enabledAppendPropCRC`). After an invalid record, the next valid one is searched.
A record from elsewhere cannot match, because it states its own offset. So a bad record does not hide the ones after it,
and bad bytes are reported as a range.

The log ends where no more records follow. Zeros up to the end of the segment are normal. Other bytes are a torn end if
the last broker crashed, else damage.

Source: docs/reference/disk.md, "CommitLog record", "Checking one record", "End-of-file blank".
"""

import mmap
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.files.record_rules import has_unit
from skylarkmq.broker.store.fsck.findings import Finding, Findings, OnProgress, Progress, Severity
from skylarkmq.broker.store.fsck.segments import (
    SegmentFile,
    check_foreign_files,
    check_segments,
    segment_files,
    written,
)
from skylarkmq.broker.store.log.common_records import RUN_BYTES, read_run, record_checksum_matches
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY
from skylarkmq.protocol.record import (
    BLANK_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    Blank,
    Damaged,
    Record,
    UnreadableTopic,
    parse,
)

_BATCH: Final = 2_048  # records passed to the other checks at a time
_DROPPED_BYTES: Final = 1 << 24
_MAGICS: Final = tuple(struct.pack(">i", magic) for magic in (MAGIC_V1, MAGIC_V2))


class LogCheck:
    """Reads the log of `root`. After `records`: [`start`, `end`) is the valid log, `newest` its last store time (ms),
    `damages` the number of bad ranges."""

    def __init__(self, root: Path, size: int, found: Findings, *, crashed: bool, progress: OnProgress) -> None:
        self.segments = segment_files(root, COMMIT_LOG_DIRECTORY)
        self.start = self.segments[0].start if self.segments else 0
        self.end = self.start
        self.newest = 0
        self.records_read = 0
        self.damages = 0
        self._size = size
        self._found = found
        self._tail = Severity.WARNING if crashed else Severity.DAMAGE
        self._progress = progress
        self._open: tuple[SegmentFile, int, str] | None = None  # where records end, unless a later segment has some
        check_foreign_files(root, COMMIT_LOG_DIRECTORY, found)
        check_segments(self.segments, size, found)

    def records(self, begin: int = 0) -> Iterator[list[Record]]:
        """Yield the valid records from byte `begin` of the log, in order, some thousands at a time. A batch is valid
        until the next one."""
        total = sum(segment.length for segment in self.segments)
        done = 0
        for segment in self.segments:
            at = max(begin - segment.start, 0)
            if at < segment.length:
                for batch in self._records_of(segment, at):
                    yield batch
                    self._progress(Progress("log", done + batch[-1].position, total))
            done += segment.length
            self._progress(Progress("log", done, total))
        self._finish()

    def _records_of(self, segment: SegmentFile, at: int) -> Iterator[list[Record]]:
        with open(segment.path, "rb") as file:
            whole = mmap.mmap(file.fileno(), segment.length, access=mmap.ACCESS_READ)
        whole.madvise(mmap.MADV_SEQUENTIAL)
        view = memoryview(whole)[: self._size]
        batch: list[Record] = []
        dropped = alone_until = 0
        while True:
            if at >= alone_until and (run := read_run(view, at, segment.start)):
                self._take_run(run, segment)
                batch += run
            else:
                if at >= alone_until:
                    alone_until = at + RUN_BYTES  # one attempt for these bytes is enough
                single, at = self._next(segment, view, whole, at)
                if single is None:
                    break
                batch.append(single)
            at = batch[-1].position + batch[-1].size
            if len(batch) >= _BATCH:
                yield batch
                batch = []
                if at - dropped >= _DROPPED_BYTES:  # pages that were read need not stay mapped
                    whole.madvise(mmap.MADV_DONTNEED, dropped, _DROPPED_BYTES)
                    dropped += _DROPPED_BYTES
        if batch:
            yield batch

    def _next(self, segment: SegmentFile, view: memoryview, whole: mmap.mmap, at: int) -> tuple[Record | None, int]:
        """Return the record at `at`, or the next valid one after bad bytes; None at the end of the segment."""
        parsed = parse(view, at)
        while isinstance(parsed, UnreadableTopic) and (unreadable := parsed.record) is not None:
            if _problem(unreadable, segment.start + at):
                break
            self._take(unreadable, segment)
            what = f"record {unreadable.physical_offset} ({unreadable.topic!r}) gets no queue unit: {parsed.reason}"
            self._add("skipped", Severity.WARNING, segment, at, what, "it is not delivered; it stays in the log")
            at += unreadable.size
            parsed = parse(view, at)
        if isinstance(parsed, Record):
            problem = _problem(parsed, segment.start + at)
            if not problem:
                self._take(parsed, segment)
                return parsed, at
        elif isinstance(parsed, Blank):
            problem = "" if parsed.size == self._size - at else f"a blank of {parsed.size} bytes"
            if not problem:
                self._check_after_blank(segment, at)
                return None, at
        else:
            problem = parsed.reason if isinstance(parsed, Damaged) else ""
        is_zero = not problem and written(segment.path, at, segment.length) is None
        following = None if is_zero else _next_valid(whole, view, segment.start, at + 1)
        if following is None:
            self._note_end(segment, at, problem)
            return None, at
        self._report_bad_range(segment, at, problem or "zeros where a record should be", following.physical_offset)
        self._take(following, segment)
        return following, following.position

    def _take_run(self, run: Sequence[Record], segment: SegmentFile) -> None:
        """Take consecutive records: all at once if none of them is reported."""
        times = [record.store_timestamp for record in run]
        is_ordered = times[0] >= self.newest and times == sorted(times)
        if self._open is not None or not is_ordered or not all(map(has_unit, {record.sys_flag for record in run})):
            for record in run:
                self._take(record, segment)
            return
        self.newest = times[-1]
        self.end = run[-1].physical_offset + run[-1].size
        self.records_read += len(run)

    def _take(self, record: Record, segment: SegmentFile) -> None:
        if self._open is not None:
            before, at, problem = self._open
            self._open = None
            self._report_bad_range(before, at, problem or "neither a record nor a blank", record.physical_offset)
        if record.store_timestamp < self.newest:
            what = (
                f"stored at {record.store_timestamp}, {self.newest - record.store_timestamp} ms before an earlier one"
            )
            follows = "searches by time and the start of a recovery may be wrong"
            self._add("time", Severity.WARNING, segment, record.position, what, follows)
        if record.queue_offset and not has_unit(record.sys_flag):
            what = f"a transaction's record with queue offset {record.queue_offset}, not 0"
            self._add("transaction", Severity.WARNING, segment, record.position, what, "the field is not used")
        self.newest = max(self.newest, record.store_timestamp)
        self.end = record.physical_offset + record.size
        self.records_read += 1

    def _note_end(self, segment: SegmentFile, at: int, problem: str) -> None:
        """Note that no valid record follows in this segment. Later segments decide whether the log ends here."""
        if self._open is None:
            self._open = segment, at, problem

    def _finish(self) -> None:
        """Check the bytes after the last record: zeros are correct, other bytes are torn."""
        if self._open is None:
            return
        segment, at, problem = self._open
        rest = written(segment.path, at, segment.length)
        if problem:
            follows = "a start after a crash ends the log here" + ("" if rest is None else " and clears the rest")
            self.damages += 1
            self._add("end", self._tail, segment, at, f"no valid record: {problem}", follows)
        elif rest is not None:
            what = f"{rest[1]} bytes after the log's end at {segment.start + at} are not zero"
            self._add("rest", self._tail, segment, rest[0], what, "they could become valid again after a later record")
        for later in self.segments[self.segments.index(segment) + 1 :]:
            rest = written(later.path, 0, later.length)
            if rest is not None:
                what = f"{rest[1]} bytes after the log's end at {segment.start + at} are not zero"
                self._add("rest", self._tail, later, rest[0], what, "the next start after a crash removes the file")

    def _check_after_blank(self, segment: SegmentFile, at: int) -> None:
        rest = written(segment.path, at + BLANK_SIZE, segment.length)
        if rest is not None:
            what = f"{rest[1]} bytes after the blank are not zero"
            self._add("blank", Severity.WARNING, segment, rest[0], what, "they are not used")

    def _report_bad_range(self, segment: SegmentFile, at: int, problem: str, following: int) -> None:
        self.damages += 1
        what = f"no valid record from {segment.start + at} to {following}: {problem}"
        follows = f"its messages are lost; a start after a crash may end the log here and lose all from {following} on"
        self._add("record", Severity.DAMAGE, segment, at, what, follows)

    def _add(self, kind: str, severity: Severity, segment: SegmentFile, at: int, what: str, follows: str) -> None:
        self._found.add(kind, Finding(severity, segment.name, at, what, follows))

    def location_of(self, physical_offset: int) -> tuple[str, int]:
        """Return the file, and the byte in it, of a byte of the log."""
        for segment in reversed(self.segments):
            if segment.start <= physical_offset:
                return segment.name, physical_offset - segment.start
        return COMMIT_LOG_DIRECTORY, physical_offset

    def __repr__(self) -> str:
        return f"<LogCheck [{self.start}, {self.end})>"


def _problem(record: Record, position: int) -> str:
    """Return the problem of a record that parses; "" without a problem."""
    if record.physical_offset != position:
        return f"a record that states the offset {record.physical_offset}"
    is_intact = record_checksum_matches(record.source, record.position, record.position + record.size)
    return "" if is_intact else "record checksum"


def _next_valid(whole: mmap.mmap, view: memoryview, start: int, at: int) -> Record | None:
    """Return the first valid record at or after byte `at` of a segment that begins at `start`."""
    candidates = {magic: whole.find(magic, at + 4) for magic in _MAGICS}
    while any(candidate >= 0 for candidate in candidates.values()):
        magic, candidate = min(((m, p) for m, p in candidates.items() if p >= 0), key=lambda pair: pair[1])
        parsed = parse(view, candidate - 4)
        if isinstance(parsed, Record) and not _problem(parsed, start + candidate - 4):
            return parsed
        candidates[magic] = whole.find(magic, candidate + 1)
    return None
