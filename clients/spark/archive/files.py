"""One Parquet file of messages: how it is written, and how it is read back.

The options serve look-ups. Rows are sorted, so the statistics and the page index of topic, queueId, queueOffset and the
times lead to few pages; the Bloom filters of `key` and `msgId` exclude the row groups without a key, for readers that
use them (DuckDB, Spark); bodies are in their own pages, and are read only for the rows found. PyArrow writes Bloom
filters since version 24; an older one leaves them out.

A file is verified by reading all of it. The checksum of its bytes must equal the checksum of the written bytes. Three
columns are decoded: the number of rows, the position of each row in the log, and the checksum of each body must agree
with the log. The other columns are not compared with anything, so that decoding them would show no more than the
checksum.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal.isal_zlib import crc32

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA, SORT_COLUMNS
from skylarkmq.clients.arrow.record_layout import Ints
from skylarkmq.clients.arrow.schema import BODY
from skylarkmq.clients.arrow.slices import content, numbers
from skylarkmq.clients.spark.archive.columns import TABLE_SCHEMA, archive_table
from skylarkmq.clients.spark.archive.pieces import Piece
from skylarkmq.protocol.crc32 import slice_crcs

ROW_GROUP_BYTES: Final = 16 << 20
"""Bytes of the log in a row group; a longer record is a row group of its own."""
_PAGE_BYTES: Final = 1 << 20
_BATCH_BYTES: Final = 1 << 20  # bytes of the log that are read back at once, so that they stay in the processor's cache
_BATCH_ROWS: Final = 1 << 14
_FEW_VALUES: Final = (
    "topic",
    "brokerName",
    "queueId",
    "bornHost",
    "storeHost",
    "sysFlag",
    "flag",
    "tags",
    "reconsumeTimes",
)
_NEARLY_EQUAL: Final = ("queueOffset", "physicalOffset", "storeTimestamp", "bornTimestamp")
_NUMBERS: Final = ("physicalOffset", "bodyCrc")  # are verified, and so is the body
_NO_STATISTICS: Final = frozenset(("body", "properties"))
_BLOOM: Final = ("key", "msgId")
_FALSE_POSITIVES: Final = 0.01
HAS_BLOOM_FILTERS: Final = "bloom_filter_options" in inspect.signature(pq.write_table).parameters


class NotVerified(Exception):
    """A file that was read back differs from the log; the text says where."""


class OtherBody(NotVerified):
    """The body of a message does not match the checksum in the log. Its record begins at byte `offset` of the log."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the body of the message at byte {offset} of the log differs in the file")
        self.offset = offset


class _SummedStream:
    """An output stream that also computes the CRC-32 of all bytes."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.closed = False
        self.checksum = 0

    def write(self, data: bytes) -> None:
        """Write all of `data`."""
        self.checksum = crc32(data, self.checksum)
        self._sink.write(data)

    def flush(self) -> None:
        """Do nothing: the owner of the stream closes it."""


def write_messages(sink: Any, piece: Piece, broker_name: str) -> int:
    """Write the rows of a piece to an open output stream; return the CRC-32 of the file."""
    groups = _row_groups(piece)
    most_rows = max((group.stop - group.start for group in groups), default=1)
    stream = _SummedStream(sink)
    with pq.ParquetWriter(stream, TABLE_SCHEMA, **_options(most_rows)) as writer:
        for group in groups:
            table = archive_table(piece.view, piece.starts[group], piece.readable[group], broker_name)
            writer.write_table(table, row_group_size=len(table))
    return stream.checksum


def _row_groups(piece: Piece) -> list[slice]:
    """Return the rows of each row group: as many as fit in ROW_GROUP_BYTES of log."""
    ends = np.cumsum(piece.sizes)
    groups = []
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        after = max(int(np.searchsorted(ends, before + ROW_GROUP_BYTES, "right")), first + 1)
        groups.append(slice(first, after))
        first = after
    return groups


def _options(most_rows: int) -> dict[str, Any]:
    order = pq.SortingColumn.from_ordering(ARCHIVE_SCHEMA, [(name, "ascending") for name in SORT_COLUMNS])
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": list(_FEW_VALUES),
        "column_encoding": dict.fromkeys(_NEARLY_EQUAL, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in ARCHIVE_SCHEMA.names if name not in _NO_STATISTICS],
        "write_page_index": True,
        "write_page_checksum": True,
        "data_page_size": _PAGE_BYTES,
        "store_schema": False,
        "sorting_columns": order,
    }
    if HAS_BLOOM_FILTERS:
        options["bloom_filter_options"] = {name: {"ndv": most_rows, "fpp": _FALSE_POSITIVES} for name in _BLOOM}
    return options


def verify_messages(source: Any, checksum: int, piece: Piece) -> None:
    """Read a file with this CRC-32 from an open input stream. Raises NotVerified unless it has exactly the rows of the
    piece."""
    try:
        data = source.read_buffer(source.size())
        if crc32(data) != checksum:
            raise NotVerified("the file that was read back has other bytes than the one that was written")
        _verify(pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True), piece)
    except (pa.ArrowException, OSError) as problem:
        raise NotVerified(f"the file cannot be read back: {problem}") from problem


def _verify(file: pq.ParquetFile, piece: Piece) -> None:
    if file.metadata.num_rows != piece.rows:
        raise NotVerified(f"the file has {file.metadata.num_rows} rows, the log {piece.rows} records")
    first = 0
    for number in range(file.metadata.num_row_groups):
        rows = slice(first, first + file.metadata.row_group(number).num_rows)
        for batch, some in _batches(file, number, rows, _NUMBERS, _BATCH_ROWS):
            _compare_numbers(batch, piece, some)
        at_once = min(max(_BATCH_BYTES // int(piece.sizes[rows].mean()), 1), _BATCH_ROWS)
        for batch, some in _batches(file, number, rows, (BODY,), at_once):
            _compare_bodies(batch[BODY], piece, some)
        first = rows.stop


def _batches(
    file: pq.ParquetFile, number: int, rows: slice, names: Sequence[str], at_once: int
) -> Iterator[tuple[pa.RecordBatch, slice]]:
    """Yield columns of a row group, whose rows of the piece are `rows`, `at_once` rows at a time with their rows."""
    first = rows.start
    for batch in file.iter_batches(at_once, [number], list(names), use_threads=False):
        yield batch, slice(first, first + len(batch))
        first += len(batch)
    if first != rows.stop:
        raise NotVerified(f"the file returns {first} rows of {', '.join(names)}, the log {rows.stop} records")


def _compare_numbers(batch: pa.RecordBatch, piece: Piece, rows: slice) -> None:
    if not np.array_equal(numbers(batch["physicalOffset"]), piece.physical_offsets[rows]):
        raise NotVerified(f"rows {rows.start} to {rows.stop} are not the messages of the log")
    if not np.array_equal(numbers(batch["bodyCrc"]), piece.stated_crcs[rows]):
        raise NotVerified(f"rows {rows.start} to {rows.stop} have checksums that differ from the log")


def _compare_bodies(bodies: pa.Array, piece: Piece, rows: slice) -> None:
    wrong = np.flatnonzero(_body_crcs(bodies) != piece.body_crcs[rows])
    if len(wrong):
        raise OtherBody(int(piece.physical_offsets[rows][wrong[0]]))


def _body_crcs(bodies: pa.Array) -> Ints:
    """Return the checksum of each body; 0 for an empty one."""
    raw, offsets = content(bodies)
    bounds = offsets.astype(np.int64)
    return slice_crcs(raw.data, bounds[:-1], bounds[1:])
