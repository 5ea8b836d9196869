"""The pipeline against a broker: every good message once in Parquet, every bad message in the dead-letter topic."""

import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyspark
import pytest
from pyspark.sql import SparkSession

from skylarkmq import Admin, Message, MessageExt, ProducerSettings
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.sdk.blocking import Producer
from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.decoding.encodings import AvroBodies, Decoding
from skylarkmq.clients.spark.pipeline.command import start_queries, watch
from skylarkmq.clients.spark.pipeline.job import Job
from skylarkmq.clients.spark.pipeline.rows import (
    BODY_CUT,
    CUT,
    DEAD_LETTER_REASON,
    MAX_BODY_BYTES,
    MAX_PROPERTY_CHARACTERS,
    ORIGIN_OFFSET,
    ORIGIN_TOPIC,
)
from skylarkmq.clients.spark.sink.sink_rows import MARK
from skylarkmq.clients.spark.tables.layout import TimeUnit
from tests.harness.daemon import Daemon, running
from tests.spark.session import JAVA_OPTIONS

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
BEGINNING, END = datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(4e9, UTC)
JSON = "id BIGINT NOT NULL, item STRING"
COUNT = 300
CLUSTER = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.host": "127.0.0.1",
}
AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    ],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(directory=tmp_path_factory.mktemp("broker")) as daemon:
        yield daemon


def bad_body(n: int) -> bytes:
    """Alternately: no JSON, not UTF-8, a wrong type, a missing field, an empty body, not an object."""
    return [b"{", b'{"id": 1, "item": "\xff"}', b'{"id": "x"}', b'{"item": "y"}', b" ", b"[7]"][n % 6]


