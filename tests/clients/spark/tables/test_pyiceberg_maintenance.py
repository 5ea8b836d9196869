"""Compaction and expiry of Iceberg tables by PyIceberg: rows and marks stay, whatever happens to the commits."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.types import LongType

from skylarkmq.clients.spark.tables import pyiceberg_compaction
from skylarkmq.clients.spark.tables.data_files import DataFileWriter, target_of
from skylarkmq.clients.spark.tables.marks import LAST_BATCH, Mark, last_batches
from skylarkmq.clients.spark.tables.pyiceberg_compaction import compact, rows_in_batch
from skylarkmq.clients.spark.tables.pyiceberg_expiry import expire
from skylarkmq.clients.spark.tables.pyiceberg_table import append_files, in_files, summaries
from skylarkmq.clients.spark.tables.results import Compacted, MaintenanceError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([
    pa.field("topic", pa.string()),
    pa.field("id", pa.int32()),
    pa.field("properties", pa.map_(pa.string(), pa.string())),
])  # fmt: skip
LARGE = 1 << 20


def silent(_done: int, _all: int) -> None:
    """Progress that is not shown."""


def soon() -> datetime:
    """A time after all snapshots."""
    return datetime.now(UTC) + timedelta(minutes=1)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Any]:
    """A table partitioned by topic, with three batches of two topics: six files."""
    catalog = load_catalog("lake", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.orders", SCHEMA, properties={"commit.retry.num-retries": "0"})
    with made.update_spec() as spec:
        spec.add_field("topic", "identity", "topic")
    for batch in (5, 6, 7):
        append(made, range(10 * batch, 10 * batch + 10), batch)
    yield made
    catalog.close()


def append(table: Any, numbers: range, batch: int) -> None:
    columns: dict[str, list[Any]] = {
        "topic": [f"T{n % 2}" if n % 10 else None for n in numbers],
        "id": list(numbers),
        "properties": [[("n", str(n))] for n in numbers],
    }
    rows = pa.RecordBatch.from_pydict(columns, schema=table.schema().select(*columns).as_arrow())
    target = target_of(table, LARGE)
    missing = [pa.nulls(len(rows), field.type) for field in table.schema().as_arrow() if field.name not in columns]
    full = pa.RecordBatch.from_arrays([*rows.columns, *missing], schema=table.schema().as_arrow())
    append_files(table, in_files(DataFileWriter(target), [full]), Mark("q", batch))


def ids(table: Any) -> list[int]:
    table.refresh()
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def paths(table: Any) -> set[str]:
    table.refresh()
    return {task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()}


def on_disk(directory: Path) -> set[str]:
    return {str(path) for path in directory.rglob("*.parquet")}


def last(table: Any) -> int | None:
    table.refresh()
    return last_batches(summaries(table), table.properties).get("q")


def test_each_partition_becomes_one_file_with_the_current_schema(table: Any, tmp_path: Path) -> None:
    """Rows of before and after a change of the schema; a second compaction finds nothing to do."""
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.add_column("late", LongType())
    append(table, range(80, 90), 8)
    before = table.scan().to_arrow().sort_by("id")
    done = compact(table, LARGE, silent)
    assert (done.files_before, done.files_after) == (12, 3)
    table.refresh()
    assert table.scan().to_arrow().sort_by("id").equals(before)
    odd = table.scan(row_filter="topic = 'T1'").to_arrow()["id"].to_pylist()
    assert sorted(odd) == [n for n in before["id"].to_pylist() if n % 2]
    assert len(paths(table)) == 3
    assert compact(table, LARGE, silent) == Compacted(0, 0, 0)


def test_marks_survive_compaction_and_expiry(table: Any, tmp_path: Path) -> None:
    """Also marks that only snapshots have, as Spark's runtime leaves them. Unused files are deleted, used ones stay."""
    with table.transaction() as transaction:
        transaction.remove_properties(f"{LAST_BATCH}q")
    compact(table, LARGE, silent)
    assert len(on_disk(tmp_path)) == 12
    expired = expire(table, soon(), silent)
    assert (expired.snapshots, last(table), ids(table)) == (3, 7, list(range(50, 80)))
    assert on_disk(tmp_path) == paths(table)
    table.refresh()
    lists = {path.name for path in tmp_path.rglob("snap-*.avro")}
    assert lists == {Path(snapshot.manifest_list).name for snapshot in table.snapshots()}
    assert expire(table, soon(), silent).snapshots == 0


def test_expiry_keeps_young_snapshots_and_tags(table: Any, tmp_path: Path) -> None:
    """Their files can be read."""
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "first").commit()
    compact(table, LARGE, silent)
    assert expire(table, datetime.now(UTC) - timedelta(hours=1), silent).snapshots == 0
    assert expire(table, soon(), silent).snapshots == 2
    assert sorted(table.scan(snapshot_id=first).to_arrow()["id"].to_pylist()) == list(range(50, 60))
    assert len(on_disk(tmp_path)) == 3 + 3


