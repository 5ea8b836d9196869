"""A store that changes hands: written by ours, opened by RocketMQ's own broker and written there too, opened by ours.

Ours writes it under SYNC_FLUSH and under ASYNC_FLUSH, by raw frames and by the Java client, over many small segments,
with kill -9 in between; it is handed over after a clean stop, and as a kill left it. The official Java client consumes
all of it from RocketMQ's broker, byte for byte what ours had acknowledged, and finds every message by key, by unique
key and by offset id. RocketMQ's versions are tried beside each other, each with stores of its own.
"""

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.record import decode
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.harness.store_check import assert_consistent
from tests.interop.brokers import BrokerUnderTest, broker_ports, running_broker, until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import Question, Received, Sent, Stage
from tests.interop.exchange import (
    CONSUMED,
    GROUP,
    JAVA,
    ODD,
    ORDERS,
    QUEUES,
    SIZES,
    Ledger,
    Message,
    Writer,
    pull_all,
    pull_queue,
    put_delayed,
    store_config,
)
from tests.interop.plan import Order, thousand_orders

READERS = {"4.9.7": "java-4.9.8", "5.3.3": "java-5.3.3"}  # 4.9.7 and 4.9.8 differ in nothing that matters here
PRODUCER = "java-5.3.3"
READER_GROUP = "exchange-reader"
BURST, KILL_AFTER = 400, 150
COMMITTED = 7
CONSUME_DEADLINE_S = 90.0
PRODUCE_DEADLINE_S = 60.0
STOPPED, KILLED = "stopped", "killed"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


class Written(NamedTuple):
    """Stores by how ours ended on them, each with what it holds; ids name the ports, so every broker must have them."""

    ports: tuple[int, int]
    stores: dict[str, tuple[Path, Ledger]]


@pytest.fixture(scope="module")
def exchanges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], "Future[float]"]]:
    """By version and end, how long each took; of one version one after the other, since its stores name their ports."""
    ends: dict[tuple[str, str], Future[float]] = {}
    with ExitStack() as stack:
        for version in READERS:
            thread = stack.enter_context(ThreadPoolExecutor(1))
            writing = thread.submit(write, tmp_path_factory.mktemp(f"written-{version}"))
            for end in (STOPPED, KILLED):
                home = tmp_path_factory.mktemp(f"{end}-{version}")
                ends[version, end] = thread.submit(exchange, version, end, writing, home)
        yield ends


@pytest.mark.parametrize("end", [STOPPED, KILLED])
@pytest.mark.parametrize("version", READERS)
def test_a_store_goes_there_and_back(
    version: str, end: str, exchanges: dict[tuple[str, str], "Future[float]"], measured: list[str]
) -> None:
    """RocketMQ serves all that ours acknowledged; ours serves all that either did, and goes on where RocketMQ ended."""
    took_s = exchanges[version, end].result()
    measured.append(f"store exchange: {end} store there ({version}) and back in {took_s:.2f} s")


def write(base: Path) -> Written:
    CLIENTS[PRODUCER].command(base)  # built, or skipped, before anything starts
    ports, root, ledger = broker_ports(), base / "store", Ledger()
    with ours(base / "sync", root, ports, flushDiskType="SYNC_FLUSH") as broker, raw(ports) as client:
        for topic, queues in QUEUES.items():
            broker.create_topic(topic, queues)
        writer = Writer(client, ledger, "sync")
        writer.orders(150)
        writer.batches(5)
        kill_within(broker, writer)
    with ours(base / "async", root, ports) as broker, raw(ports) as client:
        produce(broker, base, ledger)
        until(lambda: stored(client, JAVA) == len(ledger.of(JAVA)), "oneway messages stored")
        writer = Writer(client, ledger, "async")
        writer.odd()
        kill_within(broker, writer)
    killed = base / KILLED, ledger.copy()
    shutil.copytree(root, killed[0])
    with ours(base / "last", root, ports) as broker, raw(ports) as client:
        writer = Writer(client, ledger, "last")
        writer.orders(100)
        writer.batches(5)
        commit(client, ORDERS, COMMITTED)
    put_delayed(root, ledger)
    return Written(ports, {STOPPED: (root, ledger), KILLED: killed})


