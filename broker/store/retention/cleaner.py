"""Acts on the rules of retention: old segments of the log go, queues and index follow, a full disk refuses messages.

`step(now_ms)` does at most a little: every `cleanResourceInterval` it looks how full the disk is and asks the rules
(`broker/store/retention/rules.py`) what this round may take; then one segment leaves per
`deleteCommitLogFilesInterval`, until the round is used up or the oldest is not due. The last one never leaves, nor
what is not flushed. Deleting begins a minute after the first step, so that a start under a wrong clock or setting can
be stopped.

`step` goes by a steady clock. How old a segment is depends on Unix time, in which file systems note when it was last
modified. A machine's clock that is set forward by years must not expire everything at once: the age counts by Unix
time at the first step plus what the steady clock has advanced since, or by Unix time now, whichever is earlier. So a
clock that is set forward takes effect with the next start, and one that is set back keeps segments for longer.

A segment leaves the log at once, on the loop; its file goes in a helper thread (`broker/store/retention/removal.py`).
Queues and index follow at their own pace behind it, since nothing reads behind the log's start whether they did or not.

Source: docs/formats.md, "Retention".
"""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec

from skylarkmq.broker.store.config import StoreConfig
from skylarkmq.broker.store.log.mapped_file import MappedFile
from skylarkmq.broker.store.log.mapped_file_queue import MappedFileQueue
from skylarkmq.broker.store.retention.removal import Removal, RemovalStatistics
from skylarkmq.broker.store.retention.rules import DiskUsage, RetentionRules, Round, local_hour
from skylarkmq.broker.store.running_flags import RunningFlag, RunningFlags

log = logging.getLogger(__name__)

FIRST_ROUND_MS: Final = 60_000
HURRIED_LOOKS: Final = 20
_NOTHING: Final = Round(segments=0, is_forced=False, is_disk_full=False, reason="")


class Follower(Protocol):
    """What points into the log and has to give up what the log gave up."""

    def follow(self, log_start: int, now_ms: int) -> None:
        """Called at each step: the log begins at byte `log_start`. Does at most a millisecond's work."""


class CleanerStatistics(msgspec.Struct, frozen=True):
    """`deleted` segments since the start; `usage` as last measured, in percent."""

    deleted: int
    usage: DiskUsage | None
    removal: RemovalStatistics


class Cleaner:
    """For one store. `step` is handed what it has to ask for: how full the disk is, up to where the log is settled."""

    def __init__(
        self,
        config: StoreConfig,
        files: MappedFileQueue,
        flags: RunningFlags,
        removal: Removal,
        followers: Sequence[Follower],
        unix_ms: Callable[[], int],
    ) -> None:
        self.configure(config)
        self._files = files
        self._flags = flags
        self._removal = removal
        self._followers = followers
        self._unix_ms = unix_ms
        self._unix_ahead_ms = 0  # of the steady clock, at the first step
        self._usage: DiskUsage | None = None
        self._round = _NOTHING
        self._left = 0  # how many the round may still take
        self._first_round_ms = -1
        self._hurried_looks = 0
        self._next_look_ms = 0
        self._next_delete_ms = 0
        self._deleted = 0

    def hurry(self) -> None:
        """An operator wants what is due to go: so it does at any hour, for some looks."""
        self._hurried_looks = HURRIED_LOOKS
        self._next_look_ms = 0

    def configure(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self._rules = RetentionRules(config)
        self._look_interval_ms = config.clean_resource_interval
        self._delete_interval_ms = config.delete_commit_log_files_interval

    def step(self, now_ms: int, measure: Callable[[], DiskUsage], settled: Callable[[], int]) -> None:
        """What is due by now. `settled()`: below that byte of the log everything is flushed, queues too."""
        if self._first_round_ms < 0:
            self._first_round_ms = now_ms + FIRST_ROUND_MS
            self._unix_ahead_ms = self._unix_ms() - now_ms
        self._removal.step(now_ms)
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + self._look_interval_ms
            try:
                self._look(now_ms, measure())
            except OSError as problem:
                log.warning("disk not measured error=%s", problem)
        if self._left and now_ms >= self._next_delete_ms and self._removal.is_ready:
            self._delete_first(now_ms, settled())
        for follower in self._followers if self._removal.is_ready else ():  # else a cut may bring the segment back
            follower.follow(self._files.min_offset, now_ms)

    def _look(self, now_ms: int, usage: DiskUsage) -> None:
        self._usage = usage
        decided = self._rules.look(local_hour(self._unix_ms()), usage, is_hurried=self._hurried_looks > 0)
        if decided.is_disk_full:
            self._flags.set(
                RunningFlag.DISK_FULL, f"{usage.fullest} percent used, {self._rules.warning_at} are allowed"
            )
        else:
            self._flags.clear(RunningFlag.DISK_FULL)
        if now_ms >= self._first_round_ms:
            self._hurried_looks = max(self._hurried_looks - 1, 0)
            self._round = decided
            self._left = decided.segments

    def _delete_first(self, now_ms: int, settled: int) -> None:
        """The oldest segment goes if it may; else this round is over."""
        if not self._may_go(self._files.segments[:2], now_ms, settled):
            self._left = 0
            return
        segment = self._files.remove_first()
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
        modified_ms = os.fstat(oldest[0].fd).st_mtime_ns // 1_000_000
        unix_ms = min(self._unix_ms(), now_ms + self._unix_ahead_ms)
        return self._round.is_forced or self._rules.is_due(modified_ms, unix_ms)

    def statistics(self) -> CleanerStatistics:
        """Counts since the start, and the disk as last seen."""
        return CleanerStatistics(self._deleted, self._usage, self._removal.statistics())

    def __repr__(self) -> str:
        return f"<Cleaner deleted={self._deleted} left={self._left} {self._removal!r}>"
