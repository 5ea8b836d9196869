"""The compiled leaf finds in queue units what the interpreted variant finds."""

import mmap
import random

import pytest

from protocol import compiled
from protocol.disk import UNIT
from protocol.unit_runs import MOST_UNITS, plain_extent, plain_gather

leaf = compiled.load("gather")

pytestmark = pytest.mark.skipif(leaf is None, reason="no compiled leaves here")

SEGMENT_BYTES = 1 << 16


def test_random_runs() -> None:
    """Ten thousand runs of records anywhere in a segment: the same extent, the same bytes."""
    rng = random.Random(20)
    segment = memoryview(rng.randbytes(SEGMENT_BYTES))
    for _ in range(10_000):
        start = rng.choice((0, 1 << 30, (1 << 62) - SEGMENT_BYTES, rng.getrandbits(50)))
        units = b"".join(random_unit(rng, start) for _ in range(rng.randint(1, MOST_UNITS)))
        *_, size = extent = plain_extent(units)
        assert leaf.extent(units) == extent
        head = rng.randbytes(rng.randrange(300))
        views = plain_gather(units, segment, start, size, head)
        found, records = leaf.gather(bytearray(units), segment, start, size, head)
        assert (found, len(records)) == (head, size)
        assert found + bytes(records) == b"".join(views)


def test_too_many_records() -> None:
    """A leaf has room for as many as may be asked for at once, and looks at no more."""
    with pytest.raises(ValueError, match="many"):
        leaf.gather(UNIT.pack(0, 1, 0) * (MOST_UNITS + 1), memoryview(b"x"), 0, MOST_UNITS + 1, b"")


def test_records_hold_their_segment() -> None:
    """As long as they are there it stays mapped, like a segment with views."""
    segment = mmap.mmap(-1, 4096)
    _, records = leaf.gather(UNIT.pack(0, 100, 0), memoryview(segment), 0, 100, b"")
    with pytest.raises(BufferError):
        segment.close()
    assert bytes(records) == bytes(100)
    del records
    segment.close()


def random_unit(rng: random.Random, start: int) -> bytes:
    """A record within the segment."""
    at = rng.randrange(SEGMENT_BYTES)
    size = rng.randint(0, min(300, SEGMENT_BYTES - at))
    return UNIT.pack(start + at, size, rng.getrandbits(63) - (1 << 62))
