"""A table that takes each batch of a query once, and the two tables of a pipeline.

    batch of messages --good--> table          Once: skips a batch that the table contains
                      --bad---> table_bad

A format implements `Table`. A batch is written to the table first, then its bad rows to the side table; each table
records by itself which batches it contains, so a batch that was interrupted in between continues with the second. Bad
rows are counted while the good ones are written: a batch without bad rows is read once, a batch with some twice.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.tables.marks import Mark

QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""The local property in which Spark passes the query's id to the jobs of a batch."""


BAD_ROWS: Final = "bad_rows"


class Split(NamedTuple):
    """How a batch is divided. `is_bad` is a condition on its rows."""

    good: Callable[[DataFrame], DataFrame]
    bad: Callable[[DataFrame], DataFrame]
    is_bad: Column


class Table(Protocol):
    """A table of one format. A mark names a batch of a query."""

    def fit(self, schema: StructType) -> list[str]:
        """Create or change the table for rows of this schema; return the SQL expressions of its columns.

        Raises SchemaConflict.
        """

    def last_batch(self, query: str) -> int | None:
        """Return the last batch of the query that the table contains; None: no batch."""

    def append(self, rows: DataFrame, mark: Mark) -> None:
        """Add rows that have the table's columns, and the mark, in one commit."""


class Once:
    """A table, and rows of one schema that are appended once for each batch. Raises SchemaConflict."""

    def __init__(self, table: Table, schema: StructType) -> None:
        self._table = table
        self._columns: Sequence[str] = table.fit(schema)
        self._last: dict[str, int] = {}

    def has(self, mark: Mark) -> bool:
        """Return whether the table contains the batch. The table is asked once for each query."""
        if mark.query not in self._last:
            last = self._table.last_batch(mark.query)
            self._last[mark.query] = -1 if last is None else last
        return mark.batch <= self._last[mark.query]

    def append(self, rows: DataFrame, mark: Mark) -> None:
        """Write the rows of a batch, unless the table contains it."""
        if not self.has(mark):
            self._table.append(rows.selectExpr(*self._columns), mark)
            self._last[mark.query] = mark.batch


class BatchWriter:
    """Writes the batches of a query; the function that `foreachBatch` calls. Without a side table, all rows are good.

    `split` separates the good rows from the bad ones.
    """

    def __init__(self, good: Once, bad: Once | None, split: Split) -> None:
        self._good = good
        self._bad = bad
        self._split = split

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write a batch."""
        mark = Mark(query_id(rows), batch)
        if self._bad is None:
            self._good.append(self._split.good(rows), mark)
        elif self._good.has(mark):  # the driver died after this table's commit
            self._bad.append(self._split.bad(rows), mark)
        else:
            count = Observation()
            counted = rows.observe(count, f.count_if(self._split.is_bad).alias(BAD_ROWS))
            self._good.append(self._split.good(counted), mark)
            if count.get[BAD_ROWS]:
                self._bad.append(self._split.bad(rows), mark)


def query_id(rows: DataFrame) -> str:
    """Return the id of the query that runs this batch; it belongs to the checkpoint."""
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    if query is None:
        raise RuntimeError(f"Spark has not set {QUERY_PROPERTY}: a batch outside a streaming query")
    return query
