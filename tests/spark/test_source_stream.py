"""The streaming source in a real Spark, against a real broker: every message once, despite restarts."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from skylarkmq import Admin
from tests.spark.scene import Scene, Written, ended, scene, stream

pytestmark = pytest.mark.spark

ROUNDS = 10
KILLED_IN = frozenset({3, 6, 8})
SEED = 20240501
PROMPT_RETENTION = {
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": 100,
    "deleteCommitLogFilesInterval": 1,
    "flushConsumeQueueThoroughInterval": 500,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("broker"), enablePropertyFilter="true") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def aging_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A broker for the tests of retention. It starts before the first test, because a broker deletes no segment in the
    first minute after its start. After that it deletes a segment as soon as the segment is due and flushed."""
    with scene(tmp_path_factory.mktemp("aging-broker"), **PROMPT_RETENTION) as running:
        yield running


@pytest.fixture
def written(spark: SparkSession, tmp_path: Path) -> Written:
    return Written(spark, tmp_path)


def test_every_message_is_read_once_despite_restarts(spark: SparkSession, tmp_path: Path, written: Written) -> None:
    """Ten starts and stops at random moments; the broker is killed three times while the query runs."""
    moment = random.Random(SEED)
    with scene(tmp_path) as broker:
        broker.create("T", 3)
        sent = broker.send("T", 300)
        for round_number in range(ROUNDS):
            frame = stream(spark, broker.namesrv, subscribe="T", maxOffsetsPerTrigger=moment.choice([150, 100_000]))
            query = written.start(frame)
            assert not ended(query, moment.uniform(0.0, 2.0))
            if round_number in KILLED_IN:
                broker.kill()
                broker.restart()
            sent += broker.send("T", 150)
            assert not ended(query, moment.uniform(0.5, 3.0))
            query.stop()
        written.drain(stream(spark, broker.namesrv, subscribe="T"))
    assert written.bodies() == Counter(sent)


def test_messages_sent_during_the_query_are_read_once(spark: SparkSession, broker: Scene, written: Written) -> None:
    """A producer runs at the same time; nothing is read twice or omitted."""
    broker.create("Live", 2)
    query = written.start(stream(spark, broker.namesrv, subscribe="Live"))
    sent: list[bytes] = []
    sender = threading.Thread(target=lambda: sent.extend(body for _ in range(5) for body in broker.send("Live", 100)))
    sender.start()
    sender.join()
    written.wait(500, query)
    query.stop()
    assert written.bodies() == Counter(sent)


def test_a_batch_waits_for_the_minimum(spark: SparkSession, broker: Scene, written: Written) -> None:
    """No batch begins with fewer messages; then one batch has all of them."""
    broker.create("Least", 2)
    sent = broker.send("Least", 60)
    frame = stream(spark, broker.namesrv, subscribe="Least", minOffsetsPerTrigger=100, maxTriggerDelay="1h")
    query = written.start(frame)
    assert not ended(query, 1.0)
    sent += broker.send("Least", 60)
    written.wait(120, query)
    query.stop()
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sizes[0] >= 100
    assert written.bodies() == Counter(sent)


def test_new_queues_and_topics_are_found(spark: SparkSession, broker: Scene, written: Written) -> None:
    """A topic gets more queues, and a new topic matches the pattern; both are read from their first message."""
    broker.create("Grows-1", 1)
    sent = broker.send("Grows-1", 50)
    query = written.start(stream(spark, broker.namesrv, subscribePattern="Grows-.*", startingOffsets="earliest"))
    written.wait(50, query)
    broker.create("Grows-1", 4)
    sent += broker.send("Grows-1", 80)
    broker.create("Grows-2", 2)
    sent += broker.send("Grows-2", 40)
    written.wait(170, query)
    query.stop()
    assert written.bodies() == Counter(sent)


def test_the_first_batch_keeps_a_start_at_latest(spark: SparkSession, broker: Scene, written: Written) -> None:
    """Older messages are not read; newer ones are, even if the first batch was planned and never finished."""
    broker.create("Late", 2)
    broker.send("Late", 20)
    query = written.start(stream(spark, broker.namesrv, subscribe="Late", startingOffsets="latest"))
    while not query.recentProgress:
        assert not ended(query, 0.1), query.exception()
    sent = broker.send("Late", 30)
    written.wait(30, query)
    query.stop()
    sent += broker.send("Late", 10)
    written.drain(stream(spark, broker.namesrv, subscribe="Late", startingOffsets="latest"))
    assert written.bodies() == Counter(sent)


