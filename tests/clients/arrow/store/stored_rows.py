"""Reads the rows of a store directory: planned, pickled and read as by Spark."""

import pickle
from pathlib import Path
from typing import Any

from skylarkmq.clients.arrow.store.options import StoreOptions
from skylarkmq.clients.arrow.store.planning import Plan
from skylarkmq.clients.arrow.store.reading import StoreRows
from skylarkmq.protocol.disk import COMMIT_LOG_DIRECTORY
from skylarkmq.protocol.record import Record, iterate, to_message
from tests.harness.spark_rows import row_of, rows_of

GOLDEN_INDEX = {"index_slots": 100, "index_items": 200}


def read(root: Path, **options: Any) -> list[dict[str, Any]]:
    """Return the rows of all tasks, in the order of the tasks."""
    return [row for rows in tasks_of(StoreOptions(path=str(root), **options)) for row in rows]


def tasks_of(options: StoreOptions) -> list[list[dict[str, Any]]]:
    """Return the rows of each task; options, extent and tasks are pickled, as Spark does it."""
    plan = Plan(options, options.selection)
    planned = pickle.dumps((options, plan.extent, plan.tasks()))
    options, extent, tasks = pickle.loads(planned)
    rows = StoreRows(options, options.selection, extent)
    return [[row for batch in rows.read(task) for row in rows_of(batch)] for task in tasks]


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the values that identify a row."""
    return row["topic"], row["queueId"], row["queueOffset"]


def everything(root: Path) -> list[Record]:
    """Return every valid record of a log, in order."""
    segments = sorted((root / COMMIT_LOG_DIRECTORY).iterdir())
    return [one for segment in segments for one in iterate(segment.read_bytes()) if isinstance(one, Record)]


def expected(records: list[Record], *, include_properties: bool = False) -> list[dict[str, Any]]:
    """Return the rows of records."""
    return [row_of(to_message(record), None, include_properties=include_properties) for record in records]
