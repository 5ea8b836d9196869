"""Which writers of tables a Spark session has: found by class, not by version.

    delta      a jar of Delta Lake
    iceberg    a jar of Iceberg's Spark runtime, else the Python package PyIceberg

The jars exist for some versions of Spark only, so the error for a missing jar names the coordinates for this version.
"""

from collections.abc import Mapping
from enum import Enum
from importlib.util import find_spec
from typing import Final

from pyspark.sql import SparkSession

from skylarkmq.clients.spark.tables.evolution import TableFormat

DELTA_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"
ICEBERG_CLASS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
CATALOG_SETTING: Final = "spark.sql.catalog."
EXTENSIONS: Final = "spark.sql.extensions"
SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"
DELTA_CATALOG_CLASS: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

DELTA_JARS: Final = {
    "4.0": "io.delta:delta-spark_2.13:4.0.0",
    "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
    "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
}
ICEBERG_JARS: Final = {
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
PYICEBERG_ADVICE: Final = "pip install 'skylarkmq[iceberg]'"


class Unavailable(Exception):
    """This Spark has no writer for the format; the text names the remedy."""


class Engine(Enum):
    """The library that writes an Iceberg table."""

    SPARK = "spark"
    PYICEBERG = "pyiceberg"


def session_settings(table_format: TableFormat, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which a session for a format starts; `conf` are the user's settings.

    Spark ignores an extension whose jar is missing, with a warning.
    """
    extension = {TableFormat.DELTA: DELTA_CLASS, TableFormat.ICEBERG: ICEBERG_CLASS}.get(table_format)
    given = [name for name in conf.get(EXTENSIONS, "").split(",") if name]
    extensions = given if extension is None or extension in given else [*given, extension]
    settings = {"spark.sql.session.timeZone": "UTC"}
    if extensions:
        settings[EXTENSIONS] = ",".join(extensions)
    if table_format is TableFormat.DELTA:
        settings[SESSION_CATALOG] = conf.get(SESSION_CATALOG, DELTA_CATALOG_CLASS)
    return settings


def require_delta(spark: SparkSession) -> None:
    """Raise Unavailable if the session has no Delta Lake."""
    if not has_class(spark, DELTA_CLASS):
        raise Unavailable(delta_advice(spark.version))


def iceberg_engine(spark: SparkSession, wanted: Engine | None) -> Engine:
    """Return the wanted engine, or the first that the session has. Raises Unavailable."""
    has_runtime = has_class(spark, ICEBERG_CLASS)
    return choose_iceberg_engine(spark.version, wanted, has_runtime, has_pyiceberg())


def choose_iceberg_engine(version: str, wanted: Engine | None, has_runtime: bool, has_pyiceberg: bool) -> Engine:
    """Return the engine for what a session has. Raises Unavailable."""
    if has_runtime and wanted is not Engine.PYICEBERG:
        return Engine.SPARK
    if has_pyiceberg and wanted is not Engine.SPARK:
        return Engine.PYICEBERG
    raise Unavailable(iceberg_advice(version, wanted))


def has_pyiceberg() -> bool:
    """Return whether PyIceberg is installed."""
    return find_spec("pyiceberg") is not None


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the session's class loader has a class; jars of `spark.jars.packages` are in that loader."""
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    return loader.getResource(name.replace(".", "/") + ".class") is not None


def delta_advice(version: str) -> str:
    """Return what to do if Spark of this version has no Delta Lake."""
    return _advice("Delta Lake", DELTA_JARS, version) or (
        f"there is no Delta Lake for Spark {version}: write to Iceberg or Parquet, or use Spark "
        f"{' or '.join(DELTA_JARS)}"
    )


def iceberg_advice(version: str, wanted: Engine | None) -> str:
    """Return what to do if Spark of this version has no writer for Iceberg, or not the wanted one."""
    runtime = _advice("Iceberg runtime", ICEBERG_JARS, version)
    if wanted is Engine.PYICEBERG:
        return f"PyIceberg is not installed: {PYICEBERG_ADVICE}"
    if wanted is Engine.SPARK:
        return runtime or f"there is no Iceberg runtime for Spark {version}: use --engine pyiceberg"
    return f"{runtime}; or {PYICEBERG_ADVICE}" if runtime else f"Iceberg tables need PyIceberg: {PYICEBERG_ADVICE}"


def _advice(library: str, jars: Mapping[str, str], version: str) -> str | None:
    jar = jars.get(".".join(version.split(".")[:2]))
    return jar and f"this Spark has no {library}: add --conf spark.jars.packages={jar}"
