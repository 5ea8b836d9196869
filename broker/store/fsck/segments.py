"""Checks the files of a log or queue: names, lengths and gaps, and bytes where zeros should be.

Source: docs/reference/disk.md, "Store directory", "Wrong-size and missing files".
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX
from skylarkmq.broker.store.fsck.findings import Finding, Findings, Severity
from skylarkmq.protocol.disk import parse_offset_file_name

_PIECE_BYTES: Final = 1 << 16


class SegmentFile(msgspec.Struct, frozen=True):
    """A file named after the offset of its first byte. `length` is its actual length."""

    path: str
    name: str
    start: int
    length: int


def segment_files(root: Path, directory: str) -> list[SegmentFile]:
    """Return the files with names of segments in `directory` (relative to the root), by offset; [] without it."""
    found = []
    for name in _names(root / directory):
        start = parse_offset_file_name(name)
        path = f"{root}/{directory}/{name}"
        if start is not None and os.path.isfile(path):
            found.append(SegmentFile(path, f"{directory}/{name}", start, os.path.getsize(path)))
    return sorted(found, key=lambda segment: segment.start)


def check_segments(segments: Sequence[SegmentFile], size: int, found: Findings) -> None:
    """Check that each begins at a multiple of `size`, has that length, and follows the previous one."""
    end = None
    for segment in segments:
        if segment.length == 0 and segment is segments[-1]:
            _add(found, Severity.WARNING, segment, "an empty last file", "the next start removes it")
        elif segment.length != size:
            what = f"the file has {segment.length} bytes, segments here have {size}"
            _add(found, Severity.DAMAGE, segment, what, "no broker starts on this store")
        if segment.start % size:
            what = f"the name is not a multiple of the segment size {size}"
            _add(found, Severity.DAMAGE, segment, what, "its offsets cannot be found")
        elif end is not None and segment.start != end:
            what = f"{segment.start - end} bytes before this file are missing"
            _add(found, Severity.DAMAGE, segment, what, "a start is refused without --force-gap")
        end = segment.start + size


def _add(found: Findings, severity: Severity, segment: SegmentFile, what: str, follows: str) -> None:
    found.add("segment", Finding(severity, segment.name, 0, what, follows))


def check_foreign_files(root: Path, directory: str, found: Findings) -> None:
    """Report files that are not segments, as notes."""
    for name in _names(root / directory):
        if parse_offset_file_name(name) is None and os.path.isfile(root / directory / name):
            follows = "the next start removes it" if name.endswith(TEMPORARY_SUFFIX) else "the file is not used"
            found.add("stranger", Finding(Severity.NOTE, f"{directory}/{name}", None, "not a segment name", follows))


def _names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory)) if directory.is_dir() else []


def directories(path: Path) -> list[str]:
    """Return the names of the directories in `path`, sorted; [] if it does not exist."""
    return [name for name in _names(path) if os.path.isdir(path / name)]


def written(path: str, begin: int, end: int) -> tuple[int, int] | None:
    """Return `(first, count)` of the bytes of [begin, end) that are not zero; None if all are. Holes are not read."""
    first, count = -1, 0
    with open(path, "rb", buffering=0) as file:
        fd = file.fileno()
        end = min(end, os.fstat(fd).st_size)
        while begin < end and (data := _data_from(fd, begin)) is not None and data[0] < end:
            begin, data_end = max(begin, data[0]), min(data[1], end)
            while begin < data_end:
                piece = os.pread(fd, min(_PIECE_BYTES, data_end - begin), begin)
                if not piece:
                    return (first, count) if count else None
                zeros = piece.count(0)
                if zeros != len(piece):
                    if not count:
                        first = begin + len(piece) - len(piece.lstrip(b"\0"))
                    count += len(piece) - zeros
                begin += len(piece)
    return (first, count) if count else None


def _data_from(fd: int, at: int) -> tuple[int, int] | None:
    try:
        begin = os.lseek(fd, at, os.SEEK_DATA)
    except OSError:  # ENXIO: only holes follow
        return None
    return begin, os.lseek(fd, begin, os.SEEK_HOLE)