def failing(table: Any, monkeypatch: pytest.MonkeyPatch, commit: Callable[[Callable[[], Any]], Any]) -> None:
    """Let the catalog commit in another way; `commit` gets the real commit."""
    real = table.catalog.commit_table
    monkeypatch.setattr(
        table.catalog, "commit_table", lambda *args, **options: commit(lambda: real(*args, **options)), raising=True
    )


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException])
def test_a_commit_that_is_reported_as_failed_but_took_effect_is_found(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The new files are the table's: they stay. PyIceberg's own repetitions, which also find the commit, are off."""
    monkeypatch.setattr("pyiceberg.table.update.snapshot._SnapshotProducer._clean_all_uncommitted", lambda _self: None)

    def commit(real: Callable[[], Any]) -> Any:
        real()
        raise error("the response was lost")

    failing(table, monkeypatch, commit)
    assert compact(table, LARGE, silent).files_after == 3
    assert ids(table) == list(range(50, 80))


def test_a_commit_of_unknown_outcome_leaves_all_files(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take effect later; the command fails."""

    def commit(_real: Callable[[], Any]) -> Any:
        raise CommitStateUnknownException("no response")

    failing(table, monkeypatch, commit)
    with pytest.raises(MaintenanceError, match="did not report whether it made the commit"):
        compact(table, LARGE, silent)
    assert ids(table) == list(range(50, 80))
    assert len(on_disk(tmp_path)) == 12


def test_a_commit_is_repeated_after_that_of_a_pipeline(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the other commit stay, as do all marks."""
    other = table.catalog.load_table("shop.orders")
    batches = [8, 9]

    def commit(real: Callable[[], Any]) -> Any:
        if batches:
            monkeypatch.undo()
            batch = batches.pop(0)
            append(other, range(10 * batch, 10 * batch + 10), batch)
            failing(table, monkeypatch, commit)
        return real()

    failing(table, monkeypatch, commit)
    assert compact(table, LARGE, silent).files_after == 3
    assert (ids(table), last(table)) == (list(range(50, 100)), 9)
    assert on_disk(tmp_path) >= paths(table)


def test_a_second_compaction_at_the_same_time_changes_nothing(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the one that comes too late are deleted."""
    rewrite = pyiceberg_compaction.rewrite

    def slow(*arguments: Any) -> list[Any]:
        monkeypatch.undo()
        compact(table.catalog.load_table("shop.orders"), LARGE, silent)
        return rewrite(*arguments)

    monkeypatch.setattr(pyiceberg_compaction, "rewrite", slow)
    with pytest.raises(MaintenanceError, match="Run the command again"):
        compact(table, LARGE, silent)
    assert ids(table) == list(range(50, 80))
    assert len(on_disk(tmp_path)) == 12


def test_files_with_other_rows_than_the_table_counts_are_not_exchanged(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new files are deleted."""
    real = pyiceberg_compaction.FileReader.batches
    monkeypatch.setattr(pyiceberg_compaction.FileReader, "batches", lambda *a: (batch[1:] for batch in real(*a)))
    with pytest.raises(MaintenanceError, match="have 30 rows, but 21 were read"):
        compact(table, LARGE, silent)
    assert on_disk(tmp_path) == paths(table)


def test_commits_are_limited_in_bytes(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit has whole partitions."""
    monkeypatch.setattr(pyiceberg_compaction, "COMMIT_BYTES", 1)
    snapshots = len(table.snapshots())
    steps: list[tuple[int, int]] = []
    compact(table, LARGE, lambda *step: steps.append(step))
    assert len(table.snapshots()) - snapshots == 3
    assert steps == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_file_that_cannot_be_deleted_is_reported(table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all others were tried."""
    compact(table, LARGE, silent)
    kind = type(table.io)
    real = kind.delete
    refused = min(on_disk(tmp_path) - paths(table))

    def delete(io: Any, path: str) -> None:
        if path.endswith(refused):
            raise PermissionError("no right")
        real(io, path)

    monkeypatch.setattr(kind, "delete", delete)
    with pytest.raises(MaintenanceError, match=r"1 of \d+ files could not be deleted, such as .*no right"):
        expire(table, soon(), silent)
    assert on_disk(tmp_path) == {refused} | paths(table)


def test_row_ids_are_not_lost() -> None:
    """Tables of format version 3 have them; they are left to Spark's runtime."""
    metadata = type("Metadata", (), {"format_version": 3})
    with pytest.raises(MaintenanceError, match="--engine spark"):
        compact(type("Table", (), {"metadata": metadata}), LARGE, silent)


class Groups:
    """Metadata of a Parquet file with row groups of these bytes and rows."""

    def __init__(self, *groups: tuple[int, int]) -> None:
        self._groups = groups
        self.num_row_groups = len(groups)

    def row_group(self, number: int) -> Any:
        return type("Group", (), dict(zip(("total_byte_size", "num_rows"), self._groups[number], strict=True)))


def test_batches_are_limited_in_bytes_and_rows() -> None:
    """By the row group with the largest rows; a batch has at least one row."""
    assert rows_in_batch(Groups((1 << 20, 1 << 10))) == 8 << 10
    assert rows_in_batch(Groups((1 << 20, 1 << 10), (4 << 20, 1))) == 2
    assert rows_in_batch(Groups((1 << 30, 1))) == 1
    assert rows_in_batch(Groups((8, 8))) == 1 << 16
    assert rows_in_batch(Groups((0, 0))) == rows_in_batch(Groups()) == 1 << 16
