"""An Iceberg table, written by Iceberg's Spark runtime. The table is a name: catalog.namespace.table.

The commit of a batch has its mark in the snapshot summary (`snapshot-property.*` write options); a second commit copies
it to a table property, where it outlasts the snapshot; see marks.py. A commit before both has the offsets of the batch;
see batch_offsets.py. The catalog is configured as Iceberg documents it: `spark.sql.catalog.<catalog>.type`, `.uri`,
`.warehouse` and others.

Rows are written where they are read: the table's distribution mode is overridden, because a shuffle would cost more
than compaction does later. Within a task Spark sorts rows by partition, so a task has one open file at a time.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.tables import ddl
from skylarkmq.clients.spark.tables.availability import CATALOG_SETTING, Unavailable
from skylarkmq.clients.spark.tables.batch_offsets import BatchOffsets, offsets_in
from skylarkmq.clients.spark.tables.evolution import TableFormat, evolve, expressions, new_table
from skylarkmq.clients.spark.tables.layout import STORED, TOPIC, TimeUnit
from skylarkmq.clients.spark.tables.marks import Mark, last_batches
from skylarkmq.clients.spark.tables.names import IcebergName

CATALOG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"

PROPERTIES: Final = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.metadata.delete-after-commit.enabled": "true",  # a stream would otherwise keep a file for each batch
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}
"""Properties of new tables."""


class IcebergTable:
    """The Iceberg table of a name. `unit` partitions a new table; `file_bytes` is the target size of files."""

    def __init__(self, spark: SparkSession, name: IcebergName, unit: TimeUnit, file_bytes: int) -> None:
        use_catalog(spark, name)
        self._spark = spark
        self._name = name
        self._sql = name.sql
        self._unit = unit
        self._file_bytes = file_bytes

    def fit(self, schema: StructType) -> list[str]:
        """Create or change the table for rows of this schema; return the SQL expressions of its columns.

        Raises SchemaConflict.
        """
        if not self._spark.catalog.tableExists(self._sql):
            self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self._name.namespace_sql}")
            partitions = [ddl.quoted(TOPIC), f"{self._unit.transform}({ddl.quoted(STORED)})"]
            self._spark.sql(ddl.create(self._sql, new_table(schema), "iceberg", partitions, PROPERTIES))
        self._spark.catalog.refreshTable(self._sql)
        evolution = evolve(self._spark.table(self._sql).schema, schema, TableFormat.ICEBERG)
        for statement in ddl.changes(self._sql, evolution):
            self._spark.sql(statement)
        return expressions(schema, evolution.schema)

    def last_batch(self, query: str) -> int | None:
        """Return the last batch of the query that the table contains; None: no batch."""
        self._spark.catalog.refreshTable(self._sql)  # the session's catalog may have an older version in its cache
        return last_batches(summaries(self._spark, self._sql), properties(self._spark, self._sql)).get(query)

    def last_offsets(self, checkpoint: str) -> BatchOffsets | None:
        """Return the offsets of the last batch of a checkpoint; None: the table has none."""
        self._spark.catalog.refreshTable(self._sql)
        return offsets_in(properties(self._spark, self._sql), checkpoint)

    def append(self, rows: DataFrame, mark: Mark, offsets: BatchOffsets | None) -> None:
        """Add the rows in one commit with the mark in its snapshot summary; the offsets before, the property after."""
        if offsets is not None:
            rows.sparkSession.sql(ddl.set_properties(self._sql, offsets.properties()))
        writer = rows.writeTo(self._sql).option("distribution-mode", "none").option("fanout-enabled", "false")
        for name, value in mark.summary().items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.option("target-file-size-bytes", str(self._file_bytes)).append()
        rows.sparkSession.sql(ddl.set_properties(self._sql, mark.properties()))


def use_catalog(spark: SparkSession, name: IcebergName) -> None:
    """Make the catalog one of Iceberg's if only its settings are given. Raises Unavailable if there are none."""
    setting = CATALOG_SETTING + name.catalog
    if name.catalog == "spark_catalog" or spark.conf.get(setting, None) is not None:
        return
    if not any(other.startswith(f"{setting}.") for other in spark.conf.getAll):
        raise Unavailable(f"the catalog {name.catalog} is not configured: set --conf {setting}.type and .uri")
    spark.conf.set(setting, CATALOG_CLASS)


def summaries(spark: SparkSession, table: str) -> list[Mapping[str, str]]:
    """Return the summaries of a table's snapshots, in any order."""
    return [row.summary for row in spark.sql(f"SELECT summary FROM {table}.snapshots").collect()]


def properties(spark: SparkSession, table: str) -> dict[str, str]:
    """Return the properties of a table."""
    return {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
