"""Only its own host can change a live broker, and the route table has limits."""

import asyncio
import logging
from pathlib import Path

import pytest

from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.namesrv.kv_config import KVConfig
from skylarkmq.broker.namesrv.registration_conflicts import ConflictError, LimitError, RouteLimits
from skylarkmq.broker.namesrv.route_table import HEARTBEAT_TIMEOUT_MS, BrokerAddress, Registration, RouteTable
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.protocol.bodies.topic import DataVersion, TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.errors import RequestError
from tests.harness.raw_peer import RawPeer

T0 = 1_000_000
HOST, OTHER_HOST = "10.0.0.1", "10.6.6.6"
BROKER = BrokerAddress("C", "a", 0, "10.0.0.1:10911")
MOVED = BrokerAddress("C", "a", 0, "10.6.6.6:10911")


def registration(
    broker: BrokerAddress, host: str, *names: str, state: int = 0, queues: int = 4, counter: int = 0
) -> Registration:
    topics = {name: TopicConfig(name, queues, queues) for name in names or ("S1", "S2")}
    return Registration(broker, DataVersion(state, 5, counter), topics, host=host)


@pytest.fixture
def table() -> RouteTable[str]:
    table = RouteTable[str]()
    table.register(registration(BROKER, HOST), "owner", T0)
    return table


def address_of(table: RouteTable[str]) -> dict[int, str]:
    return table.cluster_info().broker_addr_table["a"].broker_addrs


@pytest.mark.parametrize(
    ("other", "state"),
    [
        (MOVED, 1 << 62),
        (MOVED, 0),
        (BrokerAddress("OTHER", "a", 0, "10.6.6.6:10911"), 0),  # with another cluster name
        (BROKER, (1 << 32) + 1),  # the broker's address, and a state version too far ahead
        (BrokerAddress("C", "a", 7, BROKER.address), 0),  # the broker's address with another id
        (BrokerAddress("C", "b", 0, BROKER.address), 0),  # and with another name
    ],
)
def test_another_host_cannot_take_a_live_broker(table: RouteTable[str], other: BrokerAddress, state: int) -> None:
    """Neither its name and id nor its address; route, owner and further registrations are unchanged."""
    with pytest.raises(ConflictError, match="another host") as refused:
        table.register(registration(other, OTHER_HOST, state=state), "other", T0)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert HOST in refused.value.holder
    assert BROKER.address in refused.value.holder
    assert (address_of(table), table.statistics().refused_hosts) == ({0: BROKER.address}, 1)
    assert table.connection_lost("other") == []
    table.register(registration(BROKER, HOST, "S1", "S2", "T", counter=1), "owner", T0)
    assert table.route("T") is not None


def test_the_own_host_can_change_everything(table: RouteTable[str]) -> None:
    """A new address after a restart, any state version, another id, and an earlier state version."""
    table.register(registration(MOVED, HOST, state=1 << 40), "owner", T0)
    assert address_of(table) == {0: MOVED.address}
    table.register(registration(MOVED, HOST, state=5), "owner", T0)
    table.register(registration(BrokerAddress("C", "a", 1, MOVED.address), HOST), "owner", T0)
    assert address_of(table) == {1: MOVED.address}


def test_another_host_can_register_a_broker_that_is_not_live(table: RouteTable[str]) -> None:
    """After the broker has expired, or its connection was lost: a container that restarts with another address."""
    table.expire(T0 + HEARTBEAT_TIMEOUT_MS + 1)
    table.register(registration(MOVED, OTHER_HOST), "new", T0)
    assert address_of(table) == {0: MOVED.address}
    table.connection_lost("new")
    table.register(registration(BROKER, HOST), "owner", T0)
    assert address_of(table) == {0: BROKER.address}


def test_a_small_step_of_the_state_version_is_accepted(table: RouteTable[str]) -> None:
    """The same broker may reach a name server through another network path."""
    table.register(registration(BROKER, OTHER_HOST, state=1 << 32), "owner", T0)
    assert table.statistics().refused_hosts == 0


@pytest.mark.parametrize("gone", [BROKER, BrokerAddress("OTHER", "a", 0, BROKER.address)])
def test_another_host_cannot_unregister_a_live_broker(table: RouteTable[str], gone: BrokerAddress) -> None:
    """UNREGISTER_BROKER (104) has the same rule."""
    with pytest.raises(ConflictError):
        table.unregister_from(OTHER_HOST, gone)
    assert address_of(table) == {0: BROKER.address}
    table.unregister_from(HOST, BROKER)
    assert table.cluster_info().broker_addr_table == {}


