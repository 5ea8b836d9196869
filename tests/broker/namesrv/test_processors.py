"""The requests of a name server, end to end: raw frames over loopback to a name server with a simulated clock."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.namesrv.config import NamesrvConfig
from skylarkmq.broker.namesrv.server import NameServer
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.topic import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import RequestCode
from tests.harness.golden import GoldenFrame, responses, transcripts
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer, Received

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
BROKER = {"brokerName": "a", "brokerAddr": "127.0.0.1:10911", "clusterName": "C", "brokerId": 0}
REGISTRATION = {**BROKER, "haServerAddr": "127.0.0.1:10912"}
SLAVE = {**REGISTRATION, "brokerAddr": "127.0.0.2:10911", "brokerId": 1}


class RunningNameServer:
    """A name server, its port, and its clock."""

    def __init__(self, config: NamesrvConfig) -> None:
        self.now_ms = 1_000_000
        self.server = NameServer(config, RemotingConfig(), lambda: self.now_ms)
        self.port = 0

    async def peer(self) -> RawPeer:
        return await RawPeer.connect(self.port)


@pytest.fixture
def config(tmp_path: Path, request: pytest.FixtureRequest) -> NamesrvConfig:
    base = NamesrvConfig(bind_address="127.0.0.1", kv_config_path=tmp_path / "kvConfig.json")
    return msgspec.structs.replace(base, **getattr(request, "param", {}))


@pytest.fixture
async def namesrv(config: NamesrvConfig) -> AsyncIterator[RunningNameServer]:
    running = RunningNameServer(config)
    running.port = await running.server.start("127.0.0.1", 0)
    yield running
    await running.server.stop()


async def test_a_name_server_is_ready_while_it_listens(config: NamesrvConfig) -> None:
    """Its health check reports a problem before `start` and after `stop`."""
    server = NameServer(config, RemotingConfig())
    (is_listening,) = server.checks().values()
    assert is_listening() == "the port is not open"
    await server.start("127.0.0.1", 0)
    assert is_listening() is None
    await server.stop()
    assert is_listening() == "the port is not open"


@pytest.fixture
async def peer(namesrv: RunningNameServer) -> AsyncIterator[RawPeer]:
    async with await namesrv.peer() as peer:
        yield peer


def body(*names: str, counter: int = 0, perm: int = 6) -> bytes:
    """Return a registration of topics with four queues."""
    table = {name: TopicConfig(name, 4, 4, perm) for name in names}
    return RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(0, 5, counter), table)).encode()


async def register(peer: RawPeer, *names: str, ext: Mapping[str, object] = REGISTRATION, counter: int = 0) -> Received:
    return await peer.call(RequestCode.REGISTER_BROKER, ext, body(*names, counter=counter))


async def route(peer: RawPeer, topic: str, **header: Any) -> Received:
    return await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, **header)


async def topics(peer: RawPeer) -> list[str]:
    response = await peer.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    listed: list[str] = json.loads(response.body)["topicList"]
    return listed


# ------------------------------------------------------------------------------------------------- golden registrations


def registration_frames(kind: str) -> list[GoldenFrame]:
    found = [f for f in transcripts() if f.scenario.startswith("a broker registers") and f.name.endswith(kind)]
    assert found
    return found


def without_opaque(response: Received) -> dict[str, Any]:
    """Return the header of a response with the language and version of 4.9.8."""
    return {**response.header, "language": "JAVA", "version": 409}


async def test_a_broker_of_4_9_8_registers_and_unregisters(peer: RawPeer) -> None:
    """Its captured frames are accepted, and the responses equal those of 4.9.8."""
    requests = registration_frames("request")
    expected = iter(registration_frames("response"))
    for captured in requests:
        peer.send(captured.raw)
        response = await peer.receive()
        assert without_opaque(response) == next(expected).header
        if captured.name.startswith("03"):
            assert "WireTopic" in await topics(peer)
            assert len(await topics(peer)) == 9
    assert await topics(peer) == []


async def test_a_oneway_registration_gets_no_response(peer: RawPeer) -> None:
    """4.9 brokers register auto-created topics by oneway requests."""
    peer.send(registration_frames("request")[0].raw)
    await peer.receive()
    peer.send(registration_frames("oneway")[0].raw)
    assert "WireAutoTopic" in await topics(peer)  # also checks that the next frame is the response to this request


async def test_routes_equal_those_of_4_9_8(peer: RawPeer) -> None:
    """For the same broker and topic all three forms of the route have 4.9.8's bytes, except for
    `enableActingMaster`."""
    ext = {**REGISTRATION, "brokerName": "brokerA", "clusterName": "DefaultCluster", "brokerAddr": "127.0.0.1:30911"}
    table = {"PyTopic": TopicConfig("PyTopic", 4, 4, 6), "TBW102": TopicConfig("TBW102", 8, 8, 7)}
    encoded = RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(), table)).encode()
    await peer.call(RequestCode.REGISTER_BROKER, ext, encoded)
    forms: dict[str, tuple[str, dict[str, object], dict[str, Any]]] = {
        "route std-json ver479": ("PyTopic", {}, {"version": 479}),
        "route old ver317 (Go)": ("PyTopic", {}, {"version": 317}),
        "route acceptStandardJsonOnly": ("PyTopic", {"acceptStandardJsonOnly": True}, {"version": 317}),
        "route TBW102": ("TBW102", {}, {"version": 479}),
    }
    for name, (topic, more, header) in forms.items():
        response = await peer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, **more}, **header)
        assert response.body.decode().replace(',"enableActingMaster":false', "") == responses()[name]["body"], name
        assert response.header.keys() == json.loads(responses()[name]["rawHeader"]).keys()
    info = await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert info.body.decode().replace(',"enableActingMaster":false', "") == responses()["cluster info"]["body"]


# -------------------------------------------------------------------------------------------------------------- brokers


async def test_the_response_to_a_registration_has_empty_ext_fields_and_no_body(peer: RawPeer) -> None:
    """As in RocketMQ, for a master without ordered topics."""
    response = await register(peer, "T", "U")
    assert (response.code, response.remark, response.header["extFields"], response.body) == (0, None, {}, b"")


async def test_a_slave_gets_the_address_of_its_master(peer: RawPeer) -> None:
    """It needs the master's address, and the address for replication."""
    await register(peer, "T", "U")
    response = await register(peer, "T", "U", ext=SLAVE)
    assert response.ext == {"haServerAddr": "127.0.0.1:10912", "masterAddr": "127.0.0.1:10911"}


