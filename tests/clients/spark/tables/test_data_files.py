"""Data files of Iceberg tables: rows by partition, bounded buffers, statistics; read back by PyIceberg."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from skylarkmq.clients.spark.tables import data_files
from skylarkmq.clients.spark.tables.batch_offsets import BatchOffsets, offsets_in
from skylarkmq.clients.spark.tables.data_files import DataFileWriter, target_of
from skylarkmq.clients.spark.tables.marks import Mark, last_batches
from skylarkmq.clients.spark.tables.pyiceberg_table import append_files, in_files, summaries

pytestmark = pytest.mark.spark

START = datetime(2024, 5, 1, 13, 59, 55, tzinfo=UTC)
SCHEMA = pa.schema([
    pa.field("topic", pa.string()),
    pa.field("storeTimestamp", pa.timestamp("us", tz="UTC")),
    pa.field("body", pa.binary()),
    pa.field("properties", pa.map_(pa.string(), pa.string())),
    pa.field("value", pa.struct([pa.field("ids", pa.list_(pa.field("element", pa.int64())))])),
])  # fmt: skip


def rows(numbers: range, size: int = 0) -> pa.RecordBatch:
    """Rows of two topics, one a second; every seventh without a time."""
    columns: dict[str, list[Any]] = {
        "topic": [f"T{n % 2}" for n in numbers],
        "storeTimestamp": [START + timedelta(seconds=n) if n % 7 else None for n in numbers],
        "body": [(b"%d" % n).ljust(size) for n in numbers],
        "properties": [[("n", str(n))] for n in numbers],
        "value": [{"ids": [n, None]} if n % 3 else None for n in numbers],
    }
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Any]:
    """A table partitioned by topic and hour."""
    catalog = load_catalog("lake", type="in-memory", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    made = catalog.create_table("shop.orders", SCHEMA)
    with made.update_spec() as spec:
        spec.add_field("topic", "identity", "topic")
        spec.add_field("storeTimestamp", "hour", "hour")
    yield made
    catalog.close()


def data(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def test_rows_are_read_back_and_files_have_one_partition_each(table: Any, tmp_path: Path) -> None:
    """Two topics in two hours and without a time: six files, one commit with the mark."""
    batches = [rows(range(5)), rows(range(5, 20))]
    append_files(table, in_files(DataFileWriter(target_of(table, 1 << 20)), batches), Mark("q", 3))
    read = table.scan().to_arrow().sort_by("body")
    expected = pa.Table.from_batches(batches).sort_by("body")
    assert read.select(SCHEMA.names).to_pylist() == expected.to_pylist()
    assert len(data(tmp_path)) == 6
    hour = int(START.timestamp()) // 3600
    partitions = {(file["partition"]["topic"], file["partition"]["hour"]) for file in table.inspect.files().to_pylist()}
    assert partitions == {(topic, time) for topic in ("T0", "T1") for time in (hour, hour + 1, None)}
    assert last_batches(summaries(table), {}) == last_batches([], table.properties) == {"q": 3}
    assert table.scan("topic = 'T1' and storeTimestamp < '2024-05-01T14:00:00+00:00'").to_arrow().num_rows == 2


def test_a_batch_without_rows_leaves_its_mark_and_its_offsets(table: Any) -> None:
    """In properties, without a snapshot; a batch with rows has the same properties."""
    ends = [{"topic": {"broker": {"0": n}}} for n in range(3)]
    first, second = (BatchOffsets("file:/c", Mark("q", n), ends[n], ends[n + 1]) for n in range(2))
    append_files(table, [], first.mark, first)
    assert (table.snapshots(), last_batches([], table.properties)) == ([], {"q": 0})
    assert offsets_in(table.properties, "file:/c") == first
    files = in_files(DataFileWriter(target_of(table, 1 << 20)), [rows(range(5))])
    append_files(table, files, second.mark, second)
    assert (len(table.snapshots()), offsets_in(table.properties, "file:/c")) == (1, second)
    assert last_batches([], table.properties) == {"q": 1}


def test_files_end_at_their_size(table: Any, tmp_path: Path) -> None:
    """A row group is written once enough bytes are buffered, and a file ends with the row group that fills it."""
    target = target_of(table, 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "ROW_GROUP_BYTES", 2000)
        files = in_files(DataFileWriter(target), [rows(range(1, 200, 2), 100)])
        more = in_files(DataFileWriter(target), [rows(range(n, n + 12, 2), 1000) for n in range(1, 61, 12)])
    assert sum(file.record_count for file in files) == 100
    assert sum(file.record_count for file in more) == 30
    assert len(more) > len({tuple(file.partition) for file in more})


def test_buffers_and_open_files_are_bounded(table: Any) -> None:
    """Beyond the limits the largest buffer is written, and the file that was unused for the longest time is closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_files, "BUFFERED_BYTES", 5000)
        patch.setattr(data_files, "OPEN_FILES", 2)
        writer = DataFileWriter(target_of(table, 1 << 20))
        for n in range(0, 60, 6):
            writer.write(rows(range(n, n + 6), 1000))
            assert sum(file.buffered_bytes for file in writer._files.values()) <= 5000
            assert len(writer._files) <= 2
        assert sum(file.record_count for file in writer.finish()) == 60


def test_files_of_a_failed_task_are_deleted(table: Any, tmp_path: Path) -> None:
    """The error is raised unchanged."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(range(5))
        raise ConnectionError("no broker")

    with pytest.raises(ConnectionError, match="no broker"):
        in_files(DataFileWriter(target_of(table, 1 << 20)), batches())
    assert data(tmp_path) == []


def test_rows_without_any_time_are_written(table: Any) -> None:
    """Their partition is null."""
    (file,) = in_files(DataFileWriter(target_of(table, 1 << 20)), [rows(range(0, 28, 14))])
    assert (file.record_count, list(file.partition)) == (2, ["T0", None])
