"""The log of a store that a broker may be using, as a backup reads it.

All segments are opened at once. Retention deletes names, and an open descriptor keeps the bytes, so a long copy needs
no lock and no message to the broker; the disk space of a segment that is deleted meanwhile is free after the backup.
Retention deletes the oldest segment first, so a name that is gone between the listing and the open was the first one.

`find_end` walks the newest segment with records to the last whole one, and syncs what it found. The broker appends to
the log and never changes a record, except that it takes back a batch whose write failed; such a batch is never part of
a log that a later backup continues, because the bytes before the end are compared then.
"""

import mmap
import os
import resource
from pathlib import Path
from typing import Self

import msgspec

from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.backup.records import walk
from skylarkmq.broker.store.files.disk import NO_DESCRIPTORS, Disk
from skylarkmq.broker.store.fsck.findings import Findings, no_progress
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.broker.store.fsck.segments import segment_files
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY
from skylarkmq.protocol.record import BLANK_SIZE, Damaged


class OpenSegment(msgspec.Struct, frozen=True):
    """An open file of a log. `size` in bytes."""

    path: str
    start: int
    size: int
    fd: int

    @property
    def end(self) -> int:
        """The offset after its last byte."""
        return self.start + self.size


class LogEnd(msgspec.Struct, frozen=True):
    """The offset after the last whole record, and its store time in ms (0 if none was read)."""

    offset: int
    store_time: int


class OpenFiles:
    """Open files of one directory of segments, by offset. Use it as a context manager."""

    def __init__(self, root: Path, directory: str) -> None:
        """Open all files. Raises BackupError if the process may not open so many."""
        self.root = root
        self.directory = directory
        self.segments: list[OpenSegment] = []
        raise_descriptor_limit()
        try:
            for found in segment_files(root, directory):
                try:
                    fd = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
                size = os.fstat(fd).st_size
                if size:
                    self.segments.append(OpenSegment(found.path, found.start, size, fd))
                else:  # left by a crash, the next start removes it
                    os.close(fd)
        except OSError as problem:
            self.close()
            if problem.errno not in NO_DESCRIPTORS:
                raise
            raise BackupError(
                f"{root}/{directory} has more files than this process may open: raise the limit (ulimit -Hn) and repeat"
            ) from problem

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments:
            os.close(segment.fd)
        self.segments.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<OpenFiles {self.root}/{self.directory} segments={len(self.segments)}>"


def check_segments(log: OpenFiles, size: int) -> None:
    """Raise BackupError unless the segments have this size and follow each other."""
    previous: OpenSegment | None = None
    for segment in log.segments:
        if segment.size != size:
            raise BackupError(
                f"{segment.path} has {segment.size} bytes, segments here have {size}: give mappedFileSizeCommitLog by "
                "-c or --set, or run mqbroker store verify"
            )
        if previous is not None and previous.end != segment.start:
            raise BackupError(
                f"{segment.start - previous.end} bytes before {segment.path} are missing: run mqbroker store verify"
            )
        previous = segment


def find_end(log: OpenFiles, known_end: int, disk: Disk) -> LogEnd:
    """Return the end of the log, which is durable: everything from byte `known_end` on is synced. 0 for an empty log.

    Records before `known_end` are not read.
    """
    written = [segment for segment in log.segments if any(os.pread(segment.fd, BLANK_SIZE, 0))]
    if not written:
        return LogEnd(max(known_end, log.segments[0].start if log.segments else 0), 0)
    last = written[-1]
    begin = min(max(known_end - last.start, 0), last.size)
    if begin == last.size:
        return LogEnd(known_end, 0)
    with mmap.mmap(last.fd, last.size, access=mmap.ACCESS_READ) as whole, memoryview(whole) as view:
        walked = walk(view, begin, last.start)
    end = LogEnd(last.start + walked.end, walked.store_time)
    if isinstance(walked.following, Damaged):
        end = _end_after_damage(log, last.size, end)
    for segment in written:
        if segment.end > known_end:
            disk.fdatasync(segment.fd)
    return end


def _end_after_damage(log: OpenFiles, size: int, before: LogEnd) -> LogEnd:
    """Return the end of the last valid record after bytes that are no record: damage, or an append in progress."""
    check = LogCheck(log.root, size, Findings(), crashed=True, progress=no_progress)
    last = None
    for batch in check.records(before.offset):
        last = batch[-1].physical_offset + batch[-1].size, batch[-1].store_timestamp
    return before if last is None else LogEnd(*last)


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the hard limit permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_log(root: Path) -> OpenFiles:
    """Open the segments of the log of a store."""
    return OpenFiles(root, COMMIT_LOG_DIRECTORY)