async def test_a_first_registration_with_one_topic_is_refused(peer: RawPeer, caplog: pytest.LogCaptureFixture) -> None:
    """The remark is RocketMQ's; the log names the broker and the reason."""
    response = await register(peer, "T")
    assert (response.code, response.remark) == (1, "register broker failed")
    assert "broker refused broker=a id=0 cluster=C address=127.0.0.1:10911" in caplog.text
    assert await topics(peer) == []


async def test_a_registration_without_a_body_has_no_topics(peer: RawPeer) -> None:
    """Only the broker's address is registered."""
    response = await peer.call(RequestCode.REGISTER_BROKER, REGISTRATION)
    assert response.code == 0
    info = ClusterInfo.decode((await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info.broker_addr_table["a"].broker_addrs == {0: "127.0.0.1:10911"}


async def test_a_compressed_registration_is_decoded(peer: RawPeer) -> None:
    """Brokers before and after 5.0 write different trailers."""
    table = {name: TopicConfig(name, 3, 2, 6) for name in ("T", "U")}
    for counter, version in enumerate((409, 479)):
        table["V"] = TopicConfig("V", version, version)
        encoded = RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(counter=counter), table))
        response = await peer.call(
            RequestCode.REGISTER_BROKER,
            {**REGISTRATION, "compressed": True},
            encoded.encode_compressed(version),
            version=version,
        )
        assert response.code == 0
        queues = json.loads((await route(peer, "V")).body)["queueDatas"]
        assert queues[0]["readQueueNums"] == version


async def test_an_old_broker_sends_only_its_topic_table(peer: RawPeer) -> None:
    """Before version ordinal 37 the body is the topic table alone."""
    wrapper = TopicConfigSerializeWrapper(topic_config_table={"T": TopicConfig("T"), "U": TopicConfig("U")})
    await peer.call(RequestCode.REGISTER_BROKER, REGISTRATION, wrapper.encode(), version=36)
    assert await topics(peer) == ["T", "U"]


@pytest.mark.parametrize(("crc", "code"), [("right", 0), ("none", 0), ("wrong", 1)])
async def test_the_crc_of_a_registration_is_checked(peer: RawPeer, crc: str, code: int) -> None:
    """It has 31 bits; 0 means that it was not computed."""
    encoded = next(b for n in range(99) if (b := body("T", "U", f"V{n}")) and zlib.crc32(b) > 0x7FFF_FFFF)
    value = {"right": zlib.crc32(encoded) & 0x7FFF_FFFF, "none": 0, "wrong": 4711}[crc]
    response = await peer.call(RequestCode.REGISTER_BROKER, {**REGISTRATION, "bodyCrc32": value}, encoded)
    assert (response.code, response.remark) == (code, "crc32 not match" if code else None)


