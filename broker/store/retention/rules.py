"""The rules of retention, without a disk or a clock.

`decide` is called every `cleanResourceInterval` and returns what this round may delete; `due_since` returns when one
segment is old enough. `broker/store/retention/cleaner.py` applies them.

Source: docs/reference/disk.md, "Retention".
"""

import time
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY

HOUR_MS: Final = 3_600_000


class DiskUsage(msgspec.Struct, frozen=True):
    """Usage of the file systems of log, queues and index: percent of the usable space, rounded up."""

    log: int
    queues: int
    index: int

    @property
    def fullest(self) -> int:
        """Return the highest of the three; the rules use this one."""
        return max(self.log, self.queues, self.index)


class Round(msgspec.Struct, frozen=True):
    """What one round allows: at most `segments` log segments, and only due ones unless `is_forced`."""

    segments: int
    is_forced: bool
    is_disk_full: bool
    reason: str


def measure(root: Path, disk: Disk) -> DiskUsage:
    """Return the usage of the file systems of a store. Raises OSError.

    A directory that does not exist yet will be created on the file system of `root`.
    """
    fallback = disk.used_percent(str(root))
    log, queues, index = (
        disk.used_percent(str(root / name)) if (root / name).is_dir() else fallback
        for name in (COMMIT_LOG_DIRECTORY, CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY)
    )
    return DiskUsage(log, queues, index)


def local_hour(now_ms: int) -> int:
    """Return the hour of the local time."""
    return time.localtime(now_ms / 1000).tm_hour


class RetentionRules:
    """The rules with their settings."""

    def __init__(self, config: StoreConfig) -> None:
        self._reserved_ms = config.file_reserved_time * HOUR_MS
        self._hours = frozenset(config.delete_when)
        self._most_used = config.disk_max_used_space_ratio
        self._forced_at = config.disk_space_clean_forcibly_ratio
        self.warning_at = config.disk_space_warning_level_ratio
        self._may_force = config.clean_file_forcibly_enable
        self._most_segments = config.delete_file_batch_max

    def decide(self, hour: int, usage: DiskUsage, *, is_any_hour: bool = False) -> Round:
        """Return the limits of a round. `hour`: 0 to 23, local time; with `is_any_hour` every hour is permitted."""
        used = usage.fullest
        reason = "time" if hour in self._hours else "request" if is_any_hour else ""
        if self.is_crowded(usage):
            reason = "space"
        return Round(
            segments=self._most_segments if reason else 0,
            is_forced=used > min(self._forced_at, self.warning_at) and self._may_force,
            is_disk_full=used > self.warning_at,
            reason=reason,
        )

    def is_crowded(self, usage: DiskUsage) -> bool:
        """Return whether due segments are deleted at any hour, because a disk is too full."""
        return usage.fullest > min(self._most_used, self._forced_at, self.warning_at)

    def due_since(self, modified_ms: int) -> int:
        """Return the Unix time in ms from which on a segment last modified at `modified_ms` is due."""
        return modified_ms + self._reserved_ms

    def __repr__(self) -> str:
        return f"<RetentionRules reserved_ms={self._reserved_ms} hours={sorted(self._hours)}>"
