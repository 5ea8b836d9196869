"""Directories of Parquet files that Spark's file sink writes.

    <directory>/topic=Orders/hour=2024-05-01-13/part-....parquet
    <directory>/_spark_metadata/12, 19.compact, ...      the files of each batch: JSON lines after a line with a version

The log makes each message appear once: files of failed attempts are not in it. They are also not deleted;
parquet_leftovers.py does that.

Small files cannot be compacted safely: the log names the files of each batch, readers without the log (DuckDB, Polars)
would see old and new files at once, and a query that runs meanwhile rewrites the log.
"""

import json
from collections.abc import Iterator
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.tables.evolution import SchemaConflict, TableFormat, evolve
from skylarkmq.clients.spark.tables.hadoop_path import HadoopPath
from skylarkmq.clients.spark.tables.layout import TOPIC, TimeUnit
from skylarkmq.clients.spark.tables.offset_log import OffsetLog, StaleCheckpoint, last_number

LOG: Final = "_spark_metadata"
SUFFIX: Final = ".parquet"
NO_COMPACTION: Final = (
    "a directory of Parquet files cannot be compacted safely: Spark's log (_spark_metadata) names the files of each "
    "batch, and other readers would see old and new files at once. Write fewer, larger batches (--interval, "
    "--max-rows), or use --to delta or --to iceberg"
)


def check_checkpoint(spark: SparkSession, directory: str, checkpoint: OffsetLog) -> None:
    """Raise StaleCheckpoint if the directory contains batches that the checkpoint lacks.

    Spark skips a batch whose number is in the directory's log, so the next batches of the query would be lost.
    """
    last, begun = last_number(HadoopPath.of(spark, f"{directory}/{LOG}")), checkpoint.last()
    if last is not None and (begun is None or begun < last):
        has = "has no batch" if begun is None else f"ends at batch {begun}"
        raise StaleCheckpoint(
            f"{directory} contains the batches up to {last} of a query, but the checkpoint {checkpoint.checkpoint} "
            f"{has}: restore the checkpoint, or write to a new directory with a new checkpoint"
        )


def check_columns(spark: SparkSession, directory: str, schema: StructType, unit: TimeUnit) -> None:
    """Raise SchemaConflict if rows of this schema do not fit the files in a directory. It may not exist.

    `unit` is the time by which the rows are partitioned.
    """
    log = HadoopPath.of(spark, f"{directory}/{LOG}")
    if not log.exists() or not any(True for file in log.files() for _ in paths_in(file.path.text())):
        return
    files = spark.read.option("mergeSchema", "true").parquet(directory).schema
    for other in TimeUnit:
        if other is not unit and other.column in files.fieldNames() and unit.column not in files.fieldNames():
            raise SchemaConflict(
                f"{directory} is partitioned by {other.column}: set --partition-by {other.column}, or write to a new "
                "directory"
            )
    evolve(columns_in_files(files, unit), columns_in_files(schema, unit), TableFormat.PARQUET)


def columns_in_files(schema: StructType, unit: TimeUnit) -> StructType:
    """Return the schema without the partition columns, whose types Spark guesses from the directories' names."""
    return StructType([field for field in schema.fields if field.name not in (TOPIC, unit.column)])


def paths_in(text: str) -> Iterator[str]:
    """Yield the paths in a file of the log."""
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)["path"]
