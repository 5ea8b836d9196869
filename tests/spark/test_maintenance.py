"""Compaction and expiry by `mqspark-table`: rows and marks stay, in every format of this session.

Without jars: Parquet, and Iceberg by PyIceberg. PYSPARK_SUBMIT_ARGS may name the jar of Delta Lake (with its extension)
or of Iceberg's runtime.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from skylarkmq.clients.spark.tables.command import table as command
from skylarkmq.clients.spark.tables.delta import DeltaTable
from skylarkmq.clients.spark.tables.iceberg import IcebergTable
from skylarkmq.clients.spark.tables.layout import TimeUnit
from skylarkmq.clients.spark.tables.marks import Mark
from skylarkmq.clients.spark.tables.names import iceberg_name
from skylarkmq.clients.spark.tables.pyiceberg_table import PyIcebergTable
from skylarkmq.clients.spark.tables.spark_maintenance import DELTA_RETENTION_CHECK
from skylarkmq.clients.spark.tables.table import Once, Table

pytestmark = pytest.mark.spark

JARS = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
DAY_S = 86_400
FILE_BYTES = 1 << 28


class Lake:
    """A table of one format below a directory; `conf` are settings for the command."""

    table: Table

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.name = str(directory / "orders")
        self.conf: dict[str, str] = {}

    def ids(self) -> list[int]:
        raise NotImplementedError


class DeltaLake(Lake):
    """By Delta's Spark connector."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark, directory)
        self.conf = {DELTA_RETENTION_CHECK: "false"}
        self.table = DeltaTable(spark, self.name, TimeUnit.HOUR, 1_000_000)

    def ids(self) -> list[int]:
        return [row.id for row in self.spark.read.format("delta").load(self.name).select("id").orderBy("id").collect()]


class RuntimeLake(Lake):
    """By Iceberg's Spark runtime, in a catalog of directories."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark, directory)
        self.name = "runtime.shop.orders"
        catalog = "spark.sql.catalog.runtime"
        self.conf = {f"{catalog}.type": "hadoop", f"{catalog}.warehouse": f"file://{directory}"}
        for name, value in self.conf.items():
            spark.conf.set(name, value)
        self.table = IcebergTable(spark, iceberg_name(self.name), TimeUnit.HOUR, FILE_BYTES)

    def ids(self) -> list[int]:
        return [row.id for row in self.spark.table(self.name).select("id").orderBy("id").collect()]


class PyIcebergLake(Lake):
    """By PyIceberg, in a catalog in SQLite."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark, directory)
        self.name = "kept.shop.orders"
        self._settings = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}
        self.conf = {f"spark.sql.catalog.kept.{name}": value for name, value in self._settings.items()}
        for name, value in self.conf.items():
            spark.conf.set(name, value)
        self.table = PyIcebergTable(spark, iceberg_name(self.name), TimeUnit.HOUR, FILE_BYTES)

    def ids(self) -> list[int]:
        table = load_catalog("kept", **self._settings).load_table("shop.orders")
        return sorted(table.scan().to_arrow()["id"].to_pylist())


LAKES: list[type[Lake]] = [DeltaLake] * ("io.delta:" in JARS) + [RuntimeLake] * ("iceberg-spark-runtime" in JARS) or [
    PyIcebergLake
]


@pytest.fixture(params=LAKES, ids=lambda lake: lake.__name__)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    made: Lake = request.param(spark, tmp_path)
    yield made
    for name in made.conf:
        spark.conf.unset(name)


def rows(spark: SparkSession, batch: int) -> DataFrame:
    """Return 20 rows of two topics."""
    first = batch * 20
    return spark.range(first, first + 20, 1, 1).selectExpr(
        "concat('T', id % 2) AS topic",
        "id",
        "timestamp'2024-05-01 13:00:00' AS storeTimestamp",
        "'2024-05-01-13' AS hour",
    )


def run(lake: Lake, *arguments: str, code: int = 0) -> Any:
    """Run the command; return its summary, or the error."""
    conf = [part for name, value in lake.conf.items() for part in ("--conf", f"{name}={value}")]
    engine = ["--engine", "spark"] if isinstance(lake, RuntimeLake) else []
    done = CliRunner().invoke(command, [arguments[0], lake.name, *arguments[1:], *engine, *conf, "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if code == 0 else done.stderr


def test_a_batch_that_runs_again_after_compaction_and_expiry_adds_nothing(lake: Lake) -> None:
    """Two files remain, one for each partition; the other files are deleted; the next batch is written."""
    once = Once(lake.table, rows(lake.spark, 0).schema)
    for batch in (5, 6, 7):
        once.append(rows(lake.spark, batch), Mark("q", batch))
    compacted = run(lake, "compact")
    assert (compacted["filesBefore"], compacted["filesAfter"]) == (6, 2)
    assert lake.ids() == list(range(100, 160))
    expired = run(lake, "expire", "--older-than", "0s")
    assert expired["filesDeleted"] >= 6
    assert expired.get("snapshots", 3) == 3
    files = [path for path in lake.directory.rglob("*.parquet") if "_delta_log" not in path.parts]
    assert len(files) == 2
    again = Once(lake.table, rows(lake.spark, 0).schema)
    again.append(rows(lake.spark, 7), Mark("q", 7))
    assert lake.ids() == list(range(100, 160))
    again.append(rows(lake.spark, 8), Mark("q", 8))
    assert lake.ids() == list(range(100, 180))


def test_delta_refuses_ages_below_the_retention_of_the_table(lake: Lake) -> None:
    """With the way to insist. An age above the retention is not shortened to it."""
    if not isinstance(lake, DeltaLake):
        return  # Iceberg has no such limit
    Once(lake.table, rows(lake.spark, 0).schema)
    lake.conf = {DELTA_RETENTION_CHECK: "true"}
    assert f"--conf {DELTA_RETENTION_CHECK}=false" in run(lake, "expire", "--older-than", "167h", code=2)
    leftover = Path(lake.name) / "leftover.parquet"
    for days, deleted in ((29, 0), (31, 1)):
        leftover.touch()
        os.utime(leftover, (time.time(), time.time() - days * DAY_S))
        assert run(lake, "expire", "--older-than", "30d")["filesDeleted"] == deleted
    assert run(lake, "expire", "--older-than", "7d")["filesDeleted"] == 0


def test_leftovers_of_failed_attempts_are_deleted_from_a_directory(spark: SparkSession, tmp_path: Path) -> None:
    """Files of the log and young files stay, with any characters in partitions; copies of a directory are refused."""
    lake = Lake(spark, tmp_path)
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.txt").write_text("a b\nc%2Fd\n")
    stream = spark.readStream.text(str(source)).selectExpr("value", "value AS topic").writeStream.partitionBy("topic")
    query = stream.format("parquet").option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    query.start(lake.name).awaitTermination()
    files = list(Path(lake.name).rglob("*.parquet"))
    old, young = (files[0].with_name(f"{name}.parquet") for name in ("old", "young"))
    shutil.copy(files[0], old)
    shutil.copy(files[0], young)
    for path in (*files, old, young):
        os.utime(path, (time.time(), time.time() - (0 if path == young else 2 * DAY_S)))
    assert run(lake, "expire", "--older-than", "1d")["filesDeleted"] == 1
    assert set(Path(lake.name).rglob("*.parquet")) == {*files, young}
    shutil.copytree(lake.name, tmp_path / "copy")
    lake.name = str(tmp_path / "copy")
    assert "was copied or moved" in run(lake, "expire", "--older-than", "1d", code=2)
    assert len(list(Path(lake.name).rglob("*.parquet"))) == len(files) + 1
