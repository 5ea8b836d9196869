"""Counting values by size."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.broker.base.histogram import Histogram, count_up, python_count_up

BOUNDS = (10, 100, 1_000)


def test_a_value_belongs_to_the_first_bound_that_it_does_not_exceed() -> None:
    """Bounds are inclusive, and values above all of them are counted last."""
    histogram = Histogram(BOUNDS)
    for value in (0, 10, 11, 1_000, 1_001):
        histogram.note(value)
    assert histogram.counts == [2, 1, 1, 1]
    assert (histogram.count, histogram.total) == (5, 2_022)


def test_a_value_can_be_counted_several_times() -> None:
    """Equal values of a read batch need one call."""
    histogram = Histogram(BOUNDS)
    histogram.note(50, 128)
    assert (histogram.counts, histogram.total) == ([0, 128, 0, 0], 6_400)


VARIANTS = [python_count_up, count_up]


@pytest.mark.parametrize("variant", VARIANTS, ids=["interpreted", "as installed"])
@given(values=st.lists(st.integers(0, 2_000) | st.integers(0, 2**40), min_size=1, max_size=40))
def test_both_variants_count_alike(variant: Callable[..., int], values: list[int]) -> None:
    """The compiled module and its pure-Python counterpart find the same bounds and the same sum."""
    counts = [0] * (len(BOUNDS) + 1)
    assert variant(values, BOUNDS, counts) == sum(values)
    assert counts == [
        sum(below < value <= bound for value in values) for below, bound in pairwise((-1, *BOUNDS, 2**62))
    ]


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=40))
def test_counting_all_at_once_equals_counting_each(values: list[int]) -> None:
    """For any values."""
    together, single = Histogram(BOUNDS), Histogram(BOUNDS)
    together.note_all(values)
    for value in values:
        single.note(value)
    assert (together.counts, together.total) == (single.counts, single.total)


def test_sums_and_differences_do_not_change_their_terms() -> None:
    """`plus` returns a new histogram."""
    first, second = Histogram(BOUNDS), Histogram(BOUNDS)
    first.note(5, 3)
    second.note(500)
    both = first.plus([second])
    assert (both.counts, both.total) == ([3, 0, 1, 0], 515)
    assert both.plus([second], -1).counts == first.counts == [3, 0, 0, 0]
    assert "515" in repr(both)