def test_limits_refuse_growth_only() -> None:
    """Limits of broker names, addresses per broker, topics and queues; existing entries can register again."""
    table = RouteTable[str](limits=RouteLimits(brokers=1, addresses=2, topics=3, queues=4))
    table.register(registration(BROKER, HOST, "S1", "S2", "T"), "o", T0)
    table.register(registration(BrokerAddress("C", "a", 1, "x:1"), HOST), "o", T0)
    for wrong, setting in (
        (registration(BrokerAddress("C", "b", 0, "y:1"), HOST), "maxRouteBrokers=1"),
        (registration(BrokerAddress("C", "a", 2, "y:1"), HOST), "maxRouteAddresses=2"),
        (registration(BROKER, HOST, "S1", "U", counter=1), "maxRouteTopics=3"),
        (registration(BROKER, HOST, "S1", queues=5, counter=1), "maxRouteQueues=4"),
    ):
        with pytest.raises(LimitError, match=setting) as refused:
            table.register(wrong, "o", T0)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
    assert sorted(table.topics()) == ["S1", "S2", "T"]
    table.limits = RouteLimits(brokers=1, addresses=1, topics=1, queues=1)
    table.register(registration(BROKER, HOST, "S1", "S2", "T", counter=2), "o", T0)
    assert table.statistics().refused_sizes == 4


@pytest.mark.parametrize("wrong", [BrokerAddress("C" * 256, "a", 0, "x:1"), BrokerAddress("C", "a" * 256, 0, "x:1")])
def test_long_names_are_refused(wrong: BrokerAddress) -> None:
    """Of clusters, brokers, addresses and topics."""
    table = RouteTable[str]()
    with pytest.raises(RequestError, match="256 characters"):
        table.register(registration(wrong, HOST), "o", T0)
    with pytest.raises(RequestError, match="300 characters"):
        table.register(registration(BROKER, HOST, "S1", "T" * 300), "o", T0)
    assert table.statistics().brokers == 0


async def test_the_kv_configuration_has_a_limit(tmp_path: Path) -> None:
    """A larger value and a new key are refused; a smaller value and a deletion are not."""
    kv = KVConfig(tmp_path / "kv.json", max_bytes=100)
    await kv.put("n", "k", "v" * 98)
    for key, value in (("k", "v" * 99), ("l", "")):
        with pytest.raises(RequestError, match="maxKVConfigBytes=100") as refused:
            await kv.put("n", key, value)
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
    kv.max_bytes = 10
    await kv.put("n", "k", "v" * 90)
    await kv.delete("n", "k")
    assert kv.statistics().keys == 0


async def test_over_sockets_both_addresses_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A second host on the loopback network cannot change or unregister the broker; one log line per second."""
    config = NamesrvConfig(bind_address="127.0.0.1", kv_config_path=tmp_path / "kv.json")
    now_ms = T0
    server = NameServer(config, RemotingConfig(), lambda: now_ms)
    port = await server.start("127.0.0.1", 0)
    header = {"clusterName": "C", "brokerName": "a", "brokerId": 0, "haServerAddr": ""}
    async with await RawPeer.connect(port) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        other = RawPeer(reader, writer)
        true, false = {**header, "brokerAddr": "127.0.0.1:10911"}, {**header, "brokerAddr": "127.0.0.2:10911"}
        assert (await broker.call(RequestCode.REGISTER_BROKER, true)).code == 0
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert (await other.call(RequestCode.REGISTER_BROKER, false)).code == ResponseCode.SYSTEM_ERROR
                assert (await other.call(RequestCode.UNREGISTER_BROKER, true)).code == ResponseCode.SYSTEM_ERROR
            now_ms += 1_000
            assert (await other.call(RequestCode.REGISTER_BROKER, false)).code == ResponseCode.SYSTEM_ERROR
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 2
        for text in ("address=127.0.0.2:10911", "address=127.0.0.1:10911", "host=127.0.0.1"):
            assert text in lines[0]
        assert "unlogged=5" in lines[1]
        assert server.routes.any_address() == "127.0.0.1:10911"
        await other.close()
    await server.stop()
