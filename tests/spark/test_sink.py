"""The sink in a real Spark, against a broker: rows arrive, and repeated rows are recognizable."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from skylarkmq import Admin, MessageExt
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.spark.sink.sink_rows import MARK
from skylarkmq.protocol.codes import Permission, RequestCode
from tests.harness.daemon import Daemon, running
from tests.harness.trap import trapped
from tests.spark.lines import driver, put_lines, stream, wait

pytestmark = pytest.mark.spark

BEGINNING, END = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One broker for all tests of the module, which use different topics."""
    with running(directory=tmp_path_factory.mktemp("broker")) as daemon:
        yield daemon


def stored(broker: Daemon, topic: str) -> list[MessageExt]:
    async def read() -> list[MessageExt]:
        async with Admin(namesrv=broker.namesrv) as admin:
            return [message async for message in admin.messages_between(topic, BEGINNING, END)]

    return run(read())


def set_permission(broker: Daemon, topic: str, perm: int) -> None:
    async def change() -> None:
        async with Admin(namesrv=broker.namesrv) as admin:
            await admin.create_topic(topic, queues=1, perm=perm)

    run(change())


def numbered(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS STRING) AS body", "concat('k', id) AS keys")


def write(frame: DataFrame, broker: Daemon, topic: str, **options: str) -> None:
    writer = frame.write.format("rocketmq").mode("append")
    writer.options(**to(broker, topic), **options).save()


def to(broker: Daemon, topic: str) -> dict[str, str]:
    """Options of a sink with short retries."""
    return {"nameServer": broker.namesrv, "topic": topic, "retryTimeoutMs": "500ms"}


def marks(messages: list[MessageExt]) -> Counter[str]:
    return Counter(message.properties[MARK] for message in messages)


def test_a_dataframe_becomes_messages(spark: SparkSession, broker: Daemon) -> None:
    """The format is found without registration; every row is sent once, with marks by partition and row."""
    write(numbered(spark.newSession(), 1000), broker, "Batch", writeId="w1")
    messages = stored(broker, "Batch")
    assert sorted(int(message.body) for message in messages) == list(range(1000))
    assert all(message.keys == [f"k{message.body.decode()}"] for message in messages)
    assert set(marks(messages)) == {f"w1:0:{partition}:{row}" for partition in range(2) for row in range(500)}


def test_a_repeated_batch_write_sends_nothing_new(spark: SparkSession, broker: Daemon) -> None:
    """The ledger recognizes the second run of a job by its writeId."""
    for _ in range(2):
        write(numbered(spark, 100), broker, "Again", writeId="job-1", skipCommittedBatches="true")
    assert len(stored(broker, "Again")) == 100


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("id AS body", {}, "column body is bigint: cast it to binary or string"),
        ("CAST(id AS STRING) AS value", {}, "no column body"),
        ("CAST(id AS STRING) AS body", {"bachRows": "1"}, "did you mean batchRows"),
    ],
)
def test_wrong_columns_and_options_are_rejected_at_planning(
    spark: SparkSession, broker: Daemon, columns: str, options: dict[str, str], reason: str
) -> None:
    """The error is raised before a task runs."""
    with pytest.raises(AnalysisException, match=reason):
        write(spark.range(1).selectExpr(columns), broker, "Refused", **options)


def test_overwrite_mode_is_rejected(spark: SparkSession) -> None:
    """The error contains the remedy."""
    writer = numbered(spark, 1).write.format("rocketmq").options(nameServer="127.0.0.1:1", topic="T")
    with pytest.raises(AnalysisException, match=r"mode\('append'\)"):
        writer.mode("overwrite").save()


def test_rejected_sends_fail_the_write(spark: SparkSession, broker: Daemon) -> None:
    """The task's error contains topic, reason and remedy."""
    set_permission(broker, "ReadOnly", Permission.READ)
    with pytest.raises(PySparkException, match=r"(?s)topic ReadOnly.*permission"):
        write(numbered(spark, 10), broker, "ReadOnly")


def test_repeated_rows_have_the_same_marks(spark: SparkSession, broker: Daemon, tmp_path: Path) -> None:
    """A query that ends between its sends and the ledger sends the batch again, with the same marks, and only then."""
    options: dict[str, Any] = {"skipCommittedBatches": "true", "ledgerTopic": "closed-ledger"}
    put_lines(tmp_path, "a", 50)
    set_permission(broker, "closed-ledger", Permission.READ)
    with pytest.raises(PySparkException, match=r"(?s)ledger .*could not be written.*permission"):
        wait(stream(spark, tmp_path, **to(broker, "Repeated"), **options))
    assert set(marks(stored(broker, "Repeated")).values()) == {1}
    set_permission(broker, "closed-ledger", Permission.READ_WRITE)
    wait(stream(spark, tmp_path, **to(broker, "Repeated"), **options))
    repeated = marks(stored(broker, "Repeated"))
    assert (len(repeated), set(repeated.values())) == (50, {2})


def test_a_driver_killed_before_or_after_the_ledger_entry(spark: SparkSession, tmp_path: Path) -> None:
    """SIGKILL before the entry reaches the broker: all rows are sent again with the same marks. After it: none."""
    put_lines(tmp_path, "a", 50)
    with trapped(tmp_path) as (broker, trap):
        options = to(broker, "Killed") | {"skipCommittedBatches": "true", "sendTimeoutMs": "1h"}
        for catch, times in ((trap.catch_request, 1), (trap.catch_response, 2)):
            with driver(tmp_path, **options) as process:
                catch(is_ledger_entry, lambda: os.killpg(process.pid, signal.SIGKILL))
            assert process.returncode == -signal.SIGKILL, (tmp_path / "driver.txt").read_text()
            trap.release()
            sent = marks(stored(broker, "Killed"))
            assert {mark.split(":", 1)[1] for mark in sent} == {f"0:0:{row}" for row in range(50)}
            assert (len(sent), set(sent.values())) == (50, {times})
        assert not list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
        wait(stream(spark, tmp_path, **options))
        assert len(stored(broker, "Killed")) == 100
        put_lines(tmp_path, "b", 7)
        wait(stream(spark, tmp_path, **options))
        assert len(stored(broker, "Killed")) == 107


def is_ledger_entry(code: int, header: bytes) -> bool:
    return code == RequestCode.SEND_MESSAGE_V2 and b"spark-rocketmq-ledger" in header


def test_rows_of_a_group_keep_their_order(spark: SparkSession, broker: Daemon) -> None:
    """Like the SDK's message groups: one queue for each, in the order of the partition."""
    rows = spark.range(0, 300, 1, 1).selectExpr("CAST(id AS STRING) AS body", "concat('g', id % 5) AS messageGroup")
    write(rows, broker, "Grouped", batchRows="4")
    for group in range(5):
        of_group = [m for m in stored(broker, "Grouped") if m.properties["__SHARDINGKEY"] == f"g{group}"]
        assert [int(message.body) for message in of_group] == list(range(group, 300, 5))
        assert len({message.queue_id for message in of_group}) == 1
