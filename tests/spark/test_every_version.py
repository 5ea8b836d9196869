"""The promises that hold for every PySpark from 4.0 on; tox runs this module with the older versions.

Some versions lack limits for batches or filters (clients/spark/base/features.py); each test names the difference.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from skylarkmq import Admin, Message, MessageExt
from skylarkmq.clients.spark.base.features import FILTERS, READ_LIMITS
from skylarkmq.clients.spark.pipeline.command import pipeline
from skylarkmq.clients.spark.sink.sink_rows import MARK
from tests.harness.daemon import STORE
from tests.spark import lines
from tests.spark.scene import Scene, Written, batch, scene, stream

pytestmark = pytest.mark.spark

SWITCH = "spark.sql.python.filterPushdown.enabled"
BEGINNING, END = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("broker")) as running:
        yield running


def stored(broker: Scene, topic: str) -> list[MessageExt]:
    async def read(admin: Admin) -> list[MessageExt]:
        return [message async for message in admin.messages_between(topic, BEGINNING, END)]

    found: list[MessageExt] = broker.administer(read)
    return found


def test_batches_are_limited_and_continue_after_a_restart(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """No batch exceeds maxOffsetsPerTrigger, with or without limits by Spark; a restart repeats and omits nothing."""
    written = Written(spark, tmp_path)
    broker.create("Limited", 3)
    sent = broker.send("Limited", 250)
    sizes: list[int] = []
    for more in (50, 0):
        query = written.start(stream(spark, broker.namesrv, subscribe="Limited", maxOffsetsPerTrigger=120))
        written.wait(len(sent), query)
        query.stop()
        sizes += [progress.numInputRows for progress in query.recentProgress]
        sent += broker.send("Limited", more)
    assert 0 < max(sizes) <= 120
    assert written.bodies() == Counter(sent)


def test_available_now_reads_the_existing_messages(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """With limits by Spark, in one run. Without, a run is one batch, and further runs read the rest."""
    written = Written(spark, tmp_path)
    broker.create("Now", 2)
    sent = broker.send("Now", 250)
    options = {"subscribe": "Now", "maxOffsetsPerTrigger": 100}
    for count in (250,) if READ_LIMITS.is_present else (100, 200, 250):
        written.drain(stream(spark, broker.namesrv, **options))
        assert sum(written.bodies().values()) == count
    sent += broker.send("Now", 30)
    written.drain(stream(spark, broker.namesrv, subscribe="Now"))
    assert written.bodies() == Counter(sent)


def test_a_minimum_needs_limits_by_spark(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """Without them the option is refused, with the version that has them."""
    broker.create("Least", 1)
    frame = stream(spark, broker.namesrv, subscribe="Least", minOffsetsPerTrigger=10)
    if READ_LIMITS.is_present:
        Written(spark, tmp_path).drain(frame)
    else:
        with pytest.raises(PySparkException, match=r"minOffsetsPerTrigger needs PySpark 4\.2 or newer"):
            Written(spark, tmp_path).drain(frame)


def test_a_missing_topic_is_named(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """By batch reads and by Trigger.AvailableNow."""
    options = {"subscribe": "NoSuchTopic", "brokerTimeoutMs": 500}
    with pytest.raises(PySparkException, match="topic NoSuchTopic does not exist"):
        batch(spark, broker.namesrv, **options).collect()
    with pytest.raises(StreamingQueryException, match="topic NoSuchTopic does not exist"):
        Written(spark, tmp_path).drain(stream(spark, broker.namesrv, **options))


def test_rows_of_every_batch_are_written_with_marks(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """A stream writes two batches with the ledger, and a repeated batch write is recognized by its id."""
    options = {"nameServer": broker.namesrv, "topic": "Marked", "skipCommittedBatches": "true"}
    for number in range(2):
        lines.put_lines(tmp_path, f"f{number}", 20)
        lines.wait(lines.stream(spark, tmp_path, **options))
    marks = Counter(message.properties[MARK].split(":", 1)[1] for message in stored(broker, "Marked"))
    assert marks == Counter(f"{number}:0:{row}" for number in range(2) for row in range(20))
    for _ in range(2):
        frame = spark.range(0, 30, 1, 2).selectExpr(
            "CAST(id AS STRING) AS body",
            "map('n', CAST(id AS STRING)) AS properties",
            "current_timestamp() AS deliverAt",
        )
        options |= {"topic": "Written", "writeId": "w1"}
        frame.write.format("rocketmq").mode("append").options(**options).save()
    messages = stored(broker, "Written")
    assert sorted(int(message.body) for message in messages) == list(range(30))
    assert all(message.properties["n"].encode() == message.body for message in messages)


def test_a_store_is_read_with_filters(spark: SparkSession, broker: Scene) -> None:
    """With pushFilters, if Spark has it; otherwise the option is refused, with the version that has it."""
    broker.create("Stored", 2)
    sent = broker.send("Stored", 50)
    reader = spark.read.format("rocketmq-store")
    path = str(broker.directory / STORE)
    plain = reader.load(path).where("topic = 'Stored'")
    assert Counter(bytes(row.body) for row in plain.collect()) == Counter(sent)
    spark.conf.set(SWITCH, "true")
    try:
        pushed = reader.option("pushFilters", "true").load(path).where("topic = 'Stored'")
        if FILTERS.is_present:
            assert Counter(bytes(row.body) for row in pushed.collect()) == Counter(sent)
        else:
            with pytest.raises(PySparkException, match=r"pushFilters needs PySpark 4\.1 or newer"):
                pushed.collect()
    finally:
        spark.conf.unset(SWITCH)


def test_the_pipeline_writes_the_existing_messages_and_ends(spark: SparkSession, broker: Scene, tmp_path: Path) -> None:
    """In limited batches, each message once, bad ones to the dead-letter topic; after each run the group has no lag."""
    broker.create("Piped", 2)
    arguments = ["-n", broker.namesrv, "-t", "Piped", "-o", str(tmp_path / "lake"), "--available-now"]
    arguments += ["--max-rows", "100", "--group", "piped", "--json-schema", "id BIGINT", "--dead-letter-topic", "Dead"]
    for begin, end in ((0, 250), (250, 290)):
        bodies = [b'{"id": %d}' % number if number % 50 else b"bad" for number in range(begin, end)]
        broker.send_all([Message("Piped", body) for body in bodies])
        done = CliRunner().invoke(pipeline, arguments)
        assert done.exit_code == 0, done.output
        lines_of_query = [line for line in done.stderr.splitlines() if line.startswith("parquet ")]
        rows = [int(part.removeprefix("rows=")) for part in " ".join(lines_of_query).split() if part[:5] == "rows="]
        assert (sum(rows), max(rows, default=0) <= 100) == (end - begin, True), done.stderr
        assert broker.administer(lambda admin: admin.lag("piped", "Piped")) == 0
    written = Counter(row.id for row in spark.read.parquet(str(tmp_path / "lake")).select("value.id").collect())
    assert written == Counter(number for number in range(290) if number % 50)
    assert len(stored(broker, "Dead")) == 6
