"""The log of Spark's file sink, and the columns in the files."""

from pyspark.sql.types import StringType, StructField, StructType

from skylarkmq.clients.spark.tables.layout import TimeUnit
from skylarkmq.clients.spark.tables.parquet import columns_in_files, paths_in


def test_the_log_names_the_files() -> None:
    """One JSON object a line, after the version."""
    text = 'v1\n{"path":"file:/lake/a%20b.parquet","size":1}\n{"path":"file:/lake/c.parquet","size":2}\n'
    assert list(paths_in(text)) == ["file:/lake/a%20b.parquet", "file:/lake/c.parquet"]
    assert list(paths_in("v1\n")) == []


def test_partition_columns_are_not_in_the_files() -> None:
    """The topic and the time unit of the directory."""
    schema = StructType([StructField(name, StringType()) for name in ("topic", "body", "hour", "day")])
    assert columns_in_files(schema, TimeUnit.HOUR).fieldNames() == ["body", "day"]
    assert columns_in_files(schema, TimeUnit.DAY).fieldNames() == ["body", "hour"]
