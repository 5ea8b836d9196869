"""Which ranges of a log are to be archived: those that are old enough, on disk, and not in the manifest.

A segment is archived as a whole once its newest message is old enough. The first message of the next segment, which
arrived later, stands for it: so the segment to which the broker appends never counts, and the next one need not be
read. With `include_last` the last segment is archived too, up to the first message that is too young; the rest follows
in a later run. That serves stopped brokers and backups.

Of a store that was not closed (a broker runs on it, it crashed, or it was copied while a broker ran) only messages that
are surely on disk count: those stored 3 s or more before the time in the checkpoint.

Source: docs/use/spark/archive.md, docs/reference/disk.md "Checkpoint", "Recovery".
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from skylarkmq.clients.arrow.record_layout import STORE_TIMESTAMP_AT, V6_LONGER
from skylarkmq.clients.arrow.store.errors import StoreUnreadable
from skylarkmq.clients.arrow.store.extent import Extent, checkpoint_of, extent_of
from skylarkmq.clients.arrow.store.log import Log, Segment
from skylarkmq.clients.arrow.store.queues import StoredQueues
from skylarkmq.clients.spark.archive.directory import ArchiveError, Entry
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.record import MAGIC_V1, MAGIC_V2, SYS_FLAG_AT, Record

_MARGIN_MS: Final = 3_000
_MAGIC_AT: Final = 4
_MAGICS: Final = frozenset(magic & 0xFFFF_FFFF for magic in (MAGIC_V1, MAGIC_V2))
_HEAD_BYTES: Final = 76


class DueRange(msgspec.Struct, frozen=True):
    """A range of the log within one segment. Records stored at `limit_ms` or later do not belong to it."""

    begin: int
    end: int
    is_whole: bool
    limit_ms: int | None


class ExaminedStore:
    """A store directory, examined once. Raises StoreUnreadable with the remedy."""

    def __init__(self, path: Path, log_directories: Sequence[Path], *, force_gap: bool, may_have_batches: bool) -> None:
        self._root = path
        self.log = Log.at(log_directories, force_gap=force_gap)
        queues = StoredQueues(path)
        if queues.batch_topics and not may_have_batches:
            what = f"topic {min(queues.batch_topics)} has batch queues (queue.type=BatchCQ), which cannot be archived"
            raise StoreUnreadable(f"{what} as single messages: --everything archives their records, one row each")
        self.extent: Extent = extent_of(path, self.log, queues)

    def due(self, entries: Sequence[Entry], limit_ms: int, *, include_last: bool) -> list[DueRange]:
        """Return what is to be archived, in the order of the log: messages stored before `limit_ms` (Unix ms)."""
        if self.extent.crashed:
            limit_ms = min(limit_ms, checkpoint_of(self._root).physic_timestamp - _MARGIN_MS)
        ends = _ends(entries)
        found = []
        later_ms = 0  # store time of the first message after the segment; 0 if no message follows
        for segment in reversed(self.log.segments):
            begin, end = _unarchived(segment, ends), min(segment.end, self.extent.end)
            first_ms = self._time_at(segment.start)
            if begin < segment.end and 0 < later_ms < limit_ms:
                found.append(DueRange(begin, segment.end, True, None))
            elif include_last and first_ms and not later_ms and begin < end:
                found.append(DueRange(begin, end, False, limit_ms))
            later_ms = first_ms or later_ms
        return found[::-1]

    def missed(self, entries: Sequence[Entry]) -> list[tuple[int, int]]:
        """Return the ranges after the first archived byte that were deleted from the log before they were archived."""
        found = []
        at = entries[0].begin if entries else self.log.start
        for begin, end in [*((entry.begin, entry.end) for entry in entries), (self.log.start, self.log.start)]:
            if at < begin <= self.log.start:
                found.append((at, begin))
            at = max(at, end)
        return found

    def mark(self, entries: Sequence[Entry]) -> int:
        """Return the low-water mark: everything in the log below it is archived."""
        ends = _ends(entries)
        for segment in self.log.segments:
            begin = _unarchived(segment, ends)
            if begin < segment.end:
                return begin
        return self.log.end

    def check_identity(self, entries: Sequence[Entry], archive: str) -> None:
        """Raise ArchiveError if the archive belongs to another store, or to a later state of this one."""
        if not entries:
            return
        last = entries[-1]
        advice = f"set --broker-name to another name, or archive it to a directory other than {archive}"
        if last.end > max(self.extent.end, self.log.start):
            what = f"the archive has messages up to byte {last.end}, the log ends at byte {self.extent.end}"
            raise ArchiveError(f"{what}: this is another store, or an older copy; {advice}")
        for entry in reversed(entries):
            found = self.log.parse(entry.begin) if self.log.find(entry.begin) is not None else None
            if isinstance(found, Record) and entry.first_stored_ms:
                if found.store_timestamp != entry.first_stored_ms:
                    what = f"the message at byte {entry.begin} of the log is not the archived one"
                    raise ArchiveError(f"{what}: this is another store; {advice}")
                return

    def _time_at(self, offset: int) -> int:
        """Return the store time of the record at this offset, whose body may be damaged; 0 without a record."""
        head = bytearray(_HEAD_BYTES)
        if self.log.read(offset, memoryview(head)) < len(head):
            return 0
        magic, sys_flag = (int.from_bytes(head[at : at + 4], "big") for at in (_MAGIC_AT, SYS_FLAG_AT))
        at = STORE_TIMESTAMP_AT + (V6_LONGER if sys_flag & SysFlag.BORN_HOST_V6 else 0)
        return int.from_bytes(head[at : at + 8], "big", signed=True) if magic in _MAGICS else 0

    def __repr__(self) -> str:
        return f"<ExaminedStore {self._root} {self.log!r}>"


def _ends(entries: Sequence[Entry]) -> dict[int, int]:
    return {entry.begin: entry.end for entry in entries}


def _unarchived(segment: Segment, ends: Mapping[int, int]) -> int:
    """Return the first byte of a segment that is not archived; its end if all are.

    A range begins at the start of a segment, or where another one ends.
    """
    at = segment.start
    while at < segment.end and at in ends:
        at = ends[at]
    return at
