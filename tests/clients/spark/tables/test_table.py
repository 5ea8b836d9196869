"""Each batch of a query once, whatever is killed and lost: in memory, without Spark.

The driver here does as Spark does: it logs the end of a batch, runs the batch, and logs that it is committed; a query
whose batch is not committed runs it again. It is killed before or after each step.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from skylarkmq.clients.spark.source.offsets import LOG, FirstBatch
from skylarkmq.clients.spark.tables.batch_offsets import BatchOffsets, offsets_in
from skylarkmq.clients.spark.tables.marks import Mark
from skylarkmq.clients.spark.tables.offset_log import StaleCheckpoint
from skylarkmq.clients.spark.tables.table import QUERY_PROPERTY, BatchWriter, Once, Split

SCHEMA = StructType([StructField("id", LongType())])
MESSAGES = 12
BATCH = 3


class Killed(BaseException):
    """The driver was killed."""


class Steps:
    """The steps of a driver, which is killed before one of them."""

    def __init__(self) -> None:
        self._left: int | None = None

    def kill_after(self, steps: int | None) -> None:
        """Kill the driver after so many steps; None: never."""
        self._left = steps

    def step(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Killed


class Rows(list[int]):
    """The rows of a batch; every fourth one is bad, and bad batches have only such rows."""

    query = "?"

    @property
    def sparkSession(self) -> Any:  # noqa: N802 - PySpark's name
        return self

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - PySpark's name
        return self

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - PySpark's name
        assert name == QUERY_PROPERTY
        return self.query

    def selectExpr(self, *columns: str) -> "Rows":  # noqa: N802 - PySpark's name
        assert columns == ("CAST(id AS BIGINT)",)
        return self

    def limit(self, count: int) -> "Rows":
        return Rows(self[:count])


def is_bad(row: int) -> bool:
    return row % 4 == 0 or 6 <= row < 9


def split() -> Split:
    def of(*, bad: bool) -> Callable[[DataFrame], DataFrame]:
        return lambda rows: cast("DataFrame", Rows(row for row in cast("Rows", rows) if is_bad(row) is bad))

    return Split(of(bad=False), of(bad=True), lambda rows: (rows, lambda: sum(map(is_bad, cast("Rows", rows)))))


class MemoryTable:
    """A table. Its offsets are in the commit of the rows, or, with `is_before`, in a commit before that."""

    def __init__(self, steps: Steps, *, is_before: bool) -> None:
        self.rows: list[int] = []
        self.marks: dict[str, int] = {}
        self.properties: dict[str, str] = {}
        self._steps = steps
        self._is_before = is_before

    def fit(self, schema: StructType) -> list[str]:
        return [f"CAST({name} AS BIGINT)" for name in schema.fieldNames()]

    def last_batch(self, query: str) -> int | None:
        return self.marks.get(query)

    def last_offsets(self, checkpoint: str) -> BatchOffsets | None:
        return offsets_in(self.properties, checkpoint)

    def append(self, rows: DataFrame, mark: Mark, offsets: BatchOffsets | None) -> None:
        properties = {} if offsets is None else offsets.properties()
        self._steps.step()
        if self._is_before and properties:
            self.properties |= properties
            self._steps.step()
        self.rows += cast("Rows", rows)
        self.marks[mark.query] = mark.batch
        self.properties |= properties
        self._steps.step()


class Checkpoint:
    """Spark's log of a query."""

    checkpoint = "file:/lake.checkpoint/delta"

    def __init__(self, query: str) -> None:
        self.query = query
        self.ends: dict[int, dict[str, Any]] = {}
        self.committed: list[int] = []

    def has_commits(self) -> bool:
        return bool(self.committed)

    def end(self, batch: int) -> dict[str, Any]:
        return self.ends[batch]


def offset(at: int, store: int) -> dict[str, Any]:
    """Return the offset: of a backfill up to `store`, then of a stream."""
    queues = {"T": {"a": {"0": at}}}
    return {LOG: {"a": at}, **queues} if at <= store else queues


def position(value: dict[str, Any]) -> int:
    return int(value["T"]["a"]["0"]) if value else 0


