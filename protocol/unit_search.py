"""Where in a queue the units of a log's range begin. Physical offsets grow along a queue, but for units of nobody.

Those fill the place in front of a queue's first message, and that of messages that are lost. They have no record: one
in front never counts, one in a hole is judged by the next real unit. Source: docs/formats.md, "ConsumeQueue", "Traps".
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from skylarkmq.protocol.disk import FILLER_RECORD_SIZE, UNIT, UNIT_SIZE

UNIT_DTYPE: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_AT_ONCE: Final = 4_096  # units of nobody that one read looks at

Read: TypeAlias = Callable[[int, int], bytes | bytearray]
"""`(offset, count)`: up to that many units from that queue offset on; nothing where no file is."""


def first_at_or_behind(read: Read, low: int, end: int, physical_offset: int) -> int:
    """The first unit in [low, end) whose record begins at or behind that byte of the log; `end` if none does."""
    high = end
    if low < end and _is_behind(read(low, 1), physical_offset):
        return low  # the usual case
    while low < high:
        middle = (low + high) // 2
        at = first_of_somebody(read, middle, high)
        if at < high and not _is_behind(read(at, 1), physical_offset):
            low = at + 1
        else:
            high = middle
    return first_of_somebody(read, low, end)


def _is_behind(data: bytes | bytearray, physical_offset: int) -> bool:
    """Whether this unit has a record, and one that begins at or behind that byte."""
    if len(data) < UNIT_SIZE:
        return False
    begin, size, _ = UNIT.unpack(data)
    return bool(begin >= physical_offset and size != FILLER_RECORD_SIZE)


def first_of_somebody(read: Read, offset: int, end: int) -> int:
    """The first unit in [offset, end) that is not one of nobody; `end` if there is none."""
    count = 1
    while offset < end:
        data = read(offset, min(count, end - offset))
        sizes = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)["size"]
        if not len(sizes):
            return offset  # no unit at all: whoever asked sees that
        others = np.flatnonzero(sizes != FILLER_RECORD_SIZE)
        if len(others):
            return offset + int(others[0])
        offset += len(sizes)
        count = _AT_ONCE
    return end
