"""Values that are scattered over one buffer; small arrays without `pa.array`."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from skylarkmq.clients.arrow.slices import (
    array_of,
    binaries,
    booleans,
    numbers,
    repeated,
    slice_views,
    strings,
    truths,
)


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