class World:
    """A table, its side table, and a checkpoint that can be lost. The first `store` messages come from a store."""

    def __init__(self, *, is_before: bool, store: int = 0, has_side_table: bool = True) -> None:
        self.steps = Steps()
        self.good = MemoryTable(self.steps, is_before=is_before)
        self.bad = MemoryTable(self.steps, is_before=is_before) if has_side_table else None
        self.log = Checkpoint("query 0")
        self._store = store
        self.queries = 1

    def lose_checkpoint(self) -> None:
        self.log = Checkpoint(f"query {self.queries}")
        self.queries += 1

    def run(self, end: int) -> None:
        """Run a driver until the query has read up to `end`."""
        bad = None if self.bad is None else Once(self.bad, SCHEMA)
        writer = BatchWriter(Once(self.good, SCHEMA), bad, split(), self.log)
        first, log = writer.first_batch(), self.log
        batch = max(log.committed, default=-1) + 1
        while True:
            start = log.end(batch - 1) if batch else (first.start if first else {})
            if batch not in log.ends:
                given = first.end_after(start) if first and not batch else None
                at = position(start) if given is None else -1
                stop = given if given is not None else offset(min(at + BATCH, end), self._store)
                if position(stop) == at:
                    return
                log.ends[batch] = stop
                self.steps.step()
            rows = Rows(range(position(start), position(log.ends[batch])))
            rows.query = log.query
            writer(cast("DataFrame", rows), batch)
            log.committed.append(batch)
            self.steps.step()
            batch += 1


class Kill(NamedTuple):
    """The driver is killed before step `step` of its run, and the checkpoint may be lost then."""

    step: int
    is_lost: bool


def kills(most: int) -> Iterator[Kill]:
    for step in range(most):
        for is_lost in (False, True):
            yield Kill(step, is_lost)


@pytest.mark.crash
@pytest.mark.parametrize("has_side_table", [False, True])
@pytest.mark.parametrize("is_before", [False, True])
def test_each_message_is_written_once_if_the_driver_is_killed_at_any_step(
    *, is_before: bool, has_side_table: bool
) -> None:
    """Twice in a row, with and without the loss of the checkpoint after each kill."""
    for first in kills(30):
        for second in kills(20 if first.is_lost else 1):
            world = World(is_before=is_before, has_side_table=has_side_table)
            for kill in (first, second):
                world.steps.kill_after(kill.step)
                with suppress(Killed):
                    world.run(MESSAGES)
                if kill.is_lost:
                    world.lose_checkpoint()
            world.steps.kill_after(None)
            world.run(MESSAGES)
            world.run(MESSAGES + 5)
            bad = [] if world.bad is None else world.bad.rows
            wanted = [row for row in range(MESSAGES + 5) if has_side_table or not is_bad(row)]
            assert Counter(world.good.rows + bad) == Counter(wanted), (first, second)
            assert not any(map(is_bad, world.good.rows))


def test_a_finished_backfill_is_never_read_again() -> None:
    """Its store may be gone: after the loss of the checkpoint, the stream begins at its end, also without bad rows."""
    for store in (BATCH, 2 * BATCH, 4 * BATCH):
        world = World(is_before=False, store=store)
        world.run(store)
        world.lose_checkpoint()
        bad = world.bad
        assert bad is not None
        writer = BatchWriter(Once(world.good, SCHEMA), Once(bad, SCHEMA), split(), world.log)
        assert writer.first_batch() == FirstBatch(offset(store, store))
        assert set(bad.marks) == {"query 0"}
        world.run(store + 5)
        assert Counter(world.good.rows + bad.rows) == Counter(range(store + 5))


def test_an_older_checkpoint_is_refused() -> None:
    """Spark would give the numbers of written batches to new ranges, whose messages would be lost."""
    world = World(is_before=False)
    world.run(MESSAGES)
    world.log.committed = [0]
    world.log.ends = {0: world.log.ends[0]}
    with pytest.raises(StaleCheckpoint, match="is older than the table, which contains another batch 1 of it"):
        world.run(MESSAGES)
    world.log.committed = [0, 1, 2]
    world.log.ends = {n: offset(BATCH * (n + 1), 0) for n in range(3)} | {3: offset(MESSAGES + 1, 0)}
    with pytest.raises(StaleCheckpoint, match="another batch 3"):
        world.run(MESSAGES + 1)
    world.lose_checkpoint()
    world.run(MESSAGES + 1)
    assert world.bad is not None
    assert Counter(world.good.rows + world.bad.rows) == Counter(range(MESSAGES + 1))


class Failing(MemoryTable):
    """A table whose first commit fails."""

    has_failed = False

    def append(self, rows: DataFrame, mark: Mark, offsets: BatchOffsets | None) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise OSError("no catalog")
        super().append(rows, mark, offsets)


def test_a_batch_whose_commit_fails_is_not_counted() -> None:
    """It is appended when it runs again, and only then."""
    table = Failing(Steps(), is_before=False)
    once, rows = Once(table, SCHEMA), cast("DataFrame", Rows([1]))
    with pytest.raises(OSError, match="no catalog"):
        once.append(rows, Mark("q", 0))
    for _ in range(2):
        once.append(rows, Mark("q", 0))
    assert table.rows == [1]
