"""Request–reply between official clients through the broker: every request gets its reply, unchanged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker, wait_until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import REPLY_PREFIX, DriverGroup
from tests.interop.matrix import covers
from tests.interop.plan import SYNC, Order

QUEUES = 4
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PAIRS = [
    ("java-4.9.8", "java-4.9.8"),
    ("java-5.3.3", "java-5.3.3"),
    ("java-4.9.8-binary", "go-2.1.2"),
    ("go-2.1.2", "java-5.3.3"),
]
BODIES = [b"ping", "Grüße 🙂".encode(), bytes(range(1, 256)), b"the same words again " * 2_000]

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker")) as running:
        yield running


def stored_replies(broker: BrokerUnderTest) -> set[str | None]:
    """Return the names of all replies that are stored now."""
    return {message.properties.get("n") for message in broker.stored(REPLY_TOPIC, 1, 0)}


@pytest.mark.parametrize(
    ("requester", "replier"), [pytest.param(*pair, id="-".join(pair), marks=covers("replies", *pair)) for pair in PAIRS]
)
def test_each_request_gets_its_reply(requester: str, replier: str, broker: BrokerUnderTest, tmp_path: Path) -> None:
    """Small and compressed bodies; replies have the properties that the requester needs, and are stored."""
    for name in (requester, replier):
        CLIENTS[name].command(tmp_path)  # build the driver, or skip, before any deadline starts
    case = f"{requester}-{replier}".replace(".", "-")
    topic = f"Asked-{case}"
    broker.create_topic(topic, QUEUES)
    address_and_topic = broker.namesrv, topic
    orders = [Order(f"{case}-{n}", SYNC, "Tag", (f"k{n}",), {"n": f"{case}-{n}"}, b) for n, b in enumerate(BODIES)]
    drivers = DriverGroup(tmp_path, broker.log)
    try:
        drivers.start("replier", CLIENTS[replier].command, "reply", *address_and_topic, f"replying-{case}")
        drivers.wait_until(lambda: "replier" in drivers.started, "replier started", PROCESS_LIMIT_S)
        requester_driver = drivers.start(
            "requester", CLIENTS[requester].command, "request", *address_and_topic, f"requesting-{case}"
        )
        requester_driver.send(orders)
        drivers.wait_until(lambda: "requester" in drivers.left, "all requests sent", PROCESS_LIMIT_S)
        replies = {seen.message.n: seen.message for seen in drivers.deliveries if seen.member == "requester"}
        assert {n: reply.body for n, reply in replies.items()} == {
            order.n: REPLY_PREFIX + order.body for order in orders
        }, drivers.summary()
        assert {reply.topic for reply in replies.values()} == {REPLY_TOPIC}
        assert all(reply.properties["PUSH_REPLY_TIME"] for reply in replies.values())
        expected = {order.n for order in orders}
        wait_until(lambda: stored_replies(broker) >= expected, f"replies of {case} in {REPLY_TOPIC}")
    finally:
        drivers.stop()