def test_available_now_reads_in_limited_batches_and_commits(
    spark: SparkSession, broker: Scene, written: Written
) -> None:
    """No batch exceeds the limit, and at the end the group has no lag in the broker's statistics."""
    broker.create("Now", 3)
    sent = broker.send("Now", 500)
    options = {"subscribe": "Now", "maxOffsetsPerTrigger": 120, "groupId": "spark-now"}
    query = written.drain(stream(spark, broker.namesrv, **options))
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(sizes) == 500
    assert max(sizes) <= 120
    assert broker.administer(lambda admin: admin.lag("spark-now", "Now")) == 0
    sent += broker.send("Now", 100)
    assert broker.administer(lambda admin: admin.lag("spark-now", "Now")) == 100
    again = written.drain(stream(spark, broker.namesrv, **options, minOffsetsPerTrigger=110))
    assert written.bodies() == Counter(sent)
    assert broker.administer(lambda admin: admin.lag("spark-now", "Now")) == 0
    assert again.lastProgress is not None
    assert '"Now"' in str(again.lastProgress.sources[0].latestOffset)


def test_a_thousand_queues(spark: SparkSession, broker: Scene, written: Written) -> None:
    """Each queue is read, most of them empty, by as few tasks as the option allows."""
    broker.create("Wide", 1000)
    sent = broker.send("Wide", 700)
    written.drain(stream(spark, broker.namesrv, subscribe="Wide", maxPartitions=4))
    assert written.bodies() == Counter(sent)


def test_empty_topics_have_no_rows(spark: SparkSession, broker: Scene, written: Written) -> None:
    """A query over an empty topic ends with AvailableNow, and reads messages that arrive later."""
    broker.create("Empty", 2)
    written.drain(stream(spark, broker.namesrv, subscribe="Empty"))
    assert not written.bodies()
    sent = broker.send("Empty", 5)
    written.drain(stream(spark, broker.namesrv, subscribe="Empty"))
    assert written.bodies() == Counter(sent)


def test_a_recreated_topic_counts_as_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    """Its queues are shorter than the query's offsets: an error; without failOnDataLoss, reading restarts."""
    with scene(tmp_path) as broker:
        written = Written(spark, tmp_path / "query")
        broker.create("T", 1)
        sent = broker.send("T", 30)
        written.drain(stream(spark, broker.namesrv, subscribe="T"))

        async def delete(admin: Admin) -> None:
            await admin.delete_topic("T")

        broker.administer(delete)
        broker.create("T", 1)
        sent += broker.send("T", 20)
        with pytest.raises(StreamingQueryException, match=r"T@.*:0 from offset 30 on"):
            written.drain(stream(spark, broker.namesrv, subscribe="T"))
        written.drain(stream(spark, broker.namesrv, subscribe="T", failOnDataLoss="false"))
    assert written.bodies() == Counter(sent)


@pytest.mark.parametrize("fails", [True, False])
def test_messages_deleted_by_retention_are_reported(
    spark: SparkSession, aging_broker: Scene, written: Written, fails: bool
) -> None:
    """A restarted query fails with the deleted range, or continues after it."""
    broker, topic = aging_broker, f"Expired-{fails}"
    broker.create(topic, 1)
    sent = broker.send(topic, 10)
    written.drain(stream(spark, broker.namesrv, subscribe=topic))
    later = broker.send(topic, 3000, size=1024)
    first = broker.expire(topic)
    assert first > 10
    frame = stream(spark, broker.namesrv, subscribe=topic, failOnDataLoss=str(fails).lower())
    if fails:
        with pytest.raises(StreamingQueryException, match=rf"{topic}@.*:0 from offset 10 to {first} \(excluded\)"):
            written.drain(frame)
        assert written.bodies() == Counter(sent)
    else:
        written.drain(frame)
        assert written.bodies() == Counter(sent + later[first - 10 :])
