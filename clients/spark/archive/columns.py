"""CommitLog records as rows of the archive (clients/arrow/archive_schema.py), in any order.

Bodies are views of the buffer, so they are copied once, into the file's pages. PyArrow writes views to Parquet in newer
versions; with an older one, bodies are copied like the other columns. Columns with few values are dictionary arrays,
whose values Parquet's writer does not search for again; the file has plain strings.
"""

from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.arrow.columns import derive, numpy_columns
from skylarkmq.clients.arrow.compiled_columns import STORED_TYPES, unordered_columns
from skylarkmq.clients.arrow.record_layout import Ints, RecordLayout, body_slices, integers
from skylarkmq.clients.arrow.schema import BODY
from skylarkmq.clients.arrow.slices import array_of, booleans, slice_views, strings
from skylarkmq.protocol.record import SYS_FLAG_AT

_ENCODED: Final = ("topic", "tags", "bornHost", "storeHost")
_FEW_VALUES: Final = (*_ENCODED, "brokerName")


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


VIEWED: Final = (BODY,) if _can_write_views() else ()
"""The columns that are views of the log."""


def table_schema(viewed: Collection[str]) -> pa.Schema:
    """Return the schema of tables: the schema of an archive, with dictionary arrays and views."""
    encoded = {name: pa.dictionary(pa.int32(), pa.string()) for name in _FEW_VALUES}
    kinds = encoded | {name: pa.binary_view() for name in viewed}
    return pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in ARCHIVE_SCHEMA])


TABLE_SCHEMA: Final = table_schema(VIEWED)


def archive_table(buffer: memoryview, starts: Ints, readable: NDArray[np.bool_], broker_name: str) -> pa.Table:
    """Return the records that begin at `starts`, as rows in this order. The table is valid as long as the buffer does
    not change. Raises ProtocolError for damaged records."""
    columns = unordered_columns(buffer, starts, STORED_TYPES, _ENCODED, VIEWED)
    if columns is None:
        columns = _rearranged_columns(buffer, starts)
    derive(columns, buffer, starts, decode=False)
    columns["brokerName"] = pa.DictionaryArray.from_arrays(
        array_of(np.zeros(len(starts), np.int32)), strings([broker_name])
    )
    columns["readable"] = booleans(readable)
    return pa.Table.from_arrays([columns[name] for name in TABLE_SCHEMA.names], schema=TABLE_SCHEMA)


def _rearranged_columns(buffer: memoryview, starts: Ints) -> dict[str, pa.Array]:
    """Return the stored columns of records of any layout: in the order of the log first, then in theirs."""
    order = np.argsort(starts)
    rows = np.empty_like(order)
    rows[order] = np.arange(len(order))
    names = [name for name in STORED_TYPES if name not in VIEWED]
    found = numpy_columns(RecordLayout(buffer, starts[order]), names, decode=False, encoded=_ENCODED)
    columns = {name: column.take(array_of(rows)) for name, column in found.items()}
    if BODY in VIEWED:
        sys_flags = integers(buffer, 4)[starts + SYS_FLAG_AT]
        columns[BODY] = slice_views(buffer, *body_slices(buffer, starts, sys_flags))
    return columns
