"""A Delta table, written by Delta Lake's Spark connector. The table is a path.

Each commit has a transaction identifier: `skylark-<query id>` and the batch id. Delta keeps the last one of each
application in the table's log, skips a commit with an older or equal one, and refuses two concurrent commits of one
application. The identifiers outlast the expiry of files (`VACUUM`), unless the table property
`delta.setTransactionRetentionDuration` is set; then they end with it.

The offsets of a batch (batch_offsets.py) are the `userMetadata` of its commit, not a table property: a commit that
changes properties makes concurrent commits fail, such as the commits of OPTIMIZE.

Delta checks the identifier against the table's log, which it replays for each batch, by default in 50 tasks. Most of
them are empty, and starting them takes longer than the replay. So the session gets one task for each of its cores.
"""

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.tables import ddl
from skylarkmq.clients.spark.tables.availability import DELTA_CATALOG_CLASS, SESSION_CATALOG
from skylarkmq.clients.spark.tables.batch_offsets import BatchOffsets, offsets_from
from skylarkmq.clients.spark.tables.evolution import (
    Evolution,
    SchemaConflict,
    TableFormat,
    evolve,
    expressions,
    new_table,
)
from skylarkmq.clients.spark.tables.hadoop_path import HadoopPath
from skylarkmq.clients.spark.tables.layout import TOPIC, TimeUnit
from skylarkmq.clients.spark.tables.marks import Mark

APPLICATION: Final = "skylark-"
LOG: Final = "_delta_log"
BUILT_IN: Final = "builtin"
REPLAY_TASKS: Final = "spark.databricks.delta.snapshotPartitions"
MOST_REPLAY_TASKS: Final = 50  # Delta's default


class DeltaTable:
    """The Delta table at a path. `unit` partitions a new table; `file_rows` is the maximum number of rows per file."""

    def __init__(self, spark: SparkSession, path: str, unit: TimeUnit, file_rows: int) -> None:
        use_delta(spark)
        limit_replay(spark)
        self._spark = spark
        self._path = HadoopPath.of(spark, path).location
        self._name = ddl.quoted("delta", self._path)
        self._unit = unit
        self._file_rows = file_rows

    def fit(self, schema: StructType) -> list[str]:
        """Create or change the table for rows of this schema; return the SQL expressions of its columns.

        Raises SchemaConflict.
        """
        if not is_delta(self._spark, self._path):
            partitions = [ddl.quoted(TOPIC), ddl.quoted(self._unit.column)]
            self._spark.sql(ddl.create(self._name, new_table(schema), "delta", partitions, {}))
        table = self._spark.table(self._name).schema
        schema = without_time_column(schema, table, self._unit)
        evolution = evolve(table, schema, TableFormat.DELTA)
        self._change(evolution)
        return expressions(schema, evolution.schema)

    def _change(self, evolution: Evolution) -> None:
        try:
            for statement in ddl.changes(self._name, evolution):
                self._spark.sql(statement)
        except PySparkException as error:
            if not evolution.widened:
                raise
            changed = ", ".join(map(str, evolution.widened))
            raise SchemaConflict(
                f"Delta cannot widen {changed}: declare the table's type in the schema of the bodies, or allow it with "
                f"ALTER TABLE {self._name} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true') ({error})"
            ) from error

    def last_batch(self, query: str) -> int | None:
        """Return the last batch of the query that the table contains; None: no batch."""
        last = delta_log(self._spark, self._path).unsafeVolatileSnapshot().transactions().get(APPLICATION + query)
        return int(last.get()) if last.isDefined() else None

    def last_offsets(self, checkpoint: str) -> BatchOffsets | None:
        """Return the offsets of the last batch of a checkpoint; None: the table's log has none."""
        commits = self._spark.sql(f"DESCRIBE HISTORY {self._name}").where("userMetadata IS NOT NULL")
        for row in commits.select("userMetadata").orderBy("version", ascending=False).toLocalIterator():
            if (found := offsets_from(row.userMetadata, checkpoint)) is not None:
                return found
        return None

    def append(self, rows: DataFrame, mark: Mark, offsets: BatchOffsets | None) -> None:
        """Add the rows in one commit with the mark as its transaction identifier."""
        writer = rows.write.format("delta").mode("append").option("maxRecordsPerFile", str(self._file_rows))
        if offsets is not None:
            writer = writer.option("userMetadata", offsets.text())
        writer.option("txnAppId", APPLICATION + mark.query).option("txnVersion", str(mark.batch)).save(self._path)


def use_delta(spark: SparkSession) -> None:
    """Make Delta the catalog of paths, as its documentation asks; another catalog that is set stays."""
    if spark.conf.get(SESSION_CATALOG, BUILT_IN) == BUILT_IN:
        spark.conf.set(SESSION_CATALOG, DELTA_CATALOG_CLASS)


def limit_replay(spark: SparkSession) -> None:
    """Make Delta replay logs with a task for each core, at most its default. A number that is set stays."""
    if spark.conf.get(REPLAY_TASKS, None) is None:
        spark.conf.set(REPLAY_TASKS, str(min(spark.sparkContext.defaultParallelism, MOST_REPLAY_TASKS)))


def without_time_column(schema: StructType, table: StructType, unit: TimeUnit) -> StructType:
    """Return the schema without the partition column if the table is partitioned in another way."""
    if unit.column in table.fieldNames():
        return schema
    return StructType([field for field in schema.fields if field.name != unit.column])


def is_delta(spark: SparkSession, path: str) -> bool:
    """Return whether a Delta table is at the path."""
    jvm: Any = spark._jvm
    return bool(jvm.io.delta.tables.DeltaTable.isDeltaTable(spark._jsparkSession, path))


def delta_log(spark: SparkSession, path: str) -> Any:
    """Return Delta's log of a table, up to date."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    try:
        log.invalidateCache(spark._jsparkSession, jvm.org.apache.hadoop.fs.Path(path))
        return log.forTable(spark._jsparkSession, path)
    except Py4JJavaError as error:
        raise RuntimeError(f"cannot read the log of the Delta table {path}: {error.java_exception}") from error
