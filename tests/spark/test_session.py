"""The session that all tests in this folder use."""

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_session_runs_python(spark: SparkSession) -> None:
    """A row goes to a Python worker and back."""
    assert spark.range(3).rdd.map(lambda row: row.id * 2).collect() == [0, 2, 4]


def test_the_declared_columns_are_the_documented_ones(spark: SparkSession) -> None:
    """The columns are known before any request to a broker."""
    reader = spark.read.format("rocketmq").option("nameServer", "127.0.0.1:1").option("subscribe", "T")
    columns = (
        "key body topic brokerName queueId queueOffset storeTimestamp bornTimestamp tags keys msgId flag reconsumeTimes"
    )
    assert reader.load().columns == columns.split()
    assert reader.option("includeProperties", "true").load().columns == [*columns.split(), "properties"]
