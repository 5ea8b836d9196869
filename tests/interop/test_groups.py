"""Official clients in groups: what fails comes again or dies, queues are consumed in order by one at a time, and a
broadcasting group's members get everything. The clients of a test run beside each other.
"""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

import pytest

from tests.interop.beside import Scenarios, beside, chosen_of
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.cases import BINARY_HEADERS, CLIENTS, Command, java
from tests.interop.drivers import Stage
from tests.interop.matrix import each_client

QUEUES = 4
SUBSCRIBED_DEADLINE_S = 45.0
QUICK_LEVELS = " ".join(["1s"] * 18)
LOCKS_MS = 25_000  # Go and C++ renew theirs every 20 s
SETTINGS = {"messageDelayLevel": QUICK_LEVELS, "rebalanceLockMaxLiveTime": LOCKS_MS}
GROUP_CODE, RETRIES = 200, 1
FAILURES = {"good": 0, "once": 1, "never": 99}
FIRST, SECOND = "first", "second"
EAGER = ("-Drocketmq.client.rebalance.waitInterval=1000", "-Drocketmq.client.rebalance.lockInterval=1000")
"""Java looks for work, and renews its locks, once a second instead of every 20 s."""
MOVE_DEADLINE_S = 100.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


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
    clients = chosen_of(request, test_what_fails_comes_again_or_dies.__name__)
    with beside(fail, clients, broker, tmp_path_factory.mktemp("retries")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", each_client("retry"))
def test_what_fails_comes_again_or_dies(client: str, retries: Scenarios[None]) -> None:
    """A message that fails once comes twice; one that always fails comes as often as its group retries, and then lies
    among the group's dead letters, and in no retry topic any more."""
    retries.end_of(client)


def fail(client: str, broker: BrokerUnderTest, stage: Stage) -> None:
    command = CLIENTS[client].command
    case = client.replace(".", "-")
    topic, group = f"Failing-{case}", f"failing-{case}"
    broker.create_topic(topic, QUEUES)
    broker.set_group(group, retryMaxTimes=RETRIES)
    # C++ sends back all that it has taken together, if one of it fails.
    expected = {"good": 1, "never": 2} if client.startswith("cpp") else {"good": 1, "once": 2, "never": 2}
    for queue, n in enumerate(expected):
        broker.send(topic, queue, properties(n, FAILURES[n]), b"body")
    stage.start("member", command, "retry", broker.namesrv, topic, group)
    stage.wait_until(lambda: len(stage.deliveries) >= sum(expected.values()), "all retried", SUBSCRIBED_DEADLINE_S)
    dead_letters = broker.dead_letters(group, 1)
    stage.listen(2.0)
    assert Counter(seen.message.n for seen in stage.deliveries) == expected
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
    clients = chosen_of(request, test_everybody_in_a_broadcasting_group_gets_everything.__name__)
    with beside(broadcast, clients, broker, tmp_path_factory.mktemp("broadcasts")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", each_client("broadcast"))
def test_everybody_in_a_broadcasting_group_gets_everything(client: str, broadcasts: Scenarios[None]) -> None:
    """Each member every message, once."""
    broadcasts.end_of(client)


def broadcast(client: str, broker: BrokerUnderTest, stage: Stage) -> None:
    command = CLIENTS[client].command
    case = client.replace(".", "-")
    topic = f"Broadcast-{case}"
    broker.create_topic(topic, QUEUES)
    for member in (FIRST, SECOND):
        stage.start(member, command, "broadcast", broker.namesrv, topic, f"broadcast-{case}")
    stage.wait_until(lambda: stage.started == {FIRST, SECOND}, "both started", SUBSCRIBED_DEADLINE_S)
    probe_until_all_hear(broker, stage, topic)
    names = {str(n) for n in range(100)}
    for n in range(100):
        broker.send(topic, n % QUEUES, properties(str(n)), b"body")
    for member in (FIRST, SECOND):
        stage.wait_until(partial(has_all, stage, member, names), f"{member} has all")
        assert {n: times for n, times in received_by(stage, member).items() if n in names and times > 1} == {}


def probe_until_all_hear(broker: BrokerUnderTest, stage: Stage, topic: str) -> None:
    """A broadcasting member begins where a queue ends when it first looks: wait until each does in every queue."""
    wanted = {(member, queue) for member in (FIRST, SECOND) for queue in range(QUEUES)}
    for n in range(90):
        for queue in range(QUEUES):
            broker.send(topic, queue, properties(f"probe-{n}-{queue}"), b"probe")
        stage.listen(0.5)
        if {(seen.member, seen.message.queue) for seen in stage.deliveries} == wanted:
            return
    raise AssertionError("not everybody hears")


def has_all(stage: Stage, member: str, names: set[str]) -> bool:
    return names <= received_by(stage, member).keys()


def received_by(stage: Stage, member: str) -> Counter[str]:
    return Counter(seen.message.n for seen in stage.deliveries if seen.member == member)


QUICKER: dict[str, Command] = {
    "java-4.9.8": java("4.9.8", *EAGER),
    "java-4.9.8-binary": java("4.9.8", BINARY_HEADERS, *EAGER),
    "java-5.3.3": java("5.3.3", *EAGER),
}


@pytest.fixture(scope="module")
def moves(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenarios[float]]:
    clients = chosen_of(request, test_a_killed_owners_queues_move_in_order.__name__)
    with beside(kill_an_owner, clients, broker, tmp_path_factory.mktemp("moves")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", each_client("orderly"))
def test_a_killed_owners_queues_move_in_order(client: str, moves: Scenarios[float], measured: list[str]) -> None:
    """Two members share queues, one is killed: the other gets all of its queues once their locks have run out, and goes
    on where it had committed. Nothing is left out, nothing overtakes, though some messages fail at first."""
    measured.append(f"{client}: a killed owner's queues moved within {moves.end_of(client):.1f} s")


def kill_an_owner(client: str, broker: BrokerUnderTest, stage: Stage) -> float:
    """Seconds until its queues have moved."""
    command = QUICKER.get(client) or CLIENTS[client].command
    case = client.replace(".", "-")
    topic, group = f"Ordered-{case}", f"ordered-{case}"
    broker.create_topic(topic, QUEUES)
    members = {name: stage.start(name, command, "orderly", broker.namesrv, topic, group) for name in (FIRST, SECOND)}
    owners: dict[int, str] = {}
    sent = [0] * QUEUES
    begun = time.monotonic()
    while set(owners.values()) != {FIRST, SECOND} or len(owners) < QUEUES:
        assert time.monotonic() - begun < MOVE_DEADLINE_S, owners
        send_some(broker, topic, sent)
        stage.listen(0.5)
        owners = {seen.message.queue: seen.member for seen in stage.deliveries[-40:]}
    stage.left[SECOND] = killed_at = time.monotonic()
    members[SECOND].process.kill()
    orphans = {queue for queue, owner in owners.items() if owner == SECOND}
    while orphans - {s.message.queue for s in stage.deliveries if s.member == FIRST and s.at > killed_at}:
        assert time.monotonic() - killed_at < MOVE_DEADLINE_S, f"{orphans} of {owners}"
        send_some(broker, topic, sent)
        stage.listen(0.5)
    moved_s = time.monotonic() - killed_at
    ends = {(queue, count - 1) for queue, count in enumerate(sent)}
    stage.wait_until(lambda: ends <= {(s.message.queue, s.message.offset) for s in stage.deliveries}, "all received")
    for queue in range(QUEUES):
        offsets = [seen.message.offset for seen in stage.deliveries if seen.message.queue == queue]
        highest = -1
        for offset in offsets:
            assert offset <= highest + 1, f"queue {queue}: {offset} behind {highest}"
            highest = max(highest, offset)
        assert highest == sent[queue] - 1
    return moved_s


def send_some(broker: BrokerUnderTest, topic: str, sent: list[int]) -> None:
    """Five messages to each queue, of which one fails at first."""
    for queue in range(QUEUES):
        for _ in range(5):
            n = f"{queue}-{sent[queue]}"
            broker.send(topic, queue, properties(n, fails=sent[queue] % 5 == 4), b"body")
            sent[queue] += 1


@pytest.fixture(scope="module")
def given_up(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scenarios[None]]:
    clients = chosen_of(request, test_an_orderly_group_does_not_wait_for_what_it_has_given_up.__name__)
    with beside(give_up, clients, broker, tmp_path_factory.mktemp("given-up")) as scenarios:
        yield scenarios


@pytest.mark.parametrize("client", ["java-4.9.8", "java-5.3.3"])  # the others do not give up
def test_an_orderly_group_does_not_wait_for_what_it_has_given_up(client: str, given_up: Scenarios[None]) -> None:
    """Its client sends such a message to the retry topic: it is a dead letter at once, and the others go on."""
    given_up.end_of(client)


def give_up(client: str, broker: BrokerUnderTest, stage: Stage) -> None:
    command = QUICKER[client]
    case = client.replace(".", "-")
    topic, group = f"GivenUp-{case}", f"given-up-{case}"
    broker.create_topic(topic, 1)
    for n, fails in (("good", 0), ("never", 99), ("next", 0)):
        broker.send(topic, 0, properties(n, fails), b"body")
    stage.start("member", command, "orderly", broker.namesrv, topic, group)
    stage.wait_for_messages({"good", "never", "next"}, SUBSCRIBED_DEADLINE_S)
    assert [seen.message.n for seen in stage.deliveries] == ["good", "never", "never", "next"]
    [dead] = broker.dead_letters(group, 1)
    assert (dead.properties["n"], dead.properties["DELAY"]) == ("never", "-1")
