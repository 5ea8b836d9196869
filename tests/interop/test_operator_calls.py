"""Operator calls to running consumers of official clients: queries, consumption of one message, and offset resets."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.client_state import ConsumerStatus
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse
from tests.interop.brokers import OK, SEND_MESSAGE, BrokerUnderTest, expect, running_broker, wait_until
from tests.interop.cases import CLIENTS
from tests.interop.drivers import DriverGroup
from tests.interop.matrix import clients_with, covers

TOPIC, QUEUES, MESSAGES = "Operated", 4, 40
CONNECTIONS, RESET, STATUS, RUNNING_INFO, CONSUME = 203, 222, 223, 307, 309
TIMED_OUT = 207
RESPONDING = tuple(clients_with("operator_calls"))
RESETTABLE = tuple(clients_with("reset"))
NOTIFIED = tuple(client for client in RESETTABLE if not client.startswith("ali-ons"))
"""Clients that support the broker's reset request; the others detect a reset at their next pull."""

pytestmark = pytest.mark.interop


def group_of(client: str) -> str:
    return f"operated-{client.replace('.', '-')}"


class RunningGroups:
    """Groups of one member each, whose members have received MESSAGES, and an operator's connection to the broker."""

    def __init__(self, broker: BrokerUnderTest, drivers: DriverGroup, operator: RawClient) -> None:
        self.broker = broker
        self.drivers = drivers
        self._operator = operator

    def call(self, code: int, body: bytes = b"", /, **ext: Any) -> RawResponse:
        return self._operator.call(code, ext, body)

    def client_id(self, client: str) -> str:
        [client_id] = self.broker.members(group_of(client))
        return client_id

    def times_received(self, client: str) -> Counter[str]:
        return Counter(seen.message.n for seen in self.drivers.deliveries if seen.member == client)

    def wait_for_times(self, clients: tuple[str, ...], times: int, seconds: float) -> None:
        """Wait until each client has received each message this many times."""

        def all_there() -> bool:
            received = [self.times_received(client) for client in clients]
            return all(each[str(n)] >= times for each in received for n in range(MESSAGES))

        self.drivers.wait_until(all_there, f"all messages {times} times", seconds)


@contextmanager
def running_groups(kind: str, home: Path, clients: tuple[str, ...], **settings: object) -> Iterator[RunningGroups]:
    for client in clients:
        CLIENTS[client].command(home)  # build the driver, or skip, before any deadline starts
    with (
        running_broker(kind, home, settings) as broker,
        RawClient(LOOPBACK, int(broker.broker_address.rpartition(":")[2]), WAIT_LIMIT_S) as operator,
    ):
        broker.create_topic(TOPIC, QUEUES)
        for n in range(MESSAGES):
            broker.send(TOPIC, n % QUEUES, {"n": str(n), "KEYS": f"k{n}"}, b"%d" % n)
        drivers = DriverGroup(home, broker.log)
        try:
            for client in clients:
                drivers.start(client, CLIENTS[client].command, "consume", broker.namesrv, TOPIC, group_of(client))
            groups = RunningGroups(broker, drivers, operator)
            groups.wait_for_times(clients, 1, PROCESS_LIMIT_S)
            yield groups
        finally:
            drivers.stop()


