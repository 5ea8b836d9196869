"""Store directories read by a real Spark: RocketMQ's, and one whose broker was killed during sends."""

import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from skylarkmq import Message
from skylarkmq.clients.sdk.blocking import Producer
from skylarkmq.protocol.record import to_message
from tests.clients.arrow.store.stored_rows import everything, identity
from tests.harness.daemon import STORE, running
from tests.harness.golden_stores import golden_store
from tests.harness.spark_rows import row_of
from tests.spark.scene import texts

pytestmark = pytest.mark.spark

INDEX = {"maxHashSlotNum": 100, "maxIndexNum": 200}
SWITCH = "spark.sql.python.filterPushdown.enabled"


def store(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    return spark.read.format("rocketmq-store").options(**texts(options)).load(str(path))


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows by topic, queue and offset; the map as a dict."""
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    for row in found:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return sorted(found, key=identity)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a RocketMQ store after a kill."""
    return golden_store("4.9.8", "crashed", tmp_path_factory.mktemp("crashed")).root


def wanted(root: Path, **like: Any) -> list[dict[str, Any]]:
    """Return the rows of the log's messages of user topics, with these values."""
    messages = [to_message(record) for record in everything(root) if record.sys_flag & 0xC in {0, 8}]
    made = [row_of(message, "b", include_properties=True) for message in messages]
    mine = [row for row in made if row["topic"].startswith(("Fixture", "%", "LLL"))]
    return sorted((row for row in mine if all(row[name] == value for name, value in like.items())), key=identity)


def test_a_store_of_rocketmq_has_the_rows_that_protocol_decodes(spark: SparkSession, crashed: Path) -> None:
    """All columns of all rows, by segment in small pieces and by queue."""
    options: dict[str, object] = {"brokerName": "b", "includeProperties": True}
    assert rows(store(spark, crashed, maxPartitionBytes=100_000, **options)) == wanted(crashed)
    by_queue = store(spark, crashed, partitionBy="queue", **options)
    assert rows(by_queue) == wanted(crashed)
    tasks = by_queue.groupBy(sql.spark_partition_id()).agg(sql.countDistinct("topic", "queueId").alias("queues"))
    assert {row.queues for row in tasks.collect()} == {1}


def test_topic_time_and_key_are_options(spark: SparkSession, crashed: Path) -> None:
    """Each option selects by the values of the columns."""
    options: dict[str, object] = {"brokerName": "b", "includeProperties": True}
    of_topic = wanted(crashed, topic="FixtureOrders")
    assert rows(store(spark, crashed, subscribe="FixtureOrders", **options)) == of_topic
    middle = of_topic[len(of_topic) // 2]["storeTimestamp"]
    until = store(spark, crashed, topic="FixtureOrders", endingTimestamp=int(middle.timestamp() * 1000), **options)
    assert rows(until) == [row for row in of_topic if row["storeTimestamp"] < middle]
    one = next(row for row in of_topic if row["keys"])
    found = rows(store(spark, crashed, key=one["key"], **INDEX, **options))
    assert one in found
    assert found == [row for row in wanted(crashed) if one["key"] in [row["msgId"], *(row["keys"] or "").split()]]


def test_pushed_filters_act_like_options(spark: SparkSession, crashed: Path) -> None:
    """Filters on topics and times are removed from the plan with pushFilters; without it, Spark applies them."""
    of_topic = wanted(crashed, topic="FixtureEvents")
    middle = of_topic[len(of_topic) // 2]["storeTimestamp"]
    condition = (sql.col("topic") == "FixtureEvents") & (sql.col("storeTimestamp") >= sql.lit(middle))
    options: dict[str, object] = {"brokerName": "b", "includeProperties": True}
    plain = store(spark, crashed, **options).filter(condition)
    assert rows(plain) == [row for row in of_topic if row["storeTimestamp"] >= middle]
    spark.conf.set(SWITCH, "true")
    try:
        pushed = store(spark, crashed, pushFilters=True, **options).filter(condition)
        assert rows(pushed) == rows(plain)
        assert len(rows(store(spark, crashed, pushFilters=True, **INDEX).filter("key = 'missing'"))) == 0
        empty = store(spark, crashed, pushFilters=True).filter("topic = 'missing'")
        assert empty.rdd.getNumPartitions() < plain.rdd.getNumPartitions()
    finally:
        spark.conf.unset(SWITCH)


def test_an_invalid_store_is_reported_by_our_error(spark: SparkSession, tmp_path: Path) -> None:
    """The error contains the path and the expected directory, or the option and the nearest one."""
    with pytest.raises(PySparkException, match="is not a store: it has no commitlog/"):
        store(spark, tmp_path).collect()
    with pytest.raises(PySparkException, match=r"has no option partitionsby: did you mean partitionBy\?"):
        store(spark, tmp_path, partitionsBy="queue").collect()


def test_a_store_after_a_kill_has_every_message_once(spark: SparkSession, tmp_path: Path) -> None:
    """Messages acknowledged before kill -9, by segment and by queue, also while the next broker runs on the store."""
    with running(directory=tmp_path, must_be_consistent=False) as daemon:
        with Producer("G", namesrv=daemon.namesrv) as producer:
            sent = [producer.send(Message("Orders", b"%d" % n * 100, tags="t", keys=f"k{n}")) for n in range(3_000)]
        daemon.stop(signal.SIGKILL)
    ids = sorted(result.msg_id for result in sent)
    for options in ({}, {"partitionBy": "queue"}, {"subscribe": "Orders", "maxPartitionBytes": 200_000}):
        assert sorted(row["msgId"] for row in rows(store(spark, tmp_path / STORE, **options))) == ids
    of_key = rows(store(spark, tmp_path / STORE, key="k77", maxHashSlotNum=1_000, maxIndexNum=4_000))
    assert [row["body"] for row in of_key] == [b"77" * 100]
    with running(directory=tmp_path) as daemon:
        assert store(spark, tmp_path / STORE).count() == 3_000
        daemon.stop(signal.SIGTERM)
