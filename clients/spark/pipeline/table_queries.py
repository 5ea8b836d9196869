"""The pipeline's queries into tables.

    delta, iceberg    foreachBatch: a batch is one commit of the table, with the batch's mark (tables/table.py)
    parquet           Spark's file sink, whose log makes each batch appear once; a second query writes the bad rows

All checks run before the query starts: the library for the format, the catalog, the table's columns. Tables are created
or changed then, too.

Delta and Iceberg get their rows as the tasks read them, without a shuffle: a file for each task and partition, which
`mqspark-table compact` makes larger. A directory of Parquet files cannot be compacted, so its rows are shuffled.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from skylarkmq.clients.spark.decoding.columns import REASON
from skylarkmq.clients.spark.pipeline.job import Job
from skylarkmq.clients.spark.pipeline.table_rows import bad_rows, good_rows, partitioned, shuffled, with_values
from skylarkmq.clients.spark.tables.availability import Engine, iceberg_engine, require_delta
from skylarkmq.clients.spark.tables.delta import DeltaTable
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.iceberg import IcebergTable
from skylarkmq.clients.spark.tables.layout import TOPIC
from skylarkmq.clients.spark.tables.names import iceberg_name, side_table
from skylarkmq.clients.spark.tables.parquet import check_columns
from skylarkmq.clients.spark.tables.table import BatchWriter, Once, Split, Table

BAD_ROWS: Final = "bad-rows"

NamedWriter = tuple[str, DataStreamWriter]
"""The name of a query and its writer."""


def require_library(spark: SparkSession, job: Job) -> None:
    """Raise Unavailable if the session has no library for the format."""
    if job.table_format is TableFormat.DELTA:
        require_delta(spark)
    elif job.table_format is TableFormat.ICEBERG:
        iceberg_engine(spark, job.engine)


def writers(spark: SparkSession, job: Job, messages: DataFrame, again: DataFrame) -> list[NamedWriter]:
    """Return the writers of the job's tables. Raises Unavailable, SchemaConflict.

    `again` are the same messages for a second query, which commits no progress to a group.
    """
    rows = with_values(messages, job.decoding)
    if job.table_format is TableFormat.PARQUET:
        return _directories(spark, job, rows, with_values(again, job.decoding))
    opened = _opener(spark, job)
    split = _split(job)
    bad = Once(opened(side_table(job.output)), split.bad(rows).schema) if _has_side_table(job) else None
    write = BatchWriter(Once(opened(job.output), split.good(rows).schema), bad, split)
    return [(job.table_format.value, rows.writeStream.foreachBatch(write))]


def _has_side_table(job: Job) -> bool:
    return job.decoding.is_on and job.has_side_table


# Delta and Iceberg.


def _split(job: Job) -> Split:
    def good(rows: DataFrame) -> DataFrame:
        return _divided(job, good_rows(rows, keep_body=job.keep_body))

    def bad(rows: DataFrame) -> DataFrame:
        return _divided(job, bad_rows(rows))

    return Split(good, bad, f.col(REASON).isNotNull())


def _divided(job: Job, rows: DataFrame) -> DataFrame:
    return partitioned(rows, job.unit) if job.table_format is TableFormat.DELTA else rows


def _opener(spark: SparkSession, job: Job) -> Callable[[str], Table]:
    if job.table_format is TableFormat.DELTA:
        return lambda output: DeltaTable(spark, output, job.unit, job.file_rows)
    if iceberg_engine(spark, job.engine) is Engine.SPARK:
        return lambda output: IcebergTable(spark, iceberg_name(output), job.unit, job.file_bytes)
    pyiceberg: Any = import_module("skylarkmq.clients.spark.tables.pyiceberg_table")
    return lambda output: pyiceberg.PyIcebergTable(spark, iceberg_name(output), job.unit, job.file_bytes)


# Parquet.


def _directories(spark: SparkSession, job: Job, rows: DataFrame, again: DataFrame) -> list[NamedWriter]:
    good = partitioned(good_rows(rows, keep_body=job.keep_body), job.unit)
    named = [(TableFormat.PARQUET.value, _directory(spark, job, good, job.output))]
    if _has_side_table(job):
        bad = partitioned(bad_rows(again), job.unit)
        named.append((BAD_ROWS, _directory(spark, job, bad, side_table(job.output))))
    return named


def _directory(spark: SparkSession, job: Job, rows: DataFrame, path: str) -> DataStreamWriter:
    check_columns(spark, path, rows.schema, job.unit)
    writer = shuffled(rows, job.unit).writeStream.format("parquet").option("path", path)
    return writer.partitionBy(TOPIC, job.unit.column).option("maxRecordsPerFile", str(job.file_rows))
