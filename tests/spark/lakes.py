"""Tables of every format that a session of Spark has, and how each is read back: by deltalake, by PyIceberg, by Spark.

Without jars: Parquet, and Iceberg by PyIceberg. The jars of Delta Lake and of Iceberg's runtime come with the tox
environments (`[tool.tox]` of pyproject.toml): PYSPARK_SUBMIT_ARGS names them.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

JARS = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
HAS_DELTA, HAS_RUNTIME = "io.delta:" in JARS, "iceberg-spark-runtime" in JARS


class Lake:
    """Tables of one format below a directory: the table, and its side table `_bad`."""

    name = "parquet"
    options: tuple[str, ...] = ()

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = spark
        self.directory = directory
        self.output = str(directory / "orders")
        self.checkpoint = directory / "checkpoint"

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        """Return the rows of the table, or of the side table."""
        rows = self.spark.read.option("mergeSchema", "true").parquet(self.output + suffix).collect()
        return [row.asDict(recursive=True) for row in rows]

    def partitions(self) -> set[str]:
        """Return the directories of the files: the partitions by topic and time."""
        return {str(path.parent.relative_to(self.output)) for path in Path(self.output).rglob("*.parquet")}

    def drop_side_table(self) -> None:
        """Delete the side table and what is known about it."""
        shutil.rmtree(f"{self.output}_bad")
        shutil.rmtree(self.checkpoint / "bad-rows")


class DeltaLake(Lake):
    """By Delta's Spark connector, read by deltalake."""

    name = "delta"
    options = ("--to", "delta")

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark, directory)
        self.output = str(directory / "the orders 100%")

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        from deltalake import DeltaTable  # noqa: PLC0415 - only the environments with Delta's jar have it

        found: list[dict[str, Any]] = DeltaTable(self.output + suffix).to_pyarrow_table().to_pylist()
        return found

    def drop_side_table(self) -> None:
        shutil.rmtree(f"{self.output}_bad")


class PyIcebergLake(Lake):
    """By PyIceberg, in a catalog in SQLite."""

    name = "iceberg"

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark, directory)
        self.output = "pylake.shop.orders"
        self.settings = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}"}
        self.options = ("--to", "iceberg", "--engine", "pyiceberg", *self.conf())

    def conf(self) -> tuple[str, ...]:
        """Return the settings of the catalog as arguments."""
        catalog = f"spark.sql.catalog.{self.output.split('.')[0]}"
        return tuple(part for name, value in self.settings.items() for part in ("--conf", f"{catalog}.{name}={value}"))

    def table(self, suffix: str = "") -> Any:
        """Return PyIceberg's table."""
        return load_catalog("pylake", **self.settings).load_table(f"shop.orders{suffix}")

    def rows(self, suffix: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table(suffix).scan().to_arrow().to_pylist()
        return found

    def partitions(self) -> set[str]:
        return {field.name for field in self.table().spec().fields}

    def drop_side_table(self) -> None:
        load_catalog("pylake", **self.settings).drop_table("shop.orders_bad")


class RuntimeLake(PyIcebergLake):
    """By Iceberg's Spark runtime, in a catalog of directories."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        super().__init__(spark, directory)
        self.output = f"{directory.name.replace('_', '')}.shop.orders"  # Spark keeps catalogs as long as a session
        self.settings = {"type": "hadoop", "warehouse": f"file://{directory}"}
        self.options = ("--to", "iceberg", *self.conf())

    def table(self, suffix: str = "") -> Any:
        metadata = (self.directory / "shop" / f"orders{suffix}" / "metadata").glob("v*.metadata.json")
        return StaticTable.from_metadata(str(max(metadata, key=lambda path: int(path.name[1:].split(".")[0]))))

    def drop_side_table(self) -> None:
        self.spark.sql(f"DROP TABLE {self.output}_bad")


LAKES: list[type[Lake]] = [DeltaLake] * HAS_DELTA + [RuntimeLake] * HAS_RUNTIME or [Lake, PyIcebergLake]
