"""What one Spark task reads: pieces of a store that were planned on the driver. They are pickled."""

from typing import TypeAlias

import msgspec


class LogRange(msgspec.Struct, frozen=True):
    """The records that begin in [begin, end), one behind the other; the range lies in one segment."""

    begin: int
    end: int


class UnitRange(msgspec.Struct, frozen=True):
    """Units [begin, end) of a queue."""

    topic: str
    queue_id: int
    begin: int
    end: int


class UnitRanges(msgspec.Struct, frozen=True):
    """The records of some queues' units, in the order of the log; then single records, by where they begin."""

    ranges: tuple[UnitRange, ...]
    places: tuple[int, ...] = ()


class Singles(msgspec.Struct, frozen=True):
    """Where records may begin that are wanted; what is none there was none."""

    offsets: tuple[int, ...]


Task: TypeAlias = LogRange | UnitRanges | Singles
