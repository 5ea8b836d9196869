"""A table that takes each batch of a query once, and the two tables of a pipeline.

    batch of messages --good--> table          Once: skips a batch that the table contains
                      --bad---> table_bad

A format implements `Table`. A batch is written to the table first, then its bad rows to the side table; each table
records by itself which batches it contains, so a batch that was interrupted in between continues with the second. Bad
rows are counted while the good ones are written: a batch without bad rows is read once, a batch with some twice.

The table also keeps the offsets of the last batch, from which a query continues whose checkpoint was lost; see
batch_offsets.py for the reasons why it then misses and repeats nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.source.offsets import FirstBatch, Offset
from skylarkmq.clients.spark.tables.batch_offsets import BatchOffsets
from skylarkmq.clients.spark.tables.marks import Mark
from skylarkmq.clients.spark.tables.offset_log import Log, StaleCheckpoint

QUERY_PROPERTY: Final = "sql.streaming.queryId"
"""The local property in which Spark passes the query's id to the jobs of a batch."""

MATCHING: Final = "matching"


class Split(NamedTuple):
    """How a batch is divided. `counted` returns its rows, and the number of bad ones for when they are written."""

    good: Callable[[DataFrame], DataFrame]
    bad: Callable[[DataFrame], DataFrame]
    counted: Callable[[DataFrame], tuple[DataFrame, Callable[[], int]]]


class Table(Protocol):
    """A table of one format. A mark names a batch of a query."""

    def fit(self, schema: StructType) -> list[str]:
        """Create or change the table for rows of this schema; return the SQL expressions of its columns.

        Raises SchemaConflict.
        """

    def last_batch(self, query: str) -> int | None:
        """Return the last batch of the query that the table contains; None: no batch."""

    def last_offsets(self, checkpoint: str) -> BatchOffsets | None:
        """Return the offsets of the last batch of a checkpoint; None: the table has none."""

    def append(self, rows: DataFrame, mark: Mark, offsets: BatchOffsets | None) -> None:
        """Add rows that have the table's columns, and the mark, in one commit.

        The offsets of the batch are written in the same commit, or in one before it. A batch without rows is written,
        too: its mark and its offsets.
        """


class Once:
    """A table, and rows of one schema that are appended once for each batch. Raises SchemaConflict."""

    def __init__(self, table: Table, schema: StructType) -> None:
        self._table = table
        self._columns: Sequence[str] = table.fit(schema)
        self._last: dict[str, int] = {}

    def last_batch(self, query: str) -> int:
        """Return the last batch of the query in the table; -1: none. The table is read once for each query."""
        if query not in self._last:
            last = self._table.last_batch(query)
            self._last[query] = -1 if last is None else last
        return self._last[query]

    def has(self, mark: Mark) -> bool:
        """Return whether the table contains the batch."""
        return mark.batch <= self.last_batch(mark.query)

    def last_offsets(self, checkpoint: str) -> BatchOffsets | None:
        """Return the offsets of the last batch of a checkpoint; None: the table has none."""
        return self._table.last_offsets(checkpoint)

    def append(self, rows: DataFrame, mark: Mark, offsets: BatchOffsets | None = None) -> None:
        """Write the rows of a batch, unless the table contains it."""
        if not self.has(mark):
            self._table.append(rows.selectExpr(*self._columns), mark, offsets)
            self._last[mark.query] = mark.batch


class BatchWriter:
    """Writes the batches of a query; the function that `foreachBatch` calls. Without a side table, all rows are good.

    `split` separates the good rows from the bad ones.
    """

    def __init__(self, good: Once, bad: Once | None, split: Split, log: Log) -> None:
        self._good = good
        self._bad = bad
        self._split = split
        self._log = log

    def first_batch(self) -> FirstBatch | None:
        """Return where a query without a committed batch begins, by the table; None: the table has no offsets."""
        known = None if self._log.has_commits() else self._good.last_offsets(self._log.checkpoint)
        if known is None:
            return None
        is_complete = self._good.has(known.mark) and (self._bad is None or self._bad.has(known.mark))
        return FirstBatch(known.end) if is_complete else FirstBatch(known.start, known.end)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write a batch. Raises StaleCheckpoint if the table contains another batch of this number."""
        offsets = self._offsets(query_id(rows), batch)
        mark = offsets.mark
        is_written = self._good.has(mark)  # the driver died after this table's commit
        if is_written:
            self._require_same(offsets)
        if self._bad is None:
            self._good.append(self._split.good(rows), mark, offsets)
        elif is_written:
            self._bad.append(self._split.bad(rows), mark)
        else:
            counted, bad_count = self._split.counted(rows)
            self._good.append(self._split.good(counted), mark, offsets)
            if bad_count():
                self._bad.append(self._split.bad(rows), mark)
            elif Offset.of(offsets.end).logs:  # of a backfill, whose store may be deleted later
                self._bad.append(self._split.bad(rows).limit(0), mark)

    def _offsets(self, query: str, batch: int) -> BatchOffsets:
        """Return the mark and the range of a batch: those in the table if a new query repeats its last batch."""
        checkpoint, end = self._log.checkpoint, self._log.end(batch)
        start: dict[str, Any] = {}
        if batch:
            start = self._log.end(batch - 1)
        elif (known := self._good.last_offsets(checkpoint)) is not None:
            if known.end == end:
                return known
            start = known.end
        return BatchOffsets(checkpoint, Mark(query, batch), start, end)

    def _require_same(self, offsets: BatchOffsets) -> None:
        """Raise StaleCheckpoint unless the batch is the one that the table contains; else its rows would be lost."""
        known = self._good.last_offsets(offsets.checkpoint)
        is_other = known is not None and known.mark == offsets.mark and known.end != offsets.end
        if is_other or offsets.mark.batch < self._good.last_batch(offsets.mark.query):
            raise StaleCheckpoint(
                f"the checkpoint {offsets.checkpoint} is older than the table, which contains another batch "
                f"{offsets.mark.batch} of it: delete the checkpoint, and start again; the query continues at the "
                "offsets in the table"
            )


def counted(rows: DataFrame, condition: Column) -> tuple[DataFrame, Callable[[], int]]:
    """Return the rows, and a function that returns how many match the condition; call it once they are written."""
    count = Observation()
    return rows.observe(count, f.count_if(condition).alias(MATCHING)), lambda: int(count.get[MATCHING])


def query_id(rows: DataFrame) -> str:
    """Return the id of the query that runs this batch; it belongs to the checkpoint."""
    query = rows.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
    if query is None:
        raise RuntimeError(f"Spark has not set {QUERY_PROPERTY}: a batch outside a streaming query")
    return query
