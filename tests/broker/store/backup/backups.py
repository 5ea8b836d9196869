"""Stores, backups and restores for the tests of this package."""

from pathlib import Path
from random import Random
from typing import Any, Final

from skylarkmq.broker.store.backup import BackedUp, BackupOptions, Restored, RestoreOptions, backup, restore
from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from skylarkmq.broker.store.files.disk import Disk
from skylarkmq.broker.store.fsck import Finding, Severity, Sizes, check
from skylarkmq.protocol.disk import IndexLayout, offset_file_name
from tests.harness.stores import (
    INDEX_ITEMS,
    INDEX_SLOTS,
    QUEUE_SEGMENT_BYTES,
    SEGMENT_BYTES,
    Opened,
    message,
)

SIZES: Final = Sizes(
    commit_log=SEGMENT_BYTES, consume_queue=QUEUE_SEGMENT_BYTES, index=IndexLayout(INDEX_SLOTS, INDEX_ITEMS)
)
DELAY_LEVELS: Final = parse_delay_levels(DEFAULT_DELAY_LEVELS)


def put(it: Opened, count: int, *, size: int = 1_000, topic: str = "T", seed: int = 0) -> None:
    """Store messages of random bytes in two queues, one a millisecond, with keys."""
    rng = Random(seed)
    for number in range(count):
        it.clock.now_ms += 1
        properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01u{seed}-{number}\x02".encode()
        it.put(message(rng.randbytes(size), topic, number % 2, properties=properties))


def flush(it: Opened) -> None:
    """Write queue units and everything else that the store holds back."""
    it.store.step(it.clock.now_ms)


def back_up(root: Path, target: Path, disk: Disk | None = None, **options: Any) -> BackedUp:
    """Back up a store with the segment sizes of tests."""
    return backup(root, target, SIZES, BackupOptions(**options), disk=disk)


def restored(source: Path, target: Path, disk: Disk | None = None, **options: Any) -> Restored:
    """Restore a backup of a store with the segment sizes of tests."""
    return restore(source, target, RestoreOptions(sizes=SIZES, delay_levels=DELAY_LEVELS, **options), disk=disk)


def log_bytes(root: Path, end: int, begin: int = 0) -> bytes:
    """Return the bytes [begin, end) of the log of a store, or of the directory `log` of a backup."""
    data = b""
    for start in range(begin // SEGMENT_BYTES * SEGMENT_BYTES, end, SEGMENT_BYTES):
        data += (root / "commitlog" / offset_file_name(start)).read_bytes()
    skipped = begin % SEGMENT_BYTES
    return data[skipped : skipped + end - begin]


def problems(root: Path) -> list[Finding]:
    """Return the findings of the store check, except notes."""
    return [finding for finding in check(root, SIZES) if finding.severity is not Severity.NOTE]


SYNCS: Final = {"fdatasync", "fsync", "sync_directory"}


class Killed(BaseException):
    """The process ends here. It is no Exception, so that no handler catches it."""


class KillingDisk(Disk):
    """Real files that are never synced; the system call number `kill_at` and all later ones raise Killed instead."""

    def __init__(self, kill_at: int = -1) -> None:
        self.calls = 0
        self._kill_at = kill_at

    def _count(self) -> None:
        if 0 <= self._kill_at <= self.calls:
            raise Killed
        self.calls += 1


def _counted(name: str) -> Any:
    real = getattr(Disk, name)

    def call(disk: KillingDisk, *arguments: Any) -> Any:
        disk._count()
        return None if name in SYNCS else real(disk, *arguments)

    return call


for _name in (
    "open",
    "make",
    "make_new",
    "open_or_make",
    "resize",
    "reserve",
    "write_some",
    "clone",
    "copy_range",
    "fdatasync",
    "fsync",
    "rename",
    "unlink",
    "make_one_directory",
    "remove_directory",
    "sync_directory",
):
    setattr(KillingDisk, _name, _counted(_name))
