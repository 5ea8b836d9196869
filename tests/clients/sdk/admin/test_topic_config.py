"""The section `Admin.topic_config`, against this broker and against brokers of RocketMQ 4.9."""

from collections.abc import AsyncIterator, Iterator

import pytest

from skylarkmq import Admin, BrokerError, InvalidResponse, Message, NoRoute, Producer
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.protocol.bodies.enums import TopicFilterType
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.peer import Peer

FIFO = {"message.type": "FIFO"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
async def admin(broker: InProcessBroker) -> AsyncIterator[Admin]:
    async with Admin(namesrv=broker.namesrv) as admin:
        yield admin


async def test_every_field_of_a_topic_is_set(broker: InProcessBroker, admin: Admin) -> None:
    """Attributes are changes: names without a sign set one, those with a minus remove one."""
    config = TopicConfig("Full", 3, 2, 4, TopicFilterType.MULTI_TAG, 1, True, FIFO)
    await admin.topic_config.put(broker.address, config)
    assert await admin.topic_config.get(broker.address, "Full") == config
    await admin.topic_config.put(broker.address, TopicConfig("Full", attributes={"-message.type": ""}))
    assert await admin.topic_config.get(broker.address, "Full") == TopicConfig("Full")


async def test_several_topics_are_set(broker: InProcessBroker, admin: Admin) -> None:
    """All of them, or none if one is invalid."""
    await admin.topic_config.put_all(broker.address, [TopicConfig("L1", 1, 1), TopicConfig("L2", 2, 2)])
    assert (await admin.topic_config.get(broker.address, "L2")).read_queue_nums == 2
    with pytest.raises(BrokerError):
        await admin.topic_config.put_all(broker.address, [TopicConfig("L3"), TopicConfig("not valid!")])
    assert "L3" not in await admin.topic_config.names()


async def test_an_unknown_topic_is_an_error(broker: InProcessBroker, admin: Admin) -> None:
    """TOPIC_NOT_EXIST (17) of the broker, NoRoute of the name servers."""
    with pytest.raises(BrokerError) as error:
        await admin.topic_config.get(broker.address, "Unknown")
    assert error.value.code == ResponseCode.TOPIC_NOT_EXIST
    for call in (admin.topic_config.route, admin.topic_config.groups, admin.topic_config.statistics):
        with pytest.raises(NoRoute, match="Unknown"):
            await call("Unknown")


async def test_a_topic_is_shown(broker: InProcessBroker, admin: Admin) -> None:
    """Its route, clusters, groups, offsets and rate."""
    await admin.topic_config.put(broker.address, TopicConfig("Shown", 2, 2))
    async with Producer("p", namesrv=broker.namesrv) as producer:
        await producer.send(Message("Shown", b"1"))
    route = await admin.topic_config.route("Shown")
    assert route.queue_datas == [QueueData("broker-a", 2, 2, 6)]
    assert await admin.topic_config.clusters("Shown") == ["DefaultCluster"]
    assert await admin.topic_config.groups("Shown") == []
    stats = await admin.topic_config.statistics("Shown")
    assert sum(row.max_offset for row in stats.offset_table.values()) == 1
    assert await admin.topic_config.statistics("Shown", route_of="DefaultCluster") == stats


async def test_a_topic_is_deleted(broker: InProcessBroker, admin: Admin) -> None:
    """On brokers and on name servers; an unknown cluster deletes nothing."""
    await admin.topic_config.put(broker.address, TopicConfig("Gone"))
    with pytest.raises(NoRoute, match="Nowhere"):
        await admin.topic_config.delete_on_brokers("Gone", "Nowhere")
    await admin.topic_config.delete_on_brokers("Gone", "DefaultCluster", with_slaves=True)
    await admin.topic_config.delete_on_name_servers("Gone", "DefaultCluster")
    assert "Gone" not in await admin.topic_config.names()


@pytest.fixture
async def old_broker() -> AsyncIterator[Peer]:
    """Yield a broker that does not serve the requests of RocketMQ 5, and has topic T."""
    peer = Peer()
    await peer.listen()
    table = TopicConfigSerializeWrapper(topic_config_table={"T": TopicConfig("T", 4, 4)})
    peer.on(RequestCode.GET_ALL_TOPIC_CONFIG, lambda *_: RemotingCommand.response(body=table.encode()))
    yield peer
    await peer.stop()


async def test_a_topic_of_an_old_broker_is_found_in_its_table(old_broker: Peer) -> None:
    """Because it does not serve GET_TOPIC_CONFIG (351). An unknown topic is the same error as on a new broker."""
    async with Admin(namesrv=old_broker.address) as admin:
        assert (await admin.topic_config.get(old_broker.address, "T")).read_queue_nums == 4
        with pytest.raises(BrokerError) as error:
            await admin.topic_config.get(old_broker.address, "Unknown")
    assert error.value.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize("call", ["get", "put_all"])
async def test_other_refusals_are_errors(old_broker: Peer, call: str) -> None:
    """There is no second attempt with the requests of old brokers."""
    refusal = RemotingCommand.response(ResponseCode.NO_PERMISSION, "not you")
    for code in (RequestCode.GET_TOPIC_CONFIG, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST):
        old_broker.on(code, lambda *_: refusal)
    async with Admin(namesrv=old_broker.address) as admin:
        arguments = ("T",) if call == "get" else ([TopicConfig("T")],)
        with pytest.raises(BrokerError, match="not you"):
            await getattr(admin.topic_config, call)(old_broker.address, *arguments)


async def test_an_invalid_route_is_an_error(old_broker: Peer) -> None:
    """Routes come from brokers, through a name server that does not check them."""
    for route in (
        TopicRouteData(queue_datas=[QueueData("b", -1, 1, 6)]),
        TopicRouteData(queue_datas=[QueueData("b", 10**9, 1, 6)], broker_datas=[BrokerData("c", "b", {0: "h:1"})]),
        TopicRouteData(broker_datas=[BrokerData("c", "b", {0: "no port"})]),
    ):
        body = route.encode()
        old_broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_, body=body: RemotingCommand.response(body=body))
        async with Admin(namesrv=old_broker.address) as admin:
            with pytest.raises(InvalidResponse):
                await admin.topic_config.route("T")
