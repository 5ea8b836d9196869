"""Official clients look messages up: by key, by unique id and by offset id they find what they have sent, whole."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.drivers import Question, Received, Stage
from tests.interop.matrix import each_client
from tests.interop.plan import SYNC, Order

TOPIC, QUEUES = "Queried", 4
MESSAGES = 40
SAME_HASH = ("Aa", "BB")
"""Keys whose hash is the same: they share entries of the index."""
SENT_DEADLINE_S = 45.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker")) as running:
        yield running


def orders_of(client: str) -> dict[str, Order]:
    """Each with a key of its own, and one that it shares."""
    orders = {}
    for at in range(MESSAGES):
        n = f"{client}-{at}"
        keys = (f"schlüssel-{at}", SAME_HASH[at % 2])
        orders[n] = Order(n, SYNC, "TagA", keys, {"n": n, "ort": "北京"}, b"body %d" % at * (1 + at * 100))
    return orders


@pytest.mark.parametrize("client", each_client("query"))
def test_a_client_finds_what_it_has_sent(client: str, broker: BrokerUnderTest, tmp_path: Path) -> None:
    """One message by each of its ids and by its own key, all that have it by a shared key; nothing by one unknown."""
    command = CLIENTS[client].command
    command(tmp_path)  # built, or skipped, before the clock runs
    topic, orders = f"{TOPIC}-{client.replace('.', '-')}", orders_of(client)
    broker.create_topic(topic, QUEUES)
    stage = Stage(tmp_path, broker.log)
    try:
        producer = stage.start("producer", command, "produce", broker.namesrv, topic, "asking-producer")
        producer.send(orders.values())
        stage.wait_until(lambda: "producer" in stage.left, "all are sent", SENT_DEADLINE_S)
        assert stage.sent.keys() == orders.keys()
        asker = stage.start("asker", command, "query", broker.namesrv, topic, "asking")
        asker.send(questions(topic, stage))
        stage.wait_until(lambda: "asker" in stage.left, "all are asked for", SENT_DEADLINE_S)
    finally:
        stage.stop()
    for n, order in orders.items():
        for how in ("unique", "place", "key"):
            [found] = stage.answers[f"{how} {n}"].found
            assert shown(found) == (n, order.body, "TagA", " ".join(order.keys), "北京")
    for at, key in enumerate(SAME_HASH):
        assert {found.n for found in stage.answers[key].found} == set(list(orders)[at::2])
    assert stage.answers["unknown"].found == []


def questions(topic: str, stage: Stage) -> Iterator[Question]:
    for n, sent in stage.sent.items():
        yield Question(f"unique {n}", "unique", topic, sent.id or "")
        yield Question(f"place {n}", "place", topic, sent.place or "")
        yield Question(f"key {n}", "key", topic, f"schlüssel-{n.rpartition('-')[2]}")
    for key in (*SAME_HASH, "unknown"):
        yield Question(key, "key", topic, key)


def shown(found: Received) -> tuple[object, ...]:
    return found.n, found.body, found.tags, found.keys, found.properties.get("ort")
