"""Takes a backup of a store, or brings an existing one up to date. Only the files of the store are read.

A running broker need not take part, because of the order of reads:

    1  the state files of config/    each is a complete save; they refer to no byte after the log's end at this moment
    2  open all segments             a segment that retention deletes from now on can still be read
    3  the end of the log            the last whole record; everything before it is synced. The log only grows
    4  copy the log up to that end   in order; the manifest is saved after each segment
    5  read the copy back            checksum of each file against the source, body CRC and position of each record
    6  compare the end once more     the broker may have taken back a batch whose write failed; then no snapshot is made
    7  the snapshot of the state     from then on the backup is complete up to the end of step 3

So a backup contains a log without a gap, up to a byte that is on the store's disk, and state that is not later. The
state may be older than the log by the time between steps 1 and 3; a restored broker treats that as after a crash:

    topics, groups    as of step 1
    committed offsets as last saved (`flushConsumerOffsetInterval`); messages committed since are redelivered
    delayed messages  those delivered since the last save of their offsets are delivered again
    timers            up to the last `timercheck`: it covers the timer log up to its position, and that part of the
                      timer log never changes. The wheel, which changes in place, is not copied; a restore rebuilds it
    transactions      half and op messages are in the log, their progress is among the committed offsets
    queues, index     not copied: a restore rebuilds them from the log

A run that is interrupted at any point leaves a manifest that describes what is complete. The next run checks this part
and continues. Its result is the same as after an uninterrupted run at that time.

Source: docs/reference/disk.md, "Backups".
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from isal.isal_zlib import crc32

from skylarkmq.broker.store.backup.errors import BackupError, clear_disk_errors
from skylarkmq.broker.store.backup.lock import EXCLUSIVE, LOCK_FILE, locked
from skylarkmq.broker.store.backup.manifest import (
    LOG_ROOT,
    MANIFEST_FILE,
    QUEUES_FILE,
    STATE_DIRECTORY,
    CopiedSegment,
    Manifest,
    Snapshot,
    load_manifest,
    save_manifest,
)
from skylarkmq.broker.store.backup.segment_copies import SegmentCopies, missing_bytes
from skylarkmq.broker.store.backup.source import OpenFiles, check_segments, find_end, open_log
from skylarkmq.broker.store.backup.state_snapshot import State, read_state
from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX, Disk
from skylarkmq.broker.store.fsck.findings import Finding, Findings, OnProgress, Severity, no_progress
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.broker.store.fsck.segments import segment_files
from skylarkmq.broker.store.fsck.sizes import Sizes
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY
from skylarkmq.protocol.timers import LOG_DIRECTORY as TIMER_LOG_DIRECTORY


class BackupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes_per_s`: limit of the copy, 0 for none. Not `is_verified`: the copy is not read back.

    `is_pruned`: segments that the store no longer has are removed from the backup, with the snapshots before them.
    """

    bytes_per_s: int = 0
    is_verified: bool = True
    is_pruned: bool = False


class BackedUp(msgspec.Struct, frozen=True, rename="camel"):
    """Result of a backup. Offsets and sizes in bytes. `damage`: damaged records of the store, copied as they are."""

    log_start: int
    log_end: int
    last_store_time: int
    copied_bytes: int
    shared_bytes: int
    segments: int
    snapshots: int
    removed_segments: int
    seconds: float
    warnings: list[str]
    damage: list[Finding]


