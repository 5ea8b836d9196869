"""Checksums of many bodies at a time."""

import zlib
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from skylarkmq.protocol.crc32 import python_slice_crcs, slice_crcs
from skylarkmq.protocol.record import CRC_MASK

Ints: TypeAlias = NDArray[np.int64]
Crcs = Callable[[memoryview, Ints, Ints], Ints]
VERSIONS: tuple[Crcs, ...] = (slice_crcs, python_slice_crcs)


def bounds(*pairs: tuple[int, int]) -> tuple[Ints, Ints]:
    begins, ends = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(begins, np.int64), np.array(ends, np.int64)


@pytest.mark.parametrize("crcs", VERSIONS)
def test_checksums_are_those_of_zlib_without_the_top_bit(crcs: Crcs) -> None:
    """Slices of every size, empty ones, and slices that overlap."""
    random = Random(3)
    data = random.randbytes(10_000)
    pairs = [(begin, random.randrange(begin, 10_001)) for begin in (random.randrange(10_001) for _ in range(300))]
    found = crcs(memoryview(data), *bounds((0, 0), (10_000, 10_000), (0, 10_000), *pairs))
    assert found.dtype == np.int64
    assert found.tolist() == [0, 0, *(zlib.crc32(data[a:b]) & CRC_MASK for a, b in ((0, 10_000), *pairs))]
    assert crcs(memoryview(data), *bounds()).tolist() == []


@pytest.mark.parametrize("crcs", VERSIONS)
@pytest.mark.parametrize("pair", [(-1, 2), (3, 2), (0, 11), (1 << 62, 1 << 62), (2, -(1 << 62))])
def test_a_slice_outside_of_the_data_is_refused(crcs: Crcs, pair: tuple[int, int]) -> None:
    """Nothing is read there."""
    with pytest.raises(ValueError, match="is not within 10 bytes"):
        crcs(memoryview(bytes(10)), *bounds((0, 10), pair))
