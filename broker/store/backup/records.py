"""A walk over the records of a segment that checks each of them: size, position and body CRC.

Almost all records are V1 with IPv4 hosts; for these only the fields that the check needs are read, which takes half the
time of a full parse. `parse` decides about all others.

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
    MAX_V1_TOPIC_BYTES,
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
            topic_at = body_at + body_size
            end = at + size
            if (
                magic == MAGIC_V1
                and position == start + at
                and not flags & HOST_FLAGS
                and 0 <= body_size <= size - SMALLEST_RECORD
                and end <= len(view)
                and _fits(view, topic_at, end)
                and (not body_size or crc32(view[body_at:topic_at]) & CRC_MASK == crc)
            ):
                at = end
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


def _fits(view: memoryview, topic_at: int, end: int) -> bool:
    """Return whether the topic and the properties, with their lengths, fill the bytes from `topic_at` to `end`."""
    topic_size = view[topic_at]
    properties_at = topic_at + topic_size + 3
    if topic_size > MAX_V1_TOPIC_BYTES or properties_at > end:
        return False
    return view[properties_at - 2] << 8 | view[properties_at - 1] == end - properties_at


def is_blank(found: Parsed, remaining: int) -> bool:
    """Return whether this is the blank that closes a segment with `remaining` bytes left."""
    return isinstance(found, Blank) and found.size == remaining
