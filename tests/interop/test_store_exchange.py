"""A store directory that brokers exchange: written by Skylark, continued by RocketMQ's own broker and by Skylark again.

Skylark writes it under SYNC_FLUSH and ASYNC_FLUSH, by raw frames and by the Java client, over many small segments, and
is killed meanwhile. RocketMQ opens one copy after a clean stop, one after a kill, and one that is restored from a
backup of the running broker. RocketMQ's Java client consumes
all messages from RocketMQ's broker exactly as Skylark acknowledged them, and finds every message by key, by unique key
and by offset id. The tests of RocketMQ's versions run concurrently, each with its own stores.
"""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from skylarkmq.broker.store.backup import RestoreOptions, backup, restore
from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from skylarkmq.broker.store.fsck import Sizes
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.record import decode
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.harness.store_check import assert_consistent
from tests.interop.brokers import BrokerUnderTest, broker_ports, running_broker, wait_until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup, Query, Received, Sent
from tests.interop.exchange import (
    CONSUMED,
    GROUP,
    JAVA,
    ORDERS,
    QUEUES,
    SIZES,
    UNUSUAL,
    Ledger,
    Message,
    Writer,
    pull_all,
    pull_queue,
    put_delayed,
    store_config,
)
from tests.interop.plan import Order, thousand_orders

READERS = {"4.9.7": "java-4.9.8", "5.3.3": "java-5.3.3"}  # for these tests 4.9.8 is equal to 4.9.7
PRODUCER = "java-5.3.3"
READER_GROUP = "exchange-reader"
BURST, KILL_AFTER = 400, 150
COMMITTED = 7
STOPPED, KILLED, RESTORED = "stopped", "killed", "restored"
EXCHANGES = [*((version, end) for end in (STOPPED, KILLED) for version in READERS), ("5.3.3", RESTORED)]

DELAY_LEVELS = parse_delay_levels(DEFAULT_DELAY_LEVELS)

pytestmark = pytest.mark.interop


class Written(NamedTuple):
    """The stores by how their broker ended, each with its ledger. All brokers need `ports`: offset ids contain them."""

    ports: tuple[int, int]
    stores: dict[str, tuple[Path, Ledger]]


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], "Future[float]"]]:
    """Start the exchanges, and return their durations. Those of one version use the same ports, so they run in turn."""
    ends: dict[tuple[str, str], Future[float]] = {}
    with ExitStack() as stack:
        for version in READERS:
            thread = stack.enter_context(ThreadPoolExecutor(1))
            writing = thread.submit(write, tmp_path_factory.mktemp(f"written-{version}"))
            for end in (end for of, end in EXCHANGES if of == version):
                home = tmp_path_factory.mktemp(f"{end}-{version}")
                ends[version, end] = thread.submit(exchange, version, end, writing, home)
        yield ends


@pytest.mark.parametrize(("version", "end"), EXCHANGES)
def test_rocketmq_and_skylark_continue_each_others_store(
    version: str, end: str, exchanges: dict[tuple[str, str], "Future[float]"], measured: list[str]
) -> None:
    """RocketMQ serves all messages that Skylark acknowledged; Skylark serves all of both, and continues the store."""
    took_s = exchanges[version, end].result()
    measured.append(f"store exchange: {end} store to {version} and back in {took_s:.2f} s")


def write(base: Path) -> Written:
    CLIENTS[PRODUCER].command(base)  # build the driver, or skip, before anything starts
    ports, root, ledger = broker_ports(), base / "store", Ledger()
    with skylark(base / "sync", root, ports, flushDiskType="SYNC_FLUSH") as broker, raw_client(ports) as client:
        for topic, queues in QUEUES.items():
            broker.create_topic(topic, queues)
        writer = Writer(client, ledger, "sync")
        writer.orders(150)
        writer.batches(5)
        kill_during_burst(broker, writer)
    with skylark(base / "async", root, ports) as broker, raw_client(ports) as client:
        produce(broker, base, ledger)
        wait_until(lambda: message_count(client, JAVA) == len(ledger.of(JAVA)), "oneway messages stored")
        writer = Writer(client, ledger, "async")
        writer.unusual()
        kill_during_burst(broker, writer)
    killed = base / KILLED, ledger.copy()
    shutil.copytree(root, killed[0])
    with skylark(base / "last", root, ports) as broker, raw_client(ports) as client:
        writer = Writer(client, ledger, "last")
        writer.orders(100)
        writer.batches(5)
        commit_offset(client, ORDERS, COMMITTED)
        backup(root, base / "backup", sizes := Sizes.of(root))
        restored = base / RESTORED, ledger.copy()
        Writer(client, ledger, "later").orders(5)
    restore(base / "backup", restored[0], RestoreOptions(sizes=sizes, delay_levels=DELAY_LEVELS))
    put_delayed(root, ledger)
    return Written(ports, {STOPPED: (root, ledger), KILLED: killed, RESTORED: restored})


