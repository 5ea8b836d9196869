"""Connected members of consumer and producer groups."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.protocol.bodies.connections import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerTable,
)
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.headers.consumer import ConsumerGroupHeader
from skylarkmq.protocol.headers.stats import ProducerGroupHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, consumer, heartbeat

A_DAY_MS = 24 * 3600 * 1000


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path, clocks_apart_ms=A_DAY_MS) as it:
        yield it


def members(code: int, group: str) -> RemotingCommand:
    is_consumers = code == RequestCode.GET_CONSUMER_CONNECTION_LIST
    header = ConsumerGroupHeader(group) if is_consumers else ProducerGroupHeader(group)
    return RemotingCommand.request(code, header)


async def test_consumer_connections_have_members_and_subscriptions(parts: BrokerParts) -> None:
    """Each member has address, client id, language and version; the group has its mode and subscriptions."""
    for port, client_id in ((1, "c1"), (2, "c2")):
        parts.peer(port).send(heartbeat(consumer(subscribe(TOPIC, "a || b", 7)), client_id=client_id))
    response = await parts.peer(3).call_and_wait(members(RequestCode.GET_CONSUMER_CONNECTION_LIST, GROUP))
    body = ConsumerConnection.decode(response.body)
    assert body.connection_set == [
        ClientConnection("c1", "127.0.0.9:1", "PYTHON", 479),
        ClientConnection("c2", "127.0.0.9:2", "PYTHON", 479),
    ]
    assert {topic: data.sub_string for topic, data in body.subscription_table.items()} == {TOPIC: "a || b"}
    assert (body.consume_type, body.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")


async def test_a_group_without_members_is_an_error(parts: BrokerParts) -> None:
    """CONSUMER_NOT_ONLINE (206) for consumers, SYSTEM_ERROR (1) for producers, each with RocketMQ's remark."""
    peer = parts.peer()
    consumers = peer.call(members(RequestCode.GET_CONSUMER_CONNECTION_LIST, "none"))
    assert (consumers.code, consumers.remark) == (206, "the consumer group[none] not online")
    producers = peer.call(members(RequestCode.GET_PRODUCER_CONNECTION_LIST, "none"))
    assert (producers.code, producers.remark) == (1, "the producer group[none] not exist")


async def test_producers_are_listed_by_group_and_all_together(parts: BrokerParts) -> None:
    """GET_PRODUCER_CONNECTION_LIST (204) lists one group, GET_ALL_PRODUCER_INFO (328) all, with the last heartbeat's
    Unix time."""
    parts.peer(1).send(heartbeat(client_id="p1", producers=("PG", "other")))
    peer = parts.peer(2)
    response = await peer.call_and_wait(members(RequestCode.GET_PRODUCER_CONNECTION_LIST, "PG"))
    assert ProducerConnection.decode(response.body).connection_set == [
        ClientConnection("p1", "127.0.0.9:1", "PYTHON", 479)
    ]
    all_producers = await peer.call_and_wait(RemotingCommand.request(RequestCode.GET_ALL_PRODUCER_INFO))
    table = ProducerTable.decode(all_producers.body).data
    assert set(table) == {"PG", "other"}
    [info] = table["PG"]
    assert (info.client_id, info.remote_ip) == ("p1", "/127.0.0.9:1")
    assert info.last_update_timestamp == parts.clock.now_ms + A_DAY_MS
