"""Routes and name servers."""

import asyncio
import gc
import weakref

import pytest

from skylarkmq.clients.sdk.base.errors import BrokerError, ConnectFailed, NoRoute
from skylarkmq.clients.sdk.base.settings import ClientSettings
from skylarkmq.clients.sdk.connection.connection_pool import Connections
from skylarkmq.clients.sdk.connection.routes import NameServers, Routes
from skylarkmq.clients.sdk.connection.topic_route import TopicRoute
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import RequestCode
from tests.clients.cluster import running_cluster
from tests.clients.peer import Peer, refuse

SETTINGS = ClientSettings(backoff_min_s=0.001)


def routes(addresses: str) -> Routes:
    return Routes(NameServers(addresses, Connections(SETTINGS, {}), 5.0))


def test_queues_follow_permissions_and_masters() -> None:
    """Writable queues need permission and a master, readable ones permission. The order is broker name, then number."""
    data = TopicRouteData(
        queue_datas=[
            QueueData("c", 1, 2, 6),
            QueueData("b", 1, 1, 2),
            QueueData("a", 2, 1, 4),
            QueueData("gone", 1, 1, 6),
        ],
        broker_datas=[
            BrokerData("x", "a", {0: "h:1"}),
            BrokerData("x", "b", {0: "h:2"}),
            BrokerData("x", "c", {1: "h:3"}),
        ],
    )
    route = TopicRoute.of("T", data)
    assert route.publish_queues == (MessageQueue("T", "b", 0),)
    assert route.subscribe_queues == tuple(MessageQueue("T", name, n) for name, n in (("a", 0), ("a", 1), ("c", 0)))
    assert (route.address("a"), route.address("a", 1), route.address("c")) == ("h:1", "h:1", "h:3")
    with pytest.raises(NoRoute, match="the route has no address of broker gone"):
        route.address("gone")


@pytest.mark.parametrize("addresses", ["", ";", "localhost", "a:1;b"])
def test_bad_name_server_lists_are_refused(addresses: str) -> None:
    """When they are made, with the expected form."""
    with pytest.raises(ValueError, match="host:port"):
        NameServers(addresses, Connections(SETTINGS, {}), 1.0)


async def test_the_next_name_server_replaces_a_dead_one() -> None:
    """Later requests go to it first."""
    dead = Peer()
    await dead.listen()
    await dead.stop()
    async with running_cluster() as cluster:
        known = routes(f"{dead.address} ; {cluster.namesrv}")
        assert len((await known.find("T")).publish_queues) == 2
        assert repr(known.name_servers) == f"<NameServers {cluster.namesrv} of 2>"


async def test_an_error_names_the_unreachable_address() -> None:
    """It is the last transport error."""
    dead = Peer()
    await dead.listen()
    await dead.stop()
    with pytest.raises(ConnectFailed, match=dead.address):
        await routes(dead.address).find("T")


async def test_concurrent_calls_share_one_request() -> None:
    """A thousand sends to a new topic make one request to the name server."""
    async with running_cluster() as cluster:
        known = routes(cluster.namesrv)
        found = await asyncio.gather(*(known.find("T") for _ in range(1000)))
        assert all(route is found[0] for route in found)
        assert len(cluster.name_server.requests_of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1


async def test_an_unknown_topic_gets_the_template_route() -> None:
    """With the name of the topic and the number of queues in the settings; without a template it is an error."""
    async with running_cluster(brokers=2) as cluster:
        known = routes(cluster.namesrv)
        with pytest.raises(NoRoute, match="has topic New"):
            await known.find_or_template("New", "TBW102", 4)
        cluster.topics["TBW102"] = 8
        route = await known.find_or_template("New", "TBW102", 4)
        assert [str(queue) for queue in route.publish_queues] == [
            f"New@broker-{name}:{n}" for name in "ab" for n in range(4)
        ]


async def test_an_unknown_topic_leaves_no_reference_cycle() -> None:
    """Reference counts free the error: a list of many unknown topics makes no work for the garbage collector."""
    async with running_cluster() as cluster:
        known = routes(cluster.namesrv)
        gc.disable()
        try:
            with pytest.raises(NoRoute) as raised:
                await known.find("New")
            error = weakref.ref(raised.value)
            del raised
            await asyncio.sleep(0)
            assert error() is None
        finally:
            gc.enable()


async def test_a_refresh_updates_routes_and_keeps_those_that_fail() -> None:
    """A topic without a route keeps the old one."""
    async with running_cluster() as cluster:
        cluster.topics["U"] = 1
        known = routes(cluster.namesrv)
        await asyncio.gather(known.find("T"), known.find("U"))
        cluster.topics = {"T": 5}
        await known.refresh()
        assert [len(known.known(topic).publish_queues) for topic in "TU"] == [5, 1]  # type: ignore[union-attr]  # there is a route
        await cluster.name_server.stop()
        await known.refresh()
        assert len((await known.find("T")).publish_queues) == 5
        await cluster.name_server.listen(cluster.namesrv)


async def test_a_refusal_is_not_repeated_at_another_name_server() -> None:
    """A response with an error code is final."""
    async with running_cluster() as cluster:
        cluster.name_server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, refuse(1, "broken"))
        with pytest.raises(BrokerError, match=r"SYSTEM_ERROR \(1\): broken"):
            await routes(f"{cluster.namesrv};{cluster.namesrv}").find("T")
        assert len(cluster.name_server.requests) == 1