def exchange(version: str, end: str, writing: "Future[Written]", tmp_path: Path) -> float:
    """Exchange a store and return the duration in seconds."""
    written = writing.result()
    CLIENTS[READERS[version]].command(tmp_path)
    begun = time.monotonic()
    root, ledger = tmp_path / "store", written.stores[end][1].copy()
    shutil.copytree(written.stores[end][0], root)
    assert (root / "abort").exists() == (end == KILLED)
    with rocketmq(version, end, tmp_path, root, written.ports) as broker, raw_client(written.ports) as client:
        received = consume(READERS[version], broker, tmp_path, ledger)
        assert ledger.differences(received, *CONSUMED) == []
        assert ledger.differences(pull_all(client, UNUSUAL, QUEUES[UNUSUAL]), UNUSUAL) == []
        assert end != STOPPED or committed_offset(client, ORDERS) == COMMITTED
        assert failed_lookups(READERS[version], broker, tmp_path, ledger, received) == []
        writer = Writer(client, ledger, "rocketmq")
        writer.orders(60)
        writer.batches(3)
        wait_until_dispatched(client, ledger)
        bounds = all_bounds(client)
    assert not (root / "abort").exists()
    with skylark(tmp_path / "again", root, written.ports), raw_client(written.ports) as client:
        assert all_bounds(client) == bounds
        assert ledger_differences(client, ledger) == []
        assert not_found(client, ledger) == []
        assert end != STOPPED or committed_offset(client, ORDERS) == COMMITTED
        Writer(client, ledger, "again").orders(8)
        assert ledger_differences(client, ledger) == []
    assert_consistent(root, store_config(root), may_begin_again=True)
    return time.monotonic() - begun


# --------------------------------------------------------------------------------------------------------- the brokers


def skylark(
    home: Path, root: Path, ports: tuple[int, int], **settings: object
) -> AbstractContextManager[BrokerUnderTest]:
    home.mkdir()
    return running_broker("skylark", home, SIZES | {"storePathRootDir": root} | settings, ports)


def rocketmq(
    version: str, end: str, home: Path, root: Path, ports: tuple[int, int]
) -> AbstractContextManager[BrokerUnderTest]:
    settings = SIZES | {"storePathRootDir": root, "fileReservedTime": 10_000}
    if end == KILLED:
        settings["messageIndexSafe"] = "true"  # otherwise it deletes the keys of all but the last segments
    return running_broker(f"apache-{version}", home, settings, ports)


def raw_client(ports: tuple[int, int]) -> RawClient:
    return RawClient(LOOPBACK, ports[1], timeout=WAIT_LIMIT_S)


def kill_during_burst(broker: BrokerUnderTest, writer: Writer) -> None:
    """Kill the broker with SIGKILL during a burst of messages."""
    for acknowledged in writer.burst(BURST):
        if acknowledged == KILL_AFTER:
            broker.process.kill()
            broker.process.wait()


# ------------------------------------------------------------------------------------------------- views of clients


def produce(broker: BrokerUnderTest, base: Path, ledger: Ledger) -> None:
    """Send a thousand messages by the Java client: sync, async, oneway and in batches."""
    orders = thousand_orders(CLIENTS[PRODUCER].modes, zero_bytes=True)
    with driver_group(broker, base / "producer") as drivers:
        driver = drivers.start("producer", CLIENTS[PRODUCER].command, "produce", broker.namesrv, JAVA, "exchange")
        driver.send(orders)
        drivers.wait_until(lambda: "producer" in drivers.left, "the producer has left", PROCESS_LIMIT_S)
        assert drivers.failed == []
        ledger.add(sent_message(order, drivers.sent.get(order.n)) for order in orders)


def sent_message(order: Order, sent: Sent | None) -> Message:
    properties = order.properties | {"TAGS": order.tags, "KEYS": " ".join(order.keys)}
    if sent is None:
        return Message(order.n, JAVA, None, None, order.body, properties)
    return Message(order.n, JAVA, sent.queue, sent.offset, order.body, properties, sent.offset_id or "")


