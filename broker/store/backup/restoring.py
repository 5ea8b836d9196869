"""Restores a backup into an empty directory, up to the end of a snapshot or to an earlier record.

    1  the end: the newest snapshot's, or after the last record that was stored by a time or that ends by an offset
    2  copy the log up to that end below <to>/restoring/; compare the checksums
    3  state files from the newest snapshot that is not later than the end
    4  timer log up to the snapshot's check, and the wheel rebuilt from it
    5  queues and index rebuilt from the log; queues without a record keep their end
    6  offsets beyond the ends of their queues are cut
    7  move everything from <to>/restoring/ to <to>, the log last

A restore that is interrupted leaves <to>/restoring/. No broker starts on such a directory. The next restore removes
what is in it; if the last step had begun, it refuses the directory. Segments get the current time as their time of
modification, so that retention does not delete them at once.

Source: docs/reference/disk.md, "Backups".
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from skylarkmq.broker.store.backup.copied_files import check_checksum, opened
from skylarkmq.broker.store.backup.copying import Copier, checksum
from skylarkmq.broker.store.backup.errors import BackupError, clear_disk_errors
from skylarkmq.broker.store.backup.lock import LOCK_FILE as BACKUP_LOCK_FILE
from skylarkmq.broker.store.backup.lock import SHARED, locked
from skylarkmq.broker.store.backup.manifest import (
    LOG_ROOT,
    MANIFEST_FILE,
    STATE_DIRECTORY,
    Manifest,
    Snapshot,
    load_manifest,
)
from skylarkmq.broker.store.backup.restored_state import RestoredState, fill_queues
from skylarkmq.broker.store.backup.restored_timers import RestoredTimers
from skylarkmq.broker.store.backup.source import LogEnd
from skylarkmq.broker.store.backup.until import end_of_offset, end_of_time, time_text
from skylarkmq.broker.store.files.disk import Disk, open_untrusted
from skylarkmq.broker.store.files.errors import StoreLockedError
from skylarkmq.broker.store.fsck.findings import Finding, OnProgress, Progress, no_progress
from skylarkmq.broker.store.fsck.repair import rebuild
from skylarkmq.broker.store.fsck.sizes import Sizes
from skylarkmq.broker.store.recovery.lock_and_abort import RESTORING_DIRECTORY, RunningFiles
from skylarkmq.protocol.disk import (
    CHECKPOINT_FILE,
    COMMIT_LOG_DIRECTORY,
    CONFIG_DIRECTORY,
    LOCK_FILE,
    Checkpoint,
    offset_file_name,
)
from skylarkmq.protocol.timers import SLOTS


class RestoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    """At most one of `until_ms` (Unix ms) and `until_offset` (byte of the log); without them all is restored.

    `uses_later_state`: if no snapshot is as old as the end, the oldest one is used. `bytes_per_s`: limit of the copy, 0
    for none. Not `is_verified`: checksums are not compared. `sizes`, `delay_levels` in ms, `timer_precision_ms`: as in
    the settings of the broker. `timer_slots`: of the wheel, for tests.
    """

    until_ms: int | None = None
    until_offset: int | None = None
    uses_later_state: bool = False
    bytes_per_s: int = 0
    is_verified: bool = True
    sizes: Sizes
    delay_levels: Sequence[int]
    timer_precision_ms: int = 1_000
    timer_slots: int = SLOTS


class Restored(msgspec.Struct, frozen=True, rename="camel"):
    """Result of a restore. Offsets in bytes, times in Unix ms. `snapshot_end`, `snapshot_taken_at`: None without state.

    `missing`: what the store lacks, a line each. `cut`: offsets that were cut, a line each. `damage`: damaged records.
    """

    log_start: int
    log_end: int
    last_store_time: int
    snapshot_end: int | None
    snapshot_taken_at: int | None
    records: int
    queues: int
    index_files: int
    copied_bytes: int
    shared_bytes: int
    seconds: float
    missing: list[str]
    cut: list[str]
    damage: list[Finding]


def restore(
    source: Path,
    target: Path,
    options: RestoreOptions,
    *,
    disk: Disk | None = None,
    progress: OnProgress = no_progress,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Restored:
    """Restore the backup in `source` to `target`. Raises StoreError; then `target` has no store."""
    disk = disk or Disk()
    begun_s = time.monotonic()
    target = Path(os.path.abspath(target))
    staging = target / RESTORING_DIRECTORY
    _check_empty(target)
    with clear_disk_errors(source, target, "repeat the command"), _shared_lock(source):
        manifest, newest = manifest_of(source)
        end = _end_of(source, manifest, newest, options)
        snapshot = _snapshot_of(manifest, end, options)
        state = RestoredState(source / STATE_DIRECTORY, snapshot, staging, end, disk, is_verified=options.is_verified)
        with _locked_staging(target, disk):
            copier = _copy_log(source, staging, manifest, end.offset, options, disk, progress)
            disk.make_directory(str(staging / CONFIG_DIRECTORY))
            state.write()
            timers = RestoredTimers(source, staging, manifest, state, end, disk, is_verified=options.is_verified)
            missing = _missing_state(manifest, snapshot, end) + timers.restore(
                options.timer_precision_ms, options.timer_slots
            )
            done = rebuild(
                staging,
                options.sizes,
                delay_levels=options.delay_levels,
                now_ms=now_ms(),
                disk=disk,
                progress=progress,
            )
            fill_queues(staging, state.queue_ends, options.sizes.consume_queue, disk)
            cut = state.cut_offsets()
            timers.write_check()
            disk.sync_directory(str(staging / CONFIG_DIRECTORY))
            missing += state.missing()
            disk.write_file(str(staging / CHECKPOINT_FILE), Checkpoint(end.store_time, end.store_time).encode())
            _move(staging, target, disk)
    return Restored(
        log_start=manifest.log_start,
        log_end=end.offset,
        last_store_time=end.store_time,
        snapshot_end=snapshot.log_end if snapshot is not None else None,
        snapshot_taken_at=snapshot.taken_at if snapshot is not None else None,
        records=done.records,
        queues=done.queues,
        index_files=done.index_files,
        copied_bytes=copier.copied,
        shared_bytes=copier.shared,
        seconds=time.monotonic() - begun_s,
        missing=missing,
        cut=cut,
        damage=done.damage,
    )


def manifest_of(source: Path) -> tuple[Manifest, Snapshot]:
    """Return the manifest of a complete backup and its newest snapshot. Raises BackupError."""
    manifest = load_manifest(source)
    if manifest is None:
        raise BackupError(f"{source} is not a backup: it has no {MANIFEST_FILE}")
    if manifest.newest is None:
        raise BackupError(f"the backup {source} was interrupted before it was complete: repeat mqbroker store backup")
    return manifest, manifest.newest


def _check_empty(target: Path) -> None:
    """Raise BackupError unless `target` is missing, empty, or has only what an interrupted restore left."""
    if not target.exists():
        return
    if not target.is_dir():
        raise BackupError(f"{target} is not a directory: give an empty one")
    staging = target / RESTORING_DIRECTORY
    others = sorted(name for name in os.listdir(target) if name != RESTORING_DIRECTORY or staging.is_symlink())
    if others and staging.is_dir() and not staging.is_symlink():
        problem = f"{target} has a part of an interrupted restore (it contains {RESTORING_DIRECTORY} and {others[0]})"
        raise BackupError(f"{problem}: empty it and repeat")
    if others:
        raise BackupError(f"{target} is not empty (it contains {others[0]}): give an empty directory")


@contextmanager
def _shared_lock(source: Path) -> Iterator[None]:
    """Keep backups from changing `source`. Raises BackupError if one is running. A backup may lack the lock file."""
    try:
        fd = open_untrusted(source / BACKUP_LOCK_FILE)
    except FileNotFoundError:
        yield
        return
    with locked(fd, SHARED, f"a backup is writing to {source}: wait until it has ended"):
        yield


@contextmanager
def _locked_staging(target: Path, disk: Disk) -> Iterator[None]:
    """Make <to>/restoring/, empty except for its lock, and hold that lock. Raises BackupError if another restore has
    it, or if a broker has begun to use the directory meanwhile."""
    staging = target / RESTORING_DIRECTORY
    disk.make_directory(str(staging))
    running = RunningFiles(staging, disk)
    try:
        running.lock()
    except StoreLockedError as problem:
        raise BackupError(f"another restore is writing to {target}: wait until it has ended") from problem
    try:
        for entry in list(os.scandir(staging)):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.name != LOCK_FILE:
                os.unlink(entry.path)
        if (target / LOCK_FILE).exists():
            shutil.rmtree(staging)
            raise BackupError(f"a broker has been started on {target}: give an empty directory")
        yield
    finally:
        running.unlock()


def _end_of(source: Path, manifest: Manifest, newest: Snapshot, options: RestoreOptions) -> LogEnd:
    if options.until_ms is not None:
        return end_of_time(source, manifest, newest, options.until_ms)
    if options.until_offset is not None:
        return end_of_offset(source, manifest, newest, options.until_offset)
    return LogEnd(newest.log_end, newest.last_store_time)


def _snapshot_of(manifest: Manifest, end: LogEnd, options: RestoreOptions) -> Snapshot | None:
    """Return the newest snapshot that is not later than the end; with `uses_later_state` the oldest, if all are."""
    for snapshot in reversed(manifest.snapshots):
        is_later = options.until_ms is not None and snapshot.taken_at > options.until_ms
        if snapshot.log_end <= end.offset and not is_later:
            return snapshot
    return manifest.snapshots[0] if options.uses_later_state else None


def _missing_state(manifest: Manifest, snapshot: Snapshot | None, end: LogEnd) -> list[str]:
    if snapshot is None:
        oldest = time_text(manifest.snapshots[0].taken_at)
        return [
            f"topics, groups, committed offsets, accounts: the oldest state, {oldest}, is later; --later-state uses it",
            "the progress of delayed and timer messages: those in the log are delivered again",
        ]
    if snapshot.log_end > end.offset:
        return [
            f"nothing, but topics, groups and accounts are as of {time_text(snapshot.taken_at)}, later than the log"
        ]
    if snapshot.log_end < end.offset:
        what = f"changes of topics, groups, committed offsets and accounts after {time_text(snapshot.taken_at)}"
        return [f"{what}: the last {end.offset - snapshot.log_end} bytes of the log are newer than this state"]
    return []


def _copy_log(
    source: Path,
    staging: Path,
    manifest: Manifest,
    end: int,
    options: RestoreOptions,
    disk: Disk,
    progress: OnProgress,
) -> Copier:
    """Copy the log up to byte `end`; the last segment is cut there and has zeros up to its full size."""
    copied = [segment for segment in manifest.log if segment.start < end]
    total = end - manifest.log_start
    done = 0

    def show(count: int) -> None:
        nonlocal done
        done += count
        progress(Progress("copy", done, total))

    copier = Copier(disk, options.bytes_per_s, show)
    disk.make_directory(str(staging / COMMIT_LOG_DIRECTORY))
    expected = manifest.log_start
    for segment in copied:
        name = offset_file_name(segment.start)
        path = source / LOG_ROOT / COMMIT_LOG_DIRECTORY / name
        length = min(end - segment.start, manifest.segment_size)
        if segment.start != expected or segment.length < length:
            raise BackupError(f"bytes of the log before {path} are missing: repeat the backup, or restore with --until")
        expected = segment.start + manifest.segment_size
        fd = disk.make_new(str(staging / COMMIT_LOG_DIRECTORY / name))
        try:
            crc = _copy_segment(path, fd, length, manifest.segment_size, copier, disk)
        finally:
            os.close(fd)
        if options.is_verified:
            check_checksum(path, segment, length, crc)
    if copied and expected < end:
        raise BackupError(f"bytes of the log before {end} are missing: repeat the backup, or restore with --until")
    disk.sync_directory(str(staging / COMMIT_LOG_DIRECTORY))
    return copier


def _copy_segment(path: Path, fd: int, length: int, size: int, copier: Copier, disk: Disk) -> int:
    """Copy the first `length` bytes of a segment; the file gets its full size. Return their checksum."""
    with opened(path, length) as source:
        if copier.share(source, fd, length):
            crc = checksum(fd, 0, length)
        else:
            crc = copier.copy(source, fd, 0, length)
    disk.resize(fd, length)
    disk.reserve(fd, size)
    disk.fsync(fd)
    return crc


def _move(staging: Path, target: Path, disk: Disk) -> None:
    """Give everything its final name, the log last. No broker starts before <to>/restoring/ is removed, and it is
    removed when all names are on disk."""
    names = sorted(set(os.listdir(staging)) - {LOCK_FILE}, key=lambda name: name == COMMIT_LOG_DIRECTORY)
    for name in names:
        disk.rename(str(staging / name), str(target / name))
    disk.sync_directory(str(target))
    disk.unlink(str(staging / LOCK_FILE))
    disk.remove_directory(str(staging))
    disk.sync_directory(str(target))