def exchange(version: str, end: str, writing: "Future[Written]", tmp_path: Path) -> float:
    """Seconds that it took."""
    written = writing.result()
    CLIENTS[READERS[version]].command(tmp_path)
    begun = time.monotonic()
    root, ledger = tmp_path / "store", written.stores[end][1].copy()
    shutil.copytree(written.stores[end][0], root)
    assert (root / "abort").exists() == (end == KILLED)
    with theirs(version, end, tmp_path, root, written.ports) as broker, raw(written.ports) as client:
        received = consume(READERS[version], broker, tmp_path, ledger)
        assert ledger.differences(received, *CONSUMED) == []
        assert ledger.differences(pull_all(client, ODD, QUEUES[ODD]), ODD) == []
        assert end == KILLED or committed(client, ORDERS) == COMMITTED
        assert look_up(READERS[version], broker, tmp_path, ledger, received) == []
        writer = Writer(client, ledger, "theirs")
        writer.orders(60)
        writer.batches(3)
        bounds = all_bounds(client)
    assert not (root / "abort").exists()
    with ours(tmp_path / "again", root, written.ports), raw(written.ports) as client:
        assert all_bounds(client) == bounds
        assert ledger_differences(client, ledger) == []
        assert not_found(client, ledger) == []
        assert end == KILLED or committed(client, ORDERS) == COMMITTED
        Writer(client, ledger, "again").orders(8)
        assert ledger_differences(client, ledger) == []
    assert_consistent(root, store_config(root))
    return time.monotonic() - begun


# --------------------------------------------------------------------------------------------------------- the brokers


def ours(home: Path, root: Path, ports: tuple[int, int], **settings: object) -> AbstractContextManager[BrokerUnderTest]:
    home.mkdir()
    return running_broker("skylark", home, SIZES | {"storePathRootDir": root} | settings, ports)


def theirs(
    version: str, end: str, home: Path, root: Path, ports: tuple[int, int]
) -> AbstractContextManager[BrokerUnderTest]:
    settings = SIZES | {"storePathRootDir": root, "fileReservedTime": 10_000}
    if end == KILLED:
        settings["messageIndexSafe"] = "true"  # else it forgets the keys of all but the last segments
    return running_broker(f"apache-{version}", home, settings, ports)


def raw(ports: tuple[int, int]) -> RawClient:
    return RawClient(LOOPBACK, ports[1], timeout=20)


def kill_within(broker: BrokerUnderTest, writer: Writer) -> None:
    """kill -9 while a burst of messages is on its way."""
    for acknowledged in writer.burst(BURST):
        if acknowledged == KILL_AFTER:
            broker.process.kill()
            broker.process.wait()


# ------------------------------------------------------------------------------------------------- what clients see


def produce(broker: BrokerUnderTest, base: Path, ledger: Ledger) -> None:
    """A thousand messages by the Java client: sync, async, oneway and in batches."""
    orders = thousand_orders(CLIENTS[PRODUCER].modes, zero_bytes=True)
    with staged(broker, base / "producer") as stage:
        driver = stage.start("producer", CLIENTS[PRODUCER].command, "produce", broker.namesrv, JAVA, "exchange")
        driver.send(orders)
        stage.wait_until(lambda: "producer" in stage.left, "the producer has left", PRODUCE_DEADLINE_S)
        assert stage.failed == []
        ledger.add(known(order, stage.sent.get(order.n)) for order in orders)


def known(order: Order, sent: Sent | None) -> Message:
    properties = order.properties | {"TAGS": order.tags, "KEYS": " ".join(order.keys)}
    if sent is None:
        return Message(order.n, JAVA, None, None, order.body, properties)
    return Message(order.n, JAVA, sent.queue, sent.offset, order.body, properties, sent.place or "")


