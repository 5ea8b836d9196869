"""The session that all tests in this folder use."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import SLOW_START

pytestmark = pytest.mark.spark

events: list[str] = []


@pytest.fixture(scope="module")
def broker() -> Iterator[None]:
    events.append("started")
    yield
    events.append("stopped")


def test_a_test_that_missed_sparks_limit_runs_again_with_a_new_broker(broker: None) -> None:
    """The first run fails like a query whose Python process started too late."""
    assert events == ["started", "stopped", "started"], f"terminated with exception: {SLOW_START}. SQLSTATE: XXKST"


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
