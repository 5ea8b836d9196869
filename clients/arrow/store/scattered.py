"""Reads records that are not consecutive: the records of a queue, or the records found by a key.

Records close to each other are read in one run, with the bytes between them; several consecutive runs share the buffer.
Offsets ascend, so a disk is read in one direction.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.store.log import Log

NEAR_BYTES: Final = 16 << 10


class ScatteredRecords(NamedTuple):
    """Records in a buffer, with positions in buffer and log; `missing`: positions that could not be read."""

    view: memoryview
    starts: Ints
    offsets: Ints
    missing: Ints


def read_scattered(log: Log, offsets: Ints, sizes: Ints, buffer: bytearray) -> Iterator[ScatteredRecords]:
    """Read the records of these sizes at these offsets of the log (ascending); `buffer` is reused."""
    at = 0
    while at < len(offsets):
        count = _count_that_fits(offsets[at:], sizes[at:], len(buffer))
        if not count:
            buffer, count = bytearray(int(sizes[at])), 1
        yield _fill(log, offsets[at : at + count], sizes[at : at + count], buffer)
        at += count


def _runs(offsets: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Return whether each record begins a run, and the number of bytes that it adds to the read."""
    gaps = offsets[1:] - (offsets[:-1] + sizes[:-1])
    begins = np.concatenate(([True], (gaps > NEAR_BYTES) | (gaps < 0)))
    added = sizes.copy()
    added[1:] += np.where(begins[1:], 0, gaps)
    return begins, added


def _count_that_fits(offsets: Ints, sizes: Ints, size: int) -> int:
    _, added = _runs(offsets, sizes)
    return int(np.searchsorted(np.cumsum(added), size, "right"))


def _fill(log: Log, offsets: Ints, sizes: Ints, buffer: bytearray) -> ScatteredRecords:
    begins, added = _runs(offsets, sizes)
    starts = np.cumsum(added) - sizes
    view = memoryview(buffer)
    is_there = np.ones(len(offsets), np.bool_)
    firsts = np.flatnonzero(begins).tolist()
    for first, after in zip(firsts, [*firsts[1:], len(offsets)], strict=True):
        _read_run(log, offsets[first:after], sizes[first:after], starts[first:after], view, is_there[first:after])
    return ScatteredRecords(view, starts[is_there], offsets[is_there], offsets[~is_there])


def _read_run(
    log: Log, offsets: Ints, sizes: Ints, starts: Ints, view: memoryview, is_there: NDArray[np.bool_]
) -> None:
    """Read one run. A run may cross the end of a segment; a record does not."""
    done = 0
    while done < len(offsets):
        offset, start = int(offsets[done]), int(starts[done])
        end = int(starts[-1] + sizes[-1])
        count = log.read(offset, view[start:end])
        whole = int(np.searchsorted(starts[done:] + sizes[done:], start + count, "right"))
        if not whole:
            is_there[done] = False
            whole = 1
        done += whole
