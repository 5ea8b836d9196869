"""The four jobs against a broker with real traffic: sends, handler calls, failures, dead letters, traces."""

import json
import re
import shlex
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from typer.testing import CliRunner

from skylarkmq import ConsumeFrom, Later, Message, MessageExt, Producer, PushConsumer
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.clients.spark.command_line import NotStarted
from skylarkmq.clients.spark.jobs import lag, messages, trace_summary, traces
from skylarkmq.clients.spark.jobs.dead_letters_command import letters
from skylarkmq.clients.spark.jobs.duplicates_command import duplicates
from skylarkmq.clients.spark.jobs.lag_command import lag as lag_command
from skylarkmq.clients.spark.jobs.redrive import pick
from skylarkmq.clients.spark.jobs.traces_command import traces as traces_command
from tests.clients.peer import until
from tests.harness.daemon import STORE
from tests.spark.scene import Scene, scene

pytestmark = pytest.mark.spark

COMMANDS: dict[str, typer.Typer] = {
    "mqspark-lag": lag_command,
    "mqspark-dead-letters": letters,
    "mqspark-traces": traces_command,
    "mqspark-duplicates": duplicates,
}
PAGES = Path(__file__).resolve().parents[2] / "docs" / "use" / "spark" / "jobs"
SERVER = "127.0.0.1:9876"
COUNT = 10


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A broker with orders, two of which group `billing` could not process; six more wait for it."""
    with scene(tmp_path_factory.mktemp("shop")) as broker:
        run(traffic(broker.namesrv))
        yield broker


async def traffic(namesrv: str) -> None:
    async def handler(message: MessageExt) -> Later | None:
        return Later(delay_level=-1) if message.tags == "bad" else None

    consumer = PushConsumer("billing", namesrv=namesrv, handler=handler, trace=True, consume_from=ConsumeFrom.FIRST)
    async with Producer("shop", namesrv=namesrv, trace=True) as producer:
        for n in range(COUNT):
            await producer.send(order(n))
        async with consumer:
            await consumer.subscribe("Orders")
            await until(lambda: consumer.statistics().handled + consumer.statistics().failed == COUNT)
        for n in range(COUNT, COUNT + 6):
            await producer.send(order(n))


def order(n: int) -> Message:
    """Eight different keys; every fifth order is bad, with an exception that has its number."""
    bad = n % 5 == 0
    properties = {"exception": f"order {n} not found"} if bad else {}
    return Message(
        "Orders", b"order %d" % (n % 8), tags="bad" if bad else "paid", keys=[f"k{n % 8}"], properties=properties
    )


def output_of(command: str, *arguments: str) -> str:
    """Return the stdout of a command that succeeds."""
    done = CliRunner().invoke(COMMANDS[command], list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def json_of(command: str, *arguments: str) -> Any:
    return json.loads(output_of(command, *arguments, "--json"))


def documented(page: str, shop: Scene) -> list[list[str]]:
    """Return the commands of a page of docs/use/spark/jobs for a broker on this machine, with the port of this one."""
    lines = re.findall(r"^(mqspark-.*)$", (PAGES / f"{page}.md").read_text(), flags=re.MULTILINE)
    return [shlex.split(line.replace(SERVER, shop.namesrv)) for line in lines if SERVER in line or " report " in line]


def test_lag_is_recorded_and_reported(spark: SparkSession, shop: Scene, tmp_path: Path) -> None:
    """The documented commands; Spark resolves relative paths by the directory in which Java was started."""
    table, plot = str(tmp_path / "lag"), tmp_path / "lag.svg"
    files = {"lag": table, "lag.svg": str(plot)}
    sample, report = [[files.get(word, word) for word in command] for command in documented("lag", shop)]
    assert output_of(*sample) == ""
    assert re.search(r"^billing +Orders +unknown +6 ", output_of(*report), flags=re.MULTILINE)
    ElementTree.parse(plot)
    none = json_of("mqspark-lag", "report", table, "--until", "2024-01-01")
    assert (none["samples"], none["firstSampleAt"], none["groups"]) == (0, None, [])


def test_duplicates_have_places_and_distances(spark: SparkSession, shop: Scene) -> None:
    """The documented commands; the topic and the store contain the same duplicates."""
    by_key, by_body = documented("duplicates", shop)
    found = json_of(*by_key)
    assert (found["messages"], found["values"], found["duplicatedValues"], found["extraMessages"]) == (16, 8, 8, 8)
    assert sum(row["messages"] for row in found["distances"]) == 8
    first = found["top"][0]
    assert (first["value"], first["messages"], first["sameBody"], len(first["places"])) == ("k0", 2, True, 2)
    assert first["places"][0]["gapMs"] is None
    assert first["places"][1]["gapMs"] == first["longestGapMs"]
    stored = json_of("mqspark-duplicates", "--store", str(shop.directory / STORE), "-t", "Orders")
    for row in (place for value in found["top"] for place in value["places"]):
        row["brokerName"] = None
    assert stored == found
    bodies = json_of(*by_body, "--where", "tags = 'bad'")
    assert (bodies["messages"], bodies["duplicatedValues"]) == (4, 0)


def test_dead_letters_are_grouped_and_picked(spark: SparkSession, shop: Scene) -> None:
    """The documented commands: by reason and by a property; --pick and --where select."""
    by_reason, by_exception = documented("dead-letters", shop)
    found = json_of(*by_reason)
    (group,) = found["groups"]
    assert (found["letters"], group["group"]) == (2, "no reason recorded, after # deliveries")
    assert group["originTopics"] == ["Orders"]
    assert [sample["storedAt"] for sample in group["samples"]] == [group["lastAt"], group["firstAt"]]
    shown = {(row["keys"], row["body"], row["deliveries"], row["originTopic"], row["tags"]) for row in group["samples"]}
    assert shown == {("k0", "order 0", 1, "Orders", "bad"), ("k5", "order 5", 1, "Orders", "bad")}
    assert re.search(r"^order # not found +2 ", output_of(*by_exception), flags=re.MULTILINE)
    source = ("-n", shop.namesrv, "--group", "billing", "--by", "key", "--samples", "0")
    picked = json_of("mqspark-dead-letters", *source, "--pick", "k5", "--where", "originTopic = 'Orders'")
    assert [(row["group"], row["letters"], row["samples"]) for row in picked["groups"]] == [("k5", 1, [])]


def test_picked_letters_are_sent_again(spark: SparkSession, shop: Scene, tmp_path: Path) -> None:
    """The same command resumes, and sends nothing twice."""
    shop.create("Again", 1)
    source = ("-n", shop.namesrv, "--group", "billing", "--by", "key", "--pick", "k5")
    redrive = ("--redrive", str(tmp_path / "redrive"), "--to-topic", "Again")
    runs = [json_of("mqspark-dead-letters", *source, *redrive) for _ in range(2)]
    assert [(run["picked"], run["sent"], run["sentBefore"]) for run in runs] == [(1, 1, 0), (1, 0, 1)]
    sent = spark.read.format("rocketmq").options(nameServer=shop.namesrv, subscribe="Again").load().collect()
    assert [(row["keys"], bytes(row["body"])) for row in sent] == [("k5", b"order 5")]
    dead = spark.read.format("rocketmq").options(nameServer=shop.namesrv, subscribe="%DLQ%billing").load()
    with pytest.raises(NotStarted, match="more than 1 dead letters are selected"):
        pick(dead, "%DLQ%billing", limit=1)
    assert len(pick(dead, "%DLQ%billing", limit=2).places) == 2
    with pytest.raises(NotStarted, match="no dead letter is selected"):
        pick(dead.where("false"), "%DLQ%billing")


def test_traces_are_joined_by_message(spark: SparkSession, shop: Scene, tmp_path: Path) -> None:
    """The documented command: sends, handler calls and failures, by group; calls have the topic of their send."""
    (command,) = documented("traces", shop)
    found = json_of(*(str(tmp_path / word) if word.endswith(".svg") else word for word in command))
    assert (found["sends"], found["calls"]) == (COUNT + 6, COUNT)
    (producer,), (consumer,) = found["producers"], found["consumers"]
    assert (producer["topic"], producer["producerGroup"], producer["failed"]) == ("Orders", "shop", 0)
    assert producer["cost"]["p50"] <= producer["cost"]["p99"] <= producer["cost"]["max"]
    assert [consumer[name] for name in ("topic", "consumerGroup", "calls", "failed", "unfinished", "redeliveries")] == [
        "Orders",
        "billing",
        COUNT,
        2,
        0,
        0,
    ]
    assert consumer["latency"]["max"] == found["slowestDeliveries"][0]["latencyMs"] > 0
    assert len(found["slowestHandlers"]) == COUNT
    assert {row["outcome"] for row in found["slowestHandlers"]} == {"success", "failed"}
    assert "billing p99" in (tmp_path / "traces.svg").read_text()


# --- frames ---------------------------------------------------------------------------------------


def trace_frame(spark: SparkSession, *records: tuple[object, ...]) -> DataFrame:
    """Return one trace message, stored twice, with these records."""
    body = "".join("\x01".join(map(str, record)) + "\x02" for record in records).encode()
    return spark.createDataFrame([(body, "10.0.0.9")] * 2, "body BINARY, clientHost STRING")


def test_records_of_all_clients_are_read(spark: SparkSession) -> None:
    """Old records without offset id, outcome or time; a transaction; damaged records; each is counted once."""
    tail = ("eu", "p", "T", "m1", "a", "k", "b:1", 5, 20)
    frame = trace_frame(
        spark,
        ("Pub", 1_000, *tail, 0, "true"),
        ("Pub", 1_000, "eu", "p", "T", "m2", "", "", "b:1", 5, 10, 1, "offset", "true", "10.0.0.1"),
        ("Pub", 1_500, "eu", "p", "T", "m3", "", "", "b:1", 5, 3_000, 0, "offset", "false"),
        ("EndTransaction", 3_000, "eu", "p", "T", "m2", "a", "k", "b:1", 1, "m2", "COMMIT_MESSAGE", "false"),
        ("EndTransaction", 4_000, "eu", "p", "T", "m2", "a", "k", "b:1", 1, "m2", "COMMIT_MESSAGE", "true"),
        ("SubBefore", 1_050, "eu", "c", "r1", "m1", 0, "null"),
        ("SubAfter", "r1", "m1", 40, "true", "k"),
        ("SubBefore", 5_000, "eu", "c", "r2", "m1", 1, "k"),
        ("SubAfter", "r2", "m1", 7, "false", "k", 2, 5_007, "c"),
        ("SubBefore", 3_100, "eu", "c", "r3", "m2", 0, "k"),
        ("SubBefore", "soon", "eu"),
        ("Unknown", 1),
    )
    found = trace_summary.Traces(frame)
    try:
        calls = {
            (row.msgId, row.begunMs): (row.latencyMs, row.durationMs, row.outcome, row.topic)
            for row in found.consumptions.collect()
        }
        assert calls == {
            ("m1", 1_050): (30, 40, "success", "T"),
            ("m1", 5_000): (None, 7, "exception", "T"),
            ("m2", 3_100): (100, None, "unfinished", "T"),
            (None, None): (None, None, "unfinished", None),
        }
        summary = trace_summary.summarize(found, "traces", 10, by_client=True)
    finally:
        found.close()
    clients = {row.client_host: (row.sends, row.failed, row.cost.max) for row in summary.producers}
    assert clients == {"10.0.0.1": (1, 0, 10), "10.0.0.9": (2, 1, 3_000)}
    assert [row.redeliveries for row in summary.consumers if row.topic == "T"] == [1]
    assert [row.msg_id for row in summary.slowest_deliveries] == ["m2", "m1"]
    assert traces.commits(traces.records(frame)).collect()[0]["committedMs"] == 3_000


START = datetime(2024, 5, 1, tzinfo=UTC)
SAMPLES = {  # broker's and group's offsets of one queue, each 10 s
    "catching": [(100, 0), (120, 60), (140, 120)],
    "falling": [(100, 50), (200, 60), (300, 70)],
    "stalled": [(10, 4), (10, 5), (10, 5), (10, 5)],
    "done": [(10, 0), (10, 10)],
    "reset": [(10, 10), (10, 2)],
    "single": [(5, 0)],
}


def test_states_follow_from_the_rates(spark: SparkSession) -> None:
    """Sums over queues, rates of the window, and the time until there is no lag."""
    rows = [
        (START + timedelta(seconds=10 * at), group, "T", "b", queue, broker, committed)
        for group, offsets in SAMPLES.items()
        for at, (broker, committed) in enumerate(offsets)
        for queue in range(2)
    ]
    columns = "sampledAt TIMESTAMP, consumerGroup STRING, topic STRING, brokerName STRING, queueId INT, "
    samples = spark.createDataFrame(rows + rows[:3], columns + "brokerOffset BIGINT, consumerOffset BIGINT")
    series = lag.over_time(lag.steps(samples)).persist()
    summary = lag.summarize(series, window_s=15.0, top=10)
    by_name = {group.consumer_group: group for group in summary.groups}
    assert {name: (group.state, group.lag) for name, group in by_name.items()} == {
        "falling": ("falling behind", 460),
        "catching": ("catching up", 40),
        "reset": ("stalled", 16),
        "stalled": ("stalled", 10),
        "single": ("unknown", 10),
        "done": ("caught up", 0),
    }
    catching = by_name["catching"]
    assert (catching.consumed_per_second, catching.produced_per_second, catching.catch_up_seconds) == (12.0, 4.0, 5.0)
    assert (catching.queues, catching.largest_queue_lag, catching.highest_lag) == (2, 20, 200)
    assert by_name["falling"].catch_up_seconds is None
    assert (by_name["stalled"].seconds_without_progress, by_name["stalled"].last_progress_at) == (
        20.0,
        "2024-05-01T00:00:10.000Z",
    )
    assert by_name["single"].consumed_per_second is None
    assert (summary.samples, summary.total_lag) == (4, 536)
    plot = lag.panels(series, summary.groups)
    series.unpersist()
    assert [line.name for line in plot[0].lines][:2] == ["falling T", "catching T"]
    assert [value for _, value in plot[0].lines[1].points] == [200.0, 120.0, 40.0]
    assert [value for _, value in plot[1].lines[1].points] == [12.0, 12.0]


def test_an_archive_is_read_like_a_topic(spark: SparkSession, shop: Scene, tmp_path: Path) -> None:
    """Properties as stored become a map; compressed bodies are decompressed; damaged ones are null."""
    options = {"nameServer": shop.namesrv, "subscribe": "Orders", "includeProperties": "true"}
    topic = spark.read.format("rocketmq").options(**options).load()
    pairs = f.transform(f.map_entries("properties"), lambda entry: f.concat_ws("\x01", entry["key"], entry["value"]))
    bodies = {"compressed": zlib.compress(b"compressed"), "damaged": b"x"}
    texts = {"compressed": "a\x011\x02\x01no name\x02b\x01\x02a\x012=\x013\x02", "damaged": ""}
    extra = spark.createDataFrame(
        [(name, body, 0x301, texts[name]) for name, body in bodies.items()],
        "keys STRING, body BINARY, sysFlag INT, properties STRING",
    )
    stored = topic.select("*", f.lit("10.0.0.1:4711").alias("bornHost"), f.lit(0).alias("sysFlag")).withColumn(
        "properties", f.concat(f.array_join(pairs, "\x02"), f.lit("\x02"))
    )
    stored.unionByName(
        extra.withColumns({"topic": f.lit("Orders"), "storeTimestamp": f.current_timestamp()}), allowMissingColumns=True
    ).drop("key").write.parquet(str(tmp_path / "archive"))
    found = json_of("mqspark-duplicates", "--archive", str(tmp_path / "archive"), "-t", "Orders", "--until", "0s")
    assert (found["messages"], found["values"], found["duplicatedValues"]) == (18, 10, 8)
    archived = messages.of_archive(spark.read.parquet(str(tmp_path / "archive"))).collect()
    rows = {(row["keys"], row["tags"]): row for row in archived}
    compressed, damaged, bad = (rows[names] for names in (("compressed", None), ("damaged", None), ("k0", "bad")))
    assert bytes(compressed["body"]) == b"compressed"
    assert compressed["properties"] == {"a": "2=\x013"}
    assert (damaged["body"], damaged["properties"]) == (None, {})
    assert bad["properties"]["TAGS"] == "bad"
    assert (bad["clientHost"], bad["key"], bytes(bad["body"])) == ("10.0.0.1", "k0", b"order 0")
