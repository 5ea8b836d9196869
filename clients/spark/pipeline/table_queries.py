"""The pipeline's queries into tables.

    delta, iceberg    foreachBatch: a batch is one commit of the table, with the batch's mark (tables/table.py)
    parquet           Spark's file sink, whose log makes each batch appear once; a second query writes the bad rows

All checks run before the query starts: the library for the format, the catalog, the table's columns. Tables are created
or changed then, too.

A query without a committed batch begins at the offsets in the table, if it has some (tables/batch_offsets.py): the
checkpoint was lost. A directory of Parquet files has none, and Spark would skip the first batches of the new query, so
the query is refused.

Delta and Iceberg get their rows as the tasks read them, without a shuffle: a file for each task and partition, which
`mqspark-table compact` makes larger. A directory of Parquet files cannot be compacted, so its rows are shuffled.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from skylarkmq.clients.spark.decoding.columns import REASON
from skylarkmq.clients.spark.pipeline.job import Job
from skylarkmq.clients.spark.pipeline.table_rows import bad_rows, good_rows, partitioned, shuffled, with_values
from skylarkmq.clients.spark.source.offsets import FirstBatch
from skylarkmq.clients.spark.tables.availability import Engine, iceberg_engine, require_delta
from skylarkmq.clients.spark.tables.delta import DeltaTable
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.hadoop_path import HadoopPath
from skylarkmq.clients.spark.tables.iceberg import IcebergTable
from skylarkmq.clients.spark.tables.layout import TOPIC
from skylarkmq.clients.spark.tables.names import iceberg_name, side_table
from skylarkmq.clients.spark.tables.offset_log import OffsetLog
from skylarkmq.clients.spark.tables.parquet import check_checkpoint, check_columns
from skylarkmq.clients.spark.tables.table import BatchWriter, Once, Split, Table, counted

BAD_ROWS: Final = "bad-rows"

FIRST_BATCH: Final = "firstBatch"

Messages = Callable[[Mapping[str, str]], DataFrame]
"""Return the messages, read with these options in addition to the job's options."""


class NamedWriter(NamedTuple):
    """The name of a query and its writer. `first`: where a query begins that continues without its checkpoint."""

    name: str
    writer: DataStreamWriter
    first: FirstBatch | None = None


def require_library(spark: SparkSession, job: Job) -> None:
    """Raise Unavailable if the session has no library for the format."""
    if job.table_format is TableFormat.DELTA:
        require_delta(spark)
    elif job.table_format is TableFormat.ICEBERG:
        iceberg_engine(spark, job.engine)


def writers(spark: SparkSession, job: Job, messages: Messages, again: Messages) -> list[NamedWriter]:
    """Return the writers of the job's tables. Raises Unavailable, SchemaConflict, StaleCheckpoint, DamagedOffsets.

    `again` are the same messages for a second query, which commits no progress to a group.
    """
    rows = with_values(messages({}), job.decoding)
    if job.table_format is TableFormat.PARQUET:
        return _directories(spark, job, rows, again)
    opened = _opener(spark, job)
    split = _split(job)
    bad = Once(opened(side_table(job.output)), split.bad(rows).schema) if _has_side_table(job) else None
    name = job.table_format.value
    write = BatchWriter(Once(opened(job.output), split.good(rows).schema), bad, split, _log(spark, job, name))
    first = write.first_batch()
    if first is not None:
        rows = with_values(messages({FIRST_BATCH: first.text()}), job.decoding)
    return [NamedWriter(name, rows.writeStream.foreachBatch(write), first)]


def _log(spark: SparkSession, job: Job, name: str) -> OffsetLog:
    return OffsetLog(HadoopPath.of(spark, job.checkpoint_of(name)))


def _has_side_table(job: Job) -> bool:
    return job.decoding.is_on and job.has_side_table


# Delta and Iceberg.


def _split(job: Job) -> Split:
    def good(rows: DataFrame) -> DataFrame:
        return _divided(job, good_rows(rows, keep_body=job.keep_body))

    def bad(rows: DataFrame) -> DataFrame:
        return _divided(job, bad_rows(rows))

    return Split(good, bad, lambda rows: counted(rows, f.col(REASON).isNotNull()))


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


def _directories(spark: SparkSession, job: Job, rows: DataFrame, again: Messages) -> list[NamedWriter]:
    good = good_rows(rows, keep_body=job.keep_body)
    named = [_directory(spark, job, TableFormat.PARQUET.value, good, job.output)]
    if _has_side_table(job):
        bad = bad_rows(with_values(again({}), job.decoding))
        named.append(_directory(spark, job, BAD_ROWS, bad, side_table(job.output)))
    return named


def _directory(spark: SparkSession, job: Job, name: str, rows: DataFrame, path: str) -> NamedWriter:
    rows = partitioned(rows, job.unit)
    check_columns(spark, path, rows.schema, job.unit)
    check_checkpoint(spark, path, _log(spark, job, name))
    collected = shuffled(rows, job.unit) if job.shuffles else rows
    writer = collected.writeStream.format("parquet").option("path", path)
    writer = writer.partitionBy(TOPIC, job.unit.column).option("maxRecordsPerFile", str(job.file_rows))
    return NamedWriter(name, writer)
