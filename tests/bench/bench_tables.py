r"""Throughput of the writers of tables, compared with Spark's own writer: the same rows and partitions, alternately.

    python -m tests.bench.bench_tables                                   # Parquet and PyIceberg, 1 M messages of 1 KiB
    PYSPARK_SUBMIT_ARGS="--packages io.delta:delta-spark_4.2_2.13:4.4.0 \
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog pyspark-shell" \
        python -m tests.bench.bench_tables --only delta              # PySpark 4.2

The rows come from the constant source of bench_spark. Spark's own writer is Delta's for Delta tables, and that of
Parquet for the others, both partitioned by topic and hour; a batch is one commit. The result is the ratio within a
round.

Budget: 0.8 of Spark's own writer.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from skylarkmq.clients.spark.pipeline.table_rows import partitioned, shuffled
from skylarkmq.clients.spark.tables.delta import DeltaTable
from skylarkmq.clients.spark.tables.iceberg import IcebergTable
from skylarkmq.clients.spark.tables.layout import TOPIC, TimeUnit
from skylarkmq.clients.spark.tables.marks import Mark
from skylarkmq.clients.spark.tables.names import iceberg_name
from skylarkmq.clients.spark.tables.pyiceberg_table import PyIcebergTable
from skylarkmq.clients.spark.tables.table import Once
from tests.bench.bench_spark import session

BUDGET: Final = 0.8
WRITERS: Final = ("parquet", "pyiceberg", "iceberg", "delta")
FILE_BYTES: Final = 256 << 20
FILE_ROWS: Final = 5_000_000
UNIT: Final = TimeUnit.HOUR


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=WRITERS, default=["parquet", "pyiceberg"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        spark = session(directory)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        rows = spark.read.format("constant").option("rows", str(options.rows)).load()
        for name in options.only:
            run(name, spark, rows, options, Path(directory))
        spark.stop()


def run(name: str, spark: SparkSession, rows: DataFrame, options: argparse.Namespace, directory: Path) -> None:
    """Measure a writer and Spark's own, alternately, and print the result; the first round warms up."""
    own: Callable[[Path], None] = lambda path: spark_writer(rows, "delta" if name == "delta" else "parquet", path)  # noqa: E731
    ratios, rates = [], []
    for number in range(options.rounds + 1):
        path = directory / f"{name}-{number}"
        path.mkdir()
        base = timed(own, path / "own")
        seconds = timed(lambda to: ours(name, spark, rows, to), path / "ours")
        shutil.rmtree(path)
        if number:
            ratios.append(base / seconds)
            rates.append(options.rows / seconds)
    verdict = "ok" if median(ratios) >= BUDGET else f"below the budget of {BUDGET}"
    print(f"{name}: {median(rates):,.0f} rows/s, {median(ratios):.2f} of Spark's own writer: {verdict}", flush=True)


def timed(write: Callable[[Path], None], path: Path) -> float:
    """Return the seconds of a write."""
    begin = time.perf_counter()
    write(path)
    return time.perf_counter() - begin


def spark_writer(rows: DataFrame, table_format: str, path: Path) -> None:
    """Write by Spark's own writer."""
    partitioned(rows, UNIT).write.format(table_format).partitionBy(TOPIC, UNIT.column).save(str(path))


def ours(name: str, spark: SparkSession, rows: DataFrame, path: Path) -> None:
    """Write a batch as the pipeline does."""
    if name == "parquet":
        writer = shuffled(partitioned(rows, UNIT), UNIT).write.format("parquet").partitionBy(TOPIC, UNIT.column)
        writer.option("maxRecordsPerFile", str(FILE_ROWS)).save(str(path))
        return
    if name == "delta":
        rows = partitioned(rows, UNIT)
    Once(table(name, spark, path), rows.schema).append(rows, Mark("bench", 0))


def table(name: str, spark: SparkSession, path: Path) -> Any:
    """Return a new table."""
    if name == "delta":
        return DeltaTable(spark, str(path), UNIT, FILE_ROWS)
    catalog = f"lake{path.parent.name.replace('-', '')}"
    path.mkdir()
    spark.conf.set(f"spark.sql.catalog.{catalog}.warehouse", f"file://{path}")
    if name == "iceberg":
        spark.conf.set(f"spark.sql.catalog.{catalog}.type", "hadoop")
        return IcebergTable(spark, iceberg_name(f"{catalog}.bench.messages"), UNIT, FILE_BYTES)
    spark.conf.set(f"spark.sql.catalog.{catalog}.type", "sql")
    spark.conf.set(f"spark.sql.catalog.{catalog}.uri", f"sqlite:///{path}/catalog.db")
    return PyIcebergTable(spark, iceberg_name(f"{catalog}.bench.messages"), UNIT, FILE_BYTES)


if __name__ == "__main__":
    main()
