"""Official Java clients with `tls.enable` against a broker in each mode that accepts TLS.

A broker without TLS settings must accept the client's defaults (test mode, no checks). With certificates on both sides,
each side checks the other. The tests do not run against RocketMQ's own broker: its TLS settings are JVM properties.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.harness.certificates import Certificates
from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import ALL_MODES, java
from tests.interop.drivers import DriverGroup
from tests.interop.plan import ASYNC, ONEWAY, Order, thousand_orders

TOPIC, GROUP = "InteropTls", "interop-tls-group"
QUEUES = 4
VERSIONS = ("4.9.8", "5.3.3")
TLS_ON = "-Dtls.enable=true"

pytestmark = pytest.mark.interop


class Served(NamedTuple):
    """A broker, and the options that a Java client needs to connect to it over TLS."""

    broker: BrokerUnderTest
    options: tuple[str, ...]
    mode: str


@pytest.fixture(scope="module", params=["permissive", "enforcing"])
def served(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    if broker_kind != "skylark":
        pytest.skip("the TLS settings of RocketMQ's broker are JVM properties")
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
    """A thousand messages of every form arrive unchanged, in permissive mode also at a client without TLS."""
    topic = f"{TOPIC}-{version.replace('.', '-')}"
    served.broker.create_topic(topic, QUEUES)
    over_tls, plain = java(version, *served.options), java(version)
    over_tls(tmp_path)  # build the driver, or skip
    consumers = {"over-tls": over_tls} | ({"plain": plain} if served.mode == "permissive" else {})
    drivers = DriverGroup(tmp_path, served.broker.log)
    try:
        for name, command in consumers.items():
            drivers.start(name, command, "consume", served.broker.namesrv, topic, f"{GROUP}-{name}")
        drivers.wait_until(lambda: set(consumers) <= drivers.started, "the consumers have started", PROCESS_LIMIT_S)
        orders = {order.n: order for order in thousand_orders(ALL_MODES, zero_bytes=True)}
        producer = drivers.start("producer", over_tls, "produce", served.broker.namesrv, topic, "interop-producer")
        producer.send(orders.values())
        drivers.wait_until(lambda: "producer" in drivers.left, "the producer has sent all", PROCESS_LIMIT_S)
        assert drivers.failed == []
        assert set(drivers.sent) == {n for n, order in orders.items() if order.mode != ONEWAY}
        for name in consumers:
            drivers.wait_until(partial(has_received, drivers, name, orders), f"{name} has all", PROCESS_LIMIT_S)
    finally:
        drivers.stop()


def test_enforcing_mode_refuses_a_client_without_tls(served: Served, tmp_path: Path) -> None:
    """The send fails, and the broker logs the reason."""
    if served.mode != "enforcing":
        return
    order = Order(n="0", mode=ASYNC, tags="a", keys=("0",), properties={"n": "0"}, body=b"plain")
    drivers = DriverGroup(tmp_path, served.broker.log)
    try:
        producer = drivers.start("plain", java("5.3.3"), "produce", served.broker.namesrv, TOPIC, "plain-producer")
        producer.send([order])
        drivers.wait_until(lambda: bool(drivers.failed), "the send has failed", PROCESS_LIMIT_S)
        assert not drivers.sent
    finally:
        drivers.stop()
    assert "reason=plain, and tls.server.mode is enforcing" in served.broker.log.read_text()


def test_the_broker_logs_no_error(served: Served) -> None:
    """After all tests the broker's log contains neither an error nor a traceback."""
    log = served.broker.log.read_text(errors="replace")
    assert [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")] == []


def has_received(drivers: DriverGroup, member: str, orders: dict[str, Order]) -> bool:
    """Return whether a member has received every message with its body."""
    received = {seen.message.n: seen.message.body for seen in drivers.deliveries if seen.member == member}
    return received == {n: order.body for n, order in orders.items()}
