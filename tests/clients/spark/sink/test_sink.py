"""A partition is written when every row is acknowledged; errors contain their reason."""

import logging
import pickle
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from skylarkmq import Admin, MessageExt
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.base.settings import ClientSettings
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.spark.base.options import OptionError, parse
from skylarkmq.clients.spark.sink import sink
from skylarkmq.clients.spark.sink.sink import (
    BatchWriter,
    Task,
    TaskReport,
    WriteFailed,
    abort,
    batch_writer,
    commit,
    stream_writer,
    write_partition,
)
from skylarkmq.clients.spark.sink.sink_options import OPTIONS, SinkOptions
from skylarkmq.clients.spark.sink.sink_rows import MARK, ColumnError
from skylarkmq.protocol.codes import Permission
from skylarkmq.protocol.message import PropertyName
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.ports import free_ports

SCHEMA = StructType([StructField("body", BinaryType())])
BEGINNING, END = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)


@pytest.fixture(autouse=True)
def close_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the clients that the sink keeps for the life of its process: their brokers end with each test."""
    made: list[Client] = []

    def client(name_server: str, settings: ClientSettings) -> Client:
        made.append(Client(name_server, settings))
        return made[-1]

    monkeypatch.setattr(sink, "Client", client)
    yield
    sink._link.cache_clear()
    for one in made:
        run(one.close())


def options(broker: Any, **more: str) -> SinkOptions:
    return parse(OPTIONS, {"nameServer": broker.namesrv, "topic": "T", "retryTimeoutMs": "200ms"} | more)


def batches(count: int, per_batch: int = 100, **columns: Any) -> Iterator[pa.RecordBatch]:
    for first in range(0, count, per_batch):
        numbers = range(first, min(first + per_batch, count))
        others = {name: pa.array([value(n) for n in numbers]) for name, value in columns.items()}
        yield pa.RecordBatch.from_pydict({"body": pa.array([b"%d" % n for n in numbers])} | others)


def stored(broker: Any, topic: str = "T") -> list[MessageExt]:
    """All messages of a topic, queue by queue."""

    async def read() -> list[MessageExt]:
        async with Admin(namesrv=broker.namesrv) as admin:
            return [message async for message in admin.messages_between(topic, BEGINNING, END)]

    return run(read())


def task(batch: int = 0, partition: int = 0, attempt: int = 0) -> Task:
    return Task("query", batch, partition, attempt)


def numbers(messages: Sequence[MessageExt]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def test_every_row_is_a_message_when_write_returns(mq_broker: Any) -> None:
    """Few requests are sent; each message has its mark; the report counts rows, bytes and requests."""
    report = write_partition(options(mq_broker), task(batch=4, partition=2), batches(1000))
    messages = stored(mq_broker)
    assert numbers(messages) == list(range(1000))
    assert {message.properties[MARK] for message in messages} == {f"query:4:2:{n}" for n in range(1000)}
    assert (report.rows, report.requests, report.retries, report.skipped) == (1000, 4, 0, 0)
    assert report.bytes == sum(len(message.body) for message in messages)
    assert pickle.loads(pickle.dumps(report)) == report


def test_an_empty_partition_sends_no_request() -> None:
    """Spark writes empty batches, too; they need no broker."""
    (port,) = free_ports(1)
    nobody = parse(OPTIONS, {"nameServer": f"127.0.0.1:{port}", "topic": "T"})
    assert write_partition(nobody, task(), batches(0)) == TaskReport(*task())


def test_marks_can_be_disabled(mq_broker: Any) -> None:
    """markRows=false omits the property."""
    write_partition(options(mq_broker, markRows="false"), task(), batches(2))
    assert all(MARK not in message.properties for message in stored(mq_broker))


def test_rows_of_a_group_keep_their_order_in_one_queue(mq_broker: Any) -> None:
    """The order within a group is kept with small requests and many of them in flight."""
    few = options(mq_broker, batchRows="3", maxInFlight="16")
    write_partition(few, task(), batches(600, messageGroup=lambda n: f"g{n % 7}"))
    messages = stored(mq_broker)
    assert len(messages) == 600
    for group in range(7):
        of_group = [m for m in messages if m.properties[PropertyName.SHARDING_KEY] == f"g{group}"]
        assert len({message.queue_id for message in of_group}) == 1
        assert [int(message.body) for message in of_group] == list(range(group, 600, 7))


def test_rows_go_to_the_topic_in_their_column(mq_broker: Any) -> None:
    """Several topics in one partition, with delayed and large rows among the others."""
    wide = parse(OPTIONS, {"nameServer": mq_broker.namesrv, "batchBytes": "2000"})
    write_partition(
        wide,
        task(),
        batches(
            50, topic=lambda n: f"T{n % 3}", tags=lambda n: "x" * (n * 100), delayLevel=lambda n: 18 if n == 7 else 0
        ),
    )
    counts = [len(stored(mq_broker, f"T{n}")) for n in range(3)]
    assert counts == [17, 16, 16]  # row 7 of T1 is delayed, in the schedule topic


def test_a_batch_in_the_ledger_is_not_sent_again(mq_broker: Any) -> None:
    """A repeated batch is read and skipped; without a commit it is sent again, with the same marks."""
    with_ledger = options(mq_broker, skipCommittedBatches="true")
    reports = [write_partition(with_ledger, task(batch=0, attempt=attempt), batches(10)) for attempt in range(2)]
    assert [(report.rows, report.skipped) for report in reports] == [(10, 0)] * 2
    commit(with_ledger, [reports[1], None])
    assert len(stored(mq_broker)) == 20
    assert len({message.properties[MARK] for message in stored(mq_broker)}) == 10
    again = write_partition(with_ledger, task(batch=0), batches(10))
    assert (again.rows, again.skipped) == (0, 10)
    commit(with_ledger, [again])
    assert write_partition(with_ledger, task(batch=1), batches(10)).rows == 10
    assert len(stored(mq_broker)) == 30


@pytest.mark.parametrize("loser", ["ends", "is killed"])
def test_two_concurrent_attempts_of_a_task(mq_broker: Any, loser: str) -> None:
    """Speculative execution, with different batches: each row is sent once or twice, always with its mark."""
    few = options(mq_broker, batchRows="10", maxInFlight="4")
    together = threading.Barrier(2)

    def attempt(number: int, per_batch: int) -> TaskReport:
        return write_partition(
            few, task(attempt=number), in_step(together, per_batch, number > 0 and loser == "is killed")
        )

    with ThreadPoolExecutor(2) as attempts:
        first, second = attempts.submit(attempt, 0, 30), attempts.submit(attempt, 1, 20)
        assert first.result().rows == 600
        if loser == "is killed":
            with pytest.raises(InterruptedError):
                second.result()
    messages = stored(mq_broker)
    rows = Counter((message.properties[MARK], message.body) for message in messages)
    assert set(rows) == {(f"query:0:0:{n}", b"%d" % n) for n in range(600)}
    assert max(rows.values()) == 2
    assert 600 < len(messages) <= 1200


def in_step(together: threading.Barrier, per_batch: int, dies: bool) -> Iterator[pa.RecordBatch]:
    """Yield 600 rows; before every 180th, wait for the other attempt.

    With `dies`, raise before the last of these rows.
    """
    for number, batch in enumerate(batches(600, per_batch)):
        if number * per_batch % 180 == 0:
            together.wait(WAIT_LIMIT_S)
        if dies and number * per_batch == 540:
            raise InterruptedError
        yield batch


def test_a_rejected_send_fails_the_task_with_the_reason(mq_broker: Any) -> None:
    """The error contains topic, code, remark, rows and the remedy."""

    async def forbid() -> None:
        async with Admin(namesrv=mq_broker.namesrv) as admin:
            await admin.create_topic("T", perm=Permission.READ)

    run(forbid())
    with pytest.raises(WriteFailed, match=r"partition 3 of batch 0: .*topic T.*permission"):
        write_partition(options(mq_broker), task(partition=3), batches(300))


@pytest.mark.mq_broker(maxMessageSize=1000)
def test_a_permanent_rejection_fails_at_once(mq_broker: Any) -> None:
    """A permanent error is not retried; the error contains the broker's code and remark."""
    patient = options(mq_broker, retryTimeoutMs="1h")
    with pytest.raises(WriteFailed, match=r"from query:0:0:0 on,.*MESSAGE_ILLEGAL \(13\)"):
        write_partition(patient, task(), iter([pa.RecordBatch.from_pydict({"body": pa.array([b"x" * 2000])})]))


