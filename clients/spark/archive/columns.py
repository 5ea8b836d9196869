"""CommitLog records as rows of the archive (clients/arrow/archive_schema.py), in any order.

Bodies are views of the buffer, so they are copied once, into the file's pages. PyArrow writes views to Parquet in newer
versions; with an older one, bodies are copied like the other columns.

The readers of columns copy ascending slices of a buffer. Sorted rows of one queue ascend, so a table is a few such
runs, a batch each, without another copy. If the runs are short, one batch is made in the order of the log, and its rows
are rearranged.
"""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.arrow.columns import record_batch
from skylarkmq.clients.arrow.record_layout import Ints, body_slices, integers
from skylarkmq.clients.arrow.schema import BODY, Columns
from skylarkmq.clients.arrow.slices import array_of, booleans, slice_views
from skylarkmq.protocol.record import SYS_FLAG_AT

READABLE: Final = "readable"
_ROWS_OF_A_RUN: Final = 256  # mean length of runs below which rearranging is faster than a batch for each run


def _can_write_views() -> bool:
    """Return whether this version of PyArrow writes views to Parquet."""
    schema = pa.schema([(BODY, pa.binary_view())])
    one = pa.RecordBatch.from_arrays([slice_views(b"x", np.zeros(1, np.int64), np.ones(1, np.int64))], schema=schema)
    try:
        with pq.ParquetWriter(pa.MockOutputStream(), schema) as writer:
            writer.write_batch(one)
    except (pa.ArrowException, NotImplementedError):
        return False
    return True


_NOT_COPIED: Final = (READABLE, BODY) if _can_write_views() else (READABLE,)
COPIED: Final = Columns(tuple(name for name in ARCHIVE_SCHEMA.names if name not in _NOT_COPIED), decode=False)
TABLE_SCHEMA: Final = pa.schema(
    [
        field if field.name in (READABLE, *COPIED.names) else field.with_type(pa.binary_view())
        for field in ARCHIVE_SCHEMA
    ]
)
"""The schema of the tables here: that of an archive, whose bodies may be views."""


def archive_table(buffer: memoryview, starts: Ints, readable: NDArray[np.bool_], broker_name: str) -> pa.Table:
    """Return the records that begin at `starts`, as rows in this order. The table is valid as long as the buffer does
    not change. Raises ProtocolError for damaged records."""
    columns = _copied_columns(buffer, starts, broker_name)
    added = {READABLE: booleans(readable)}
    if BODY not in COPIED.names:
        sys_flags = integers(buffer, 4)[starts + SYS_FLAG_AT]
        added[BODY] = slice_views(buffer, *body_slices(buffer, starts, sys_flags))
    names = TABLE_SCHEMA.names
    return pa.Table.from_arrays(
        [added[name] if name in added else columns.column(name) for name in names], schema=TABLE_SCHEMA
    )


def _copied_columns(buffer: memoryview, starts: Ints, broker_name: str) -> pa.Table:
    turns = np.flatnonzero(starts[1:] < starts[:-1]) + 1
    if len(turns) * _ROWS_OF_A_RUN <= len(starts):
        return pa.Table.from_batches(
            [record_batch(buffer, run, broker_name, COPIED) for run in np.split(starts, turns)], COPIED.schema
        )
    order = np.argsort(starts)
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order))
    batch = record_batch(buffer, starts[order], broker_name, COPIED)
    return pa.Table.from_batches([batch.take(array_of(rows))], COPIED.schema)
