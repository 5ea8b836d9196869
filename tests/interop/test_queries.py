"""Official clients find the messages that they sent, complete, by key, by unique id and by offset id."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup, Query, Received
from tests.interop.matrix import each_client
from tests.interop.plan import SYNC, Order

TOPIC, QUEUES = "Queried", 4
MESSAGES = 40
SAME_HASH = ("Aa", "BB")
"""Keys with the same hash, which share entries of the index."""

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker")) as running:
        yield running


def orders_of(client: str) -> dict[str, Order]:
    """Return orders that each have a unique key and one of two shared keys."""
    orders = {}
    for at in range(MESSAGES):
        n = f"{client}-{at}"
        keys = (f"schlüssel-{at}", SAME_HASH[at % 2])
        orders[n] = Order(n, SYNC, "TagA", keys, {"n": n, "ort": "北京"}, b"body %d" % at * (1 + at * 100))
    return orders


@pytest.mark.parametrize("client", each_client("query"))
def test_a_client_finds_its_messages_by_key_and_id(client: str, broker: BrokerUnderTest, tmp_path: Path) -> None:
    """Each id and each unique key finds one message, a shared key finds all its messages, an unknown key finds none."""
    command = CLIENTS[client].command
    command(tmp_path)  # build the driver, or skip, before any deadline starts
    topic, orders = f"{TOPIC}-{client.replace('.', '-')}", orders_of(client)
    broker.create_topic(topic, QUEUES)
    drivers = DriverGroup(tmp_path, broker.log)
    try:
        producer = drivers.start("producer", command, "produce", broker.namesrv, topic, "query-producer")
        producer.send(orders.values())
        drivers.wait_until(lambda: "producer" in drivers.left, "all messages are sent", PROCESS_LIMIT_S)
        assert drivers.sent.keys() == orders.keys()
        reader = drivers.start("reader", command, "query", broker.namesrv, topic, "query")
        reader.send(queries_of(topic, drivers))
        drivers.wait_until(lambda: "reader" in drivers.left, "all queries have results", PROCESS_LIMIT_S)
    finally:
        drivers.stop()
    for n, order in orders.items():
        for how in ("unique", "offset_id", "key"):
            [found] = drivers.query_results[f"{how} {n}"].found
            assert content_of(found) == (n, order.body, "TagA", " ".join(order.keys), "北京")
    for at, key in enumerate(SAME_HASH):
        assert {found.n for found in drivers.query_results[key].found} == set(list(orders)[at::2])
    assert drivers.query_results["unknown"].found == []


def queries_of(topic: str, drivers: DriverGroup) -> Iterator[Query]:
    for n, sent in drivers.sent.items():
        yield Query(f"unique {n}", "unique", topic, sent.id or "")
        yield Query(f"offset_id {n}", "offset_id", topic, sent.offset_id or "")
        yield Query(f"key {n}", "key", topic, f"schlüssel-{n.rpartition('-')[2]}")
    for key in (*SAME_HASH, "unknown"):
        yield Query(key, "key", topic, key)


def content_of(found: Received) -> tuple[object, ...]:
    return found.n, found.body, found.tags, found.keys, found.properties.get("ort")
