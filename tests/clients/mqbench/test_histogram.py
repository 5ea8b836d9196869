"""Percentiles of logarithmic buckets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.clients.mqbench.histogram import BUCKETS, LARGEST_NS, Histogram, buckets_of, middle_of

VALUES = st.lists(st.integers(0, LARGEST_NS), min_size=1, max_size=200)


def histogram(values: list[int]) -> Histogram:
    made = Histogram()
    made.add(np.array(values, np.int64))
    return made


@given(VALUES, st.sampled_from([1.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0]))
def test_percentiles_are_exact_to_a_thousandth(values: list[int], percent: float) -> None:
    """Compared with sorted values, within 0.1 %."""
    rank = max(1, -(-len(values) * round(percent * 100) // 10_000))
    exact = sorted(values)[rank - 1]
    assert histogram(values).percentile(percent) == pytest.approx(exact, rel=1e-3, abs=0)


@given(st.integers(0, LARGEST_NS))
def test_the_middle_of_a_bucket_is_close_to_its_values(value: int) -> None:
    """Bucket and middle are inverse to each other; no bucket is out of range."""
    (bucket,) = buckets_of(np.array([value], np.int64))
    assert 0 <= bucket < BUCKETS
    assert middle_of(int(bucket)) == pytest.approx(value, rel=5e-4, abs=0)


def test_small_values_are_exact() -> None:
    """Below 2,048 ns each value has a bucket of its own."""
    values = np.arange(2048)
    assert [middle_of(int(bucket)) for bucket in buckets_of(values)] == values.tolist()


def test_merged_histograms_equal_the_histogram_of_all_values() -> None:
    """Count, mean and maximum are those of all values."""
    first, both = histogram([1_000, 5_000_000]), histogram([1_000, 5_000_000, 77, 9_000_000_000])
    first.merge(histogram([77, 9_000_000_000]))
    assert (first.counts == both.counts).all()
    assert (first.count, first.mean_ns, first.largest_ns) == (4, both.mean_ns, 9_000_000_000)


def test_percentiles_of_an_empty_histogram_are_zero() -> None:
    """An empty histogram can be printed."""
    assert Histogram().percentiles() == [0] * 6
    assert Histogram().mean_ns == 0


def test_negative_values_count_as_zero() -> None:
    """Negative ages, after a clock was set back, do not end a run."""
    assert histogram([-5_000_000]).largest_ns == 0
