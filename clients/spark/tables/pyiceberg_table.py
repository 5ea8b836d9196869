"""An Iceberg table, written by PyIceberg: for versions of Spark without an Iceberg runtime.

    tasks     mapInArrow: rows -> Parquet files in the table's location -> their DataFiles      data_files.py
    driver    one commit: all DataFiles of the batch, its mark in the summary, its mark and its offsets in properties

The driver handles metadata only. Files of failed attempts are not committed, so no reader sees them; files of tasks
that ended with an error are deleted, files of killed processes stay. A commit that conflicts with another writer is
repeated by PyIceberg; its rows are not written again.
"""

import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from skylarkmq.clients.spark.tables.batch_offsets import BatchOffsets, offsets_in
from skylarkmq.clients.spark.tables.data_files import DataFileWriter, Target, target_of
from skylarkmq.clients.spark.tables.evolution import TableFormat, evolve, expressions, new_table
from skylarkmq.clients.spark.tables.iceberg import PROPERTIES
from skylarkmq.clients.spark.tables.layout import STORED, TOPIC, TimeUnit
from skylarkmq.clients.spark.tables.marks import Mark, last_batches
from skylarkmq.clients.spark.tables.names import IcebergName
from skylarkmq.clients.spark.tables.pyiceberg_catalog import catalog_of

ARROW_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
"""The setting that bounds Arrow batches by bytes; not all versions of Spark have it."""

ARROW_BATCH_BYTES: Final = 16 << 20
FILE: Final = "file"


class PyIcebergTable:
    """The Iceberg table of a name. `unit` partitions a new table; `file_bytes` is the maximum size of files."""

    def __init__(self, spark: SparkSession, name: IcebergName, unit: TimeUnit, file_bytes: int) -> None:
        bound_arrow_batches(spark)
        self._catalog = catalog_of(spark.conf.getAll.items(), name)
        self._name = name
        self._unit = unit
        self._file_bytes = file_bytes

    def fit(self, schema: StructType) -> list[str]:
        """Create or change the table for rows of this schema; return the SQL expressions of its columns.

        Raises SchemaConflict.
        """
        try:
            table = self._load()
        except NoSuchTableError:
            table = self._create(new_table(schema))
        evolution = evolve(spark_schema(table), schema, TableFormat.ICEBERG)
        if evolution.changes:
            with table.update_schema() as update:
                update.union_by_name(to_arrow_schema(evolution.schema, timezone="UTC"))
        return expressions(schema, spark_schema(table))

    def last_batch(self, query: str) -> int | None:
        """Return the last batch of the query that the table contains; None: no batch."""
        table = self._load()
        return last_batches(summaries(table), table.properties).get(query)

    def last_offsets(self, checkpoint: str) -> BatchOffsets | None:
        """Return the offsets of the last batch of a checkpoint; None: the table has none."""
        return offsets_in(self._load().properties, checkpoint)

    def append(self, rows: DataFrame, mark: Mark, offsets: BatchOffsets | None) -> None:
        """Add the rows, the mark and the offsets in one commit; without rows there is no snapshot."""
        table = self._load()
        write = partial(write_data_files, target_of(table, self._file_bytes))
        files = [pickle.loads(row.file) for row in rows.mapInArrow(write, f"{FILE} BINARY").collect()]
        append_files(table, files, mark, offsets)

    def _load(self) -> Any:
        return self._catalog.load_table(self._name.in_catalog)

    def _create(self, schema: StructType) -> Any:
        self._catalog.create_namespace_if_not_exists(self._name.namespace)
        arrow = to_arrow_schema(schema, timezone="UTC")
        try:
            created = self._catalog.create_table_transaction(self._name.in_catalog, arrow, properties=PROPERTIES)
            with created, created.update_spec() as spec:
                spec.add_field(TOPIC, "identity", TOPIC)
                spec.add_field(STORED, self._unit.value, f"{STORED}_{self._unit.value}")
        except TableAlreadyExistsError:  # by another driver, at the same time
            pass
        return self._load()


def bound_arrow_batches(spark: SparkSession) -> None:
    """Limit the bytes of the Arrow batches that tasks get, if this Spark can."""
    if spark.conf.get(ARROW_BYTES, None) is not None:
        spark.conf.set(ARROW_BYTES, str(ARROW_BATCH_BYTES))


def spark_schema(table: Any) -> StructType:
    """Return the schema of PyIceberg's table as Spark's."""
    return from_arrow_schema(table.schema().as_arrow())


def summaries(table: Any) -> list[dict[str, str]]:
    """Return the summaries of a table's snapshots."""
    return [snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary is not None]


def append_files(table: Any, files: Sequence[Any], mark: Mark, offsets: BatchOffsets | None = None) -> None:
    """Commit DataFiles, the mark and the offsets."""
    with table.transaction() as transaction:
        transaction.set_properties(mark.properties() | ({} if offsets is None else offsets.properties()))
        if not files:
            return
        with transaction.update_snapshot(snapshot_properties=mark.summary()).merge_append() as append:
            for file in files:
                append.append_data_file(file)


def write_data_files(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task; yield its pickled DataFiles, one a row."""
    files = in_files(DataFileWriter(target), batches)
    pickled = [pickle.dumps(file) for file in files]
    yield pa.RecordBatch.from_arrays([pa.array(pickled, pa.binary())], names=[FILE])


def in_files(writer: DataFileWriter, batches: Iterable[pa.RecordBatch]) -> list[Any]:
    """Write batches; return the DataFiles. If that fails, the files are deleted."""
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise
