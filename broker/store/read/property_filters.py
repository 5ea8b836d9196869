"""Choosing messages by their properties: what a tags code in a queue unit cannot tell, and the records have to.

A get with such a test looks at every record that it passes, so it is bounded by the work, not only by the number of
units: it stops when the told costs come to WORK_NS, and the consumer goes on from there. One unit is always decided, so
that it does go on. A record that is not in memory ends a get that has decided something, too; one that has not raises
ColdRead, as every lookup does.

What cannot be read is chosen: whoever delivers it finds out what is the matter. Source: docs/formats.md, "getMessage".
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.read.cold_reads import ColdRead, ColdReads
from skylarkmq.broker.store.read.log_reads import LogReads
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from skylarkmq.protocol.record_fields import properties_of

WORK_NS: Final = 800_000
AT_ONCE: Final = 64
"""Units that are tested before it is known how many of them are wanted."""

_RECORD_NS: Final = 1_500
_COLD_RECORD_NS: Final = 5_000
_COLD_NS_PER_KIB: Final = 150


class PropertyTest(Protocol):
    """A test of property strings, which says what a call may cost."""

    @property
    def matches(self) -> Callable[[bytes | memoryview], bool]:
        """Whether a message with these properties is wanted."""

    @property
    def cost_ns(self) -> int:
        """Of a call."""

    @property
    def cost_ns_per_kib(self) -> int:
        """And for each KiB of properties."""


Matches = Callable[[int], bool]
"""A test of tags codes."""
Wanted = Matches | PropertyTest


class PropertyTests:
    """The tests of one get."""

    __slots__ = ("_has_decided", "_left_ns", "_places", "_test")

    def __init__(self, places: LogReads, test: PropertyTest) -> None:
        self._places = places
        self._test = test
        self._left_ns = WORK_NS
        self._has_decided = False

    def __repr__(self) -> str:
        return f"<PropertyTests left_ns={self._left_ns} of {self._test!r}>"

    @property
    def are_over(self) -> bool:
        """Whether no more units may be tested."""
        return self._left_ns <= 0

    def verdicts(self, units: bytes | bytearray | memoryview) -> list[bool]:
        """Which of the first units are wanted; of as many as may be looked at. ColdRead: of none, as yet."""
        verdicts: list[bool] = []
        matches, cost_ns, per_kib_ns = self._test.matches, self._test.cost_ns + _RECORD_NS, self._test.cost_ns_per_kib
        begin = end = 0
        view = memoryview(b"")
        for physical_offset, size, _ in UNIT.iter_unpack(units):
            if self._left_ns <= 0:
                break
            if not begin <= physical_offset < end:
                begin, end, view = self._places.hot_window(physical_offset)
            if begin <= physical_offset <= end - size:
                at = physical_offset - begin
                properties = properties_of(view[at : at + size])
            else:
                try:
                    properties = self._cold_properties(physical_offset, size)
                except ColdRead:
                    if not self._has_decided:
                        raise
                    self._left_ns = 0
                    break
            self._has_decided = True
            self._left_ns -= cost_ns
            if properties is None:
                verdicts.append(True)
            else:
                self._left_ns -= len(properties) * per_kib_ns >> 10
                verdicts.append(matches(properties))
        return verdicts

    def _cold_properties(self, physical_offset: int, size: int) -> memoryview | None:
        """Of a record that may not be in memory, or not be there."""
        places = self._places
        if not places.may_hold_record(physical_offset, size):
            return None
        self._left_ns -= _COLD_RECORD_NS + (size * _COLD_NS_PER_KIB >> 10)
        record = places.bytes_at(physical_offset, size)
        return None if record is None else properties_of(record)


def as_matches(verdicts: list[bool]) -> Matches:
    """The verdicts on units, one behind the other, as a test of their tags codes."""
    following: Iterator[bool] = iter(verdicts)
    return lambda _tags_code: next(following)


def has_wanted(
    queue: ConsumeQueue, offset: int, count: int, test: PropertyTest, places: LogReads, reads: ColdReads
) -> bool:
    """Whether one of `count` units from `offset` is wanted; also if that cannot be found out at once."""
    tests = PropertyTests(places, test)
    end = offset + count
    try:
        while offset < end and (units := queue.read_nowait(offset, min(end - offset, AT_ONCE), reads)):
            verdicts = tests.verdicts(units)
            if any(verdicts) or tests.are_over:
                return True
            offset += len(units) // UNIT_SIZE
    except (ColdRead, OSError):
        return True
    return offset < end
