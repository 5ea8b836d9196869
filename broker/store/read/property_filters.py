"""Selects messages by their properties, for filters that a tags code in a queue unit cannot decide.

A get with such a test reads every record that it passes, so its work is limited, not only its number of units. It stops
when the estimated costs reach WORK_NS, and the consumer continues from there. A get always decides at least one unit,
so that the consumer makes progress. A record that is not in memory ends a get that has decided a unit. A get that has
decided none raises ColdRead, as every lookup does.

Unreadable records pass the test: the delivery reports the error. Source: docs/reference/disk.md, "getMessage".
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from skylarkmq.broker.store.files.cold_reads import ColdRead, ColdReads
from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.read.log_reads import LogReads
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from skylarkmq.protocol.record_fields import properties_of

WORK_NS: Final = 800_000
AT_ONCE: Final = 64
"""Number of units that are tested at once, before it is known how many are needed."""

_RECORD_NS: Final = 1_500
_COLD_RECORD_NS: Final = 5_000
_COLD_NS_PER_KIB: Final = 150


class PropertyTest(Protocol):
    """A test of property strings, with an estimate of its cost."""

    @property
    def matches(self) -> Callable[[bytes | memoryview], bool]:
        """Return whether a message with these properties is wanted."""

    @property
    def cost_ns(self) -> int:
        """Cost of a call, in ns."""

    @property
    def cost_ns_per_kib(self) -> int:
        """Additional cost per KiB of properties, in ns."""


Matches = Callable[[int], bool]
"""A test of tags codes."""
Wanted = Matches | PropertyTest


class PropertyTests:
    """Runs the tests of one get within its budget."""

    __slots__ = ("_has_decided", "_left_ns", "_log_reads", "_test")

    def __init__(self, log_reads: LogReads, test: PropertyTest) -> None:
        self._log_reads = log_reads
        self._test = test
        self._left_ns = WORK_NS
        self._has_decided = False

    def __repr__(self) -> str:
        return f"<PropertyTests left_ns={self._left_ns} of {self._test!r}>"

    @property
    def is_over_budget(self) -> bool:
        """Whether no more units may be tested."""
        return self._left_ns <= 0

    def verdicts(self, units: bytes | bytearray | memoryview) -> list[bool]:
        """Return for each of the first units whether it is wanted, up to the budget. ColdRead: none is decided yet."""
        verdicts: list[bool] = []
        matches, cost_ns, per_kib_ns = self._test.matches, self._test.cost_ns + _RECORD_NS, self._test.cost_ns_per_kib
        begin = end = 0
        view = memoryview(b"")
        for physical_offset, size, _ in UNIT.iter_unpack(units):
            if self._left_ns <= 0:
                break
            if not begin <= physical_offset < end:
                begin, end, view = self._log_reads.hot_window(physical_offset)
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
        """Return the properties of a record that may be cold; None if there is no record."""
        log_reads = self._log_reads
        if not log_reads.may_contain_record(physical_offset, size):
            return None
        self._left_ns -= _COLD_RECORD_NS + (size * _COLD_NS_PER_KIB >> 10)
        record = log_reads.bytes_at(physical_offset, size)
        return None if record is None else properties_of(record)


def as_matches(verdicts: list[bool]) -> Matches:
    """Return the verdicts on consecutive units as a test of their tags codes."""
    following: Iterator[bool] = iter(verdicts)
    return lambda _tags_code: next(following)


def has_wanted(
    queue: ConsumeQueue, offset: int, count: int, test: PropertyTest, log_reads: LogReads, reads: ColdReads
) -> bool:
    """Return True if one of `count` units from `offset` is wanted, or if that is not known at once."""
    tests = PropertyTests(log_reads, test)
    end = offset + count
    try:
        while offset < end and (units := queue.read_nowait(offset, min(end - offset, AT_ONCE), reads)):
            verdicts = tests.verdicts(units)
            if any(verdicts) or tests.is_over_budget:
                return True
            offset += len(units) // UNIT_SIZE
    except (ColdRead, OSError):
        return True
    return offset < end
