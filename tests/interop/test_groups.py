"""Official clients in groups: retries and dead letters, orderly consumption, and broadcasting.

The clients of a test run concurrently.
"""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import BINARY_HEADERS, CLIENTS, Command, java
from tests.interop.drivers import DriverGroup
from tests.interop.matrix import each_client
from tests.interop.scenarios import Scenarios, run_scenarios, selected_clients

QUEUES = 4
QUICK_LEVELS = " ".join(["1s"] * 18)
LOCKS_MS = 25_000  # Go and C++ renew their locks every 20 s
SETTINGS = {"messageDelayLevel": QUICK_LEVELS, "rebalanceLockMaxLiveTime": LOCKS_MS}
GROUP_CODE, RETRIES = 200, 1
FAILURES = {"good": 0, "once": 1, "never": 99}
FIRST, SECOND = "first", "second"
FAST_REBALANCE = ("-Drocketmq.client.rebalance.waitInterval=1000", "-Drocketmq.client.rebalance.lockInterval=1000")
"""Java rebalances and renews its locks once a second instead of every 20 s."""

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


def properties(n: str, fails: int = 0) -> dict[str, str]:
    return {"n": n, "TAGS": "TagA", "KEYS": n} | ({"fails": str(fails)} if fails else {})


@pytest.fixture(scope="module")
def retries(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenarios[None]]:
    clients = selected_clients(request, test_failed_messages_are_retried_and_become_dead_letters.__name__)
    with run_scenarios(fail_messages, clients, broker, tmp_path_factory.mktemp("retries")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", each_client("retry"))
def test_failed_messages_are_retried_and_become_dead_letters(client: str, retries: Scenarios[None]) -> None:
    """A message that fails once arrives twice. A message that always fails arrives as often as its group retries; then
    it is a dead letter of the group, and is not retried again.
    """
    retries.result_of(client)


def fail_messages(client: str, broker: BrokerUnderTest, drivers: DriverGroup) -> None:
    command = CLIENTS[client].command
    case = client.replace(".", "-")
    topic, group = f"Failing-{case}", f"failing-{case}"
    broker.create_topic(topic, QUEUES)
    broker.set_group(group, retryMaxTimes=RETRIES)
    # C++ negatively acknowledges all messages of one fetch if one of them fails, so "once" would fail others.
    expected = {"good": 1, "never": 2} if client.startswith("cpp") else {"good": 1, "once": 2, "never": 2}
    for queue, n in enumerate(expected):
        broker.send(topic, queue, properties(n, FAILURES[n]), b"body")
    drivers.start("member", command, "retry", broker.namesrv, topic, group)
    drivers.wait_until(lambda: len(drivers.deliveries) >= sum(expected.values()), "all retried", PROCESS_LIMIT_S)
    dead_letters = broker.dead_letters(group, 1)
    drivers.process_events(2.0)
    assert Counter(seen.message.n for seen in drivers.deliveries) == expected
    assert [dead.properties["n"] for dead in dead_letters] == ["never"]
    [dead] = dead_letters
    assert (dead.body, dead.properties["DELAY"]) == (b"body", "0")
    assert dead.properties["RETRY_TOPIC"] == topic
    retries = sum(expected.values()) - len(expected)
    assert len(broker.stored(f"%RETRY%{group}", 1, retries)) == retries


@pytest.fixture(scope="module")
def broadcasts(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenarios[None]]:
    clients = selected_clients(request, test_every_broadcasting_member_receives_every_message.__name__)
    with run_scenarios(broadcast, clients, broker, tmp_path_factory.mktemp("broadcasts")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", each_client("broadcast"))
def test_every_broadcasting_member_receives_every_message(client: str, broadcasts: Scenarios[None]) -> None:
    """Each member receives every message once."""
    broadcasts.result_of(client)


def broadcast(client: str, broker: BrokerUnderTest, drivers: DriverGroup) -> None:
    command = CLIENTS[client].command
    case = client.replace(".", "-")
    topic = f"Broadcast-{case}"
    broker.create_topic(topic, QUEUES)
    for member in (FIRST, SECOND):
        drivers.start(member, command, "broadcast", broker.namesrv, topic, f"broadcast-{case}")
    drivers.wait_until(lambda: drivers.started == {FIRST, SECOND}, "both started", PROCESS_LIMIT_S)
    probe_until_all_receive(broker, drivers, topic)
    names = {str(n) for n in range(100)}
    for n in range(100):
        broker.send(topic, n % QUEUES, properties(str(n)), b"body")
    for member in (FIRST, SECOND):
        drivers.wait_until(partial(has_all, drivers, member, names), f"{member} has all")
        assert {n: times for n, times in received_by(drivers, member).items() if n in names and times > 1} == {}


def probe_until_all_receive(broker: BrokerUnderTest, drivers: DriverGroup, topic: str) -> None:
    """Send probes until each member has received one from every queue.

    A broadcasting member starts at the end that a queue has when the member first pulls it.
    """
    wanted = {(member, queue) for member in (FIRST, SECOND) for queue in range(QUEUES)}
    for n in range(90):
        for queue in range(QUEUES):
            broker.send(topic, queue, properties(f"probe-{n}-{queue}"), b"probe")
        drivers.process_events(0.5)
        if {(seen.member, seen.message.queue) for seen in drivers.deliveries} == wanted:
            return
    raise AssertionError("some member receives no probe of some queue")


def has_all(drivers: DriverGroup, member: str, names: set[str]) -> bool:
    return names <= received_by(drivers, member).keys()


def received_by(drivers: DriverGroup, member: str) -> Counter[str]:
    return Counter(seen.message.n for seen in drivers.deliveries if seen.member == member)


FAST_REBALANCE_COMMANDS: dict[str, Command] = {
    "java-4.9.8": java("4.9.8", *FAST_REBALANCE),
    "java-4.9.8-binary": java("4.9.8", BINARY_HEADERS, *FAST_REBALANCE),
    "java-5.3.3": java("5.3.3", *FAST_REBALANCE),
}


@pytest.fixture(scope="module")
def moves(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenarios[float]]:
    clients = selected_clients(request, test_the_queues_of_a_killed_member_move_in_order.__name__)
    with run_scenarios(kill_an_owner, clients, broker, tmp_path_factory.mktemp("moves")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", each_client("orderly"))
def test_the_queues_of_a_killed_member_move_in_order(client: str, moves: Scenarios[float], measured: list[str]) -> None:
    """One of two members is killed. The other gets its queues after its locks have expired, and continues at the
    committed offsets. No message is lost or overtaken, although some fail at first.
    """
    measured.append(f"{client}: the queues of a killed member moved within {moves.result_of(client):.1f} s")


def kill_an_owner(client: str, broker: BrokerUnderTest, drivers: DriverGroup) -> float:
    """Return the seconds until the queues of the killed member have moved."""
    command = FAST_REBALANCE_COMMANDS.get(client) or CLIENTS[client].command
    case = client.replace(".", "-")
    topic, group = f"Ordered-{case}", f"ordered-{case}"
    broker.create_topic(topic, QUEUES)
    members = {name: drivers.start(name, command, "orderly", broker.namesrv, topic, group) for name in (FIRST, SECOND)}
    owners: dict[int, str] = {}
    sent = [0] * QUEUES
    begun = time.monotonic()
    while set(owners.values()) != {FIRST, SECOND} or len(owners) < QUEUES:
        assert time.monotonic() - begun < PROCESS_LIMIT_S, owners
        send_some(broker, topic, sent)
        drivers.process_events(0.5)
        owners = {seen.message.queue: seen.member for seen in drivers.deliveries[-40:]}
    drivers.left[SECOND] = killed_at = time.monotonic()
    members[SECOND].process.kill()
    moving = {queue for queue, owner in owners.items() if owner == SECOND}
    while moving - {s.message.queue for s in drivers.deliveries if s.member == FIRST and s.at > killed_at}:
        assert time.monotonic() - killed_at < PROCESS_LIMIT_S, f"{moving} of {owners}"
        send_some(broker, topic, sent)
        drivers.process_events(0.5)
    moved_s = time.monotonic() - killed_at
    ends = {(queue, count - 1) for queue, count in enumerate(sent)}
    drivers.wait_until(
        lambda: ends <= {(s.message.queue, s.message.offset) for s in drivers.deliveries}, "all received"
    )
    for queue in range(QUEUES):
        offsets = [seen.message.offset for seen in drivers.deliveries if seen.message.queue == queue]
        highest = -1
        for offset in offsets:
            assert offset <= highest + 1, f"queue {queue}: offset {offset} after {highest}"
            highest = max(highest, offset)
        assert highest == sent[queue] - 1
    return moved_s


def send_some(broker: BrokerUnderTest, topic: str, sent: list[int]) -> None:
    """Send five messages to each queue; one of them fails at first."""
    for queue in range(QUEUES):
        for _ in range(5):
            n = f"{queue}-{sent[queue]}"
            broker.send(topic, queue, properties(n, fails=sent[queue] % 5 == 4), b"body")
            sent[queue] += 1


@pytest.fixture(scope="module")
def exhausted(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenarios[None]]:
    clients = selected_clients(request, test_an_orderly_group_continues_after_a_dead_letter.__name__)
    with run_scenarios(exhaust_retries, clients, broker, tmp_path_factory.mktemp("given-up")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", ["java-4.9.8", "java-5.3.3"])  # the others retry forever
def test_an_orderly_group_continues_after_a_dead_letter(client: str, exhausted: Scenarios[None]) -> None:
    """The client sends the message to the retry topic. It becomes a dead letter at once; the next ones are consumed."""
    exhausted.result_of(client)


def exhaust_retries(client: str, broker: BrokerUnderTest, drivers: DriverGroup) -> None:
    command = FAST_REBALANCE_COMMANDS[client]
    case = client.replace(".", "-")
    topic, group = f"GivenUp-{case}", f"given-up-{case}"
    broker.create_topic(topic, 1)
    for n, fails in (("good", 0), ("never", 99), ("next", 0)):
        broker.send(topic, 0, properties(n, fails), b"body")
    drivers.start("member", command, "orderly", broker.namesrv, topic, group)
    drivers.wait_for_messages({"good", "never", "next"}, PROCESS_LIMIT_S)
    assert [seen.message.n for seen in drivers.deliveries] == ["good", "never", "never", "next"]
    [dead] = broker.dead_letters(group, 1)
    assert (dead.properties["n"], dead.properties["DELAY"]) == ("never", "-1")