def test_an_unreachable_broker_fails_the_task_after_the_retry_timeout() -> None:
    """The error contains the address."""
    (port,) = free_ports(1)
    nobody = parse(OPTIONS, {"nameServer": f"127.0.0.1:{port}", "topic": "T", "retryTimeoutMs": "10ms"})
    with pytest.raises(WriteFailed, match=f"127.0.0.1:{port}"):
        write_partition(nobody, task(), batches(1))


def test_a_row_without_a_body_fails_the_task(mq_broker: Any) -> None:
    """The error contains the row's position."""
    with pytest.raises(WriteFailed, match="row 1: body is null"):
        write_partition(options(mq_broker), task(), iter([pa.RecordBatch.from_pydict({"body": pa.array([b"", None])})]))


def test_tasks_batches_and_aborts_are_logged(mq_broker: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Each task, each batch with its totals, and an abort with the rows sent before it."""
    caplog.set_level(logging.INFO)
    reports = [write_partition(options(mq_broker), task(partition=n), batches(10)) for n in range(2)]
    commit(options(mq_broker), reports)
    abort([reports[0], None])
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "partition written query=query batch=0 partition=1 attempt=0 rows=10 bytes=10" in told
    assert "batch written query=query batch=0 partitions=2 rows=20 bytes=20" in told
    assert "batch aborted, rows already sent remain in the topic partitions=1 rows=10" in told


def test_writers_are_checked_where_they_are_planned() -> None:
    """Wrong options, columns and modes raise errors before a task starts."""
    given = {"nameServer": "host:9876", "topic": "T"}
    with pytest.raises(WriteFailed, match=r"mode\('append'\)"):
        batch_writer(given, SCHEMA, True)
    with pytest.raises(OptionError, match="did you mean batchRows"):
        stream_writer(given | {"batchRow": "1"}, SCHEMA, False)
    with pytest.raises(OptionError, match="needs a writeId"):
        batch_writer(given | {"skipCommittedBatches": "true"}, SCHEMA, False)
    with pytest.raises(OptionError, match="is the ledger"):
        stream_writer(given | {"skipCommittedBatches": "true", "ledgerTopic": "T"}, SCHEMA, False)
    with pytest.raises(OptionError, match="topic must be the name of a topic"):
        stream_writer(given | {"topic": "a b"}, SCHEMA, False)
    with pytest.raises(ColumnError, match="body is array<string>"):
        stream_writer(given, StructType([StructField("body", ArrayType(StringType()))]), False)


def test_a_planned_writer_is_pickled_without_connections() -> None:
    """It is pickled with its write id, so all tasks and their repetitions use the same id."""
    secrets = {"accessKey": "me", "secretKey": "hush"}
    writer = batch_writer({"nameServer": "host:9876", "topic": "T"} | secrets, SCHEMA, False)
    copy = pickle.loads(pickle.dumps(writer))
    assert isinstance(copy, BatchWriter)
    assert vars(copy) == vars(writer)
    assert "hush" not in repr(vars(writer))


def test_write_outside_a_task_is_rejected() -> None:
    """The ids of a write come from Spark's task."""
    writer = stream_writer({"nameServer": "host:9876", "topic": "T"}, SCHEMA, False)
    with pytest.raises(WriteFailed, match="Spark task"):
        writer.write(iter([]))
