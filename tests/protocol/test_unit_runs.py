"""Runs of queue units."""

import pytest

from protocol import compiled
from protocol.disk import UNIT
from protocol.unit_runs import MOST_UNITS, extent, gather, plain_extent, plain_gather

START = 1 << 40
SEGMENT = memoryview(bytes(number % 251 for number in range(4096)))
PLACES = [(START, 10), (START + 10, 1), (START + 500, 300), (START + 4000, 96)]
UNITS = b"".join(UNIT.pack(offset, size, -1) for offset, size in PLACES)


def test_extent_of_a_run() -> None:
    """First and last offset, the end of the last record, the sum of all sizes."""
    assert extent(UNITS) == (START, START + 4000, START + 4096, 407)
    assert extent(bytearray(UNITS[:20])) == (START, START, START + 10, 10)


def test_records_of_a_run() -> None:
    """They follow each other as their units do, whatever lies between them."""
    wanted = b"".join(SEGMENT[at - START : at - START + size] for at, size in PLACES)
    assert b"".join(gather(UNITS, SEGMENT, START, 407, b"")) == wanted


def test_the_longest_run() -> None:
    """As many units as may be asked for at once."""
    units = b"".join(UNIT.pack(START + number, 1, 0) for number in range(MOST_UNITS))
    assert extent(units) == (START, START + MOST_UNITS - 1, START + MOST_UNITS, MOST_UNITS)
    assert b"".join(gather(units, SEGMENT, START, MOST_UNITS, b"")) == SEGMENT[:MOST_UNITS]


def test_the_interpreted_variant_gathers_views() -> None:
    """Nothing is copied: each record is a view of the segment."""
    head, *views = plain_gather(UNITS, SEGMENT, START, 407, b"head")
    assert head == b"head"
    assert plain_extent(UNITS) == extent(UNITS)
    assert [len(view) for view in views] == [size for _, size in PLACES]
    assert all(isinstance(view, memoryview) and view.obj is SEGMENT.obj for view in views)


@pytest.mark.skipif(compiled.load("gather") is None, reason="no compiled leaves here")
@pytest.mark.parametrize(
    ("units", "size"),
    [
        (UNIT.pack(START - 1, 10, 0), 10),
        (UNIT.pack(START + 4090, 10, 0), 10),
        (UNIT.pack(START, -1, 0), 0),
        (UNIT.pack(1 << 62, 0x7FFFFFFF, 0), 10),
        (UNITS, 406),
        (UNITS, 408),
    ],
    ids=["before", "behind", "negative", "filler", "too-small", "too-large"],
)
def test_the_leaf_reads_nothing_outside_of_the_segment(units: bytes, size: int) -> None:
    """A place that is not in it, or a size that is not the sum, is an error, never a look at other memory."""
    with pytest.raises(ValueError, match="record"):
        gather(units, SEGMENT, START, size, b"head")
