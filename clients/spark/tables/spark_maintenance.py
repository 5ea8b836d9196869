"""Maintenance of tables by Spark: Delta Lake, and Iceberg with its runtime.

                 compact                             expire
    delta        OPTIMIZE                            VACUUM ... RETAIN
    iceberg      system.rewrite_data_files           marks to table properties (marks.py), then system.expire_snapshots

A compaction changes files, not rows, and both formats repeat it or fail if other writers conflict; appending queries
never do. Delta keeps the transaction identifiers of queries in its log, which VACUUM does not touch.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

from skylarkmq.clients.spark.tables import ddl
from skylarkmq.clients.spark.tables.availability import Unavailable
from skylarkmq.clients.spark.tables.iceberg import properties, summaries
from skylarkmq.clients.spark.tables.marks import kept_marks
from skylarkmq.clients.spark.tables.names import IcebergName
from skylarkmq.clients.spark.tables.results import Compacted, Expired

DELTA_FILE_BYTES: Final = "spark.databricks.delta.optimize.maxFileSize"
DELTA_SMALL_BYTES: Final = "spark.databricks.delta.optimize.minFileSize"
DELTA_RETENTION_CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
DELTA_TOO_SHORT: Final = "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"  # older versions name the setting only
DELTA_VACUUM_LOG: Final = "spark.databricks.delta.vacuum.logging.enabled"
DELTA_IGNORE_AGE: Final = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"  # the default of Delta 4.4
LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
LISTING_TASKS_PER_CORE: Final = 8  # Spark's default is 10,000 for any cluster
SMALL: Final = 0.75  # of the target size
VACUUM_END: Final = "VACUUM END"


def compact_delta(spark: SparkSession, name: str, file_bytes: int) -> Compacted:
    """Rewrite the small files of each partition; `name` is SQL."""
    spark.conf.set(DELTA_FILE_BYTES, str(file_bytes))
    spark.conf.set(DELTA_SMALL_BYTES, str(int(SMALL * file_bytes)))
    metrics = _row(spark, f"OPTIMIZE {name}").metrics
    return Compacted(metrics.numFilesRemoved, metrics.numFilesAdded, metrics.filesRemoved.totalSize or 0)


def expire_delta(spark: SparkSession, name: str, age: timedelta) -> Expired:
    """Delete files that left the table before that time; `name` is SQL. Raises Unavailable for a refused age."""
    spark.conf.set(DELTA_VACUUM_LOG, "true")
    spark.conf.set(DELTA_IGNORE_AGE, "false")
    tasks = LISTING_TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    spark.conf.set(LISTING_TASKS, str(min(tasks, int(spark.conf.get(LISTING_TASKS) or tasks))))
    print_to_stderr(spark)
    try:
        spark.sql(f"VACUUM {name} RETAIN {age / timedelta(hours=1):.6f} HOURS")
    except PySparkException as error:
        if DELTA_TOO_SHORT not in str(error) and DELTA_RETENTION_CHECK not in str(error):
            raise
        raise Unavailable(
            "--older-than is shorter than the table's delta.deletedFileRetentionDuration (default: 7 days), because "
            "running queries may read the files. If no query is older than --older-than, add --conf "
            f"{DELTA_RETENTION_CHECK}=false"
        ) from error
    history = spark.sql(f"DESCRIBE HISTORY {name}").where(f"operation = '{VACUUM_END}'").orderBy("version").tail(1)
    return Expired(int(history[0].operationMetrics["numDeletedFiles"]))


def print_to_stderr(spark: SparkSession) -> None:
    """Let Scala code print to stderr: VACUUM prints a line, and stdout is for the summary."""
    jvm: Any = spark._jvm
    getattr(getattr(jvm, "scala.Console$"), "MODULE$").setOutDirect(jvm.java.lang.System.err)


def compact_iceberg(spark: SparkSession, name: IcebergName, file_bytes: int) -> Compacted:
    """Rewrite the small files of each partition."""
    options = f"map('target-file-size-bytes', '{file_bytes}', 'min-input-files', '2')"
    row = _row(spark, _call("rewrite_data_files", name, f"options => {options}"))
    return Compacted(row.rewritten_data_files_count, row.added_data_files_count, row.rewritten_bytes_count)


def expire_iceberg(spark: SparkSession, name: IcebergName, older_than: datetime) -> Expired:
    """Remove snapshots older than a time, and the files that only they use. The current snapshot stays."""
    spark.catalog.refreshTable(name.sql)  # the session's catalog may have an older version in its cache
    before = _snapshots(spark, name)
    marks = kept_marks(summaries(spark, name.sql), properties(spark, name.sql))
    if marks:
        spark.sql(ddl.set_properties(name.sql, marks))
    limit = older_than.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    row = _row(spark, _call("expire_snapshots", name, f"older_than => TIMESTAMP '{limit} UTC'", "retain_last => 1"))
    files = sum(count or 0 for count in row)  # of each kind
    return Expired(files, len(before - _snapshots(spark, name)))


def _snapshots(spark: SparkSession, name: IcebergName) -> set[int]:
    return {row.snapshot_id for row in spark.sql(f"SELECT snapshot_id FROM {name.sql}.snapshots").collect()}


def _call(procedure: str, name: IcebergName, *arguments: str) -> str:
    table = ddl.text(ddl.quoted(*name.in_catalog))
    return f"CALL {ddl.quoted(name.catalog)}.system.{procedure}({', '.join([f'table => {table}', *arguments])})"


def _row(spark: SparkSession, statement: str) -> Row:
    (row,) = spark.sql(statement).collect()
    return row
