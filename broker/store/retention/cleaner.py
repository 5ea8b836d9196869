"""Applies the rules of retention: deletes old log segments, trims queues and index, and sets the disk-full flag.

`step(now_ms)` takes little time. Every `cleanResourceInterval` it measures the disk usage and gets from the rules
(`broker/store/retention/rules.py`) how many segments this round may delete. Then it deletes one segment per
`deleteCommitLogFilesInterval`, until the round is complete or the oldest segment is not due. It never deletes the last
segment or an unflushed one. Deletion begins a minute after the first step, so that an operator can stop a broker that
started with a wrong clock or setting. With `archiveHold` a due segment also waits for the archive
(`broker/store/retention/archive_hold.py`).

`step` uses a steady clock. The age of a segment depends on Unix time, because file systems store the time of the last
modification. If the clock of the machine is set forward by years, the segments must not all expire at once. So the
current time for an age is the earlier of two: the Unix time now, and the Unix time at the first step plus the time that
the steady clock has advanced since. A clock set forward therefore takes effect at the next start, and a clock set back
keeps segments for longer.

A segment is removed from the log at once, on the event loop; a helper thread deletes its file
(`broker/store/retention/removal.py`). Queues and index are trimmed later, at their own pace, because no read goes
before the start of the log in any case.

Source: docs/reference/disk.md, "Retention".
"""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.store.files.config import StoreConfig
from skylarkmq.broker.store.files.mapped_file import MappedFile
from skylarkmq.broker.store.files.mapped_file_queue import MappedFileQueue
from skylarkmq.broker.store.log.running_flags import RunningFlag, RunningFlags
from skylarkmq.broker.store.retention.archive_hold import ArchiveHold, HoldStatistics
from skylarkmq.broker.store.retention.removal import Removal, RemovalStatistics
from skylarkmq.broker.store.retention.rules import DiskUsage, RetentionRules, Round, local_hour

log = logging.getLogger(__name__)

FIRST_ROUND_MS: Final = 60_000
ANY_HOUR_ROUNDS: Final = 20
"""How many rounds after `delete_at_any_hour` ignore `deleteWhen`."""

_NOTHING: Final = Round(segments=0, is_forced=False, is_disk_full=False, reason="")


class Follower(Protocol):
    """A structure that refers to the log and must remove references to deleted segments."""

    def follow(self, log_start: int, now_ms: int) -> None:
        """Called at each step: the log begins at byte `log_start`. Takes at most a millisecond."""


class CleanerStatistics(msgspec.Struct, frozen=True):
    """`deleted` segments since the start; `usage` as last measured, percent; `hold` is None while it is off."""

    deleted: int
    usage: DiskUsage | None
    removal: RemovalStatistics
    hold: HoldStatistics | None


