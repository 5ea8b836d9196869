"""Routes: both styles of keys, with the bytes of 4.9.8."""

from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from tests.harness.golden import responses

ROUTE = TopicRouteData(
    queue_datas=[QueueData("brokerA", 4, 4, 6)],
    broker_datas=[BrokerData("DefaultCluster", "brokerA", {0: "127.0.0.1:30911"})],
)
ONLY_5 = b',"enableActingMaster":false'


def test_old_clients_get_bare_keys() -> None:
    """Old clients get broker ids as bare numbers."""
    expected = responses()["route old ver317 (Go)"]["body"].encode()
    assert ROUTE.encode().replace(ONLY_5, b"") == expected
    assert TopicRouteData.decode(expected) == ROUTE


def test_standard_json_has_quoted_keys() -> None:
    """Clients from 4.9.4 on get standard JSON."""
    expected = responses()["route std-json ver479"]["body"].encode()
    assert ROUTE.encode_standard().replace(ONLY_5, b"") == expected
    assert TopicRouteData.decode(expected) == ROUTE


def test_standard_json_is_ascii() -> None:
    """Names that are not ASCII are escaped in the standard form, and raw in the other form."""
    route = TopicRouteData(broker_datas=[BrokerData("华东", "b", {0: "a:1"}, zone_name="z")])
    assert route.encode_standard().isascii()
    assert "华东".encode() in route.encode()
    assert TopicRouteData.decode(route.encode_standard()) == TopicRouteData.decode(route.encode()) == route


def test_cluster_info_has_bare_keys() -> None:
    """The cluster's body always has bare keys."""
    expected = responses()["cluster info"]["body"].encode()
    info = ClusterInfo({"brokerA": ROUTE.broker_datas[0]}, {"DefaultCluster": ["brokerA"]})
    assert info.encode().replace(ONLY_5, b"") == expected
    assert ClusterInfo.decode(expected) == info
