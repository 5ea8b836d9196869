"""Values that are scattered over one buffer: their checksums; small arrays without `pa.array`."""

import zlib
from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.slices import (
    array_of,
    binaries,
    booleans,
    numbers,
    python_slice_crcs,
    repeated,
    slice_crcs,
    slice_views,
    strings,
    truths,
)
from skylarkmq.protocol.record import CRC_MASK

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


def test_views_refer_to_their_slices_in_any_order() -> None:
    """Empty, short and long slices; short ones at the end of the data."""
    data = Random(4).randbytes(1_000)
    sizes = [0, 1, 4, 11, 12, 13, 100, 999, 1000]
    pairs = [(begin, size) for size in sizes for begin in (1000 - size, 0, (1000 - size) // 2)]
    for chosen in (pairs, pairs[:3], pairs[-3:], []):
        begins, lengths = (np.array([pair[part] for pair in chosen], np.int64) for part in (0, 1))
        views = slice_views(memoryview(data), begins, lengths)
        views.validate(full=True)
        assert views.equals(pa.array([data[begin : begin + size] for begin, size in chosen], pa.binary_view()))


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_arrays_are_those_of_pyarrow(count: int) -> None:
    """Of every length around a byte of bits, and empty ones."""
    random = Random(count)
    bits = [random.random() < 0.5 for _ in range(count)]
    words = [random.choice(("", "a", "日本", "word")) for _ in range(count)]
    assert booleans(np.array(bits, np.bool_)).equals(pa.array(bits, pa.bool_()))
    assert strings(words).equals(pa.array(words, pa.string()))
    assert repeated("日本", count).equals(pa.array(["日本"] * count, pa.string()))
    assert repeated(None, count).equals(pa.array([None] * count, pa.string()))
    assert binaries([word.encode() for word in words]).equals(pa.array([word.encode() for word in words], pa.binary()))
    assert truths(pa.array(bits, pa.bool_())).tolist() == bits
    assert truths(pa.array([True, *bits], pa.bool_())[1:]).tolist() == bits
    for kind in (pa.int32(), pa.int64()):
        array = pa.array(range(count), kind)
        assert array_of(numbers(array)).equals(array)
        assert numbers(array).dtype == kind.to_pandas_dtype()
        assert numbers(array).tolist() == list(range(count))
        assert numbers(array[1:]).tolist() == list(range(1, count))