def send(broker: Daemon, topic: str, numbers: range) -> None:
    """Every tenth message is bad, with its number in a property."""
    with Producer("shop", namesrv=broker.namesrv) as producer:
        for n in numbers:
            body = json.dumps({"id": n, "item": "größer"}).encode() if n % 10 else bad_body(n // 10)
            message = Message(topic, body, tags="t", keys=f"k{n}", properties={"n": str(n)})
            producer.send(message)


def stored(broker: Daemon, topic: str) -> list[MessageExt]:
    async def read() -> list[MessageExt]:
        async with Admin(namesrv=broker.namesrv) as admin:
            return [message async for message in admin.messages_between(topic, BEGINNING, END)]

    return run(read())


def job(broker: Daemon, directory: Path, topics: str, **more: Any) -> Job:
    """A job that ends when all messages are read."""
    source = {"nameServer": broker.namesrv, "subscribe": topics, "startingOffsets": "earliest"}
    source |= {name: more.pop(name) for name in ("subExpression", "expressionType") if name in more}
    return Job(
        source=source | {"maxOffsetsPerTrigger": "100"},
        output=str(directory / "lake"),
        checkpoint=str(directory / "checkpoint"),
        **more,
    )


def finish(spark: SparkSession, task: Job) -> list[str]:
    """Run the job to its end; return its output."""
    output: list[str] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert watch(start_queries(spark.newSession(), task).queries, output.append) == 0, output
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return output


def kill_after(line: str, command: list[str | Path], directory: Path) -> None:
    """Run a command until it prints the text, then kill it without warning."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment |= {"SPARK_HOME": str(spark_home(directory)), "SPARK_LOCAL_DIRS": str(directory)}
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        output: list[str] = []
        try:
            for text in map(bytes.decode, process.stdout):
                output.append(text)
                if text.startswith(line):
                    break
            else:
                pytest.fail("".join(output))
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def spark_home(directory: Path) -> Path:
    """PySpark, but with the executors' files below `directory`."""
    home = directory / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    return home


def test_a_killed_pipeline_resumes(spark: SparkSession, broker: Daemon, tmp_path: Path) -> None:
    """On a cluster, killed between batches that have bad rows; each row is once in Parquet."""
    send(broker, "Orders", range(COUNT))
    arguments = ["-n", broker.namesrv, "-t", "Orders,Payments", "-o", "lake", "--checkpoint", "checkpoint"]
    arguments += ["--json-schema", JSON, "--dead-letter-topic", "Dead", "--max-rows", "100", "--interval", "0 seconds"]
    submit: list[str | Path] = [SUBMIT, "--master", "local-cluster[1,2,512]"]
    submit += ["--driver-memory", "1g", "--driver-java-options", JAVA_OPTIONS]
    for name, value in CLUSTER.items():
        submit += ["--conf", f"{name}={value}"]
    send(broker, "Payments", range(COUNT, COUNT + 50))
    kill_after("parquet batch=1 ", [*submit, ROOT / "deploy/spark/pipeline.py", *arguments], tmp_path)
    send(broker, "Payments", range(COUNT + 50, COUNT + 100))
    task = job(broker, tmp_path, "Orders,Payments", decoding=Decoding(json=JSON), dead_letter_topic="Dead")
    output = finish(spark, task)
    assert any(line.startswith("parquet batch=") and line.endswith("lag Orders=0 Payments=0") for line in output), (
        output
    )

    rows = spark.read.parquet(task.output)
    assert "body" not in rows.columns
    wrong_hours = rows.where(f"hour != date_format(storeTimestamp, '{TimeUnit.HOUR.pattern}')").count()
    ids = Counter((row.topic, row.id, row.item) for row in rows.select("topic", "value.id", "value.item").collect())
    expected = {("Orders" if n < COUNT else "Payments", n, "größer") for n in range(COUNT + 100) if n % 10}
    assert (set(ids), set(ids.values()), wrong_hours) == (expected, {1}, 0)
    check_dead_letters(stored(broker, "Dead"))


def check_dead_letters(letters: list[MessageExt]) -> None:
    """All bad messages are complete and have their reason; repeated ones have the same mark."""
    by_mark = {message.properties[MARK]: message for message in letters}
    numbers = Counter(int(message.properties["n"]) for message in by_mark.values())
    assert numbers == Counter(range(0, COUNT + 100, 10))
    for message in by_mark.values():
        n = int(message.properties["n"])
        assert (message.payload(), message.tags, message.keys) == (bad_body(n // 10), "t", [f"k{n}"])
        assert message.properties[ORIGIN_TOPIC] == ("Orders" if n < COUNT else "Payments")
        assert message.properties[ORIGIN_OFFSET].isdigit()
        reasons = ["not a JSON object", "not UTF-8", "not a JSON object", "field id is missing", "not a JSON object"]
        assert [*reasons, "not a JSON object"][n // 10 % 6] in message.properties[DEAD_LETTER_REASON]


def avro_body(n: int) -> bytes:
    stream = io.BytesIO()
    datum = {"id": n, "at": datetime.fromtimestamp(n, UTC), "tags": ["a", None]}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), datum)
    return stream.getvalue()


def test_avro_bodies_become_columns(spark: SparkSession, broker: Daemon, tmp_path: Path) -> None:
    """Data of the schema are decoded, others are dead letters; long properties and large bodies are truncated."""
    with Producer("shop", namesrv=broker.namesrv, settings=ProducerSettings(max_message_bytes=8 << 20)) as producer:
        for n in range(20):
            producer.send(Message("Avro", avro_body(n) if n % 5 else b"\xff" * n, properties={"n": str(n)}))
        producer.send(Message("Avro", b"\xff" * (MAX_BODY_BYTES + 1), keys="large"))
        producer.send(Message("Avro", avro_body(1) + b"rest", properties={"long": "x" * (MAX_PROPERTY_CHARACTERS + 1)}))
    decoding = Decoding(avro=AvroBodies(schema=(json.dumps(AVRO),)))
    task = job(broker, tmp_path, "Avro", decoding=decoding, dead_letter_topic="AvroDead", keep_body=True)
    finish(spark, task)
    rows = spark.read.parquet(task.output).select("value.*", "body").collect()
    assert sorted((row.id, int(row["at"].timestamp()), row.tags) for row in rows) == [
        (n, n, ["a", None]) for n in range(20) if n % 5
    ]
    assert {bytes(row.body) for row in rows} == {avro_body(n) for n in range(20) if n % 5}
    letters = stored(broker, "AvroDead")
    assert len(letters) == 6
    (large,) = [message for message in letters if message.keys == ["large"]]
    assert (large.payload(), large.properties[BODY_CUT]) == (b"\xff" * MAX_BODY_BYTES, str(MAX_BODY_BYTES + 1))
    assert sum(BODY_CUT in message.properties for message in letters) == 1
    (long,) = [message for message in letters if CUT in message.properties]
    assert long.payload() == avro_body(1) + b"rest"
    assert "4 bytes remain" in long.properties[DEAD_LETTER_REASON]


def test_without_a_schema_everything_is_good(spark: SparkSession, broker: Daemon, tmp_path: Path) -> None:
    """Bodies are unchanged, in one file for each topic, hour and batch."""
    send(broker, "Plain", range(60))
    task = job(broker, tmp_path, "Plain", file_bytes=1 << 20)
    finish(spark, task)
    rows = spark.read.parquet(task.output)
    assert sorted(row.keys for row in rows.select("keys").collect()) == sorted(f"k{n}" for n in range(60))
    hours = {path.parent.name for path in Path(task.output).rglob("*.parquet")}
    assert len(list(Path(task.output).rglob("*.parquet"))) == len(hours)  # two tasks read four queues


def test_without_a_shuffle_each_task_writes_its_files(spark: SparkSession, broker: Daemon, tmp_path: Path) -> None:
    """More files than with a shuffle, and each message once."""
    send(broker, "Scattered", range(60))
    task = job(broker, tmp_path, "Scattered", shuffles=False)
    finish(spark, task)
    rows = spark.read.parquet(task.output)
    assert sorted(row.keys for row in rows.select("keys").collect()) == sorted(f"k{n}" for n in range(60))
    hours = {path.parent.name for path in Path(task.output).rglob("*.parquet")}
    assert len(list(Path(task.output).rglob("*.parquet"))) > len(hours)


def test_a_failed_query_is_reported_in_one_line(spark: SparkSession, broker: Daemon, tmp_path: Path) -> None:
    """The cause, without Spark's stack trace; the exit code is 1. This broker has no SQL92."""
    send(broker, "Failing", range(3))
    task = job(broker, tmp_path, "Failing", subExpression="a = 1", expressionType="SQL92")
    output: list[str] = []
    assert watch(start_queries(spark.newSession(), task).queries, output.append) == 1
    assert output[-1].startswith("mqspark-pipeline: parquet failed: ")
    assert "filter" in output[-1].lower()
    assert "\n" not in output[-1]


def test_an_impossible_output_is_reported_at_the_start(spark: SparkSession, broker: Daemon, tmp_path: Path) -> None:
    """A file is in the place of the directory."""
    (tmp_path / "lake").write_text("")
    with pytest.raises(NotStarted, match="not a directory"):
        start_queries(spark.newSession(), job(broker, tmp_path, "Orders"))
