"""Searching a queue for a position of the log: filler units are skipped."""

import pytest

from skylarkmq.protocol.disk import FILLER_UNIT, UNIT, UNIT_SIZE
from skylarkmq.protocol.unit_search import first_at_or_after, first_with_record

FILLER = -1


def units_of(offsets: list[int]) -> bytes:
    return b"".join(FILLER_UNIT if begin == FILLER else UNIT.pack(begin, 10, 0) for begin in offsets)


@pytest.mark.parametrize(
    ("offsets", "wanted", "expected"),
    [
        ([], 0, 0),
        ([0, 10, 20], 0, 0),
        ([0, 10, 20], 1, 1),
        ([0, 10, 20], 20, 2),
        ([0, 10, 20], 21, 3),
        ([FILLER, FILLER, 20, 30], 0, 2),
        ([FILLER, FILLER, 20, 30], 21, 3),
        ([FILLER, FILLER], 0, 2),
        ([0, 10, FILLER, FILLER, FILLER, 90, 100], 0, 0),
        ([0, 10, FILLER, FILLER, FILLER, 90, 100], 10, 1),
        ([0, 10, FILLER, FILLER, FILLER, 90, 100], 11, 5),
        ([0, 10, FILLER, FILLER, FILLER, 90, 100], 91, 6),
        ([0, 10, FILLER, FILLER, FILLER], 10, 1),
        ([0, 10, FILLER, FILLER, FILLER], 11, 5),
    ],
)
def test_the_first_unit_at_or_after_an_offset(offsets: list[int], wanted: int, expected: int) -> None:
    """The search returns the same as a check of every unit."""
    data = units_of(offsets)

    def read(offset: int, count: int) -> bytes:
        return data[offset * UNIT_SIZE : (offset + count) * UNIT_SIZE]

    assert first_at_or_after(read, 0, len(offsets), wanted) == expected
    plain = [at for at, begin in enumerate(offsets) if begin != FILLER and begin >= wanted]
    assert expected == (plain[0] if plain else len(offsets))


def test_a_long_gap_takes_few_reads() -> None:
    """A million filler units are not read one by one."""
    reads = []

    def read(offset: int, count: int) -> bytes:
        reads.append(count)
        return FILLER_UNIT * min(count, 1_000_000 - offset) or UNIT.pack(5, 10, 0)

    assert first_with_record(read, 0, 1_000_001) == 1_000_000
    assert len(reads) < 300


def test_missing_files_are_skipped() -> None:
    """The search continues after a missing file, and terminates."""
    assert first_at_or_after(lambda offset, count: b"", 3, 9, 100) == 9
