"""The manifest of a backup, `backup.json`: which bytes the backup contains, and the state snapshots beside them.

    DIR/backup.json                          this file, replaced as a whole
    DIR/lock                                 locked while a backup is taken
    DIR/log/commitlog/<20 digits>            segments, of full size; bytes that are not copied yet are holes
    DIR/log/timerlog/<20 digits>             files of the timer log
    DIR/state/<log end>-<Unix ms>/           one snapshot: copies of files from config/, and queues.json

A segment counts up to `length` bytes. The file may contain more, from a backup that was interrupted; a later run
overwrites these bytes. A snapshot counts if the manifest lists it, which happens after its files and all bytes of the
log before its `log_end` are on disk. So a backup is complete up to its newest snapshot at any time.

The directory may come from another machine, so its content is untrusted. Numbers have limits. Names are single
components of a path: a restore writes files of these names.

Source: docs/reference/disk.md, "Backups".
"""

import os
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.files.disk import TEMPORARY_SUFFIX, Disk, read_untrusted
from skylarkmq.broker.store.fsck.sizes import Sizes
from skylarkmq.protocol.disk import UNIT_SIZE, IndexLayout

MANIFEST_FILE: Final = "backup.json"
LOG_ROOT: Final = "log"
STATE_DIRECTORY: Final = "state"
QUEUES_FILE: Final = "queues.json"
VERSION: Final = 1
LARGEST_STATE: Final = 1 << 30
"""Maximum size of the manifest, and of all files of a snapshot together, in bytes."""

Position: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""A byte of the log or of the timer log, a size in bytes, or a time in Unix ms."""
StoreTime: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
SegmentSize: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
QueueSegmentSize: TypeAlias = Annotated[int, msgspec.Meta(ge=UNIT_SIZE, le=1 << 40)]

Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"\A(?!\.{1,2}\Z)[^/\x00]+\Z")]
"""The name of a file in a directory."""


class CopiedSegment(msgspec.Struct, rename="camel"):
    """A file of the log or of the timer log. The first `length` bytes are copied, the first `verified` of them were
    read back. `crc32` covers the verified bytes."""

    start: Position
    length: Position = 0
    verified: Position = 0
    crc32: int = 0


class Snapshot(msgspec.Struct, frozen=True, rename="camel"):
    """State files, read at `taken_at` (Unix ms), before the end of the log was determined to be `log_end`.

    `last_store_time`: store time of the last record before `log_end`, in ms. `timer_end`: the end of the timer log in
    `timercheck`; 0 if the backup does not have this timer log. `files`: CRC-32 of each file in `directory`, by name.
    """

    directory: Name
    taken_at: Position
    log_start: Position
    log_end: Position
    last_store_time: StoreTime
    timer_end: Position
    files: dict[Name, int]


class Manifest(msgspec.Struct, rename="camel", kw_only=True):
    """The content of `backup.json`. Sizes in bytes, except index slots and items."""

    version: int = VERSION
    segment_size: SegmentSize
    queue_segment_size: QueueSegmentSize
    index_slots: Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
    index_items: Annotated[int, msgspec.Meta(ge=2, le=(1 << 31) - 1)]
    timer_segment_size: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)] = 0
    log: list[CopiedSegment] = []
    timer_log: list[CopiedSegment] = []
    snapshots: list[Snapshot] = []

    @classmethod
    def new(cls, sizes: Sizes) -> "Manifest":
        """Return the manifest of a backup without content."""
        return cls(
            segment_size=sizes.commit_log,
            queue_segment_size=sizes.consume_queue,
            index_slots=sizes.index.slots,
            index_items=sizes.index.items,
        )

    @property
    def sizes(self) -> Sizes:
        """The sizes of the store."""
        return Sizes(
            commit_log=self.segment_size,
            consume_queue=self.queue_segment_size,
            index=IndexLayout(self.index_slots, self.index_items),
        )

    @property
    def log_start(self) -> int:
        """The first byte of the log in the backup."""
        return self.log[0].start if self.log else 0

    @property
    def copied_end(self) -> int:
        """The byte of the log up to which all is copied."""
        return self.log[-1].start + self.log[-1].length if self.log else 0

    @property
    def newest(self) -> Snapshot | None:
        """The newest snapshot; the backup is complete up to its `log_end`."""
        return self.snapshots[-1] if self.snapshots else None


def load_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of a backup, or None. Raises BackupError if it is not usable."""
    path = directory / MANIFEST_FILE
    try:
        data = read_untrusted(path, LARGEST_STATE)
    except FileNotFoundError:
        return None
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (ValueError, RecursionError) as problem:
        raise BackupError(f"{path} is damaged ({problem}): use another backup") from None
    if manifest.version != VERSION:
        raise BackupError(
            f"{path} has version {manifest.version}, this program reads {VERSION}: use a newer version of the program"
        )
    return manifest


def save_manifest(directory: Path, manifest: Manifest, disk: Disk) -> None:
    """Replace the manifest as a whole, durably."""
    path = str(directory / MANIFEST_FILE)
    disk.write_file(path + TEMPORARY_SUFFIX, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    disk.rename(path + TEMPORARY_SUFFIX, path)
    disk.sync_directory(os.path.dirname(path))