def consume(reader: str, broker: BrokerUnderTest, home: Path, ledger: Ledger) -> list[Received]:
    """Return all messages that a new group of the official client receives from the first offset."""
    with driver_group(broker, home / "reader") as drivers:
        topics = ",".join(CONSUMED)
        driver = drivers.start("reader", CLIENTS[reader].command, "consume", broker.namesrv, topics, READER_GROUP)
        drivers.wait_for_messages(set(ledger.of(*CONSUMED)), PROCESS_LIMIT_S)
        driver.leave()
        drivers.wait_until(lambda: "reader" in drivers.left, "the reader has left")
        return [seen.message for seen in drivers.deliveries]


def failed_lookups(
    reader: str, broker: BrokerUnderTest, home: Path, ledger: Ledger, received: list[Received]
) -> list[str]:
    """Return failed lookups of the official client: each message by its first key, its unique key and its offset id."""
    by_name = {got.n: got for got in received}
    queries = []
    for n, message in ledger.of(*CONSUMED).items():
        queries.append(Query(f"key {n}", "key", message.topic, message.first_key))
        queries.append(Query(f"unique {n}", "unique", message.topic, by_name[n].properties["UNIQ_KEY"] or ""))
        if message.offset_id:
            queries.append(Query(f"offset_id {n}", "offset_id", message.topic, message.offset_id))
    with driver_group(broker, home / "querier") as drivers:
        driver = drivers.start("querier", CLIENTS[reader].command, "query", broker.namesrv, "-", "exchange-querier")
        driver.send(queries)
        drivers.wait_until(lambda: "querier" in drivers.left, "the querier has left", PROCESS_LIMIT_S)
        wrong = []
        for query in queries:
            result = drivers.query_results[query.n]
            names = [found.n for found in result.found]
            if query.n.split(" ", 1)[1] not in names or (query.how != "key" and len(names) != 1):
                wrong.append(f"{query}: {names} {result.error}")
        return wrong


class driver_group:  # noqa: N801
    """A driver group that is stopped on exit."""

    def __init__(self, broker: BrokerUnderTest, homes: Path) -> None:
        homes.mkdir()
        self._drivers = DriverGroup(homes, broker.log)

    def __enter__(self) -> DriverGroup:
        return self._drivers

    def __exit__(self, *_: object) -> None:
        self._drivers.stop()


def not_found(client: RawClient, ledger: Ledger) -> list[str]:
    """Return the messages that Skylark does not find by their first key or by their offset id."""
    missing = []
    for n, message in ledger.messages.items():
        ext = {"topic": message.topic, "key": message.first_key, "maxNum": 64, "beginTimestamp": 0}
        responses = (
            [client.call(RequestCode.QUERY_MESSAGE, ext | {"endTimestamp": 1 << 60})] if message.first_key else []
        )
        if message.offset_id:
            offset = int(message.offset_id[-16:], 16)
            responses.append(client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset}))
        names = [{found.properties.get("n") for found in decode(response.body)} for response in responses]
        missing += [n for found in names if n not in found]
    return missing


def ledger_differences(client: RawClient, ledger: Ledger) -> list[str]:
    received = [got for topic, queues in QUEUES.items() for got in pull_all(client, topic, queues)]
    return ledger.differences(received, *QUEUES)


def message_count(client: RawClient, topic: str) -> int:
    return sum(end for _, end in bounds_of(client, topic))


def wait_until_dispatched(client: RawClient, ledger: Ledger) -> None:
    """Wait until the queues have all acknowledged messages: RocketMQ dispatches them in a thread of its own."""

    def is_dispatched() -> bool:
        return all(message_count(client, topic) >= len(ledger.of(topic)) for topic in CONSUMED)

    wait_until(is_dispatched, "acknowledged messages dispatched")


def all_bounds(client: RawClient) -> dict[str, list[tuple[int, int]]]:
    return {topic: bounds_of(client, topic) for topic in QUEUES}


def bounds_of(client: RawClient, topic: str) -> list[tuple[int, int]]:
    """Return the minimum and maximum offset of each queue; the maximum is one more than the last offset."""
    queues = [{"topic": topic, "queueId": queue} for queue in range(QUEUES[topic])]
    codes = RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET
    return [
        (int(low), int(high))
        for low, high in ((client.call(code, ext).ext["offset"] for code in codes) for ext in queues)
    ]


def commit_offset(client: RawClient, topic: str, offset: int) -> None:
    pull_queue(client, topic, 0)  # creates the group
    ext = {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "commitOffset": offset}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed_offset(client: RawClient, topic: str) -> int:
    ext = {"consumerGroup": GROUP, "topic": topic, "queueId": 0}
    return int(client.call(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"])