@pytest.mark.parametrize(("data", "compressed"), [(b"{", False), (b"[]", False), (b"no zlib", True), (b"[]", True)])
async def test_an_invalid_registration_body_is_refused(peer: RawPeer, data: bytes, compressed: bool) -> None:
    """An invalid body gives an error response, and the connection stays open."""
    response = await peer.call(RequestCode.REGISTER_BROKER, {**REGISTRATION, "compressed": compressed}, data)
    assert response.code == 1
    assert await topics(peer) == []


@pytest.mark.parametrize("code", [103, 104, 322, 904, 224])
async def test_missing_fields_are_refused(peer: RawPeer, code: int) -> None:
    """Without some ext fields, and without any."""
    assert (await peer.call(code)).code == 1
    assert (await peer.call(code, {})).code == 1


async def test_a_broker_is_removed_when_it_unregisters(peer: RawPeer) -> None:
    """The response to UNREGISTER_BROKER (104) has no extFields, as in RocketMQ."""
    await register(peer, "T", "U")
    response = await peer.call(RequestCode.UNREGISTER_BROKER, BROKER)
    assert response.code == 0
    assert "extFields" not in response.header
    assert await topics(peer) == []


async def test_a_data_version_is_compared(peer: RawPeer) -> None:
    """QUERY_DATA_VERSION (322) returns whether the broker must register, and the name server's version."""
    version = DataVersion(0, 5, 0).encode()
    unknown = await peer.call(RequestCode.QUERY_DATA_VERSION, BROKER, version)
    assert (unknown.ext, unknown.body) == ({"changed": "true"}, b"")
    await register(peer, "T", "U")
    same = await peer.call(RequestCode.QUERY_DATA_VERSION, BROKER, version)
    assert (same.ext, DataVersion.decode(same.body)) == ({"changed": "false"}, DataVersion(0, 5, 0))
    other = await peer.call(RequestCode.QUERY_DATA_VERSION, BROKER, DataVersion(0, 5, 1).encode())
    assert (other.ext, DataVersion.decode(other.body)) == ({"changed": "true"}, DataVersion(0, 5, 0))


@pytest.mark.parametrize(
    ("code", "data"), [(RequestCode.QUERY_DATA_VERSION, b"{}"), (RequestCode.BROKER_HEARTBEAT, b"")]
)
async def test_heartbeats_postpone_the_expiry(
    namesrv: RunningNameServer, peer: RawPeer, code: int, data: bytes
) -> None:
    """QUERY_DATA_VERSION (322) and BROKER_HEARTBEAT (904) count as much as a registration."""
    await register(peer, "T", "U")
    namesrv.now_ms += 120_000
    assert (await peer.call(code, BROKER, data)).code == 0
    namesrv.now_ms += 120_000
    namesrv.server.expire_brokers()
    assert await topics(peer) == ["T", "U"]


