"""Transactions of official clients: committed messages arrive once, rolled-back ones never, with and without checks."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.message import MessageExt
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.exchange import pull_queue
from tests.interop.matrix import each_client
from tests.interop.plan import SYNC, Order

TOPIC, QUEUES = "Transacted", 4
COMMITTED = (("commit", "unknown"), ("unknown", "commit"))
ROLLED_BACK = (("rollback", "unknown"), ("unknown", "rollback"))
EACH = 8
PAUSE_S = 0.5
# A client sends its first heartbeat up to 30 s after its start. Until then the broker has no producer to check with.

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    settings = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "90"}
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), settings) as running:
        running.create_topic(TOPIC, QUEUES)
        yield running


def orders_of(client: str) -> dict[str, Order]:
    """Return orders for every result of a transaction; properties give the results of local transaction and check."""
    orders = {}
    for at, (local, check) in enumerate(itertools.chain(*[COMMITTED + ROLLED_BACK] * EACH)):
        properties = {"n": f"{client}-{at}", "local": local, "check": check}
        orders[properties["n"]] = Order(properties["n"], SYNC, "TagA", (f"k{at}",), properties, b"body %d" % at)
    return orders


def is_committed(order: Order) -> bool:
    return (order.properties["local"], order.properties["check"]) in COMMITTED


@pytest.mark.parametrize("client", each_client("transactions"))
def test_transactions_commit_and_roll_back(
    client: str, broker: BrokerUnderTest, tmp_path: Path, measured: list[str]
) -> None:
    """Committed messages arrive once, unchanged, at once or after a check; every transaction ends."""
    command = CLIENTS[client].command
    command(tmp_path)  # build the driver, or skip, before any deadline starts
    orders = orders_of(client)
    wanted = {n: order for n, order in orders.items() if is_committed(order)}
    decided_before = len(stored(broker, SystemTopic.TRANSACTION_OP, 1))
    drivers = DriverGroup(tmp_path, broker.log)
    try:
        group = f"transactions-{client.replace('.', '-')}"
        drivers.start("member", command, "consume", broker.namesrv, TOPIC, group)
        drivers.wait_until(lambda: "member" in drivers.started, "the consumer has started", PROCESS_LIMIT_S)
        producer = drivers.start("producer", command, "transact", broker.namesrv, TOPIC, f"{group}-producer")
        producer.send(orders.values(), leaves=False)  # it must respond to transaction checks
        drivers.wait_for_messages(set(wanted), PROCESS_LIMIT_S)
        for _ in range(int(PROCESS_LIMIT_S / PAUSE_S)):
            if len(stored(broker, SystemTopic.TRANSACTION_OP, 1)) - decided_before >= len(orders):
                break
            drivers.process_events(PAUSE_S)
        drivers.process_events(PAUSE_S)
        assert drivers.failed == []
        received = [seen.message for seen in drivers.deliveries if seen.message.n in orders]
        assert Counter(message.n for message in received) == dict.fromkeys(wanted, 1)
        seen = {(message.n, message.body, message.tags, message.keys) for message in received}
        assert seen == {(order.n, order.body, order.tags, order.keys[0]) for order in wanted.values()}
        checked = {message.n for message in received if message.properties.get("TRANSACTION_CHECK_TIMES")}
        assert checked == {n for n, order in wanted.items() if order.properties["local"] == "unknown"}
        measured.append(f"transactions, {client}: {len(orders)} ended, {len(received)} committed")
    finally:
        drivers.stop()


def stored(broker: BrokerUnderTest, topic: str, queues: int) -> list[MessageExt]:
    port = int(broker.broker_address.split(":")[1])
    with RawClient(LOOPBACK, port, timeout=WAIT_LIMIT_S) as client:
        return [message for queue in range(queues) for message in pull_queue(client, topic, queue)]