def backup(
    store: Path,
    target: Path,
    sizes: Sizes,
    options: BackupOptions = BackupOptions(),
    *,
    disk: Disk | None = None,
    progress: OnProgress = no_progress,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> BackedUp:
    """Bring the backup in `target` up to date with the store; create it if it does not exist.

    Raises StoreError with a cause and a next step; what was copied until then stays, and the next call continues.
    """
    disk = disk or Disk()
    begun_s = time.monotonic()
    with clear_disk_errors(store, target, "repeat the command: it continues"), _locked(target, disk):
        manifest = load_manifest(target)
        if manifest is None:
            manifest = Manifest.new(sizes)
            save_manifest(target, manifest, disk)  # from now on the directory is a backup
        if manifest.segment_size != sizes.commit_log:
            raise BackupError(
                f"{target} is a backup of a store with segments of {manifest.segment_size} bytes, {store} has "
                f"{sizes.commit_log}: use an empty directory"
            )
        taken_at, state = now_ms(), read_state(store)
        with open_log(store) as log, OpenFiles(store, TIMER_LOG_DIRECTORY) as timer_log:
            check_segments(log, sizes.commit_log)
            run = _Run(target, manifest, log, timer_log, options, disk, progress)
            run.copy(state)
            run.add_snapshot(state, taken_at)
        return run.result(time.monotonic() - begun_s, state.warnings)


@contextmanager
def _locked(target: Path, disk: Disk) -> Iterator[None]:
    """Create `target` if necessary and hold its lock. Raises BackupError if it is in use, or is no backup."""
    if target.is_dir() and not (target / MANIFEST_FILE).exists():
        others = sorted(set(os.listdir(target)) - {LOCK_FILE, MANIFEST_FILE + TEMPORARY_SUFFIX})
        if others:
            raise BackupError(
                f"{target} is neither empty nor a backup (it contains {others[0]}): use another directory"
            )
    disk.make_directory(os.path.abspath(target))
    fd = disk.open_or_make(str(target / LOCK_FILE))
    with locked(fd, EXCLUSIVE, f"another command is using {target}: wait until it has ended"):
        yield


class _Run:
    """One run of a backup."""

    def __init__(
        self,
        target: Path,
        manifest: Manifest,
        log: OpenFiles,
        timer_log: OpenFiles,
        options: BackupOptions,
        disk: Disk,
        progress: OnProgress,
    ) -> None:
        self._target = target
        self._manifest = manifest
        self._log = log
        self._timer_log = timer_log
        self._options = options
        self._disk = disk
        self._progress = progress
        self._copies = SegmentCopies(
            target, manifest, disk, options.bytes_per_s, progress, is_verified=options.is_verified
        )
        self._end = self._last_store_time = 0
        self._removed_segments = 0

    def copy(self, state: State) -> None:
        """Copy the log up to its end, and the timer log up to the end of its last check."""
        manifest = self._manifest
        self._continue_log()
        found = find_end(self._log, manifest.copied_end, self._disk)
        newest = manifest.newest
        self._end = found.offset
        self._last_store_time = found.store_time or (newest.last_store_time if newest is not None else 0)
        check = state.timer_check
        timer_end = check.log_position if check is not None else 0
        if self._timer_log.segments:
            manifest.timer_segment_size = max(segment.size for segment in self._timer_log.segments)
        self._continue_timer_log(timer_end)
        if self._options.is_pruned:
            self._prune()
        self._copies.total = missing_bytes(self._log, manifest.log, self._end) + missing_bytes(
            self._timer_log, manifest.timer_log, timer_end
        )
        self._copies.check_expired(self._log)
        self._copies.copy_files(self._log, manifest.log, self._end)
        self._copies.copy_files(self._timer_log, manifest.timer_log, timer_end)
        if not self._copies.ends_alike(self._log, manifest.log, self._end):
            raise BackupError("the broker took back its last messages during the backup (is its disk full?): repeat")

    # ------------------------------------------------------------------------------------------- continuing

    def _continue_log(self) -> None:
        """Check that the backup is a part of this log. What an interrupted run copied wrongly is forgotten."""
        manifest = self._manifest
        if self._copies.ends_alike(self._log, manifest.log, manifest.copied_end):
            return
        newest = manifest.newest
        end = newest.log_end if newest is not None else 0
        manifest.log = [segment for segment in manifest.log if segment.start < end]
        if manifest.log:
            last = manifest.log[-1]
            manifest.log[-1] = CopiedSegment(last.start, min(last.length, end - last.start))
        if not self._copies.ends_alike(self._log, manifest.log, end):
            raise BackupError(self._difference(end))

    def _continue_timer_log(self, end: int) -> None:
        """Check that the copied timer log is a part of this one, which ends at position `end`; else copy it anew."""
        manifest = self._manifest
        last = manifest.timer_log[-1] if manifest.timer_log else None
        copied_end = last.start + last.length if last is not None else 0
        if copied_end <= end and self._copies.ends_alike(self._timer_log, manifest.timer_log, copied_end):
            return
        manifest.timer_log = []
        manifest.snapshots = [msgspec.structs.replace(snapshot, timer_end=0) for snapshot in manifest.snapshots]
        self._copies.warnings.append(
            "the store's timer log does not continue the backup's timer log: earlier states no longer have timers"
        )

    def _difference(self, end: int) -> str:
        first = self._log.segments[0].start if self._log.segments else 0
        if first > end:
            problem = (
                f"the store's log begins at byte {first}, the backup ends at {end}, and nothing has the bytes between"
            )
        else:
            problem = f"the store's log has other bytes before byte {end} than the backup: it belongs to another store"
        return f"{self._target} cannot be continued, {problem}; begin a new backup in an empty directory"

    # ------------------------------------------------------------------------------------------- removing

    def _prune(self) -> None:
        """Remove the segments that the store no longer has, and the snapshots that end before the others."""
        manifest = self._manifest
        first, first_timer = (
            files.segments[0].start if files.segments else 0 for files in (self._log, self._timer_log)
        )
        manifest.log = [segment for segment in manifest.log if segment.start >= first]
        manifest.timer_log = [segment for segment in manifest.timer_log if segment.start >= first_timer]
        dropped = [snapshot for snapshot in manifest.snapshots if snapshot.log_end <= first]
        manifest.snapshots = manifest.snapshots[len(dropped) :]
        save_manifest(self._target, manifest, self._disk)
        for snapshot in dropped:
            self._remove_snapshot(snapshot)
        self._removed_segments = self._remove_files(COMMIT_LOG_DIRECTORY, first)
        self._remove_files(TIMER_LOG_DIRECTORY, first_timer)

    def _remove_files(self, directory: str, first: int) -> int:
        """Remove the files before byte `first`, also those that an interrupted run left. Return their number."""
        old = [file for file in segment_files(self._target / LOG_ROOT, directory) if file.start < first]
        for file in old:
            self._disk.unlink(file.path)
        if old:
            self._disk.sync_directory(f"{self._target}/{LOG_ROOT}/{directory}")
        return len(old)

    def _remove_snapshot(self, snapshot: Snapshot) -> None:
        directory = self._target / STATE_DIRECTORY / snapshot.directory
        for name in os.listdir(directory) if directory.is_dir() else ():
            self._disk.unlink(str(directory / name))
        if directory.is_dir():
            self._disk.remove_directory(str(directory))

    # ------------------------------------------------------------------------------------------- state

    def add_snapshot(self, state: State, taken_at: int) -> None:
        """Write the state files, and complete the backup by adding them to the manifest; not if nothing has changed."""
        files = state.files | {QUEUES_FILE: msgspec.json.encode(state.queue_ends)}
        sums = {name: crc32(data) for name, data in sorted(files.items())}
        manifest = self._manifest
        newest = manifest.newest
        check = state.timer_check
        if newest is not None and (newest.log_end, newest.files) == (self._end, sums):
            return
        name = f"{self._end:020d}-{taken_at}"
        self._write_state(name, files)
        manifest.snapshots.append(
            Snapshot(
                directory=name,
                taken_at=taken_at,
                log_start=manifest.log_start if manifest.log else self._end,
                log_end=self._end,
                last_store_time=self._last_store_time,
                timer_end=check.log_position if check is not None else 0,
                files=sums,
            )
        )
        save_manifest(self._target, manifest, self._disk)

    def _write_state(self, name: str, files: dict[str, bytes]) -> None:
        """Write the files so that only this user can read them: some contain secrets."""
        directory = f"{os.path.abspath(self._target)}/{STATE_DIRECTORY}/{name}"
        self._disk.make_directory(directory)
        os.chmod(directory, 0o700)
        for file, data in files.items():
            self._disk.write_private_file(f"{directory}/{file}", data)
        self._disk.sync_directory(directory)

    # ------------------------------------------------------------------------------------------- the end

    def _damage(self) -> list[Finding]:
        """Return what the copy's log check finds from the first byte on that is no record."""
        if self._copies.damaged_at is None:
            return []
        found = Findings()
        check = LogCheck(
            self._target / LOG_ROOT, self._manifest.segment_size, found, crashed=True, progress=self._progress
        )
        for _ in check.records(self._copies.damaged_at):
            pass
        return [one for one in (*found.take(), *found.summaries()) if one.severity is Severity.DAMAGE]

    def result(self, seconds: float, warnings: list[str]) -> BackedUp:
        """Return the result of the run."""
        manifest = self._manifest
        return BackedUp(
            log_start=manifest.log_start,
            log_end=self._end,
            last_store_time=self._last_store_time,
            copied_bytes=self._copies.copier.copied,
            shared_bytes=self._copies.copier.shared,
            segments=len(manifest.log),
            snapshots=len(manifest.snapshots),
            removed_segments=self._removed_segments,
            seconds=seconds,
            warnings=[*warnings, *self._copies.warnings],
            damage=self._damage(),
        )
