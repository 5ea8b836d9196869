r"""Throughput of the writers of tables, compared with Spark's own writer: the same rows and partitions, alternately.

    python -m tests.bench.bench_tables                                   # Parquet and PyIceberg, 1 M messages of 1 KiB
    PYSPARK_SUBMIT_ARGS="--packages io.delta:delta-spark_4.2_2.13:4.4.0 \
        --conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension \
        --conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog pyspark-shell" \
        python -m tests.bench.bench_tables --only delta              # PySpark 4.2

The rows come from the constant source of bench_spark. Spark's own writer is Delta's for Delta tables, and that of
Parquet for the others, both partitioned by topic and hour; a batch is one commit. Both append to tables that exist, as
all batches of a stream but its first do. The result is the ratio within a round. `parquet` is the pipeline with
`--no-shuffle`, `parquet-shuffled` its default, which collects rows for larger files.

Budget: 0.8 of Spark's own writer; none for `parquet-shuffled`.
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
from pyspark.sql.types import StructType

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
PARQUET: Final = "parquet"
SHUFFLED: Final = "parquet-shuffled"
WRITERS: Final = (PARQUET, SHUFFLED, "pyiceberg", "iceberg", "delta")
FILE_BYTES: Final = 256 << 20
FILE_ROWS: Final = 5_000_000
FIRST_ROWS: Final = 1_000
SPARK: Final = "spark"
OURS: Final = "ours"
UNIT: Final = TimeUnit.HOUR

Append = Callable[[DataFrame, int], None]
"""Writes the rows of a batch with this number."""
NewTable = Callable[[Path, StructType], Append]
"""Makes a table at a path for rows of a schema."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=WRITERS, default=[PARQUET, SHUFFLED, "pyiceberg"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        spark = session(directory)
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        rows = spark.read.format("constant").option("rows", str(options.rows)).load()
        for name in options.only:
            run(name, spark, rows, options, Path(directory))
        spark.stop()


def run(name: str, spark: SparkSession, rows: DataFrame, options: argparse.Namespace, directory: Path) -> None:
    """Measure a writer and Spark's own, alternately, and print the result; the first round warms up.

    The first of a round changes in every round, because the second one often runs faster.
    """
    new_tables = {SPARK: spark_writer("delta" if name == "delta" else "parquet"), OURS: our_writer(name, spark)}
    ratios, rates = [], []
    for number in range(options.rounds + 1):
        path = directory / f"{name}-{number}"
        path.mkdir()
        sides = (SPARK, OURS) if number % 2 else (OURS, SPARK)
        seconds = {side: timed(new_tables[side], rows, path / side) for side in sides}
        shutil.rmtree(path)
        if number:
            ratios.append(seconds[SPARK] / seconds[OURS])
            rates.append(options.rows / seconds[OURS])
    verdict = "no budget" if name == SHUFFLED else "ok" if median(ratios) >= BUDGET else f"below {BUDGET}"
    rounds = " ".join(f"{ratio:.2f}" for ratio in ratios)
    print(
        f"{name}: {median(rates):,.0f} rows/s, {median(ratios):.2f} ({rounds}) of Spark's own writer: {verdict}",
        flush=True,
    )


def timed(new_table: NewTable, rows: DataFrame, path: Path) -> float:
    """Return the seconds of the second batch of a new table; the first has few rows."""
    append = new_table(path, rows.schema)
    append(rows.limit(FIRST_ROWS), 0)
    begin = time.perf_counter()
    append(rows, 1)
    return time.perf_counter() - begin


def spark_writer(table_format: str) -> NewTable:
    """Return tables of Spark's own writer."""

    def new_table(path: Path, _schema: StructType) -> Append:
        def append(rows: DataFrame, _batch: int) -> None:
            writer = partitioned(rows, UNIT).write.format(table_format).mode("append")
            writer.partitionBy(TOPIC, UNIT.column).save(str(path))

        return append

    return new_table


def our_writer(name: str, spark: SparkSession) -> NewTable:
    """Return tables that the pipeline writes."""

    def new_table(path: Path, schema: StructType) -> Append:
        if name in (PARQUET, SHUFFLED):
            return lambda rows, _batch: append_to_directory(rows, path, shuffles=name == SHUFFLED)
        divided = (lambda rows: partitioned(rows, UNIT)) if name == "delta" else (lambda rows: rows)
        once = Once(table(name, spark, path), divided(spark.createDataFrame([], schema)).schema)
        return lambda rows, batch: once.append(divided(rows), Mark("bench", batch))

    return new_table


def append_to_directory(rows: DataFrame, path: Path, *, shuffles: bool) -> None:
    """Write a batch as the pipeline writes Parquet."""
    divided = partitioned(rows, UNIT)
    writer = (shuffled(divided, UNIT) if shuffles else divided).write.format("parquet").mode("append")
    writer.partitionBy(TOPIC, UNIT.column).option("maxRecordsPerFile", str(FILE_ROWS)).save(str(path))


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
