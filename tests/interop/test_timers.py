"""Timer messages with RocketMQ 5.3.3: its client sends and recalls them; each broker continues the other's store."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.protocol.message import MessageExt
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.interop.brokers import BrokerUnderTest, broker_ports, running_broker, wait_until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.exchange import pull_queue
from tests.interop.matrix import LACKING, covers
from tests.interop.plan import RECALLED, SYNC, Order

TOPIC, QUEUES = "Timed", 2
CLIENT = "java-5.3.3"
EACH = 8
PENDING_AFTER_S: Final = (45, 400)
"""When the timers are due on the other broker's wheel; the second try is for a machine on which the first broker takes
longer to stop."""
KINDS: Final = ("skylark", "apache-5.3.3")

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), {"recallMessageEnable": "true"}) as running:
        running.create_topic(TOPIC, QUEUES)
        yield running


def orders_at(now_ms: int) -> dict[str, Order]:
    """Return orders without a timer, with each kind of timer, and some that are recalled."""
    setters = (
        ("", 0, 0),
        ("setDelayTimeSec", 2, 2_000),
        ("setDelayTimeMs", 2_500, 2_500),
        ("setDeliverTimeMs", 0, 6_000),
    )
    orders: dict[str, Order] = {}
    for setter, argument, delay_ms in setters:
        for _ in range(EACH):
            n = f"{len(orders)}-{delay_ms}"
            value = argument or now_ms + delay_ms
            orders[n] = Order(n, SYNC, "TagA", (n,), {"n": n}, n.encode(), timer_setter=setter, timer_ms=value)
    for _ in range(EACH):
        n = f"{len(orders)}-recalled"
        orders[n] = Order(n, RECALLED, "", (n,), {"n": n}, b"recalled", timer_setter="setDelayTimeMs", timer_ms=4_000)
    return orders


@covers("timers", CLIENT)
def test_timers_arrive_on_time_unless_recalled(broker: BrokerUnderTest, tmp_path: Path, measured: list[str]) -> None:
    """Each arrives once, unchanged and not early; recalled messages do not arrive."""
    command = CLIENTS[CLIENT].command
    command(tmp_path)  # build the driver, or skip, before any deadline starts
    drivers = DriverGroup(tmp_path, broker.log)
    try:
        drivers.start("member", command, "consume", broker.namesrv, TOPIC, "timers")
        drivers.wait_until(lambda: "member" in drivers.started, "the consumer has started", PROCESS_LIMIT_S)
        producer = drivers.start("producer", command, "produce", broker.namesrv, TOPIC, "timers-producer")
        drivers.wait_until(lambda: "producer" in drivers.started, "the producer has started", PROCESS_LIMIT_S)
        begin_ms = int(time.time() * 1000)
        orders = orders_at(begin_ms)
        producer.send(orders.values())
        expected = {order.n for order in orders.values() if order.mode == SYNC}
        drivers.wait_for_messages(expected, PROCESS_LIMIT_S)
        assert drivers.failed == []
        assert set(drivers.sent) == set(orders)
        received = [seen.message for seen in drivers.deliveries if seen.message.n in orders]
        assert Counter(message.n for message in received) == dict.fromkeys(expected, 1)
        seen = {(message.n, message.body, message.tags, message.keys) for message in received}
        assert seen == {(n, orders[n].body, "TagA", n) for n in expected}
        late = sorted(lateness_ms(stored(broker), begin_ms))
        assert late[0] >= 0
        measured.append(f"timers, {CLIENT}: {len(late)} messages {late[0]} to {late[-1]} ms late")
    finally:
        drivers.stop()


def test_clients_without_a_timer_method_set_a_property(broker: BrokerUnderTest, tmp_path: Path) -> None:
    """With any client, the message property TIMER_DELAY_MS delays the message."""
    clients = [client for client, feature in LACKING if feature == "timers"]
    for client in clients:
        CLIENTS[client].command(tmp_path)  # build the driver, or skip, before any deadline starts
    topic, delay_ms = f"{TOPIC}ByProperty", 2_000
    broker.create_topic(topic, 1)
    drivers = DriverGroup(tmp_path, broker.log)
    try:
        for client in clients:
            producer = drivers.start(
                client, CLIENTS[client].command, "produce", broker.namesrv, topic, f"p-{client[:2]}"
            )
            properties = {"n": client, "TIMER_DELAY_MS": str(delay_ms)}
            producer.send([Order(client, SYNC, "TagA", (client,), properties, client.encode())])
        drivers.wait_until(lambda: set(clients) <= drivers.left.keys(), "all have sent", PROCESS_LIMIT_S)
        assert {sent.status for sent in drivers.sent.values()} == {"SEND_OK"}
        wait_until(lambda: len(stored(broker, topic, 1)) >= len(clients), "all messages are delivered")
        messages = stored(broker, topic, 1)
        assert sorted(message.body.decode() for message in messages) == sorted(clients)
        assert all(message.store_timestamp - message.born_timestamp >= delay_ms for message in messages)
    finally:
        drivers.stop()


def lateness_ms(messages: list[MessageExt], begin_ms: int) -> Iterator[int]:
    """Yield the time between due time and delivery of each timer; delays count from the born timestamp."""
    for message in messages:
        delay_ms = int(message.properties["n"].split("-")[1])
        if delay_ms:
            is_absolute = "TIMER_DELIVER_MS" in message.properties
            yield message.store_timestamp - (begin_ms if is_absolute else message.born_timestamp) - delay_ms


def stored(broker: BrokerUnderTest, topic: str = TOPIC, queues: int = QUEUES) -> list[MessageExt]:
    port = int(broker.broker_address.split(":")[1])
    with RawClient(LOOPBACK, port, timeout=WAIT_LIMIT_S) as client:
        return [message for queue in range(queues) for message in pull_queue(client, topic, queue)]


PENDING: Final = 100
SMALL_TIMER_LOG: Final = 1_056  # 20 units and the blank at the end: some files are full, the others begin anew
DIRECTIONS: Final = {"rocketmq-continues": KINDS, "skylark-continues": KINDS[::-1]}


@pytest.fixture(scope="module")
def continuations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, "Future[None]"]]:
    """Run both directions concurrently, because each waits for more than a minute."""
    with ThreadPoolExecutor() as threads:
        yield {
            name: threads.submit(continue_timers, *kinds, tmp_path_factory.mktemp(name))
            for name, kinds in DIRECTIONS.items()
        }


@pytest.mark.parametrize("name", DIRECTIONS)
def test_each_broker_continues_the_timers_of_the_other(name: str, continuations: dict[str, "Future[None]"]) -> None:
    """The other broker delivers the timers pending on the wheel of the first: each once and not early."""
    continuations[name].result()


def continue_timers(writer: str, reader: str, tmp_path: Path) -> None:
    assert any(continues(writer, reader, tmp_path / str(pending_s), pending_s) for pending_s in PENDING_AFTER_S)


def continues(writer: str, reader: str, home: Path, pending_s: int) -> bool:
    """Return whether the first broker had stopped when the timers were due, `pending_s` after the sends. If so, the
    other broker has delivered them."""
    root, ports = home / "store", broker_ports()
    settings = {
        "storePathRootDir": root,
        "mappedFileSizeCommitLog": 64 << 20,
        "mappedFileSizeTimerLog": SMALL_TIMER_LOG,
    }
    for name in ("writer", "reader"):
        (home / name).mkdir(parents=True)
    with running_broker(writer, home / "writer", settings, ports) as broker:
        broker.create_topic(TOPIC, QUEUES)
        pending_ms = int(time.time() * 1000) + pending_s * 1000
        dues = {f"{n}": pending_ms + n * 100 for n in range(PENDING)} | {"soon": pending_ms - pending_s * 1000 + 1_000}
        for name, due_ms in dues.items():
            broker.send(TOPIC, 0, {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": f"KEY{name}"}, name.encode())
        broker.stored(TOPIC, QUEUES, 1)
    if time.time() * 1000 >= pending_ms:
        return False
    assert (root / "timerwheel").stat().st_size == 38_707_200
    with running_broker(reader, home / "reader", settings, ports) as broker:
        wait_until(lambda: len(stored(broker)) >= len(dues), "timers delivered")
        messages = stored(broker)
    assert sorted(message.body.decode() for message in messages) == sorted(dues)
    assert all(message.store_timestamp >= dues[message.body.decode()] for message in messages)
    return True
