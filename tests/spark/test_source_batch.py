"""The batch source in a real Spark, against a real broker: columns, bounds, filters, and errors."""

import json
import random
import time
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from skylarkmq import Message
from tests.spark.scene import Scene, batch, scene

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("broker"), enablePropertyFilter="true") as running:
        yield running


def bodies(spark: SparkSession, broker: Scene, **options: object) -> list[bytes]:
    rows = batch(spark, broker.namesrv, **options).select("body").collect()
    return sorted(bytes(row.body) for row in rows)


def test_unusual_messages_are_read_as_they_were_sent(spark: SparkSession, broker: Scene) -> None:
    """Binary, compressed and empty bodies; properties of any script, and none."""
    broker.create("Odd", 2)
    chance = random.Random(7)
    messages = [
        Message(
            "Odd", bytes(range(256)) * 3, tags="röd", keys=["k1", "k2"], properties={"ключ": "値 = \u007f", "e": "🙂"}
        ),
        Message("Odd", b"long enough to be compressed " * 2000, keys=["zipped"]),
        Message("Odd", chance.randbytes(50_000)),
        Message("Odd", b"\xff\xfe\x00", properties={"a": " ", "long": "x" * 20_000}),
    ]
    broker.send_all(messages)
    rows = batch(spark, broker.namesrv, subscribe="Odd", includeProperties="true").collect()
    found = {bytes(row.body): row for row in rows}
    assert len(rows) == len(messages)
    for message in messages:
        row = found[message.body]
        assert row.tags == (message.tags or None)
        assert row["keys"] == (" ".join(message.keys) or None)
        assert row.key == (message.keys[0] if message.keys else None)
        assert message.properties.items() <= row.properties.items()
        assert row.msgId == row.properties["UNIQ_KEY"]
        assert (row.topic, row.flag, row.reconsumeTimes) == ("Odd", 0, 0)


def test_filters_are_applied(spark: SparkSession, broker: Scene) -> None:
    """Tags by their exact text, also if hashes are equal; SQL92 by the broker."""
    broker.create("Tagged", 2)
    broker.send_all([Message("Tagged", b"%d" % n, tags=("Aa", "BB", "other")[n % 3]) for n in range(300)])
    broker.send_all([Message("Tagged", b"sql %d" % n, properties={"price": str(n)}) for n in range(100)])
    assert bodies(spark, broker, subscribe="Tagged", subExpression="Aa") == sorted(b"%d" % n for n in range(0, 300, 3))
    both = bodies(spark, broker, subscribe="Tagged", subExpression="Aa || other", minPartitions=6)
    assert both == sorted(b"%d" % n for n in range(300) if n % 3 != 1)
    dear = bodies(spark, broker, subscribe="Tagged", subExpression="price >= 90", expressionType="sql92")
    assert dear == sorted(b"sql %d" % n for n in range(90, 100))
    with pytest.raises(PySparkException, match=r"SUBSCRIPTION_PARSE_FAILED"):
        bodies(spark, broker, subscribe="Tagged", subExpression="price >=", expressionType="SQL92")


def test_bounds_by_offset_and_time(spark: SparkSession, broker: Scene) -> None:
    """JSON by queue, times for all and by topic; ends are exclusive."""
    broker.create("Bounds", 1)
    early = broker.send("Bounds", 40)
    time_ms = int(time.time() * 1000) + 1
    while int(time.time() * 1000) <= time_ms:
        pass
    late = broker.send("Bounds", 60)
    (name,) = {row.brokerName for row in batch(spark, broker.namesrv, subscribe="Bounds").collect()}
    queue = json.dumps({"Bounds": {name: {"0": 10}}})
    ten = json.dumps({"Bounds": {name: {"0": 20}}})
    offsets = batch(
        spark, broker.namesrv, assign=json.dumps({"Bounds": {name: [0]}}), startingOffsets=queue, endingOffsets=ten
    )
    assert sorted(row.queueOffset for row in offsets.collect()) == list(range(10, 20))
    assert bodies(spark, broker, subscribe="Bounds", startingTimestamp=time_ms) == sorted(late)
    assert bodies(spark, broker, subscribe="Bounds", endingTimestamp=time_ms) == sorted(early)
    by_topic = json.dumps({"Bounds": time_ms})
    assert bodies(spark, broker, subscribe="Bounds", startingOffsetsByTimestamp=by_topic) == sorted(late)
    future = time_ms + 10_000_000
    with pytest.raises(PySparkException, match="no message is new enough"):
        bodies(spark, broker, subscribe="Bounds", startingTimestamp=future)
    assert not bodies(
        spark, broker, subscribe="Bounds", startingTimestamp=future, startingOffsetsByTimestampStrategy="latest"
    )


def test_ranges_are_split_and_grouped(spark: SparkSession, broker: Scene) -> None:
    """The rows are the same with any number of tasks."""
    broker.create("Split", 4)
    sent = sorted(broker.send("Split", 1000))
    for options, tasks in (
        ({}, 4),
        ({"minPartitions": 9}, 9),
        ({"maxPartitions": 2}, 2),
        ({"maxRecordsPerPartition": 100}, 12),
    ):
        frame = batch(spark, broker.namesrv, subscribe="Split", **options)
        assert abs(frame.rdd.getNumPartitions() - tasks) <= 1, options
        assert sorted(bytes(row.body) for row in frame.select("body").collect()) == sent


def test_large_messages(spark: SparkSession, broker: Scene) -> None:
    """Responses with one message, and messages larger than a task's usual buffer."""
    broker.create("Large", 1)
    chance = random.Random(1)
    large = [chance.randbytes(size) for size in (300_000, 900_000, 5, 600_000)]
    broker.send_all([Message("Large", body) for body in large])
    assert bodies(spark, broker, subscribe="Large") == sorted(large)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "T", "startingOffset": "latest"}, "no option startingoffset: did you mean startingOffsets"),
        ({"subscribe": "T", "pullBatchSize": "many"}, "pullBatchSize must be a whole number above 0, not 'many'"),
        ({}, "give exactly one of subscribe, subscribePattern and assign"),
        ({"subscribe": "T", "assign": '{"T":{"b":[0]}}'}, "give exactly one of"),
        ({"subscribe": "T", "endingOffsets": "earliest"}, "endingOffsets must be latest, or JSON"),
        ({"subscribe": "NoSuchTopic", "brokerTimeoutMs": "300"}, "topic NoSuchTopic does not exist"),
        ({"subscribe": "T", "accessKey": "k-1234"}, "accessKey and secretKey go together"),
    ],
)
def test_errors_name_the_option_and_the_remedy(
    spark: SparkSession, broker: Scene, options: dict[str, object], said: str
) -> None:
    """A wrong option is named, with the accepted values."""
    with pytest.raises(PySparkException, match=said) as raised:
        batch(spark, broker.namesrv, **options).collect()
    assert "k-1234" not in str(raised.value)
