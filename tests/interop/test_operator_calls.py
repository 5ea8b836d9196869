"""What an operator does to running consumers of official clients: ask them, have them consume, move them elsewhere."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.client_state import ConsumerStatus
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse
from tests.interop.brokers import OK, SEND_MESSAGE, BrokerUnderTest, expect, running_broker, until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import Stage
from tests.interop.matrix import clients_with, covers

TOPIC, QUEUES, MESSAGES = "Operated", 4, 40
SUBSCRIBED_DEADLINE_S = 45.0
MOVED_DEADLINE_S = 90.0  # clients drop a queue for 10 s, and may wait 20 s for their next look at who has it
CALL_DEADLINE_S = 20.0
CONNECTIONS, RESET, STATUS, RUNNING_INFO, CONSUME = 203, 222, 223, 307, 309
TIMED_OUT = 207
ANSWERING = tuple(clients_with("asked"))
RESETTABLE = tuple(clients_with("reset"))
LISTENING = tuple(client for client in RESETTABLE if not client.startswith("ali-ons"))
"""Those that hear of a reset by a call of the broker; the others only by their next pull."""

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def group_of(client: str) -> str:
    return f"operated-{client.replace('.', '-')}"


class Operated:
    """Members, each in a group of its own, that have read MESSAGES, and an operator who calls the broker."""

    def __init__(self, broker: BrokerUnderTest, stage: Stage, operator: RawClient) -> None:
        self.broker = broker
        self.stage = stage
        self._operator = operator

    def call(self, code: int, body: bytes = b"", /, **ext: Any) -> RawResponse:
        return self._operator.call(code, ext, body)

    def client_id(self, client: str) -> str:
        [client_id] = self.broker.members(group_of(client))
        return client_id

    def times_received(self, client: str) -> Counter[str]:
        return Counter(seen.message.n for seen in self.stage.deliveries if seen.member == client)

    def wait_for_times(self, clients: tuple[str, ...], times: int, seconds: float) -> None:
        """Until each client has each message so many times."""

        def all_there() -> bool:
            received = [self.times_received(client) for client in clients]
            return all(each[str(n)] >= times for each in received for n in range(MESSAGES))

        self.stage.wait_until(all_there, f"all messages {times} times", seconds)


@contextmanager
def operated(kind: str, home: Path, clients: tuple[str, ...], **settings: object) -> Iterator[Operated]:
    for client in clients:
        CLIENTS[client].command(home)  # built, or skipped, before the clock runs
    with (
        running_broker(kind, home, settings) as broker,
        RawClient(LOOPBACK, int(broker.broker_address.rpartition(":")[2]), CALL_DEADLINE_S) as operator,
    ):
        broker.create_topic(TOPIC, QUEUES)
        for n in range(MESSAGES):
            broker.send(TOPIC, n % QUEUES, {"n": str(n), "KEYS": f"k{n}"}, b"%d" % n)
        stage = Stage(home, broker.log)
        try:
            for client in clients:
                stage.start(client, CLIENTS[client].command, "consume", broker.namesrv, TOPIC, group_of(client))
            it = Operated(broker, stage, operator)
            it.wait_for_times(clients, 1, SUBSCRIBED_DEADLINE_S)
            yield it
        finally:
            stage.stop()


@covers("asked", *ANSWERING)
def test_members_are_asked_and_consume_by_order(broker_kind: str, tmp_path: Path) -> None:
    """203, 223, 307 and 309 of each client that knows them; of one that does not, after its time is up, 207."""
    clients = (*ANSWERING, "cpp-0.4.4")
    with operated(broker_kind, tmp_path, clients) as it:
        origin = {"producerGroup": "raw", "bornTimestamp": 0, "topic": TOPIC, "queueId": 0, "defaultTopic": "TBW102"}
        flags = {"defaultTopicQueueNums": 4, "sysFlag": 0, "flag": 0, "properties": "n\x01late\x02"}
        place = it.call(SEND_MESSAGE, b"late", **origin, **flags).ext["msgId"]
        it.stage.wait_until(lambda: all(it.times_received(client)["late"] for client in clients), "late one received")
        for client in ANSWERING:
            look_at_member(it, client)
            who: dict[str, Any] = {"consumerGroup": group_of(client), "clientId": it.client_id(client)}
            result = it.call(CONSUME, **who, msgId=place, topic=TOPIC)
            expect(OK, result)
            assert javajson.loads(result.body)["consumeResult"] in ("CR_SUCCESS", 0)
        it.stage.wait_until(lambda: all(it.times_received(client)["late"] == 2 for client in ANSWERING), "once more")
        who = {"consumerGroup": group_of("cpp-0.4.4"), "clientId": it.client_id("cpp-0.4.4")}
        status = it.call(STATUS, topic=TOPIC, group=group_of("cpp-0.4.4"), clientAddr="")
        expect(OK, status)
        assert ConsumerStatus.decode(status.body).consumer_table == {}
        silent = it.call(CONSUME, **who, msgId=place, topic=TOPIC)
        assert (silent.code, (silent.remark or "").startswith("consumer <operated-cpp")) == (TIMED_OUT, True)


def look_at_member(it: Operated, client: str) -> None:
    """What the broker and the member say of the member."""
    group, client_id = group_of(client), it.client_id(client)
    connections = json.loads(it.call(CONNECTIONS, consumerGroup=group).body)
    assert [each["clientId"] for each in connections["connectionSet"]] == [client_id]
    assert TOPIC in connections["subscriptionTable"]
    info = it.call(RUNNING_INFO, consumerGroup=group, clientId=client_id, jstackEnable=False)
    expect(OK, info)
    table = javajson.loads(info.body)
    assert {dict(queue)["topic"] for queue in table["mqTable"]} >= {TOPIC}
    assert "PROP_CONSUMER_START_TIMESTAMP" in table["properties"]
    status = it.call(STATUS, topic=TOPIC, group=group, clientAddr="")
    expect(OK, status)
    offsets = ConsumerStatus.decode(status.body).consumer_table[client_id]
    assert {queue.queue_id for queue in offsets} == set(range(QUEUES))


@pytest.mark.parametrize(
    ("by_broker", "clients"),
    [
        pytest.param(True, RESETTABLE, id="by-the-broker", marks=covers("reset", *RESETTABLE)),
        pytest.param(False, LISTENING, id="by-the-clients", marks=covers("reset", *LISTENING)),
    ],
)
def test_running_groups_go_back_to_the_beginning(
    broker_kind: str, tmp_path: Path, by_broker: bool, clients: tuple[str, ...]
) -> None:
    """222 while they run, by the broker itself (21) or by telling them (220): each gets every message once more."""
    settings = {"useServerSideResetOffset": "true" if by_broker else "false"}
    with operated(broker_kind, tmp_path, clients, **settings) as it:
        for client in clients:
            ask = {"group": group_of(client), "topic": TOPIC, "timestamp": 0, "isForce": True}
            until(lambda ask=ask: it.call(RESET, **ask).code == OK, f"offsets of {client} committed")  # type: ignore[misc]
        it.wait_for_times(clients, 2, MOVED_DEADLINE_S)
