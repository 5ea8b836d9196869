"""The pipeline's command before the start of Spark: arguments become a job; mistakes become one line with advice."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from skylarkmq import Message
from skylarkmq.clients.sdk.blocking import Producer
from skylarkmq.clients.spark.pipeline.command import pipeline
from skylarkmq.clients.spark.pipeline.progress import lag, left, line
from tests.harness.ports import free_ports

UNUSED_ADDRESS = f"127.0.0.1:{free_ports(1)[0]}"


def error_of(*arguments: str) -> str:
    """Return the output of a command that does not start."""
    done = CliRunner().invoke(pipeline, list(arguments))
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ((), "no name server responds"),
        (("--json-schema", "id INT", "--dead-letter-topic", "D", "--drop-bad-rows"), "are both set: choose one"),
        (("--to", "iceberg"), "catalog.namespace.table, such as lake.orders.messages, not 'lake'"),
        (("--to", "delta", "--engine", "pyiceberg"), "--engine is for Iceberg, not for --to delta"),
        (("--to", "delta", "--no-shuffle"), "--no-shuffle is for Parquet; --to delta never shuffles"),
        (("--dead-letter-topic", "D"), "set --json-schema, --avro-schema or --protobuf-descriptor"),
        (("--json-schema", "id INT", "--dead-letter-topic", "a b"), "--dead-letter-topic must be the name of a topic"),
        (("--json-schema", "id INT", "--avro-schema", "x"), "are both set"),
        (("--avro-schema", "nowhere.avsc"), "cannot read nowhere.avsc"),
        (("--option", "minPartitions"), "must be KEY=VALUE"),
        (("--option", "minPartition=3"), "did you mean minPartitions?"),
        (("--file-bytes", "much"), "a size such as 256m"),
        (("--pattern", "x"), "subscribe"),
        (("--store-option", "a=b"), "--store-option needs --backfill"),
        (("--backfill", "/store"), "must be BROKER=PATH"),
        (("--backfill", "a=/nowhere"), "/nowhere is not a store"),
        (("--backfill", "a=/nowhere", "--starting-offsets", "latest"), "leave out --starting-offsets"),
    ],
)
def test_a_mistake_is_one_line_with_advice(arguments: tuple[str, ...], advice: str) -> None:
    """The pipeline does not start, and the exit code is 2."""
    assert advice in error_of("-n", UNUSED_ADDRESS, "-t", "Orders", "-o", "lake", *arguments)


def test_a_table_of_iceberg_needs_a_checkpoint() -> None:
    """A default beside the working directory would be lost, and with it the position."""
    arguments = ("-n", UNUSED_ADDRESS, "-t", "Orders", "-o", "lake.shop.orders", "--to", "iceberg")
    assert "--to iceberg needs --checkpoint" in error_of(*arguments)
    assert "no name server responds" in error_of(*arguments, "--checkpoint", "checkpoint")


def test_a_missing_topic_is_reported(mq_broker: Any) -> None:
    """The error suggests the nearest topic."""
    with Producer("shop", namesrv=mq_broker.namesrv) as producer:
        producer.send(Message("Orders", b"x"))
    output = error_of("-n", mq_broker.namesrv, "-t", "Order", "-o", "lake")
    assert "topic Order does not exist: did you mean Orders?" in output


def test_a_backfill_shows_the_bytes_that_are_left() -> None:
    """Of the log of the store that is read; logs that were read before are left out."""
    source = {"endOffset": {"@log": {"a": 9, "b": 30}, "T": {"b": {"0": 1}}}, "latestOffset": {"@log": {"b": 100}}}
    assert left({"sources": [source]}) == {"b": 70}


def test_progress_is_a_line_with_the_lag_of_each_topic() -> None:
    """Offsets are JSON texts; a queue that the batch does not contain counts as lagging by its whole length."""
    end = json.dumps({"@from": {}, "A": {"b": {"0": 5}}})
    latest = json.dumps({"A": {"b": {"0": 9, "1": 3}}, "B": {"b": {"0": 0}}})
    progress = {
        "name": "parquet",
        "batchId": 3,
        "numInputRows": 10,
        "processedRowsPerSecond": 20.4,
        "durationMs": {"triggerExecution": 490},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }
    assert lag(progress) == {"A": 7, "B": 0}
    assert line(progress) == "parquet batch=3 rows=10 rows_per_s=20 seconds=0.5 lag A=7 B=0"
    assert line({"name": "x", "batchId": 0, "sources": [{}]}) == "x batch=0 rows=0 rows_per_s=0 seconds=0.0"
