"""Official clients ask each other by way of the broker: every request has its reply, byte for byte."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import CLIENTS
from tests.interop.drivers import ANSWERS, Stage
from tests.interop.matrix import covers
from tests.interop.plan import SYNC, Order

QUEUES = 4
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
SUBSCRIBED_DEADLINE_S = 45.0
PAIRS = [
    ("java-4.9.8", "java-4.9.8"),
    ("java-5.3.3", "java-5.3.3"),
    ("java-4.9.8-binary", "go-2.1.2"),
    ("go-2.1.2", "java-5.3.3"),
]
BODIES = [b"ping", "Grüße 🙂".encode(), bytes(range(1, 256)), b"the same words again " * 2_000]

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize(
    ("requester", "replier"), [pytest.param(*pair, id="-".join(pair), marks=covers("replies", *pair)) for pair in PAIRS]
)
def test_each_request_has_its_reply(requester: str, replier: str, broker: BrokerUnderTest, tmp_path: Path) -> None:
    """Small bodies and such as clients compress; replies carry what the requester must see, and are stored."""
    for name in (requester, replier):
        CLIENTS[name].command(tmp_path)  # built, or skipped, before the clock runs
    case = f"{requester}-{replier}".replace(".", "-")
    topic = f"Asked-{case}"
    broker.create_topic(topic, QUEUES)
    served = broker.namesrv, topic
    orders = [Order(f"{case}-{n}", SYNC, "Tag", (f"k{n}",), {"n": f"{case}-{n}"}, b) for n, b in enumerate(BODIES)]
    stage = Stage(tmp_path, broker.log)
    try:
        stage.start("replier", CLIENTS[replier].command, "reply", *served, f"answering-{case}")
        stage.wait_until(lambda: "replier" in stage.started, "replier started", SUBSCRIBED_DEADLINE_S)
        asking = stage.start("requester", CLIENTS[requester].command, "request", *served, f"asking-{case}")
        asking.send(orders)
        stage.wait_until(lambda: "requester" in stage.left, "all asked", SUBSCRIBED_DEADLINE_S)
        replies = {seen.message.n: seen.message for seen in stage.deliveries if seen.member == "requester"}
        assert {n: reply.body for n, reply in replies.items()} == {order.n: ANSWERS + order.body for order in orders}, (
            stage.summary()
        )
        assert {reply.topic for reply in replies.values()} == {REPLY_TOPIC}
        assert all(reply.properties["PUSH_REPLY_TIME"] for reply in replies.values())
        stored = {message.properties.get("n") for message in broker.stored(REPLY_TOPIC, 1, len(orders))}
        assert stored >= {order.n for order in orders}
    finally:
        stage.stop()