async def test_a_silent_broker_expires_and_loses_its_connection(
    namesrv: RunningNameServer, peer: RawPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker has to connect and register again."""
    async with await namesrv.peer() as broker:
        await register(broker, "T", "U")
        namesrv.now_ms += 120_001
        namesrv.server.expire_brokers()
        assert await broker.rest() == b""
    assert await topics(peer) == []
    assert "broker expired broker=a" in caplog.text


async def test_a_lost_connection_removes_its_broker_at_once(namesrv: RunningNameServer, peer: RawPeer) -> None:
    """Clients are not sent to a broker that has died."""
    broker = await namesrv.peer()
    await register(broker, "T", "U")
    lost = asyncio.Event()
    namesrv.server.remoting.selector.registry.on_close(lambda _: lost.set())
    await broker.close()
    async with asyncio.timeout(WAIT_LIMIT_S):
        await lost.wait()
    assert await topics(peer) == []


# -------------------------------------------------------------------------------------------------------------- clients


async def test_a_missing_route_gives_topic_not_exist(peer: RawPeer, caplog: pytest.LogCaptureFixture) -> None:
    """TOPIC_NOT_EXIST (17) has RocketMQ's remark for any reason; the log has the reason, once per topic."""
    caplog.set_level("INFO")
    for _ in range(2):
        response = await route(peer, "T")
        assert (response.code, response.body) == (17, b"")
        assert response.remark == f"No topic route info in name server for the topic: T{FAQ}"
    assert caplog.text.count("no route topic='T'") == 1
    assert "reason=no broker is registered" in caplog.text
    await register(peer, "X", "Y")
    assert (await route(peer, "U")).code == 17
    assert "has a topic 'U'" in caplog.text


async def test_missing_routes_do_not_flood_the_log(
    namesrv: RunningNameServer, peer: RawPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """At most a hundred topics a minute are logged, and a topic again after a minute."""
    caplog.set_level("INFO")
    for number in range(150):
        await route(peer, f"T{number}")
    assert caplog.text.count("no route") == 100
    namesrv.now_ms += 60_000
    await route(peer, "T0")
    assert caplog.text.count("no route topic='T0'") == 2


async def test_numeric_keys_are_unquoted_for_old_clients_only(peer: RawPeer) -> None:
    """Clients from version 401, and those that request it, get standard JSON, entirely in ASCII."""
    ext = {**REGISTRATION, "clusterName": "Körbe"}
    await register(peer, "T", "U", ext=ext)
    assert b'"brokerAddrs":{0:"127.0.0.1:10911"}' in (await route(peer, "T", version=400)).body
    assert "Körbe".encode() in (await route(peer, "T", version=400)).body
    standard = (await route(peer, "T", version=401)).body
    assert b'"brokerAddrs":{"0":"127.0.0.1:10911"}' in standard
    assert rb'"cluster":"K\u00f6rbe"' in standard


@pytest.mark.parametrize("config", [{"need_wait_for_service": True, "wait_seconds_for_service": 45}], indirect=True)
async def test_routes_may_wait_for_brokers_to_register(namesrv: RunningNameServer, peer: RawPeer) -> None:
    """A name server that has just started may return no routes instead of partial ones."""
    await register(peer, "T", "U")
    response = await route(peer, "T")
    assert (response.code, response.remark) == (1, "name server not ready")
    namesrv.now_ms += 45_000
    assert (await route(peer, "T")).code == 0


# ------------------------------------------------------------------------------------------------------------ operators


async def test_the_cluster_info_has_unquoted_numeric_keys(peer: RawPeer) -> None:
    """For clients of any version."""
    await register(peer, "T", "U")
    await register(peer, "T", "U", ext=SLAVE)
    response = await peer.call(RequestCode.GET_BROKER_CLUSTER_INFO, version=479)
    assert javajson.loads(response.body) == {
        "brokerAddrTable": {
            "a": {
                "brokerAddrs": {0: "127.0.0.1:10911", 1: "127.0.0.2:10911"},
                "brokerName": "a",
                "cluster": "C",
                "enableActingMaster": False,
            }
        },
        "clusterAddrTable": {"C": ["a"]},
    }


async def test_topics_of_a_cluster_and_their_deletion(peer: RawPeer) -> None:
    """Unknown clusters have no topics, and a deletion always succeeds."""
    await register(peer, "T", "U")
    for cluster, expected in (("C", ["T", "U"]), ("?", [])):
        response = await peer.call(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": cluster})
        assert json.loads(response.body) == {"topicList": expected}
    for ext in ({"topic": "T", "clusterName": "?"}, {"topic": "T", "clusterName": "C"}, {"topic": "T"}):
        assert (await peer.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext)).code == 0
    assert await topics(peer) == ["U"]


@pytest.mark.parametrize("config", [{"enable_all_topic_list": False, "enable_topic_list": False}], indirect=True)
async def test_lists_can_be_switched_off(peer: RawPeer) -> None:
    """The remark is RocketMQ's."""
    for code, ext in ((206, {}), (224, {"cluster": "C"})):
        response = await peer.call(code, ext)
        assert (response.code, response.remark) == (1, "disable")


async def test_texts_can_be_set_read_and_removed(peer: RawPeer) -> None:
    """PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102) and GET_KVLIST_BY_NAMESPACE (219) with all
    responses of RocketMQ."""
    item = {"namespace": "n", "key": "k"}
    missing = await peer.call(RequestCode.GET_KV_CONFIG, item)
    assert (missing.code, missing.remark) == (22, "No config item, Namespace: n Key: k")
    assert (await peer.call(RequestCode.GET_KV_CONFIG)).remark == "No config item, Namespace: null Key: null"
    nowhere = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert (nowhere.code, nowhere.remark) == (22, "No config item, Namespace: n")
    assert (await peer.call(RequestCode.PUT_KV_CONFIG, {**item, "value": "v"})).code == 0
    assert (await peer.call(RequestCode.GET_KV_CONFIG, item)).ext == {"value": "v"}
    listed = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert listed.body == b'{"table":{"k":"v"}}'
    for _ in range(2):
        assert (await peer.call(RequestCode.DELETE_KV_CONFIG, item)).code == 0
    emptied = await peer.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "n"})
    assert emptied.body == b'{"table":{}}'


