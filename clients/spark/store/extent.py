"""How far a store's log counts, and from where on its queues may lack something.

A broker that starts on the store would look at it first, and consumers would see what that leaves. So this looks in the
same way, and changes nothing:

    stopped cleanly   what lies behind the newest queue unit is checked; before that, queues are complete
    crashed           (the file `abort` is there: or a broker runs) everything from the last segment on whose first
                      message is older, by 3 s, than what the checkpoint vouches for; what queues have of that is not
                      looked at, for the broker would make it again

Checked means: magic, lengths, the body's checksum, and that a record stands where it says it stands. The first that is
not one ends the log. A copy of the log without its queues is checked from its last segment on.

Source: docs/formats.md, "Recovery", "Checkpoint", "abort and lock", "Deleted topics".
"""

import logging
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.clients.spark.store.log import WINDOW_BYTES, Log, Segment, Window
from skylarkmq.clients.spark.store.queues import StoredQueue, StoredQueues
from skylarkmq.clients.spark.store.soundness import count_sound
from skylarkmq.protocol.disk import ABORT_FILE, CHECKPOINT_FILE, CONFIG_DIRECTORY, Checkpoint
from skylarkmq.protocol.record import Record

log = logging.getLogger(__name__)

DELETED_TOPICS_FILE: Final = f"{CONFIG_DIRECTORY}/deletedTopics.json"
_MARGIN_MS: Final = 3_000


class Extent(msgspec.Struct, frozen=True):
    """Bytes of the log.

    `begin`, `end`: what counts of it. `loose`: records from there on count without a unit of a queue. `deleted`: of
    these topics, records before that byte do not count. `crashed`: nobody stopped the broker, or it runs.
    """

    begin: int
    end: int
    loose: int
    deleted: dict[str, int]
    crashed: bool


def extent_of(root: Path, log_files: Log, queues: StoredQueues) -> Extent:
    """What a broker would find that starts now."""
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
    end = min(sound_end(log_files, first_checked), log_files.end)
    log.info("store looked at path=%s crashed=%s checked_from=%d end=%d", root, crashed, first_checked, end)
    return Extent(log_files.start, end, max(min(loose, end), log_files.start), _deleted_topics(root), crashed)


def checkpoint_of(root: Path) -> Checkpoint:
    """What the file says; zeros where there is none."""
    path = root / CHECKPOINT_FILE
    return Checkpoint.decode(path.read_bytes()) if path.exists() else Checkpoint()


def sound_end(log_files: Log, begin: int) -> int:
    """Where the records end that are sound one behind the other from `begin` on, over the ends of segments."""
    buffer = bytearray(WINDOW_BYTES)
    at = end = begin
    segment = log_files.find(begin)
    while segment is not None:
        for window in log_files.windows(at, segment.end, buffer):
            count = count_sound(window.view, window.starts, window.base)
            if count:
                at = end = window.base + _end_of(window, count - 1)
            if count < len(window.starts):
                return end
        if at < segment.end and not log_files.is_closed_at(at):
            return end
        following = log_files.behind(segment)
        at = following.start if following is not None else segment.end
        segment = following
    return end


def _end_of(window: Window, row: int) -> int:
    start = int(window.starts[row])
    return start + int.from_bytes(window.view[start : start + 4], "big")


def _clean_start(log_files: Log, newest: StoredQueue | None) -> int:
    """The record of the newest queue unit, if it is sound; else the segment it ought to be in."""
    if newest is None or not newest.records_end:
        return log_files.start
    begin, size = newest.place(newest.end - 1)
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
    """The last segment that holds anything."""
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
            log.warning("state file is damaged, trying the one before file=%s error=%s", root / name, problem)
    return {}
