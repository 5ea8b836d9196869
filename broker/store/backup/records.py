"""A walk over the records of a segment that checks each of them: size, position and body CRC.

Almost all records are V1 with IPv4 hosts; for these the six fields that matter are read at once, which takes a third of
the time of a full parse. `parse` decides about all others.

Source: docs/formats.md, "CommitLog record", "Checking one record".
"""

from struct import Struct
from typing import Final

import msgspec
from isal.isal_zlib import crc32

from skylarkmq.protocol.record import (
    CRC_MASK,
    HOST_FLAGS,
    MAGIC_V1,
    SMALLEST_RECORD,
    Blank,
    Damaged,
    Parsed,
    Record,
    UnreadableTopic,
    parse,
)

_FIELDS: Final = Struct(">iii16xqi16xq20xi").unpack_from
_BODY_AT: Final = 88


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
    limit = len(view) - SMALLEST_RECORD
    while True:
        if at <= limit:
            size, magic, crc, position, flags, stored, body_size = _FIELDS(view, at)
            body_at = at + _BODY_AT
            if (
                magic == MAGIC_V1
                and position == start + at
                and not flags & HOST_FLAGS
                and 0 <= body_size <= size - SMALLEST_RECORD
                and at + size <= len(view)
                and (not body_size or crc32(view[body_at : body_at + body_size]) & CRC_MASK == crc)
            ):
                at += size
                store_time = stored
                continue
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