@pytest.mark.parametrize("ext", [{}, {"namespace": "n", "value": "v"}, {"key": "k", "value": "v"}])
async def test_a_text_needs_namespace_and_key(peer: RawPeer, ext: dict[str, object]) -> None:
    """The remark is RocketMQ's."""
    response = await peer.call(RequestCode.PUT_KV_CONFIG, ext)
    assert (response.code, response.remark) == (1, "namespace or key is null")


@pytest.mark.parametrize("config", [{"order_message_enable": True}, {}], indirect=True)
async def test_ordered_topics_are_returned_to_brokers_and_clients(config: NamesrvConfig, peer: RawPeer) -> None:
    """A broker gets all of them with its registration, a client that of its topic if this is enabled."""
    item = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "a:4"}
    await peer.call(RequestCode.PUT_KV_CONFIG, item)
    assert (await register(peer, "T", "U")).body == b'{"table":{"T":"a:4"}}'
    expected = "a:4" if config.order_message_enable else None
    assert json.loads((await route(peer, "T")).body).get("orderTopicConf") == expected
    assert "orderTopicConf" not in json.loads((await route(peer, "U")).body)


@pytest.mark.parametrize("config", [{"return_order_topic_config_to_broker": False}], indirect=True)
async def test_ordered_topics_can_be_withheld_from_brokers(peer: RawPeer) -> None:
    """returnOrderTopicConfigToBroker=false removes them from the response to REGISTER_BROKER (103)."""
    await peer.call(RequestCode.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "a:4"})
    assert (await register(peer, "T", "U")).body == b""


async def test_a_broker_request_is_not_supported(peer: RawPeer) -> None:
    """The response is that of 5.3.3; 4.9.8 does not respond."""
    response = await peer.call(RequestCode.SEND_MESSAGE)
    assert (response.code, response.remark) == (3, " request type 10 not supported")


async def test_two_requests_in_one_write_get_responses_in_order(peer: RawPeer) -> None:
    """A name server handles reads as a broker does."""
    peer.send(frame({"code": 206, "opaque": 1}) + frame({"code": 106, "opaque": 2}))
    assert [(await peer.receive()).header["opaque"] for _ in range(2)] == [1, 2]


async def permissions(peer: RawPeer, topic: str) -> list[int]:
    response = await route(peer, topic)
    return [row["perm"] for row in javajson.loads(response.body)["queueDatas"]]


async def test_the_write_permission_of_a_broker_is_removed_and_restored(peer: RawPeer) -> None:
    """Requests 205 and 327 change routes only and return the number of topics; a registration with another version
    resets them."""
    await register(peer, "T", "U")
    wiped = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    assert (wiped.header["code"], wiped.header["extFields"]) == (0, {"wipeTopicCount": "2"})
    assert await permissions(peer, "T") == [4]
    await register(peer, "T", "U")
    assert await permissions(peer, "T") == [4]
    added = await peer.call(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    assert added.header["extFields"] == {"addTopicCount": "2"}
    assert await permissions(peer, "U") == [6]
    await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "a"})
    await register(peer, "T", "U", counter=1)
    assert await permissions(peer, "T") == [6]
    unknown = await peer.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "z"})
    assert unknown.header["extFields"] == {"wipeTopicCount": "0"}


async def test_clusters_and_brokers_are_names_of_system_topics(peer: RawPeer) -> None:
    """GET_SYSTEM_TOPIC_LIST_FROM_NS (304) also returns the address of a broker, for its own list (305)."""
    empty = await peer.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert json.loads(empty.body) == {"topicList": []}
    await register(peer, "T", "U")
    response = await peer.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert json.loads(response.body) == {"brokerAddr": "127.0.0.1:10911", "topicList": ["C", "a"]}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (RequestCode.GET_UNIT_TOPIC_LIST, ["U", "Both"]),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, ["Sub", "Both"]),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, ["Sub"]),
    ],
)
async def test_topics_of_units_are_listed_by_their_flag(peer: RawPeer, code: int, expected: list[str]) -> None:
    """311: topics of units; 312: topics with unit subscriptions; 313: of these, topics that belong to no unit."""
    flags = {"T": 0, "U": 1, "Sub": 2, "Both": 3}
    table = {name: TopicConfig(name, topic_sys_flag=flag) for name, flag in flags.items()}
    data = RegisterBrokerBody(TopicConfigSerializeWrapper(DataVersion(0, 5, 1), table)).encode()
    await peer.call(RequestCode.REGISTER_BROKER, REGISTRATION, data)
    assert json.loads((await peer.call(code)).body)["topicList"] == expected
