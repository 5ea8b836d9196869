"""CommitLog records as rows of the archive (clients/arrow/archive_schema.py), in any order.

The readers of columns copy ascending slices of a buffer. Sorted rows of one queue ascend, so a table is a few such
runs, a batch each, without another copy. If the runs are short, one batch is made in the order of the log, and its rows
are rearranged.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.arrow.columns import record_batch
from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.schema import Columns
from skylarkmq.clients.arrow.slices import booleans

_READABLE: Final = "readable"
_STORED: Final = Columns(tuple(name for name in ARCHIVE_SCHEMA.names if name != _READABLE), decode=False)
_ROWS_OF_A_RUN: Final = 256  # mean length of runs below which rearranging is faster than a batch for each run


def archive_table(buffer: memoryview, starts: Ints, readable: NDArray[np.bool_], broker_name: str) -> pa.Table:
    """Return the records that begin at `starts`, as rows in this order. Raises ProtocolError for damaged records."""
    turns = np.flatnonzero(starts[1:] < starts[:-1]) + 1
    if len(turns) * _ROWS_OF_A_RUN <= len(starts):
        runs = zip(np.split(starts, turns), np.split(readable, turns), strict=True)
        return pa.Table.from_batches([_batch(buffer, *run, broker_name) for run in runs], ARCHIVE_SCHEMA)
    order = np.argsort(starts)
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order))
    batch = _batch(buffer, starts[order], readable[order], broker_name)
    indexes = pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
    return pa.Table.from_batches([batch.take(indexes)], ARCHIVE_SCHEMA)


def _batch(buffer: memoryview, starts: Ints, readable: NDArray[np.bool_], broker_name: str) -> pa.RecordBatch:
    stored = record_batch(buffer, starts, broker_name, _STORED)
    return pa.RecordBatch.from_arrays([*stored.columns, booleans(readable)], schema=ARCHIVE_SCHEMA)
