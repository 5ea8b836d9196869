"""`scan_store`: the messages of a store directory as a stream of record batches."""

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from skylarkmq.clients.arrow.arguments import columns_of, milliseconds_of, names_of
from skylarkmq.clients.arrow.batch_reader import batch_reader
from skylarkmq.clients.arrow.row_filter import RowFilter
from skylarkmq.clients.arrow.store.extent import Extent
from skylarkmq.clients.arrow.store.options import QUEUE, SEGMENT, StoreOptions
from skylarkmq.clients.arrow.store.planning import Plan
from skylarkmq.clients.arrow.store.reading import StoreRows
from skylarkmq.clients.arrow.store.tasks import Task


def scan_store(
    path: str | os.PathLike[str],
    *,
    topics: str | Iterable[str] | None = None,
    start: datetime | int | None = None,
    end: datetime | int | None = None,
    key: str | None = None,
    columns: Iterable[str] | None = None,
    filter: pc.Expression | None = None,  # noqa: A002 - the name in pyarrow.dataset
    decode: bool = True,
    order: Literal["log", "queue"] = "log",
    broker_name: str | None = None,
    fail_on_data_loss: bool = True,
    check_crc: bool = False,
    force_gap: bool = False,
    use_index: bool = True,
    max_hash_slot_num: int = 5_000_000,
    max_index_num: int = 20_000_000,
    store_path_commit_log: Sequence[str | os.PathLike[str]] | None = None,
) -> pa.RecordBatchReader:
    """Return the messages of a store directory: those that a consumer could pull, without a broker.

    The directory is only read; a broker may run on it. The call examines the store, and fixes the end of the range. The
    log is then read once, in windows of a few MiB, while the reader is consumed.

    `topics` (default: all but system topics), `start` and `end` (stored at `start` or later and before `end`: datetime
    with a time zone, or ms since 1970) and `key` (a key or unique key, found through the index) limit what is read of
    the log. `filter` is applied to each batch, before the columns that it does not refer to are built.

    `columns`: names, in order; columns that are not named cost nothing. `decode=False` returns `body` and `properties`
    as stored. docs/use/arrow.md lists columns and the other arguments. An error that names an option, such as
    failOnDataLoss, means the argument fail_on_data_loss.

    Raises StoreUnreadable for a directory that cannot be read, and ValueError for wrong arguments. After the first
    batch, errors are OSError.
    """
    if order not in ("log", "queue"):
        raise ValueError(f"order must be log or queue, not {order!r}")
    options = StoreOptions(
        path=os.fspath(path),
        commit_log_paths=_paths_of(store_path_commit_log),
        topics=None if topics is None else names_of("topics", topics),
        key=key,
        starting_timestamp=milliseconds_of("start", start),
        ending_timestamp=milliseconds_of("end", end),
        partition_by=QUEUE if order == "queue" else SEGMENT,
        broker_name=broker_name,
        columns=columns_of(columns, decode=decode),
        check_crc=check_crc,
        fail_on_data_loss=fail_on_data_loss,
        force_gap=force_gap,
        use_index=use_index,
        index_slots=max_hash_slot_num,
        index_items=max_index_num,
    )
    row_filter = None if filter is None else RowFilter(filter, decode=decode)
    plan = Plan(options, options.selection)
    batches = _batches(options, plan.extent, plan.tasks(), row_filter)
    return batch_reader(options.columns.schema, batches)


def _paths_of(paths: Sequence[str | os.PathLike[str]] | None) -> tuple[str, ...] | None:
    return None if paths is None else tuple(os.fspath(path) for path in paths)


def _batches(
    options: StoreOptions, extent: Extent, tasks: Iterable[Task], row_filter: RowFilter | None
) -> Iterator[pa.RecordBatch]:
    rows = StoreRows(options, options.selection, extent, row_filter)
    for task in tasks:
        yield from rows.read(task)
