"""A group of two members, a thousand messages, and one member that leaves: the same tests for every official client.

The tests determine the owner of a queue in the same way for all clients: they send a probe, a small message, to the
queue by a raw frame, and the owner receives it. The tests of one case share its broker and its two members, and run in
the order of this module.
"""

import time
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from itertools import count, permutations

import pytest

from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import COMPRESSED, BrokerUnderTest, StoredMessage, running_broker
from tests.interop.cases import CASES, CLIENTS, Case
from tests.interop.drivers import Delivery, DriverGroup, Received, Sent
from tests.interop.matrix import covers
from tests.interop.plan import BATCHED, COMPRESS_FROM, ONEWAY, SYNC, Order, thousand_orders

TOPIC, EMPTY_TOPIC, GROUP = "Interop", "InteropEmpty", "interop-group"
MEMBERS = FIRST, SECOND = "first", "second"
PRODUCER = "producer"
QUEUES = 8
EMPTY_BODIES = 8

# If a Java client rebalances during its first heartbeat, it skips the heartbeat with the new subscription version. The
# broker then rejects its pulls (SUBSCRIPTION_NOT_LATEST, 25) until the next one, 30 s later. So does RocketMQ's broker.
PROBE_INTERVAL_S = 0.05
STEADY_ROUNDS = 3

