"""Tables that can be maintained, one class for each format and engine.

    Request --opened--> DeltaMaintenance | IcebergMaintenance | PyIcebergMaintenance | ParquetMaintenance

A session of Spark is started only where it is needed. PyIceberg works without: it opens an Iceberg table unless a
session could have Iceberg's jar (`spark.jars...` in --conf, or spark-submit).

Iceberg tables whose files belong to others are refused: tables of `mqspark-archive`, whose files are the archive, and
those with `gc.enabled=false`. An expiry would delete files that the owner needs.
"""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from pyspark.sql import SparkSession

from skylarkmq.clients.spark.progress_bar import progress_bar
from skylarkmq.clients.spark.session import SUBMITTED, started
from skylarkmq.clients.spark.tables import parquet_leftovers, spark_maintenance
from skylarkmq.clients.spark.tables.availability import (
    Engine,
    Unavailable,
    choose_iceberg_engine,
    has_pyiceberg,
    iceberg_engine,
    require_delta,
    session_settings,
)
from skylarkmq.clients.spark.tables.ddl import quoted
from skylarkmq.clients.spark.tables.delta import LOG as DELTA_LOG
from skylarkmq.clients.spark.tables.delta import use_delta
from skylarkmq.clients.spark.tables.evolution import TableFormat
from skylarkmq.clients.spark.tables.hadoop_path import HadoopPath
from skylarkmq.clients.spark.tables.iceberg import properties, use_catalog
from skylarkmq.clients.spark.tables.names import IcebergName, iceberg_name
from skylarkmq.clients.spark.tables.parquet import NO_COMPACTION
from skylarkmq.clients.spark.tables.results import Compacted, Expired, MaintenanceError, steps_bar

APPLICATION: Final = "mqspark-table"
ARCHIVE_END: Final = "skylark.archive.end."  # properties of the tables of mqspark-archive
GC_ENABLED: Final = "gc.enabled"
DEFAULT_FILE_SYSTEM: Final = frozenset({"spark.hadoop.fs.defaultFS", "spark.hadoop.fs.default.name"})
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The table of a command. `table_format` and `engine` of None are detected; `conf` are settings of Spark."""

    table: str
    table_format: TableFormat | None = None
    engine: Engine | None = None
    conf: Mapping[str, str] = {}
    master: str | None = None


class Maintained(Protocol):
    """A table that is open for maintenance. `engine` is None for formats with one."""

    table_format: TableFormat
    engine: Engine | None

    def compact(self, file_bytes: int) -> Compacted:
        """Rewrite small files as files of about `file_bytes`.

        Raises Unavailable if the format cannot do that, MaintenanceError if it fails.
        """

    def expire(self, age: timedelta) -> Expired:
        """Delete files and snapshots older than `age` that the current table does not use.

        Raises Unavailable if the age is refused, MaintenanceError if it fails.
        """


def opened(request: Request) -> Maintained:
    """Return the table. Raises Unavailable if it does not exist, or if no library for its format is installed."""
    table_format = request.table_format or local_format(request.table, request.conf)
    if table_format is TableFormat.ICEBERG:
        return _opened_iceberg(request)
    if request.engine is not None:
        raise Unavailable("--engine is for Iceberg tables, which are named catalog.namespace.table")
    if table_format is None:
        at = HadoopPath.of(_session(request, TableFormat.DELTA), request.table)
        if not at.exists():
            raise Unavailable(f"there is no table at {at.uri}")
        table_format = TableFormat.DELTA if at.child(DELTA_LOG).exists() else TableFormat.PARQUET
    if table_format is TableFormat.DELTA:
        return DeltaMaintenance(_session(request, TableFormat.DELTA), request.table)
    return ParquetMaintenance(request)


def local_format(table: str, conf: Mapping[str, str]) -> TableFormat | None:
    """Return the format of a local directory or of a name; None: only Spark can read the path. Raises Unavailable."""
    path = Path(table)
    is_local = not _SCHEME.match(table) and not DEFAULT_FILE_SYSTEM & conf.keys()
    is_local = is_local and os.environ.keys().isdisjoint({SUBMITTED, "HADOOP_CONF_DIR"})
    if is_local and path.is_dir():
        return TableFormat.DELTA if (path / DELTA_LOG).is_dir() else TableFormat.PARQUET
    if not {"/", ":"} & set(table) and table.count(".") >= 2:
        return TableFormat.ICEBERG
    if is_local:
        raise Unavailable(
            f"there is no table at {table}: name a directory, a URI, or catalog.namespace.table (Iceberg)"
        )
    return None


def require_own_files(table: object, table_properties: Mapping[str, str]) -> None:
    """Raise Unavailable if the files of an Iceberg table belong to others."""
    if any(name.startswith(ARCHIVE_END) for name in table_properties):
        raise Unavailable(
            f"the files of {table} are those of an archive (mqspark-archive), which must stay: copy the rows to "
            "another table, and maintain that one"
        )
    if table_properties.get(GC_ENABLED, "true").lower() == "false":
        raise Unavailable(f"{table} has the property {GC_ENABLED}=false: other tables may use its files")


def _opened_iceberg(request: Request) -> Maintained:
    try:
        name = iceberg_name(request.table)
    except ValueError as error:
        raise Unavailable(str(error)) from error
    if request.engine is Engine.SPARK or (
        request.engine is None and (_may_have_runtime(request) or not has_pyiceberg())
    ):
        spark = _session(request, TableFormat.ICEBERG)
        if iceberg_engine(spark, request.engine) is Engine.SPARK:
            return IcebergMaintenance(spark, name)
        return PyIcebergMaintenance(dict(spark.conf.getAll), name)
    choose_iceberg_engine("", request.engine, has_runtime=False, has_pyiceberg=has_pyiceberg())
    return PyIcebergMaintenance(request.conf, name)


def _may_have_runtime(request: Request) -> bool:
    is_prepared = not os.environ.keys().isdisjoint({SUBMITTED, "PYSPARK_SUBMIT_ARGS"})
    return is_prepared or any(key.startswith("spark.jars") for key in request.conf)


def _session(request: Request, table_format: TableFormat) -> SparkSession:
    settings = session_settings(table_format, request.conf)
    return started(f"{APPLICATION} {request.table}", settings | dict(request.conf), request.master)


class DeltaMaintenance:
    """A Delta table."""

    table_format = TableFormat.DELTA
    engine: Engine | None = None

    def __init__(self, spark: SparkSession, path: str) -> None:
        require_delta(spark)
        use_delta(spark)
        at = HadoopPath.of(spark, path)
        if not at.child(DELTA_LOG).exists():
            raise Unavailable(f"there is no Delta table at {at.uri}")
        self._spark = spark
        self._name = quoted("delta", at.location)

    def compact(self, file_bytes: int) -> Compacted:
        """Rewrite small files as files of about `file_bytes`."""
        with progress_bar(self._spark, "compacting"):
            return spark_maintenance.compact_delta(self._spark, self._name, file_bytes)

    def expire(self, age: timedelta) -> Expired:
        """Delete files that left the table before that."""
        with progress_bar(self._spark, "deleting files"):
            return spark_maintenance.expire_delta(self._spark, self._name, age)


class IcebergMaintenance:
    """An Iceberg table, by Spark's runtime."""

    table_format = TableFormat.ICEBERG
    engine: Engine | None = Engine.SPARK

    def __init__(self, spark: SparkSession, name: IcebergName) -> None:
        use_catalog(spark, name)
        if not spark.catalog.tableExists(name.sql):
            raise Unavailable(f"the table {name} does not exist in the catalog {name.catalog}")
        require_own_files(name, properties(spark, name.sql))
        self._spark = spark
        self._name = name

    def compact(self, file_bytes: int) -> Compacted:
        """Rewrite small files as files of about `file_bytes`."""
        with progress_bar(self._spark, "compacting"):
            return spark_maintenance.compact_iceberg(self._spark, self._name, file_bytes)

    def expire(self, age: timedelta) -> Expired:
        """Remove old snapshots and the files that only they use."""
        with progress_bar(self._spark, "expiring snapshots"):
            return spark_maintenance.expire_iceberg(self._spark, self._name, datetime.now(UTC) - age)


