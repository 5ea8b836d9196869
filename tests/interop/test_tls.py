"""Official Java clients with `tls.enable` against a broker in each mode that speaks TLS.

The client's own defaults (test mode, nothing is checked) must be enough for a broker that nobody configured; with
certificates on both sides, each checks the other. RocketMQ's own broker is not asked: its settings are JVM properties.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.certificates import Certificates
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import ALL_MODES, java
from tests.interop.drivers import Stage
from tests.interop.plan import ASYNC, ONEWAY, Order, thousand_orders

TOPIC, GROUP = "InteropTls", "interop-tls-group"
QUEUES = 4
VERSIONS = ("4.9.8", "5.3.3")
START_DEADLINE_S = 60.0
MESSAGES_DEADLINE_S = 90.0
TLS_ON = "-Dtls.enable=true"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


class Served(NamedTuple):
    """A broker, and what a Java client is told to reach it over TLS."""

    broker: BrokerUnderTest
    options: tuple[str, ...]
    mode: str


@pytest.fixture(scope="module", params=["permissive", "enforcing"])
def served(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    if broker_kind != "skylark":
        pytest.skip("its TLS settings are JVM properties")
    home = tmp_path_factory.mktemp("tls-broker")
    if request.param == "permissive":
        with running_broker(broker_kind, home) as broker:
            yield Served(broker, (TLS_ON,), request.param)
        return
    made = Certificates(tmp_path_factory.mktemp("certificates"))
    server, client = made.issue("server"), made.issue("client")
    settings = {
        "tls.server.mode": request.param,
        "tls.server.certPath": server.cert,
        "tls.server.keyPath": server.key,
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": made.authority.cert,
        "tls.client.certPath": client.cert,
        "tls.client.keyPath": client.key,
        "tls.client.trustCertPath": made.authority.cert,
    }
    options = (
        TLS_ON,
        "-Dtls.test.mode.enable=false",
        "-Dtls.client.authServer=true",
        f"-Dtls.client.trustCertPath={made.authority.cert}",
        f"-Dtls.client.certPath={client.cert}",
        f"-Dtls.client.keyPath={client.key}",
    )
    with running_broker(broker_kind, home, settings, tls=made.client_context(client)) as broker:
        yield Served(broker, options, request.param)


@pytest.mark.parametrize("version", VERSIONS)
def test_java_sends_and_consumes_over_tls(served: Served, version: str, tmp_path: Path) -> None:
    """A thousand messages of every shape arrive unchanged; in permissive mode a plain client gets them as well."""
    topic = f"{TOPIC}-{version.replace('.', '-')}"
    served.broker.create_topic(topic, QUEUES)
    over_tls, plain = java(version, *served.options), java(version)
    over_tls(tmp_path)  # built, or skipped
    consumers = {"over-tls": over_tls} | ({"plain": plain} if served.mode == "permissive" else {})
    stage = Stage(tmp_path, served.broker.log)
    try:
        for name, command in consumers.items():
            stage.start(name, command, "consume", served.broker.namesrv, topic, f"{GROUP}-{name}")
        stage.wait_until(lambda: set(consumers) <= stage.started, "the consumers started", START_DEADLINE_S)
        orders = {order.n: order for order in thousand_orders(ALL_MODES, zero_bytes=True)}
        producer = stage.start("producer", over_tls, "produce", served.broker.namesrv, topic, "interop-producer")
        producer.send(orders.values())
        stage.wait_until(lambda: "producer" in stage.left, "the producer has sent all", MESSAGES_DEADLINE_S)
        assert stage.failed == []
        assert set(stage.sent) == {n for n, order in orders.items() if order.mode != ONEWAY}
        for name in consumers:
            stage.wait_until(partial(has_received, stage, name, orders), f"{name} has all", MESSAGES_DEADLINE_S)
    finally:
        stage.stop()


def test_a_plain_client_is_refused_where_tls_is_enforced(served: Served, tmp_path: Path) -> None:
    """It finds no route, and the broker's log says why."""
    if served.mode != "enforcing":
        return
    order = Order(n="0", mode=ASYNC, tags="a", keys=("0",), properties={"n": "0"}, body=b"plain")
    stage = Stage(tmp_path, served.broker.log)
    try:
        producer = stage.start("plain", java("5.3.3"), "produce", served.broker.namesrv, TOPIC, "plain-producer")
        producer.send([order])
        stage.wait_until(lambda: bool(stage.failed), "the send failed", START_DEADLINE_S)
        assert not stage.sent
    finally:
        stage.stop()
    assert "reason=plain, and tls.server.mode is enforcing" in served.broker.log.read_text()


def test_the_broker_has_seen_no_fault_of_its_own(served: Served) -> None:
    """After all that its log holds neither an error nor a traceback."""
    log = served.broker.log.read_text(errors="replace")
    assert [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")] == []


def has_received(stage: Stage, member: str, orders: dict[str, Order]) -> bool:
    """Whether a member has every message, with the body that was sent."""
    received = {seen.message.n: seen.message.body for seen in stage.deliveries if seen.member == member}
    return received == {n: order.body for n, order in orders.items()}
