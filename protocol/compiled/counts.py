"""Sizes counted by bounds, in C.

The interpreted twins are `plain_count_up` in broker.buckets and `plain_note_units` in broker.store.topic_traffic.
"""

import cython
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from cython.cimports.skylarkmq.protocol.compiled.queue_tail import QueueTail

Byte = cython.typedef(cython.p_uchar)

UNIT_SIZE = cython.declare(cython.Py_ssize_t, 20)

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
    if len(counts) <= size:
        raise ValueError(f"{size} bounds need more than {len(counts)} counts")
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


_bounds = cython.declare(tuple, None)  # those that stand in _limits
_limits = cython.declare(cython.longlong[16])


def note_units(queue: QueueTail):
    """The twin of broker.store.topic_traffic.plain_note_units; at most 15 bounds, the same for most queues."""
    global _bounds  # noqa: PLW0603
    traffic = queue.traffic
    bounds: tuple = traffic.bounds
    counts: list = traffic.counts
    total: cython.longlong = 0
    size: cython.longlong
    many: cython.int = len(bounds)
    at: cython.Py_ssize_t
    _left: cython.Py_ssize_t
    unit: Byte = queue.units + queue.units_size - UNIT_SIZE * queue.unnoted
    if len(counts) <= many:
        raise ValueError(f"{many} bounds need more than {len(counts)} counts")
    if bounds is not _bounds:
        if many >= MOST_BOUNDS:
            raise ValueError(f"{many} bounds are too many")
        _bounds = None  # until all limits are those of `bounds`
        for at in range(many):
            _limits[at] = bounds[at]
        _bounds = bounds
    for _left in range(queue.unnoted):
        size = get32(unit + 8)
        total += size
        at = 0
        while at < many and size > _limits[at]:
            at += 1
        counts[at] += 1
        unit += UNIT_SIZE
    traffic.total += total
    queue.unnoted = 0
