"""Queries that cannot succeed end soon, with the reason, under the default limits.

All of them run at once, because most of their time is spent waiting.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.harness.ports import free_ports
from tests.spark import lines
from tests.spark.scene import Scene, Written, batch, scene, stream

pytestmark = pytest.mark.spark

BUSY = 4  # a busy machine may take so many times as long; without the limits these queries wait for minutes


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Scene]:
    """A broker that creates no topics by itself."""
    with scene(tmp_path, autoCreateTopicEnable="false") as running:
        yield running


def failure(query: Callable[[], object]) -> tuple[float, str]:
    """Return the seconds until a query fails, and its error."""
    begin = time.monotonic()
    with pytest.raises(PySparkException) as raised:
        query()
    return time.monotonic() - begin, str(raised.value)


def test_queries_without_their_topic_or_broker_end_soon(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """Reads of a missing topic within 15 s; writes to a topic that cannot be created, or without a broker, in 30 s."""
    lines.put_lines(tmp_path, "a", 3)
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    rows = spark.range(4).selectExpr("CAST(id AS STRING) AS body")
    writer = rows.write.format("rocketmq").mode("append").options(nameServer=broker.namesrv, topic="NotMade")
    read = batch(spark, broker.namesrv, subscribe="NoTopic")
    reading = Written(spark, tmp_path / "w").start(
        stream(spark, broker.namesrv, subscribe="NoTopic"), availableNow=True
    )
    writing = lines.stream(spark, tmp_path, nameServer=nowhere, topic="T")
    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(failure, query) for query in (read.collect, reading.awaitTermination)]
        running += [threads.submit(failure, writing.awaitTermination)]
        written = failure(writer.save)
    failures = [written, *(future.result() for future in running)]
    limits = ((30, "has topic NotMade. Create it"), *[(15, "topic NoTopic does not exist")] * 2)
    for (seconds, error), (limit_s, reason) in zip(failures, (*limits, (30, f"connection to {nowhere}")), strict=True):
        assert reason in error
        assert seconds < BUSY * limit_s, failures
