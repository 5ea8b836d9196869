"""A store of RocketMQ's own broker is archived and deleted; a replay brings it back for RocketMQ's own consumer.

    official Java producer -> RocketMQ 4.9.7 -> its store -> archive -> segments deleted -> DuckDB finds messages by key
    -> replay into an empty RocketMQ 4.9.7 -> official Java consumer

The producer sends single messages, batches, oneway messages, and bodies that it compresses. The consumer must receive
all of them with equal bodies, keys and properties, in the order of each queue.
"""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Final

import duckdb
import pyarrow.parquet as pq
import pytest

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.spark.archive.job import ArchiveSettings, opened_job
from skylarkmq.clients.spark.archive.runners import LocalRunner
from skylarkmq.clients.spark.replay.queue_senders import Limits
from skylarkmq.clients.spark.replay.replay import Replay, Summary, run
from skylarkmq.clients.spark.replay.selection import Selection
from skylarkmq.clients.spark.replay.sources import Archive
from skylarkmq.clients.spark.replay.targets import Targets
from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import running_broker
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup, Received, Sent
from tests.interop.plan import Order, thousand_orders

pytestmark = pytest.mark.interop

BROKER, CLIENT = "apache-4.9.7", "java-4.9.8"  # for this test 4.9.8 is equal to 4.9.7
TOPIC, DELAYED, QUEUES = "ArchivedOrders", "DelayedOrders", 4
SIZES: Final = {"mappedFileSizeCommitLog": 1 << 20, "brokerFastFailureEnable": "false"}
DELAYED_KEY = "key-7"


def test_a_rocketmq_store_is_archived_deleted_and_replayed_for_the_java_consumer(tmp_path: Path) -> None:
    """Bodies, keys, properties, unique ids and the order of each queue are equal; a delay level is RocketMQ's own."""
    store, archive = tmp_path / "store", tmp_path / "archive"
    orders, sent = written(tmp_path, store)
    archived(store, archive)
    shutil.rmtree(store)
    assert found_by_key(archive, [f"key-{n}" for n in range(len(orders))]) == {
        f"key-{n}": [str(n)] for n in range(len(orders))
    }
    with running_broker(BROKER, made(tmp_path / "again"), SIZES) as broker:
        for topic in (TOPIC, DELAYED):
            broker.create_topic(topic, QUEUES)
        summary = run(replay(archive, broker.namesrv, tmp_path / "replay"))
        assert (summary.sent, summary.not_replicated) == (len(orders), 0)
        assert_resumes(archive, broker.namesrv, tmp_path / "replay", len(orders))
        later = Replay(
            source=Archive(str(archive)),
            selection=Selection(key=DELAYED_KEY),
            targets=Targets(to_topic=DELAYED, delay_level=1),
            cluster=ClusterOptions(name_server=broker.namesrv),
            directory=str(tmp_path / "later"),
        )
        assert run(later).sent == 1
        drivers = DriverGroup(made(tmp_path / "consumer"), broker.log)
        try:
            topics = f"{TOPIC},{DELAYED}"
            drivers.start("consumer", CLIENTS[CLIENT].command, "consume", broker.namesrv, topics, "replayed")
            drivers.wait_until(lambda: len(drivers.deliveries) > len(orders), "all messages received", PROCESS_LIMIT_S)
            drivers.process_events(1.0)
            received = [seen.message for seen in drivers.deliveries]
        finally:
            drivers.stop()
    check(orders, sent, [got for got in received if got.topic == TOPIC], tmp_path / "replay")
    (delayed,) = [got for got in received if got.topic == DELAYED]
    assert (delayed.body, delayed.n) == (orders[7].body, "7")


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def written(base: Path, store: Path) -> tuple[list[Order], dict[str, Sent]]:
    """Have the Java producer send all orders to RocketMQ's broker, and stop the broker."""
    orders = thousand_orders(CLIENTS[CLIENT].modes, zero_bytes=True)
    settings = SIZES | {"storePathRootDir": store}
    with running_broker(BROKER, made(base / "first"), settings) as broker:
        broker.create_topic(TOPIC, QUEUES)
        drivers = DriverGroup(made(base / "producer"), broker.log)
        try:
            driver = drivers.start("producer", CLIENTS[CLIENT].command, "produce", broker.namesrv, TOPIC, "archive")
            driver.send(orders)
            drivers.wait_until(lambda: "producer" in drivers.left, "the producer has left", PROCESS_LIMIT_S)
            assert drivers.failed == []
            sent = dict(drivers.sent)
        finally:
            drivers.stop()
    return orders, sent


