"""Records that do not stand one behind the other: those of a queue, or found by a key.

They are read in runs: what is near to each other in one go, with what stands between, and as many runs one behind the
other as fit into the buffer. Offsets ascend, so a disk is read in one direction.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skylarkmq.clients.spark.arrow.record_layout import Ints
from skylarkmq.clients.spark.store.log import Log

NEAR_BYTES: Final = 16 << 10


class Gathered(NamedTuple):
    """Records in a buffer: where they begin in it, and in the log; `missing` of the log are not there."""

    view: memoryview
    starts: Ints
    offsets: Ints
    missing: Ints


def gather(log: Log, offsets: Ints, sizes: Ints, buffer: bytearray) -> Iterator[Gathered]:
    """The records of those sizes at those bytes of the log (ascending); the buffer is filled anew each time."""
    at = 0
    while at < len(offsets):
        count = _count_that_fits(offsets[at:], sizes[at:], len(buffer))
        if not count:
            buffer, count = bytearray(int(sizes[at])), 1
        yield _fill(log, offsets[at : at + count], sizes[at : at + count], buffer)
        at += count


def _runs(offsets: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """Whether each record begins a run, and how many bytes it adds to what is read."""
    gaps = offsets[1:] - (offsets[:-1] + sizes[:-1])
    begins = np.concatenate(([True], (gaps > NEAR_BYTES) | (gaps < 0)))
    added = sizes.copy()
    added[1:] += np.where(begins[1:], 0, gaps)
    return begins, added


def _count_that_fits(offsets: Ints, sizes: Ints, room: int) -> int:
    _, added = _runs(offsets, sizes)
    return int(np.searchsorted(np.cumsum(added), room, "right"))


def _fill(log: Log, offsets: Ints, sizes: Ints, buffer: bytearray) -> Gathered:
    begins, added = _runs(offsets, sizes)
    starts = np.cumsum(added) - sizes
    view = memoryview(buffer)
    is_there = np.ones(len(offsets), np.bool_)
    firsts = np.flatnonzero(begins).tolist()
    for first, behind in zip(firsts, [*firsts[1:], len(offsets)], strict=True):
        _read_run(log, offsets[first:behind], sizes[first:behind], starts[first:behind], view, is_there[first:behind])
    return Gathered(view, starts[is_there], offsets[is_there], offsets[~is_there])


def _read_run(
    log: Log, offsets: Ints, sizes: Ints, starts: Ints, view: memoryview, is_there: NDArray[np.bool_]
) -> None:
    """A run may reach over the end of a segment; a record does not."""
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
