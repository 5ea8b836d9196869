"""Keeps segments of the log until an archive contains them (`archiveHold`), within limits.

The archive job writes its low-water mark to `config/archive.json`. A segment that ends above the mark is not archived.
The cleaner does not delete such a segment when it is due, unless one of these limits overrides the hold:

    space   a disk is fuller than `diskMaxUsedSpaceRatio`
    bytes   the due segments above the mark have more than `archiveHoldMaxBytes`
    age     the job has not completed for `archiveHoldMaxHours`; without a mark, the oldest segment is due for that long

So a broker whose archive job does not run keeps segments for longer, and never fills its disk because of the hold.
Forced deletion (`diskSpaceCleanForciblyRatio`) ignores the hold in any case.

The file is untrusted input. A file that is not usable is logged once, and the last usable mark stays in effect: a mark
that is too small only keeps more segments. A time in the future counts as the time at which the broker first read it.
A mark beyond the log belongs to another store, and is not used.

Source: docs/reference/disk.md, "Archive mark", "Retention".
"""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import open_untrusted
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.retention.rules import HOUR_MS
from skylarkmq.protocol.archive_mark import ARCHIVE_MARK_FILE, MAX_MARK_BYTES, ArchiveMark, decode_mark
from skylarkmq.protocol.disk import CONFIG_DIRECTORY

log = logging.getLogger(__name__)

OVERRIDES: Final = ("space", "bytes", "age")


class HoldStatistics(msgspec.Struct, frozen=True):
    """`mark`: a byte of the log; None without a usable file. `held_bytes`: due segments that are not archived.

    `override`: one of OVERRIDES, or "". `unarchived`: segments deleted since the start before they were archived.
    """

    mark: int | None
    mark_age_ms: int
    held_bytes: int
    override: str
    unarchived: int


def read_mark(path: str) -> ArchiveMark:
    """Return the mark of a file. Raises OSError, also if it is not a regular file; ValueError if it has no mark."""
    fd = open_untrusted(path)
    try:
        return decode_mark(os.read(fd, MAX_MARK_BYTES + 1))
    finally:
        os.close(fd)


class ArchiveHold:
    """The hold of one store. While `archiveHold` is off it permits everything, and reads no file."""

    def __init__(self, config: StoreConfig) -> None:
        self._path = str(Path(config.store_path_root_dir) / CONFIG_DIRECTORY / ARCHIVE_MARK_FILE)
        self._mark: ArchiveMark | None = None
        self._updated_ms = 0  # `updated_at` of the mark, at most the time at which it was first read
        self._age_ms = 0
        self._held_bytes = 0
        self._due_end = 0  # segments that end up to here were found due
        self._is_crowded = False
        self._unarchived = 0
        self._problem = ""
        self._logged = ""
        self.configure(config)

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings from now on."""
        self._is_on = config.archive_hold
        self._max_bytes = config.archive_hold_max_bytes
        self._max_age_ms = config.archive_hold_max_hours * HOUR_MS
        self._due_end = 0

    def begin_round(
        self, segments: Sequence[MappedFile], due_since: Callable[[MappedFile], int], unix_ms: int, *, is_crowded: bool
    ) -> None:
        """Read the mark, and measure anew what is held. `segments`: all of the log, oldest first.

        `due_since(segment)`: Unix time in ms at which it is due. `is_crowded`: a disk is fuller than
        `diskMaxUsedSpaceRatio`.
        """
        if not self._is_on:
            return
        self._read(segments[-1].end if segments else 0, unix_ms)
        self._is_crowded = is_crowded
        self._held_bytes = self._measure(segments[:-1], due_since, unix_ms)
        first_due_ms = due_since(segments[0]) if self._held_bytes else unix_ms
        self._age_ms = max(unix_ms - (first_due_ms if self._mark is None else self._updated_ms), 0)
        self._report()

    def _read(self, log_end: int, unix_ms: int) -> None:
        try:
            mark = read_mark(self._path)
            if mark.low_water_mark > log_end:
                raise ValueError(f"the mark {mark.low_water_mark} is beyond the log, which ends at {log_end}")
        except FileNotFoundError:
            self._mark, self._problem = None, ""
            return
        except (OSError, ValueError) as problem:
            if str(problem) != self._problem:
                self._problem = str(problem)
                log.warning("archive mark not usable path=%s error=%s", self._path, problem)
            return
        self._problem = ""
        if mark != self._mark:
            self._mark, self._updated_ms = mark, min(mark.updated_at, unix_ms)

    def _measure(self, segments: Sequence[MappedFile], due_since: Callable[[MappedFile], int], unix_ms: int) -> int:
        """Return the bytes of the due segments above the mark. A segment is examined until it is due, not again."""
        held = 0
        for segment in segments:
            if segment.end > self._due_end:
                if due_since(segment) > unix_ms:
                    break
                self._due_end = segment.end
            if not self._is_archived(segment):
                held += segment.size
        return held

    def _is_archived(self, segment: MappedFile) -> bool:
        return self._mark is not None and segment.end <= self._mark.low_water_mark

    @property
    def _override(self) -> str:
        """Return the limit that overrides the hold now; "" if none does."""
        if not self._held_bytes:
            return ""
        if self._is_crowded:
            return "space"
        if self._max_bytes and self._held_bytes > self._max_bytes:
            return "bytes"
        return "age" if self._age_ms > self._max_age_ms else ""

    def permits(self, segment: MappedFile) -> bool:
        """Return whether this due segment may be deleted."""
        return not self._is_on or self._is_archived(segment) or self._override != ""

    def deleted(self, segment: MappedFile) -> None:
        """Note that the cleaner has deleted a segment."""
        if self._is_on and not self._is_archived(segment):
            log.warning("segment was not archived path=%s because=%s", segment.path, self._override or "space")
            self._unarchived += 1
            self._held_bytes = max(self._held_bytes - segment.size, 0)

    def _report(self) -> None:
        """Log a change: the hold begins, is overridden, or ends."""
        state = self._override or ("holds" if self._held_bytes else "")
        if state == self._logged:
            return
        values = (self._mark.low_water_mark if self._mark is not None else -1, self._held_bytes, self._age_ms // 1000)
        if self._override:
            text = "archive hold overridden because=%s mark=%d held_bytes=%d mark_age_s=%d, run mqspark-archive"
            log.warning(text, self._override, *values)
        elif state:
            log.info("archive hold keeps due segments mark=%d held_bytes=%d mark_age_s=%d", *values)
        else:
            text = "archive hold ended: no expired segment waits for the archive mark=%d held_bytes=%d mark_age_s=%d"
            log.info(text, *values)
        self._logged = state

    def statistics(self) -> HoldStatistics | None:
        """Return a snapshot; None while `archiveHold` is off."""
        if not self._is_on:
            return None
        mark = self._mark.low_water_mark if self._mark is not None else None
        return HoldStatistics(mark, self._age_ms, self._held_bytes, self._override, self._unarchived)

    def __repr__(self) -> str:
        return f"<ArchiveHold on={self._is_on} mark={self._mark} held_bytes={self._held_bytes}>"
