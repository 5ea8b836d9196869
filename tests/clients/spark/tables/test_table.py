"""Each batch of a query once: in memory, without Spark."""

from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from skylarkmq.clients.spark.tables.marks import Mark
from skylarkmq.clients.spark.tables.table import Once

SCHEMA = StructType([StructField("id", LongType())])


class Rows:
    """Rows that record how they were selected."""

    def selectExpr(self, *columns: str) -> Any:  # noqa: N802 - PySpark's name
        return columns


class MemoryTable:
    """A table that keeps its commits; it contains batch 4 of the query `old`."""

    def __init__(self) -> None:
        self.commits: list[tuple[Any, Mark]] = []
        self.asked: list[str] = []

    def fit(self, schema: StructType) -> list[str]:
        return [f"CAST({name} AS BIGINT)" for name in schema.fieldNames()]

    def last_batch(self, query: str) -> int | None:
        self.asked.append(query)
        return {"old": 4}.get(query)

    def append(self, rows: DataFrame, mark: Mark) -> None:
        self.commits.append((rows, mark))


def test_a_batch_is_appended_once_in_the_columns_of_the_table() -> None:
    """Batches up to the table's last one are skipped; the table is asked once for each query."""
    table = MemoryTable()
    once, rows = Once(table, SCHEMA), cast("DataFrame", Rows())
    for query, batch in (("old", 3), ("old", 4), ("old", 5), ("old", 5), ("new", 0), ("new", 0)):
        once.append(rows, Mark(query, batch))
    selected = ("CAST(id AS BIGINT)",)
    assert table.commits == [(selected, Mark("old", 5)), (selected, Mark("new", 0))]
    assert table.asked == ["old", "new"]


def test_a_batch_whose_commit_fails_is_not_counted() -> None:
    """It is appended when it runs again."""

    class Failing(MemoryTable):
        def append(self, rows: DataFrame, mark: Mark) -> None:
            super().append(rows, mark)
            if len(self.commits) == 1:
                raise OSError("no catalog")

    table = Failing()
    once, rows = Once(table, SCHEMA), cast("DataFrame", Rows())
    try:
        once.append(rows, Mark("q", 0))
    except OSError:
        assert not once.has(Mark("q", 0))
    once.append(rows, Mark("q", 0))
    assert len(table.commits) == 2
