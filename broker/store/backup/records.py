"""A walk over the records of a segment that checks each of them: size, position and body CRC.

Runs of records in the common layout are checked at once. `parse` decides about all others.

Source: docs/reference/disk.md, "CommitLog record", "Checking one record".
"""

import msgspec

from skylarkmq.broker.store.log.common_records import RUN_BYTES, end_of_run
from skylarkmq.protocol.record import Blank, Damaged, Parsed, Record, UnreadableTopic, parse


class Walked(msgspec.Struct, frozen=True):
    """Whole records end at byte `end` of the segment; the last one was stored at `store_time`, in ms (0: none).

    `following`: what is at `end`.
    """

    end: int
    store_time: int
    following: Parsed


def walk(view: memoryview, at: int, start: int) -> Walked:
    """Check records from byte `at` of `view` on, which begins at byte `start` of the log."""
    store_time = 0
    alone_until = at
    while True:
        if at >= alone_until:
            end, last_time = end_of_run(view, at, start)
            if end > at:
                at, store_time = end, last_time
                continue
            alone_until = at + RUN_BYTES  # one attempt for these bytes is enough
        found = parse(view, at)
        record = found.record if isinstance(found, UnreadableTopic) else found
        if not isinstance(record, Record):
            return Walked(at, store_time, found)
        if record.physical_offset != start + at:
            return Walked(at, store_time, Damaged(f"a record that states the offset {record.physical_offset}"))
        at += record.size
        store_time = record.store_timestamp


def is_blank(found: Parsed, remaining: int) -> bool:
    """Return whether this is the blank that closes a segment with `remaining` bytes left."""
    return isinstance(found, Blank) and found.size == remaining
