"""The valid range of a store's log, and the position from which its queues may be incomplete.

A broker that starts on the store recovers it first, and consumers see the result. This module applies the same rules,
and changes nothing:

    clean stop   the records after the newest queue unit are checked; before that, queues are complete
    crash        (the file `abort` exists; also while a broker runs) everything is checked from the last segment on
                 whose first message is at least 3 s older than the checkpoint; queue units of that range are ignored,
                 because a broker would rebuild them

A check covers magic, lengths, the body's checksum, and that the record's physical offset equals its position. The first
record that fails ends the log. A copy of the log without its queues is checked from its last segment on.

Source: docs/reference/disk.md, "Recovery", "Checkpoint", "abort and lock", "Deleted topics".
"""

import logging
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.clients.arrow.store.log import WINDOW_BYTES, Log, Segment, Window
from skylarkmq.clients.arrow.store.queues import StoredQueue, StoredQueues
from skylarkmq.clients.arrow.store.record_checks import count_valid
from skylarkmq.protocol.disk import ABORT_FILE, CHECKPOINT_FILE, CONFIG_DIRECTORY, Checkpoint
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

DELETED_TOPICS_FILE: Final = f"{CONFIG_DIRECTORY}/deletedTopics.json"
_MARGIN_MS: Final = 3_000


class Extent(msgspec.Struct, frozen=True):
    """Bytes of the log.

    `begin`, `end`: the valid range. `loose`: from there on, records count without a queue unit. `deleted`: records of
    a deleted topic before this offset do not count. `crashed`: the broker did not stop cleanly, or is running.
    """

    begin: int
    end: int
    loose: int
    deleted: dict[str, int]
    crashed: bool


def extent_of(root: Path, log_files: Log, queues: StoredQueues) -> Extent:
    """Return the extent that a broker would find if it started now."""
    crashed = (root / ABORT_FILE).exists()
    if crashed:
        first_checked = _crash_start(log_files, checkpoint_of(root))
        loose = first_checked if queues.exist else log_files.start
    elif queues.exist:
        newest = max(queues.all(), key=lambda queue: queue.records_end, default=None)
        loose = newest.records_end if newest is not None else 0
        first_checked = _clean_start(log_files, newest)
    else:
        loose, first_checked = log_files.start, _last_begun(log_files)
    end = min(valid_end(log_files, first_checked), log_files.end)
    log.info("store examined path=%s crashed=%s checked_from=%d end=%d", root, crashed, first_checked, end)
    return Extent(log_files.start, end, max(min(loose, end), log_files.start), _deleted_topics(root), crashed)


def checkpoint_of(root: Path) -> Checkpoint:
    """Return the checkpoint of the file; zeros if the file is missing."""
    path = root / CHECKPOINT_FILE
    return Checkpoint.decode(path.read_bytes()) if path.exists() else Checkpoint()


def valid_end(log_files: Log, begin: int) -> int:
    """Return the end of the consecutive valid records from `begin` on, across segments."""
    buffer = bytearray(WINDOW_BYTES)
    at = end = begin
    segment = log_files.find(begin)
    while segment is not None:
        for window in log_files.windows(at, segment.end, buffer):
            count = count_valid(window.view, window.starts, window.base)
            if count:
                at = end = window.base + _end_of(window, count - 1)
            if count < len(window.starts):
                return end
        if at < segment.end and not log_files.is_closed_at(at):
            return end
        following = log_files.next_segment(segment)
        at = following.start if following is not None else segment.end
        segment = following
    return end


def _end_of(window: Window, row: int) -> int:
    start = int(window.starts[row])
    return start + int.from_bytes(window.view[start : start + 4], "big")


def _clean_start(log_files: Log, newest: StoredQueue | None) -> int:
    """Return the position of the newest queue unit's record, if it is valid; else the start of its segment."""
    if newest is None or not newest.records_end:
        return log_files.start
    begin, size = newest.record_position(newest.end - 1)
    found = log_files.parse(begin)
    if isinstance(found, Record) and (found.physical_offset, found.size) == (begin, size):
        return begin
    segment = log_files.find(begin)
    return segment.start if segment is not None else log_files.start


def _crash_start(log_files: Log, checkpoint: Checkpoint) -> int:
    limit = min(checkpoint.physic_timestamp, checkpoint.logics_timestamp) - _MARGIN_MS
    for segment in reversed(log_files.segments):
        first = log_files.parse(segment.start)
        if isinstance(first, Record) and 0 < first.store_timestamp <= limit:
            return segment.start
    return log_files.start


def _last_begun(log_files: Log) -> int:
    """Return the start of the last segment that contains a record."""
    begun = [segment.start for segment in log_files.segments if _is_begun(log_files, segment)]
    return max(begun, default=log_files.start)


def _is_begun(log_files: Log, segment: Segment) -> bool:
    return isinstance(log_files.parse(segment.start), Record)


def _deleted_topics(root: Path) -> dict[str, int]:
    for name in (DELETED_TOPICS_FILE, f"{DELETED_TOPICS_FILE}.bak"):
        try:
            return msgspec.json.decode((root / name).read_bytes(), type=dict[str, int])
        except FileNotFoundError:
            continue
        except msgspec.DecodeError as problem:
            log.warning("state file is damaged, trying the backup file=%s error=%s", root / name, problem)
    return {}