@covers("operator_calls", *RESPONDING)
def test_operators_query_members_and_have_one_consume_a_message(broker_kind: str, tmp_path: Path) -> None:
    """GET_CONSUMER_CONNECTION_LIST (203), INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), GET_CONSUMER_RUNNING_INFO (307)
    and CONSUME_MESSAGE_DIRECTLY (309) work for each client that supports them. For another client, the broker responds
    with CONSUME_MSG_TIMEOUT (207).
    """
    clients = (*RESPONDING, "cpp-0.4.4")
    with running_groups(broker_kind, tmp_path, clients) as groups:
        origin = {"producerGroup": "raw", "bornTimestamp": 0, "topic": TOPIC, "queueId": 0, "defaultTopic": "TBW102"}
        flags = {"defaultTopicQueueNums": 4, "sysFlag": 0, "flag": 0, "properties": "n\x01late\x02"}
        offset_id = groups.call(SEND_MESSAGE, b"late", **origin, **flags).ext["msgId"]
        groups.drivers.wait_until(
            lambda: all(groups.times_received(client)["late"] for client in clients), "late message received"
        )
        for client in RESPONDING:
            check_member(groups, client)
            member: dict[str, Any] = {"consumerGroup": group_of(client), "clientId": groups.client_id(client)}
            result = groups.call(CONSUME, **member, msgId=offset_id, topic=TOPIC)
            expect(OK, result)
            assert javajson.loads(result.body)["consumeResult"] in ("CR_SUCCESS", 0)
        groups.drivers.wait_until(
            lambda: all(groups.times_received(client)["late"] == 2 for client in RESPONDING),
            "late message consumed again",
        )
        member = {"consumerGroup": group_of("cpp-0.4.4"), "clientId": groups.client_id("cpp-0.4.4")}
        status = groups.call(STATUS, topic=TOPIC, group=group_of("cpp-0.4.4"), clientAddr="")
        expect(OK, status)
        assert ConsumerStatus.decode(status.body).consumer_table == {}
        timed_out = groups.call(CONSUME, **member, msgId=offset_id, topic=TOPIC)
        assert (timed_out.code, (timed_out.remark or "").startswith("consumer <operated-cpp")) == (TIMED_OUT, True)


def check_member(groups: RunningGroups, client: str) -> None:
    """Compare the information from the broker and from the member itself with the member's state."""
    group, client_id = group_of(client), groups.client_id(client)
    connections = json.loads(groups.call(CONNECTIONS, consumerGroup=group).body)
    assert [each["clientId"] for each in connections["connectionSet"]] == [client_id]
    assert TOPIC in connections["subscriptionTable"]
    info = groups.call(RUNNING_INFO, consumerGroup=group, clientId=client_id, jstackEnable=False)
    expect(OK, info)
    table = javajson.loads(info.body)
    assert {dict(queue)["topic"] for queue in table["mqTable"]} >= {TOPIC}
    assert "PROP_CONSUMER_START_TIMESTAMP" in table["properties"]
    status = groups.call(STATUS, topic=TOPIC, group=group, clientAddr="")
    expect(OK, status)
    offsets = ConsumerStatus.decode(status.body).consumer_table[client_id]
    assert {queue.queue_id for queue in offsets} == set(range(QUEUES))


@pytest.mark.parametrize(
    ("by_broker", "clients"),
    [
        pytest.param(True, RESETTABLE, id="by-the-broker", marks=covers("reset", *RESETTABLE)),
        pytest.param(False, NOTIFIED, id="by-the-clients", marks=covers("reset", *NOTIFIED)),
    ],
)
def test_offsets_of_running_groups_are_reset_to_the_beginning(
    broker_kind: str, tmp_path: Path, by_broker: bool, clients: tuple[str, ...]
) -> None:
    """INVOKE_BROKER_TO_RESET_OFFSET (222) on a running group redelivers every message once.

    The broker resets the offsets itself, or requests it from the members (RESET_CONSUMER_CLIENT_OFFSET, 220).
    """
    settings = {"useServerSideResetOffset": "true" if by_broker else "false"}
    with running_groups(broker_kind, tmp_path, clients, **settings) as groups:
        for client in clients:
            wait_until(partial(is_reset, groups, client), f"offsets of {client} committed")
        groups.wait_for_times(clients, 2, PROCESS_LIMIT_S)


def is_reset(groups: RunningGroups, client: str) -> bool:
    """Request a reset of the offsets of a client's group; return False until the group has committed offsets."""
    return groups.call(RESET, group=group_of(client), topic=TOPIC, timestamp=0, isForce=True).code == OK