def consume(reader: str, broker: BrokerUnderTest, home: Path, ledger: Ledger) -> list[Received]:
    """All that a new group of the official client gets, from the first offset on."""
    with staged(broker, home / "reader") as stage:
        topics = ",".join(CONSUMED)
        driver = stage.start("reader", CLIENTS[reader].command, "consume", broker.namesrv, topics, READER_GROUP)
        stage.wait_for_messages(set(ledger.of(*CONSUMED)), CONSUME_DEADLINE_S)
        driver.leave()
        stage.wait_until(lambda: "reader" in stage.left, "the reader has left")
        return [seen.message for seen in stage.deliveries]


def look_up(reader: str, broker: BrokerUnderTest, home: Path, ledger: Ledger, received: list[Received]) -> list[str]:
    """What the official client does not find: each message by its first key, its unique key and its offset id."""
    by_name = {got.n: got for got in received}
    questions = []
    for n, message in ledger.of(*CONSUMED).items():
        questions.append(Question(f"key {n}", "key", message.topic, message.first_key))
        questions.append(Question(f"unique {n}", "unique", message.topic, by_name[n].properties["UNIQ_KEY"] or ""))
        if message.place:
            questions.append(Question(f"place {n}", "place", message.topic, message.place))
    with staged(broker, home / "asker") as stage:
        driver = stage.start("asker", CLIENTS[reader].command, "query", broker.namesrv, "-", "exchange-asker")
        driver.send(questions)
        stage.wait_until(lambda: "asker" in stage.left, "the asker has left", CONSUME_DEADLINE_S)
        wrong = []
        for question in questions:
            answer = stage.answers[question.n]
            names = [found.n for found in answer.found]
            if question.n.split(" ", 1)[1] not in names or (question.how != "key" and len(names) != 1):
                wrong.append(f"{question}: {names} {answer.error}")
        return wrong


class staged:  # noqa: N801
    """A stage that is cleared on the way out."""

    def __init__(self, broker: BrokerUnderTest, homes: Path) -> None:
        homes.mkdir()
        self._stage = Stage(homes, broker.log)

    def __enter__(self) -> Stage:
        return self._stage

    def __exit__(self, *_: object) -> None:
        self._stage.stop()


def not_found(client: RawClient, ledger: Ledger) -> list[str]:
    """Messages that ours does not give by their first key and by their offset id."""
    missing = []
    for n, message in ledger.messages.items():
        ext = {"topic": message.topic, "key": message.first_key, "maxNum": 64, "beginTimestamp": 0}
        answers = [client.call(RequestCode.QUERY_MESSAGE, ext | {"endTimestamp": 1 << 60})] if message.first_key else []
        if message.place:
            offset = int(message.place[-16:], 16)
            answers.append(client.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset}))
        names = [{found.properties.get("n") for found in decode(answer.body)} for answer in answers]
        missing += [n for found in names if n not in found]
    return missing


def ledger_differences(client: RawClient, ledger: Ledger) -> list[str]:
    received = [got for topic, queues in QUEUES.items() for got in pull_all(client, topic, queues)]
    return ledger.differences(received, *QUEUES)


def stored(client: RawClient, topic: str) -> int:
    return sum(end for _, end in bounds_of(client, topic))


def all_bounds(client: RawClient) -> dict[str, list[tuple[int, int]]]:
    return {topic: bounds_of(client, topic) for topic in QUEUES}


def bounds_of(client: RawClient, topic: str) -> list[tuple[int, int]]:
    """The first offset and the one behind the last, queue by queue."""
    queues = [{"topic": topic, "queueId": queue} for queue in range(QUEUES[topic])]
    codes = RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET
    return [
        (int(low), int(high))
        for low, high in ((client.call(code, ext).ext["offset"] for code in codes) for ext in queues)
    ]


def commit(client: RawClient, topic: str, offset: int) -> None:
    pull_queue(client, topic, 0)  # makes the group
    ext = {"consumerGroup": GROUP, "topic": topic, "queueId": 0, "commitOffset": offset}
    assert client.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def committed(client: RawClient, topic: str) -> int:
    ext = {"consumerGroup": GROUP, "topic": topic, "queueId": 0}
    return int(client.call(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"])
