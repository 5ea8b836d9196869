"""Messages that official clients send with a delay level: delivered once, unchanged, and not early."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import MessageExt
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.interop.brokers import BrokerUnderTest, broker_ports, running_broker, wait_until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.exchange import SIZES, pull_queue
from tests.interop.matrix import each_client
from tests.interop.plan import SYNC, Order
from tests.interop.scenarios import Scenarios, run_scenarios, selected_clients

TOPIC, QUEUES = "Delayed", 4
DELAYS_MS = {1: 1_000, 2: 2_000, 3: 3_000}
ABOVE_THE_LAST = 30
EACH = 8

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    levels = " ".join(f"{delay // 1000}s" for delay in DELAYS_MS.values())
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), {"messageDelayLevel": levels}) as running:
        running.create_topic(TOPIC, QUEUES)
        yield running


def orders_of(client: str) -> dict[str, Order]:
    """Return orders without a level, with each level, and with a level above the last."""
    levels = [level for level in (0, *DELAYS_MS, ABOVE_THE_LAST) for _ in range(EACH)]
    orders = [
        Order(f"{client}-{at}", SYNC, "TagA", (f"k{at}",), {"n": f"{client}-{at}"}, b"body %d" % at, delay_level=level)
        for at, level in enumerate(levels)
    ]
    return {order.n: order for order in orders}


@pytest.fixture(scope="module")
def delays(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenarios[list[int]]]:
    clients = selected_clients(request, test_delayed_messages_arrive_when_they_are_due.__name__)
    with run_scenarios(measure_delays, clients, broker, tmp_path_factory.mktemp("delays")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", each_client("levels"))
def test_delayed_messages_arrive_when_they_are_due(
    client: str, delays: Scenarios[list[int]], measured: list[str]
) -> None:
    """Each arrives once with its body, tag and key, and not early."""
    late = delays.result_of(client)
    assert late[0] >= 0
    measured.append(f"delays, {client}: {len(late)} messages {late[0]} to {late[-1]} ms late")


def measure_delays(client: str, broker: BrokerUnderTest, drivers: DriverGroup) -> list[int]:
    """Send delayed messages and return their lateness in ms, sorted."""
    command = CLIENTS[client].command
    orders = orders_of(client)
    group = f"delays-{client.replace('.', '-')}"
    drivers.start("member", command, "consume", broker.namesrv, TOPIC, group)
    drivers.wait_until(lambda: "member" in drivers.started, "the consumer has started", PROCESS_LIMIT_S)
    producer = drivers.start("producer", command, "produce", broker.namesrv, TOPIC, f"{group}-producer")
    producer.send(orders.values())
    drivers.wait_for_messages(set(orders), PROCESS_LIMIT_S)
    assert drivers.failed == []
    assert {sent.status for sent in drivers.sent.values()} == {"SEND_OK"}
    received = [seen.message for seen in drivers.deliveries if seen.message.n in orders]
    assert Counter(message.n for message in received) == dict.fromkeys(orders, 1)
    seen = {(message.n, message.body, message.tags, message.keys) for message in received}
    assert seen == {(order.n, order.body, order.tags, order.keys[0]) for order in orders.values()}
    return sorted(lateness_ms(broker, orders))


def lateness_ms(broker: BrokerUnderTest, orders: dict[str, Order]) -> Iterator[int]:
    """Yield the time between due time and delivery of each delayed message, by the broker's clock."""
    delivered = {message.properties["n"]: message for message in stored(broker, TOPIC, QUEUES)}
    for message in stored(broker, SystemTopic.SCHEDULE, len(DELAYS_MS)):
        n = message.properties["n"]
        if n in orders:
            delay_ms = DELAYS_MS[min(orders[n].delay_level, len(DELAYS_MS))]
            yield delivered[n].store_timestamp - message.store_timestamp - delay_ms


def stored(broker: BrokerUnderTest, topic: str, queues: int) -> list[MessageExt]:
    port = int(broker.broker_address.split(":")[1])
    with RawClient(LOOPBACK, port, timeout=WAIT_LIMIT_S) as client:
        return [message for queue in range(queues) for message in pull_queue(client, topic, queue)]


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_rocketmq_continues_with_the_delayed_messages_of_skylarks_store(version: str, tmp_path: Path) -> None:
    """RocketMQ does not repeat messages that Skylark delivered, and delivers the pending ones when they are due."""
    ports, root = broker_ports(), tmp_path / "store"
    settings = SIZES | {"storePathRootDir": root, "messageDelayLevel": "1s 12s"}
    for home in ("skylark", "rocketmq"):
        (tmp_path / home).mkdir()
    with running_broker("skylark", tmp_path / "skylark", settings, ports) as broker:
        broker.create_topic(TOPIC, 1)
        for n in range(20):
            broker.send(TOPIC, 0, {"n": str(n), "DELAY": "1" if n < 15 else "2"}, b"body")
        broker.stored(TOPIC, 1, 15)
    assert not (root / "abort").exists()
    more = {"fileReservedTime": 10_000}
    with running_broker(f"apache-{version}", tmp_path / "rocketmq", settings | more, ports) as broker:
        wait_until(lambda: len(stored(broker, TOPIC, 1)) >= 20, "pending messages are delivered")
        delivered = stored(broker, TOPIC, 1)
        pending = {message.properties["n"]: message for message in stored(broker, SystemTopic.SCHEDULE, 2)}
    assert sorted(int(message.properties["n"]) for message in delivered) == list(range(20))
    late = [message.store_timestamp - pending[message.properties["n"]].store_timestamp for message in delivered[15:]]
    assert min(late) >= 12_000
