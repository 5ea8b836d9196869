"""Runs of queue units, in the pure-Python version and in the version in use."""

from collections.abc import Iterable
from typing import Any

import pytest

from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import FILLER_UNIT, UNIT
from skylarkmq.protocol.unit_runs import MOST_UNITS, PythonUnitRun, UnitRun

START = 1 << 40
SIZE = 4096
LONGEST = 1000
PLACES = [(START, 10), (START + 10, 1), (START + 500, 300), (START + 4000, 96)]

both_versions = pytest.mark.parametrize("run_type", [PythonUnitRun, UnitRun], ids=["python", "in-use"])


class Segment:
    """A segment with the attributes that `unit_runs.Segment` requires."""

    start = START
    is_deleted = False

    def __init__(self) -> None:
        self.view = memoryview(bytes(number % 251 for number in range(SIZE)))

    def bytes_at(self, positions: Iterable[tuple[int, int]]) -> bytes:
        return b"".join(self.view[at - START : at - START + size] for at, size in positions)


def units_at(*positions: tuple[int, int]) -> bytes:
    return b"".join(UNIT.pack(offset, size, -1) for offset, size in positions)


def run_of(run_type: Any, units: bytes, span: int = SIZE, limit: int = START + SIZE) -> Any:
    return run_type(7, units, Segment(), limit, span, LONGEST)


@both_versions
def test_records_are_taken_in_order(run_type: Any) -> None:
    """The records have the order of their units, whatever lies between them."""
    run = run_of(run_type, units_at(*PLACES))
    assert (run.first, run.count, run.begin, run.end) == (7, 4, START, START + SIZE)
    records = run.take(8, 3, SIZE)
    assert (records.count, records.size, records.begin, records.last) == (3, 397, START + 10, START + 4000)
    assert records.parts_after(b"head")[0] == b"head"
    wanted = Segment().bytes_at(PLACES[1:])
    assert b"".join(records.parts_after(b"")) == bytes(records.view) == wanted


@both_versions
def test_is_run_says_whether_records_are_adjacent(run_type: Any) -> None:
    """`is_run` is true for adjacent records, which can be sent as one region of their file."""
    run = run_of(run_type, units_at(*PLACES))
    assert [run.take(offset, 2, SIZE).is_run for offset in (7, 8, 9)] == [True, False, False]


@both_versions
def test_take_stops_at_the_byte_limit(run_type: Any) -> None:
    """A record that would exceed the limit is not taken; the first one always is."""
    run = run_of(run_type, units_at(*PLACES))
    assert [run.take(7, 4, most).count for most in (0, 10, 11, 310, 311, 406, 407)] == [1, 1, 2, 2, 3, 3, 4]


@both_versions
@pytest.mark.parametrize(
    ("offset", "wanted"), [(6, 1), (7, 5), (10, 2), (11, 1), (7, 0), (7, -1), (1 << 62, 1), (-(1 << 62), 1)]
)
def test_take_returns_none_for_units_outside(run_type: Any, offset: int, wanted: int) -> None:
    """Units before, after or beyond the run, and zero units: nothing is taken."""
    assert run_of(run_type, units_at(*PLACES)).take(offset, wanted, SIZE) is None


@both_versions
def test_take_is_limited_to_most_units(run_type: Any) -> None:
    """A run can be long; one `take` is limited to MOST_UNITS."""
    positions = [(START + number, 1) for number in range(MOST_UNITS + 20)]
    run = run_of(run_type, units_at(*positions))
    assert run.count == len(positions)
    assert run.take(8, MOST_UNITS, SIZE).view == Segment().bytes_at(positions[1 : MOST_UNITS + 1])
    assert run.take(7, MOST_UNITS + 1, SIZE) is None


@both_versions
@pytest.mark.parametrize("before", [0, MOST_UNITS])
@pytest.mark.parametrize(
    ("unit", "span"),
    [
        (units_at((START + 80, 10)), SIZE),
        (units_at((START - 1, 10)), SIZE),
        (units_at((START + SIZE - 9, 10)), SIZE),
        (units_at((START + 200, 0)), SIZE),
        (units_at((START + 200, -1)), SIZE),
        (units_at((START + 200, LONGEST)), SIZE),
        (units_at((1 << 62, 0x7FFFFFFF)), SIZE),
        (FILLER_UNIT, SIZE),
        (units_at((START + 500, 10)), 300),
    ],
    ids=["back", "before", "behind", "none", "negative", "long", "far", "filler", "wide"],
)
def test_which_unit_ends_a_run(run_type: Any, unit: bytes, span: int, before: int) -> None:
    """A record that overlaps the previous one, is outside of the segment, too long, too far away, or missing."""
    units = units_at(*((START + number, 1) for number in range(before)), (START + 99, 1))
    assert run_of(run_type, units + unit + units_at((START + 300, 1)), span).count == before + 1


@both_versions
def test_nothing_is_taken_of_a_deleted_segment(run_type: Any) -> None:
    """A deleted segment may be unmapped at any time."""
    run = run_of(run_type, units_at(*PLACES))
    run.segment.is_deleted = True
    assert run.take(7, 1, SIZE) is None


@both_versions
def test_a_run_without_units_is_empty(run_type: Any) -> None:
    """A run without units is valid; nothing is taken from it."""
    run = run_of(run_type, b"")
    assert (run.count, run.take(7, 1, SIZE)) == (0, None)


def test_the_python_version_gathers_views() -> None:
    """Nothing is copied: each record is a view of the segment."""
    run = run_of(PythonUnitRun, units_at(*PLACES))
    records = run.take(7, 4, SIZE)
    assert [len(view) for view in records.views] == [size for _, size in PLACES]
    assert all(view.obj is run.segment.view.obj for view in records.views)


@pytest.mark.skipif(compiled.load("gather") is None, reason="no compiled modules here")
def test_the_compiled_module_reads_nothing_outside_of_the_segment() -> None:
    """If the segment is shorter than its units claim, `take` raises and reads no other memory."""
    run = run_of(UnitRun, units_at((START + SIZE - 10, 20)), limit=START + 2 * SIZE)
    with pytest.raises(ValueError, match="record"):
        run.take(7, 1, SIZE)
