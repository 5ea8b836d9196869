"""Counting a turn's sizes by bounds, in C; the twin of `broker.buckets.plain_count_up`."""

import cython

MOST_BOUNDS = cython.declare(cython.int, 16)


def count_up(values: list, bounds: tuple, counts: list) -> int:
    """Add to `counts` how many values lie up to each of the bounds, and above all of them; returns their sum.

    Whole numbers of up to 63 bits, at most 15 bounds.
    """
    limits: cython.longlong[16]
    tally: cython.longlong[16]
    value: cython.longlong
    total: cython.longlong = 0
    size: cython.int = len(bounds)
    at: cython.int
    if size >= MOST_BOUNDS:
        raise ValueError(f"{size} bounds are too many")
    for at in range(size):
        limits[at] = bounds[at]
        tally[at] = 0
    tally[size] = 0
    for value in values:
        at = 0
        while at < size and value > limits[at]:
            at += 1
        tally[at] += 1
        total += value
    for at in range(size + 1):
        if tally[at]:
            counts[at] += tally[at]
    return total
