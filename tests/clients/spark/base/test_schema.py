"""The columns as Spark declares them and as Arrow batches have them."""

import re

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from skylarkmq.clients.arrow.schema import TYPES, Columns, message_columns
from skylarkmq.clients.spark.base.schema import ddl

SPARK_TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "MAP<STRING, STRING>": MapType(StringType(), StringType()),
}


@pytest.mark.parametrize("columns", [message_columns(False), message_columns(True), Columns(tuple(TYPES))])
def test_the_arrow_schema_is_the_one_that_spark_expects(columns: Columns) -> None:
    """Names, order, types and nullability are equal field by field: Spark rejects a batch otherwise."""
    declared = re.findall(r"(\w+) (MAP<STRING, STRING>|\w+)(?:, |$)", ddl(columns))
    fields = [StructField(name, SPARK_TYPES[kind]) for name, kind in declared]
    assert to_arrow_schema(StructType(fields), timezone="UTC") == columns.schema