def archived(store: Path, archive: Path) -> None:
    settings = ArchiveSettings(
        store=store,
        log_directories=(store / "commitlog",),
        archive=str(archive),
        broker_name="broker-a",
        older_than_ms=0,
        include_last=True,
    )
    with opened_job(settings) as job:
        job.run(LocalRunner(1), lambda _: None)


def found_by_key(archive: Path, keys: list[str]) -> dict[str, list[str]]:
    """Return the property `n` of the messages that DuckDB finds by each key."""
    query = "SELECT key, properties FROM read_parquet(?) WHERE key IN (SELECT unnest(?))"
    found = defaultdict(list)
    with duckdb.connect() as database:
        for key, properties in database.execute(query, [f"{archive}/messages/*/*.parquet", keys]).fetchall():
            entries = dict(entry.split("\x01", 1) for entry in properties.split("\x02") if entry)
            found[key].append(entries["n"])
    return dict(found)


def replay(archive: Path, namesrv: str, directory: Path) -> Replay:
    return Replay(
        source=Archive(str(archive)),
        selection=Selection(topics=(TOPIC,)),
        cluster=ClusterOptions(name_server=namesrv),
        directory=str(directory),
        limits=Limits(settle_s=1.0),
    )


def assert_resumes(archive: Path, namesrv: str, directory: Path, count: int) -> None:
    """Without its map, as after a kill, the replay finds all copies at the ends of RocketMQ's queues."""
    before = pq.read_table(directory / "map")
    for path in (directory / "map").iterdir():
        path.unlink()
    again: Summary = run(replay(archive, namesrv, directory))
    assert (again.sent, again.found, again.sent_before, again.doubles) == (0, count, count, 0)
    places = ["queueId", "queueOffset", "msgId", "newQueueId", "newQueueOffset", "newMsgId"]
    found, recorded = (
        sorted(map(tuple, (row.values() for row in table.select(places).to_pylist())))
        for table in (pq.read_table(directory / "map"), before)
    )
    assert found == recorded


def check(orders: list[Order], sent: dict[str, Sent], received: list[Received], directory: Path) -> None:
    """Each order is received once, as it was sent, and where the map says."""
    by_name = {got.n: got for got in received}
    assert len(received) == len(by_name) == len(orders)
    for order in orders:
        got = by_name[order.n]
        assert got.body == order.body
        expected = order.properties | {"KEYS": " ".join(order.keys), "TAGS": order.tags}
        assert {name: got.properties.get(name) for name in expected} == expected
        if (producer := sent.get(order.n)) is not None and producer.id is not None and "," not in producer.id:
            assert got.properties["UNIQ_KEY"] == producer.id
    places = {(row["newQueueId"], row["newQueueOffset"]): row for row in pq.read_table(directory / "map").to_pylist()}
    old = defaultdict(list)
    for got in sorted(received, key=lambda message: (message.queue, message.offset)):
        row = places[got.queue, got.offset]
        assert row["queueId"] == got.queue
        assert row["msgId"] == got.properties["UNIQ_KEY"]
        old[got.queue].append(row["queueOffset"])
        if (producer := sent.get(got.n)) is not None and producer.queue is not None:
            assert (row["queueId"], row["queueOffset"]) == (producer.queue, producer.offset)
    assert all(offsets == sorted(offsets) for offsets in old.values())
    assert sum(len(offsets) for offsets in old.values()) == len(orders)
