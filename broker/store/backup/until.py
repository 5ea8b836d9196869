"""Finds where the log of a restore ends: after the last record that was stored by a time, or that ends by an offset.

Store times grow along the log. Where a clock was set back, the end is in the last segment whose first record is not
later than the time: after the last record in it that is not later. Damaged records are passed over.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from skylarkmq.broker.store.backup.errors import BackupError
from skylarkmq.broker.store.backup.manifest import LOG_ROOT, Manifest, Snapshot
from skylarkmq.broker.store.backup.source import LogEnd
from skylarkmq.broker.store.fsck.findings import Findings, no_progress
from skylarkmq.broker.store.fsck.log import LogCheck
from skylarkmq.protocol.record import Record

_OFFSET: Final = re.compile(r"[0-9]{1,19}")
_EXPECTED: Final = "a time such as 2026-03-01T12:30:00 (local, or with a zone such as +01:00), or a byte of the log"


def parse_until(text: str) -> tuple[int | None, int | None]:
    """Return `(Unix ms, None)` for a time, `(None, byte of the log)` for digits. Raises ValueError."""
    if _OFFSET.fullmatch(text):
        return None, int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000), None
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not {_EXPECTED}") from None


def time_text(unix_ms: int) -> str:
    """Return a time for operators: local, in seconds and milliseconds, with its zone; digits outside of years 1 to
    9999."""
    try:
        return datetime.fromtimestamp(unix_ms / 1000).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{unix_ms} ms"


def end_of_offset(source: Path, manifest: Manifest, newest: Snapshot, offset: int) -> LogEnd:
    """Return the end of the last record that ends by byte `offset`. Raises BackupError if the backup has none."""
    if offset >= newest.log_end:
        if offset > newest.log_end:
            raise BackupError(
                f"--until: the backup ends at byte {newest.log_end}, before {offset}: choose an earlier one"
            )
        return LogEnd(newest.log_end, newest.last_store_time)
    for segment in reversed(manifest.log):
        if segment.start >= offset:
            continue
        end = None
        for record in _records(source, manifest, segment.start):
            if record.physical_offset + record.size > offset:
                break
            end = LogEnd(record.physical_offset + record.size, record.store_timestamp)
        if end is not None:
            return end
    raise BackupError(f"--until: the backup has no record before byte {offset}, it begins at byte {manifest.log_start}")


def end_of_time(source: Path, manifest: Manifest, newest: Snapshot, until_ms: int) -> LogEnd:
    """Return the end of the last record that was stored by a time. Raises BackupError if the backup has none."""
    for segment in reversed(manifest.log):
        end = None
        for record in _records(source, manifest, segment.start):
            record_end = record.physical_offset + record.size
            if record_end > newest.log_end or record.physical_offset >= segment.start + manifest.segment_size:
                break
            if record.store_timestamp <= until_ms:
                end = LogEnd(record_end, record.store_timestamp)
            elif end is None:
                break  # even its first record is later
        if end is not None:
            return end
    first = next(_records(source, manifest, manifest.log_start), None) if manifest.log else None
    begins = f"its first record was stored at {time_text(first.store_timestamp)}" if first else "it has no records"
    raise BackupError(f"--until: the backup has no record by {time_text(until_ms)}, {begins}")


def _records(source: Path, manifest: Manifest, begin: int) -> Iterator[Record]:
    """Yield the valid records of the backup from byte `begin` of the log on."""
    check = LogCheck(source / LOG_ROOT, manifest.segment_size, Findings(), crashed=True, progress=no_progress)
    for batch in check.records(begin):
        yield from batch