class Cleaner:
    """The cleaner of one store."""

    def __init__(
        self,
        config: StoreConfig,
        files: MappedFileQueue,
        flags: RunningFlags,
        removal: Removal,
        followers: Sequence[Follower],
        unix_ms: Callable[[], int],
    ) -> None:
        self._hold = ArchiveHold(config)
        self.configure(config)
        self._files = files
        self._flags = flags
        self._removal = removal
        self._followers = followers
        self._unix_ms = unix_ms
        self._unix_ahead_ms = 0  # Unix time minus steady time, at the first step
        self._usage: DiskUsage | None = None
        self._round = _NOTHING
        self._left = 0  # how many segments the round may still delete
        self._first_round_ms = -1
        self._any_hour_left = 0
        self._next_measurement_ms = 0
        self._next_delete_ms = 0
        self._deleted = 0

    def delete_at_any_hour(self) -> None:
        """Delete the segments that are due in the next rounds at any hour, as an operator requested."""
        self._any_hour_left = ANY_HOUR_ROUNDS
        self._next_measurement_ms = 0

    def configure(self, config: StoreConfig) -> None:
        """Apply these settings from now on."""
        self._rules = RetentionRules(config)
        self._hold.configure(config)
        self._measure_interval_ms = config.clean_resource_interval
        self._delete_interval_ms = config.delete_commit_log_files_interval

    def step(self, now_ms: int, measure: Callable[[], DiskUsage], settled: Callable[[], int]) -> None:
        """Do what is due at steady time `now_ms`.

        `measure()` returns the disk usage. `settled()` returns the byte of the log below which everything is flushed,
        queues included.
        """
        if self._first_round_ms < 0:
            self._first_round_ms = now_ms + FIRST_ROUND_MS
            self._unix_ahead_ms = self._unix_ms() - now_ms
        self._removal.step(now_ms)
        if now_ms >= self._next_measurement_ms:
            self._next_measurement_ms = now_ms + self._measure_interval_ms
            try:
                self._begin_round(now_ms, measure())
            except OSError as problem:
                log.warning("disk not measured error=%s", problem)
        if self._left and now_ms >= self._next_delete_ms and self._removal.is_ready:
            self._delete_first(now_ms, settled())
        # While an unlink is outstanding, a power cut may restore the segment.
        for follower in self._followers if self._removal.is_ready else ():
            follower.follow(self._files.min_offset, now_ms)

    def _begin_round(self, now_ms: int, usage: DiskUsage) -> None:
        self._usage = usage
        decided = self._rules.decide(local_hour(self._unix_ms()), usage, is_any_hour=self._any_hour_left > 0)
        if decided.is_disk_full:
            self._flags.set(
                RunningFlag.DISK_FULL, f"{usage.fullest} percent used, {self._rules.warning_at} are allowed"
            )
        else:
            self._flags.clear(RunningFlag.DISK_FULL)
        self._hold.begin_round(
            self._files.segments,
            lambda segment: self._rules.due_since(_modified_ms(segment)),
            self._age_time(now_ms),
            is_crowded=self._rules.is_crowded(usage),
        )
        if now_ms >= self._first_round_ms:
            self._any_hour_left = max(self._any_hour_left - 1, 0)
            self._round = decided
            self._left = decided.segments

    def _delete_first(self, now_ms: int, settled: int) -> None:
        """Delete the oldest segment if this is permitted; otherwise end the round."""
        if not self._may_go(self._files.segments[:2], now_ms, settled):
            self._left = 0
            return
        segment = self._files.remove_first()
        self._hold.deleted(segment)
        self._removal.add(segment, now_ms)
        self._left -= 1
        self._next_delete_ms = now_ms + self._delete_interval_ms
        self._deleted += 1
        log.info(
            "segment deleted path=%s because=%s forced=%s used_percent=%d",
            segment.path,
            self._round.reason,
            self._round.is_forced,
            self._usage.fullest if self._usage else 0,
        )

    def _may_go(self, oldest: list[MappedFile], now_ms: int, settled: int) -> bool:
        if len(oldest) < 2 or oldest[0].end > settled or RunningFlag.SYNC_FAILED in self._flags:
            return False
        is_due = self._rules.due_since(_modified_ms(oldest[0])) <= self._age_time(now_ms)
        return self._round.is_forced or (is_due and self._hold.permits(oldest[0]))

    def _age_time(self, now_ms: int) -> int:
        """Return the Unix time in ms from which ages count."""
        return min(self._unix_ms(), now_ms + self._unix_ahead_ms)

    def statistics(self) -> CleanerStatistics:
        """Return counts since the start, and the last measured disk usage."""
        return CleanerStatistics(self._deleted, self._usage, self._removal.statistics(), self._hold.statistics())

    def __repr__(self) -> str:
        return f"<Cleaner deleted={self._deleted} left={self._left} {self._removal!r}>"


def _modified_ms(segment: MappedFile) -> int:
    return os.fstat(segment.fd).st_mtime_ns // 1_000_000
