"""Invalid routes are rejected before use."""

import time

import pytest

from skylarkmq import Client, ClientSettings, InvalidResponse, Message, Producer
from skylarkmq.clients.sdk.connection.topic_route import TopicRoute, is_address
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.cluster import running_cluster
from tests.harness.limits import WAIT_LIMIT_S

MOST = 2**31 - 1
LONG_S = 30  # CPU time; a list of MOST queues takes minutes
BROKERS = [BrokerData("c", "a", {0: "127.0.0.1:10911"})]


def route(read: int, write: int, brokers: list[BrokerData] = BROKERS) -> TopicRouteData:
    return TopicRouteData(queue_datas=[QueueData("a", read, write, 6)], broker_datas=brokers)


@pytest.mark.parametrize(("read", "write"), [(MOST, 1), (1, MOST), (11, 1), (-1, 1), (1, -MOST)])
def test_a_route_above_the_limit_of_queues_is_an_error(read: int, write: int) -> None:
    """The error names topic, number and limit. No list of queues is built first."""
    begun_s = time.process_time()
    with pytest.raises(InvalidResponse, match=r"topic T .*queues") as caught:
        TopicRoute.of("T", route(read, write), max_queues=10)
    assert str(max(read, write) if min(read, write) > 0 else min(read, write)) in str(caught.value)
    assert time.process_time() - begun_s < LONG_S


def test_a_route_at_the_limit_is_used() -> None:
    """The limit itself is allowed."""
    assert len(TopicRoute.of("T", route(10, 10), max_queues=10).publish_queues) == 10


@pytest.mark.parametrize("address", ["", "host", ":1", "host:", "host:0", "host:65536", "ho st:1", "h\x1b:1", "h:１"])
def test_an_invalid_address_is_an_error(address: str) -> None:
    """The error names broker and address."""
    assert not is_address(address)
    with pytest.raises(InvalidResponse, match=r"broker a .*not host:port"):
        TopicRoute.of("T", route(1, 1, [BrokerData("c", "a", {0: address})]))


@pytest.mark.parametrize("broker", [BrokerData("c", "a", {-1: "h:1"}), BrokerData("c", "", {0: "h:1"})])
def test_an_invalid_broker_is_an_error(broker: BrokerData) -> None:
    """Negative ids and empty names are refused."""
    with pytest.raises(InvalidResponse):
        TopicRoute.of("T", route(1, 1, [broker]))


async def test_a_send_to_a_topic_of_two_billion_queues_ends_in_time() -> None:
    """The producer raises at once, and still sends to topics with usual numbers of queues."""
    async with running_cluster() as cluster:
        served = cluster.name_server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
        name, address = cluster.broker.name, cluster.broker.address

        def hostile(*args: object) -> RemotingCommand:
            data = TopicRouteData(
                queue_datas=[QueueData(name, MOST, MOST, 6)], broker_datas=[BrokerData("c", name, {0: address})]
            )
            return RemotingCommand.response(body=data.encode())

        settings = ClientSettings(max_route_queues=1000)
        async with Client(cluster.namesrv, settings) as client, Producer("p", client=client) as producer:
            cluster.name_server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, hostile)
            begun_s = time.process_time()
            with pytest.raises(InvalidResponse, match="max_route_queues=1000"):
                await producer.send(Message("T", b"x"), timeout_s=WAIT_LIMIT_S)
            assert time.process_time() - begun_s < LONG_S
            cluster.name_server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, served)
            assert (await producer.send(Message("T", b"x"), timeout_s=WAIT_LIMIT_S)).queue.topic == "T"