class PyIcebergMaintenance:
    """An Iceberg table, by PyIceberg."""

    table_format = TableFormat.ICEBERG
    engine: Engine | None = Engine.PYICEBERG

    def __init__(self, settings: Mapping[str, str], name: IcebergName) -> None:
        catalogs = import_module("skylarkmq.clients.spark.tables.pyiceberg_catalog")
        self._name = name
        self._table: Any = catalogs.table_of(catalogs.catalog_of(settings.items(), name), name)
        require_own_files(name, self._table.properties)

    def compact(self, file_bytes: int) -> Compacted:
        """Rewrite small files as files of about `file_bytes`."""
        compaction = import_module("skylarkmq.clients.spark.tables.pyiceberg_compaction")
        done: Compacted = self._run("compacting", compaction.compact, file_bytes)
        return done

    def expire(self, age: timedelta) -> Expired:
        """Remove old snapshots and the files that only they use."""
        expiry = import_module("skylarkmq.clients.spark.tables.pyiceberg_expiry")
        done: Expired = self._run("deleting files", expiry.expire, datetime.now(UTC) - age)
        return done

    def _run(self, description: str, operation: Any, argument: object) -> Any:
        try:
            with steps_bar(description) as on_progress:
                return operation(self._table, argument, on_progress)
        except MaintenanceError:
            raise
        except Exception as error:  # of PyIceberg, its catalog's client, or the file system
            raise MaintenanceError(f"{self._name}: {type(error).__name__}: {error}") from error


class ParquetMaintenance:
    """A directory of Parquet files that Spark's file sink wrote."""

    table_format = TableFormat.PARQUET
    engine: Engine | None = None

    def __init__(self, request: Request) -> None:
        self._request = request

    def compact(self, file_bytes: int) -> Compacted:  # noqa: ARG002 - one interface for all formats
        """Raise Unavailable: the directory has no transactions that could replace files."""
        raise Unavailable(NO_COMPACTION)

    def expire(self, age: timedelta) -> Expired:
        """Delete files of failed attempts that are older than `age`."""
        parquet_leftovers.require_age(age)
        spark = _session(self._request, TableFormat.PARQUET)
        with progress_bar(spark, "deleting files"):
            older_than = datetime.now(UTC) - age
            return parquet_leftovers.delete_leftovers(spark, self._request.table, older_than)
