"""Find where the units of a range of the log begin in a queue. Physical offsets grow along a queue, except in filler
units.

Filler units occupy the queue offsets before a queue's first message, and the offsets of lost messages. They have no
record: a filler unit at the front never matches, one within a gap is judged by the next real unit. Source:
docs/reference/disk.md, "ConsumeQueue", "Traps".
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT, UNIT_SIZE

UNIT_DTYPE: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_AT_ONCE: Final = 4_096  # number of units per read while skipping filler units

Read: TypeAlias = Callable[[int, int], bytes | bytearray]
"""`(offset, count)`: return up to `count` units from that queue offset on; nothing where there is no file."""


def first_at_or_after(read: Read, low: int, end: int, physical_offset: int) -> int:
    """Return the first unit in [low, end) whose record begins at or after log offset `physical_offset`; `end` if
    none."""
    high = end
    if low < end and _begins_at_or_after(read(low, 1), physical_offset):
        return low  # the common case
    while low < high:
        middle = (low + high) // 2
        at = first_with_record(read, middle, high)
        if at < high and not _begins_at_or_after(read(at, 1), physical_offset):
            low = at + 1
        else:
            high = middle
    return first_with_record(read, low, end)


def _begins_at_or_after(data: bytes | bytearray, physical_offset: int) -> bool:
    """Return whether this unit has a record that begins at or after log offset `physical_offset`."""
    if len(data) < UNIT_SIZE:
        return False
    begin, size, _ = UNIT.unpack(data)
    return bool(begin >= physical_offset and size != FILLER_RECORD_SIZE)


def first_with_record(read: Read, offset: int, end: int) -> int:
    """Return the first unit in [offset, end) that is not a filler, or `end`."""
    count = 1
    while offset < end:
        data = read(offset, min(count, end - offset))
        sizes = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)["size"]
        if not len(sizes):
            return offset  # no unit here: the caller detects that
        others = np.flatnonzero(sizes != FILLER_RECORD_SIZE)
        if len(others):
            return offset + int(others[0])
        offset += len(sizes)
        count = _AT_ONCE
    return end
