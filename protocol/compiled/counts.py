"""Histograms of sizes: counts of values per bucket.

The pure-Python versions are in broker/base/histogram.py and broker/store/queue/topic_traffic.py.
"""

import cython
from cython.cimports.skylarkmq.protocol.compiled.big_endian import get32
from cython.cimports.skylarkmq.protocol.compiled.queue_tail import QueueTail

Byte = cython.typedef(cython.p_uchar)

UNIT_SIZE = cython.declare(cython.Py_ssize_t, 20)

MOST_BOUNDS = cython.declare(cython.int, 16)


def count_up(values: list, bounds: tuple, counts: list) -> int:
    """Add each value to the count of its bucket in `counts`; return the sum of the values.

    Bucket n contains values up to `bounds[n]`, the last one all larger values. Values are whole numbers of up to 63
    bits. Raises ValueError for more than 15 bounds.
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


_bounds = cython.declare(tuple, None)  # the bounds that _limits contains
_limits = cython.declare(cython.longlong[16])


def note_units(queue: QueueTail):
    """Count the sizes of the queue's new units; see broker/store/queue/topic_traffic.py. At most 15 bounds; most queues
    share them."""
    global _bounds  # noqa: PLW0603
    traffic = queue.traffic
    bounds: tuple = traffic.bounds
    counts: list = traffic.counts
    total: cython.longlong = 0
    size: cython.longlong
    many: cython.int = len(bounds)
    at: cython.Py_ssize_t
    _left: cython.Py_ssize_t
    unit: Byte = queue.units + queue.units_size - UNIT_SIZE * queue.uncounted
    if len(counts) <= many:
        raise ValueError(f"{many} bounds need more than {len(counts)} counts")
    if bounds is not _bounds:
        if many >= MOST_BOUNDS:
            raise ValueError(f"{many} bounds are too many")
        _bounds = None  # while the limits are incomplete
        for at in range(many):
            _limits[at] = bounds[at]
        _bounds = bounds
    for _left in range(queue.uncounted):
        size = get32(unit + 8)
        total += size
        at = 0
        while at < many and size > _limits[at]:
            at += 1
        counts[at] += 1
        unit += UNIT_SIZE
    traffic.total += total
    queue.uncounted = 0
