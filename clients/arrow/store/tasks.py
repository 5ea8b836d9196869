"""The work of one task: pieces of a store. With Spark, they are planned on the driver and pickled."""

from typing import TypeAlias

import msgspec


class LogRange(msgspec.Struct, frozen=True):
    """The consecutive records that begin in [begin, end), which is within one segment."""

    begin: int
    end: int


class UnitRange(msgspec.Struct, frozen=True):
    """Units [begin, end) of a queue."""

    topic: str
    queue_id: int
    begin: int
    end: int


class UnitRanges(msgspec.Struct, frozen=True):
    """The records of some queues' units, in the order of the log; then single records by their positions."""

    ranges: tuple[UnitRange, ...]
    positions: tuple[int, ...] = ()


class Singles(msgspec.Struct, frozen=True):
    """Positions where selected records may begin; positions without a record are skipped."""

    offsets: tuple[int, ...]


Task: TypeAlias = LogRange | UnitRanges | Singles
