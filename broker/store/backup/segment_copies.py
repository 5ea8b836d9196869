"""The files of a backup's log and timer log: copied from open files, read back, and compared with the manifest.

For each file: copy the missing bytes, sync them, drop them from the page cache, read them back from the disk. Only then
the manifest counts them, so an interruption at any point leaves bytes that the next run overwrites.
"""

import mmap
import os
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.backup.copying import Copier, checksum, read_range
from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.backup.manifest import LOG_ROOT, CopiedSegment, Manifest, save_manifest
from skylarkmq.broker.store.backup.records import is_blank, walk
from skylarkmq.broker.store.backup.source import OpenFiles, OpenSegment
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.fsck.findings import OnProgress, Progress
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, offset_file_name

COMPARED_BYTES: Final = 64 << 10
"""Bytes before the end of a backup that a store must contain, too. They hold store times, so no other log has them."""


class SegmentCopies:
    """The files of one backup. `total`: bytes to copy, for the progress. `warnings`: for operators.

    `damaged_at`: the first byte of the log that is no record, among the bytes that were read back; None without damage.
    """

    def __init__(
        self,
        target: Path,
        manifest: Manifest,
        disk: Disk,
        bytes_per_s: int,
        progress: OnProgress,
        *,
        is_verified: bool,
    ) -> None:
        self._target = target
        self._manifest = manifest
        self._disk = disk
        self._progress = progress
        self._is_verified = is_verified
        self.copier = Copier(disk, bytes_per_s, self._copied)
        self._done = 0
        self.total = 0
        self.warnings: list[str] = []
        self.damaged_at: int | None = None

    def _copied(self, count: int) -> None:
        self._done += count
        self._progress(Progress("copy", self._done, self.total))

    def path(self, directory: str, start: int) -> str:
        """Return the path of a file in the backup."""
        return f"{self._target}/{LOG_ROOT}/{directory}/{offset_file_name(start)}"

    def ends_alike(self, files: OpenFiles, copied: list[CopiedSegment], end: int) -> bool:
        """Return whether the store and the backup have the same bytes before byte `end`."""
        last = next((one for one in reversed(copied) if one.start < end), None)
        if last is None:
            return True
        source = next((one for one in files.segments if one.start == last.start), None)
        if source is None:
            return False
        begin = max(end - last.start - COMPARED_BYTES, 0)
        count = end - last.start - begin
        try:
            with open(self.path(files.directory, last.start), "rb") as file:
                return read_range(file.fileno(), begin, count) == read_range(source.fd, begin, count)
        except OSError:
            return False

    def check_expired(self, log: OpenFiles) -> None:
        """Check the segments that the store no longer has."""
        existing = {segment.start for segment in log.segments}
        for known in self._manifest.log:
            path = self.path(COMMIT_LOG_DIRECTORY, known.start)
            if known.start not in existing and not self._is_intact(path, known):
                what = f"{path} is damaged, and the store no longer has this segment"
                self.warnings.append(f"{what}: keep an older backup of it, or repeat with --prune")

    def copy_files(self, files: OpenFiles, copied: list[CopiedSegment], end: int) -> None:
        """Copy the files up to byte `end`; check what was copied before."""
        by_start = {segment.start: segment for segment in copied}
        self._disk.make_directory(os.path.abspath(self._target / LOG_ROOT / files.directory))
        for source in files.segments:
            if source.start >= end:
                break
            known = by_start.get(source.start)
            if known is None:
                known = CopiedSegment(source.start)
                copied.append(known)
            if self._copy_file(source, known, files.directory, min(end - source.start, source.size)):
                save_manifest(self._target, self._manifest, self._disk)

    def _copy_file(self, source: OpenSegment, known: CopiedSegment, directory: str, length: int) -> bool:
        """Bring the copy of one file to `length` bytes. Return whether the manifest has changed."""
        path = self.path(directory, source.start)
        before = known.length, known.verified
        if known.length and not self._is_intact(path, known):
            self.warnings.append(f"{path} was damaged and is copied again")
            self.total += known.length
            known.length = known.verified = known.crc32 = 0
        source_crc = self._copy_range(source, known, path, length) if known.length < length else None
        if self._is_verified and known.verified < known.length:
            self._read_back(path, source, known, source_crc, is_log=directory == COMMIT_LOG_DIRECTORY)
        return before != (known.length, known.verified)

    def _is_intact(self, path: str, known: CopiedSegment) -> bool:
        """Return whether a file of an earlier run still has its size and checksum."""
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < known.length:
                    return False
                if not self._is_verified:
                    return True
                return checksum(file.fileno(), 0, known.verified) == known.crc32
        except FileNotFoundError:
            return False

    def _copy_range(self, source: OpenSegment, known: CopiedSegment, path: str, length: int) -> int | None:
        """Copy the missing bytes and sync them. Return the checksum of the source up to `length`; None if unknown."""
        fd = self._disk.open_or_make(path)
        try:
            crc = None
            if not self.copier.share(source.fd, fd, length - known.length):
                crc = self.copier.copy(source.fd, fd, known.length, length, known.crc32)
            if known.verified != known.length:
                crc = None  # the checksum of the bytes before is not known
            if length < source.size or os.fstat(fd).st_size != source.size:
                self._disk.resize(fd, length)
                self._disk.resize(fd, source.size)
            self._disk.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
        if not known.length:
            self._disk.sync_directory(os.path.dirname(path))
        known.length = length
        return crc

    def _read_back(
        self, path: str, source: OpenSegment, known: CopiedSegment, source_crc: int | None, *, is_log: bool
    ) -> None:
        """Read the copy from the disk: its checksum must equal the source's, and it must consist of whole records."""
        with open(path, "rb") as file:
            crc = checksum(file.fileno(), known.verified, known.length, known.crc32)
            if source_crc is None:
                source_crc = checksum(source.fd, known.verified, known.length, known.crc32)
            if crc != source_crc:
                raise BackupError(f"{path} does not contain what was written: check the disk, delete it, and repeat")
            if is_log:
                self._check_records(file.fileno(), source, known)
        known.verified, known.crc32 = known.length, crc

    def _check_records(self, fd: int, source: OpenSegment, known: CopiedSegment) -> None:
        begin = known.verified
        with mmap.mmap(fd, source.size, access=mmap.ACCESS_READ) as whole, memoryview(whole) as view:
            walked = walk(view, begin, source.start)
        if walked.end < known.length and not is_blank(walked.following, source.size - walked.end):
            at = source.start + walked.end
            self.damaged_at = at if self.damaged_at is None else min(self.damaged_at, at)

    def __repr__(self) -> str:
        return f"<SegmentCopies {self._target} {self._done} of {self.total}>"


def missing_bytes(files: OpenFiles, copied: list[CopiedSegment], end: int) -> int:
    """Return how many bytes of the files before byte `end` are not copied yet."""
    lengths = {segment.start: segment.length for segment in copied}
    return sum(
        max(min(end - file.start, file.size) - lengths.get(file.start, 0), 0)
        for file in files.segments
        if file.start < end
    )