# Average allocation gives each of two members a block of adjacent queues. Which id sorts first is random.
EVEN_SPLITS = [{queue: members[queue * 2 // QUEUES] for queue in range(QUEUES)} for members in permutations(MEMBERS)]

pytestmark = pytest.mark.interop


class Pair:
    """Two members of one group on a new broker, and the probes that show which member owns a queue."""

    def __init__(self, case: Case, broker: BrokerUnderTest, drivers: DriverGroup) -> None:
        self.case = case
        self.broker = broker
        self.drivers = drivers
        self._probes = count()
        broker.create_topic(TOPIC, QUEUES)
        members = zip(MEMBERS, case.members, strict=True)
        self.members = {
            name: drivers.start(name, CLIENTS[client].command, "consume", broker.namesrv, TOPIC, GROUP)
            for name, client in members
        }
        drivers.wait_until(lambda: set(MEMBERS) <= drivers.started, "both members started")

    def wait_for_even_split(self) -> dict[int, str]:
        """Return the owner of each queue, once STEADY_ROUNDS probes of all queues in a row show the same even split."""
        deadline = time.monotonic() + PROCESS_LIMIT_S
        rounds: deque[set[str]] = deque(maxlen=STEADY_ROUNDS)
        while True:
            rounds.append(self.probe_all())
            self.drivers.process_events(PROBE_INTERVAL_S)
            splits = [self.owners(probes) for probes in rounds]
            if splits[0] in EVEN_SPLITS and splits == splits[:1] * STEADY_ROUNDS:
                return splits[0]
            assert time.monotonic() < deadline, f"no even split: {splits}, members {self.broker.members(GROUP)}"

    def owners(self, probes: set[str]) -> dict[int, str]:
        """Return the receivers of each queue's probe: one member, or both until the previous owner has rebalanced."""
        members: dict[int, set[str]] = {}
        for seen in self.drivers.deliveries:
            if seen.message.n in probes:
                members.setdefault(seen.message.queue, set()).add(seen.member)
        return {queue: " and ".join(sorted(names)) for queue, names in members.items()}

    def probe_all(self) -> set[str]:
        """Send a probe to each queue and wait until all have been received."""
        probes = {self.probe(queue) for queue in range(QUEUES)}
        self.drivers.wait_for_messages(probes, PROCESS_LIMIT_S)
        return probes

    def probe(self, queue: int) -> str:
        n = f"probe-{next(self._probes)}"
        self.broker.send(TOPIC, queue, {"n": n, "TAGS": "probe", "KEYS": n}, b"probe")
        return n

    def produce(self, orders: list[Order]) -> list[Sent]:
        """Start the producer, send the orders, and return the send results; oneway sends have none."""
        drivers = self.drivers
        command = CLIENTS[self.case.producer].command
        producer = drivers.start(PRODUCER, command, "produce", self.broker.namesrv, TOPIC, "interop-producer")
        producer.send(orders)
        drivers.wait_until(lambda: PRODUCER in drivers.left, "the producer has sent all and left", PROCESS_LIMIT_S)
        assert drivers.failed == []
        assert {order.n for order in orders if order.mode != ONEWAY} == set(drivers.sent)
        return list(drivers.sent.values())


CASE_PARAMETERS = [
    pytest.param(case, id=case.name, marks=covers("concurrent", *{case.producer, *case.members})) for case in CASES
]


@pytest.fixture(scope="module", params=CASE_PARAMETERS)
def pair(
    request: pytest.FixtureRequest, broker_kind: str, tmp_path_factory: pytest.TempPathFactory, measured: list[str]
) -> Iterator[Pair]:
    case: Case = request.param
    homes = tmp_path_factory.mktemp(case.name)
    for client in case.clients():
        client.command(homes)  # build the driver, or skip, before the broker starts
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker")) as broker:
        measured.append(f"{case.name}: {broker_kind} had a route of TBW102 {broker.started_in_s:.2f} s after its start")
        drivers = DriverGroup(homes, broker.log)
        try:
            yield Pair(case, broker, drivers)
        finally:
            drivers.stop()


def test_two_members_split_the_queues_evenly(pair: Pair, measured: list[str]) -> None:
    """Members of one group own disjoint halves of the queues, by average allocation."""
    begun = time.monotonic()
    pair.wait_for_even_split()
    measured.append(f"{pair.case.name}: even split {time.monotonic() - begun:.2f} s after both members had started")
    assert len(pair.broker.members(GROUP)) == len(MEMBERS)


def test_a_thousand_messages_arrive_once_and_unchanged(pair: Pair, broker_kind: str, measured: list[str]) -> None:
    """The owner of the queue receives each message once, with the same body, tags, keys, properties, id and offset."""
    owners = pair.wait_for_even_split()
    producer = CLIENTS[pair.case.producer]
    orders = thousand_orders(producer.modes, zero_bytes=producer.zero_bytes)
    begun = time.monotonic()
    results = pair.produce(orders)
    if all(CLIENTS[member].empty_bodies for member in pair.case.members):
        orders += send_empty_bodies(pair.broker, TOPIC)
    wanted = {order.n for order in orders}
    pair.drivers.wait_for_messages(wanted)
    measured.append(f"{pair.case.name}: {len(orders)} messages sent and received in {time.monotonic() - begun:.2f} s")
    pair.probe_all()  # duplicates arrive before these probes

    deliveries = [seen for seen in pair.drivers.deliveries if seen.message.n in wanted]
    received = {seen.message.n: seen.message for seen in deliveries}
    # For a batch of Java 5.x RocketMQ returns one id, Skylark one for each message: docs/reference/wire.md, "Send".
    hidden = {order.n for order in orders if order.mode == BATCHED and broker_kind != "skylark"}
    assert duplicates(deliveries) == {}
    assert [seen.message.n for seen in deliveries if seen.member != owners[seen.message.queue]] == []
    assert {order.n: different for order in orders if (different := differences(order, received[order.n]))} == {}
    assert [difference for sent in results if (difference := wrong_result(sent, received[sent.n], hidden))] == []


def test_bodies_are_stored_as_the_client_compressed_them(pair: Pair) -> None:
    """The store contains bodies as the client sent them; the compressed flag is set exactly for deflated ones."""
    producer = CLIENTS[pair.case.producer]
    orders = {order.n: order for order in thousand_orders(producer.modes, zero_bytes=producer.zero_bytes)}
    stored = pair.broker.stored(TOPIC, QUEUES, len(orders))
    by_name = {message.properties["n"]: message for message in stored if message.properties["n"] in orders}
    compressed = {n for n, message in by_name.items() if message.sys_flag & COMPRESSED}
    assert compressed == {n for n, o in orders.items() if len(o.body) >= COMPRESS_FROM and o.mode != BATCHED}
    assert {n for n, message in by_name.items() if inflated(message) != orders[n].body} == set()


def test_empty_bodies_are_stored_and_pulled(pair: Pair) -> None:
    """A message without a body, which official clients do not send, is stored and pulled without a body."""
    pair.broker.create_topic(EMPTY_TOPIC, QUEUES)
    orders = send_empty_bodies(pair.broker, EMPTY_TOPIC)
    stored = pair.broker.stored(EMPTY_TOPIC, QUEUES, EMPTY_BODIES)
    assert [message.body for message in stored] == [b""] * EMPTY_BODIES
    assert [message.properties["n"] for message in stored] == [order.n for order in orders]


def test_the_queues_of_a_leaving_member_move_to_the_other(pair: Pair, measured: list[str]) -> None:
    """After one member has left cleanly, the other member reads all queues."""
    moving = [queue for queue, owner in pair.wait_for_even_split().items() if owner == SECOND]
    begun = time.monotonic()
    pair.members[SECOND].leave()
    moved_s = wait_for_takeover(pair, moving, begun)
    pair.drivers.wait_until(lambda: SECOND in pair.drivers.left, "the member has left")
    measured.append(
        f"{pair.case.name}: queues moved {moved_s:.2f} s after a member started to leave (expected within "
        f"{pair.case.expected_move_s:g} s); its own shutdown took {pair.drivers.left[SECOND] - begun:.2f} s"
    )
    assert len(pair.broker.members(GROUP)) == 1


def test_the_broker_logs_no_error(pair: Pair) -> None:
    """After all tests the broker's log contains neither an error nor a traceback."""
    log = pair.broker.log.read_text(errors="replace")
    assert [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")] == []


def send_empty_bodies(broker: BrokerUnderTest, topic: str) -> list[Order]:
    orders = []
    for i in range(EMPTY_BODIES):
        n = f"empty-{i}"
        order = Order(n=n, mode=SYNC, tags="leer", keys=(f"key-{n}",), properties={"n": n, "ort": "Köln"}, body=b"")
        broker.send(topic, i % QUEUES, {"TAGS": order.tags, "KEYS": order.keys[0], **order.properties})
        orders.append(order)
    return orders


def wait_for_takeover(pair: Pair, moving: list[int], begun: float) -> float:
    """Return the seconds from `begun` until the first member has received a probe from each queue in `moving`."""
    probes: set[str] = set()
    taken: dict[int, float] = {}
    while len(taken) < len(moving):
        assert time.monotonic() < begun + PROCESS_LIMIT_S, f"{taken} of {moving} moved\n{pair.drivers.summary()}"
        # Repeat the probes, because the leaving member may still receive some of them.
        probes |= {pair.probe(queue) for queue in moving if queue not in taken}
        pair.drivers.process_events(PROBE_INTERVAL_S)
        for seen in pair.drivers.deliveries:
            if seen.member == FIRST and seen.message.n in probes:
                taken.setdefault(seen.message.queue, seen.at - begun)
    return max(taken.values())


def duplicates(deliveries: list[Delivery]) -> dict[str, int]:
    return {n: times for n, times in Counter(seen.message.n for seen in deliveries).items() if times > 1}


def differences(order: Order, message: Received) -> dict[str, tuple[object, object]]:
    """Return the differences as (sent, received). Brokers and clients may add properties."""
    pairs: dict[str, tuple[object, object]] = {
        "topic": (TOPIC, message.topic),
        "body": (order.body, message.body),
        "tags": (order.tags, message.tags),
        "keys": (" ".join(order.keys), message.keys),
    }
    pairs |= {name: (value, message.properties.get(name)) for name, value in order.properties.items()}
    return {name: (expected, received) for name, (expected, received) in pairs.items() if expected != received}


def wrong_result(sent: Sent, message: Received, hidden: set[str]) -> str | None:
    """Return the difference between send result and message, or None. Ids of `hidden` messages are not compared."""
    reported: tuple[object, ...] = (sent.status, sent.offset)
    found: tuple[object, ...] = ("SEND_OK", message.offset)
    if sent.queue is not None:
        reported, found = (*reported, sent.queue), (*found, message.queue)
    if sent.id and sent.n not in hidden:
        reported, found = (*reported, sent.id), (*found, message.id)
    return None if reported == found else f"{sent.n}: reported {reported}, found {found}"


def inflated(message: StoredMessage) -> bytes:
    return zlib.decompress(message.body) if message.sys_flag & COMPRESSED else message.body
