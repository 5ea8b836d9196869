"""The sources of a replay that are not files: stores and Iceberg tables."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.spark.replay.errors import ArchiveUnreadable
from skylarkmq.clients.spark.replay.runs import COLUMNS, runs
from skylarkmq.clients.spark.replay.selection import Selection
from skylarkmq.clients.spark.replay.sources import ArchiveTable, Source, Store, opened
from skylarkmq.clients.spark.replay.targets import Targets
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from tests.clients.spark.replay.world import rows
from tests.harness.stores import message
from tests.harness.stores import opened as store_at

pytestmark = pytest.mark.spark

A, B = MessageQueue("Orders", "a", 0), MessageQueue("Orders", "a", 1)


def read(source: Source, **selection: object) -> pa.Table:
    return pa.Table.from_batches(opened(source, Selection(**selection)).batches())  # type: ignore[arg-type]


def test_a_store_yields_bodies_and_properties_as_stored(tmp_path: Path) -> None:
    """With a condition, all columns of the record, and its key."""
    with store_at(tmp_path) as written:
        for number in range(6):
            written.put(message(b"%d" % number, "Orders", number % 2, properties=b"KEYS\x01k1 k2\x02n\x01%d" % number))
    table = read(Store(str(tmp_path), "a"), topics=("Orders",))
    assert set(table.column_names) == set(COLUMNS)
    assert table.column("properties").to_pylist() == [f"KEYS\x01k1 k2\x02n\x01{number}" for number in range(6)]
    (batch,) = table.combine_chunks().to_batches()
    assert {run.stream.source: len(run.rows) for run in runs(batch, Targets())} == {A: 3, B: 3}
    with_condition = read(Store(str(tmp_path), "a"), where="true")
    assert set(ARCHIVE_SCHEMA.names) - set(with_condition.column_names) == {"readable"}
    assert set(with_condition.column("key").to_pylist()) == {"k1"}


def test_an_iceberg_table_is_read_by_its_files(tmp_path: Path) -> None:
    """The files that its snapshot lists, in the order of the log, with row groups skipped as in a directory."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = load_catalog("lake", **properties)
    catalog.create_namespace("mq")
    table = catalog.create_table("mq.messages", ARCHIVE_SCHEMA)
    for number, name in enumerate(("2", "1", "not-added")):
        part = rows([A], 2, queueId=number, storeTimestamp=number * 1_000_000)
        pq.write_table(part, tmp_path / f"{name}.parquet")
    table.add_files([f"file://{tmp_path}/{name}.parquet" for name in "12"])
    source = ArchiveTable("mq.messages", "lake", properties)
    assert set(read(source).column("queueId").to_pylist()) == {0, 1}
    assert set(read(source, since_ms=1000).column("queueId").to_pylist()) == {1}
    with pytest.raises(ArchiveUnreadable, match=r"mq\.other"):
        opened(ArchiveTable("mq.other", "lake", properties), Selection())
