"""The route table: every rule of registration, and the effects of removing a broker. Times are arguments."""

from collections.abc import Mapping

import pytest

from skylarkmq.broker.namesrv.route_table import (
    HEARTBEAT_TIMEOUT_MS,
    BrokerAddress,
    MasterAddress,
    Registration,
    RouteTable,
)
from skylarkmq.protocol.bodies.route import BrokerData, QueueData
from skylarkmq.protocol.bodies.topic import DataVersion, TopicConfig
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.errors import RequestError

T0 = 1_000_000
MASTER = BrokerAddress("C", "a", 0, "10.0.0.1:10911")
SLAVE = BrokerAddress("C", "a", 1, "10.0.0.2:10911")
OTHER = BrokerAddress("C2", "b", 0, "10.0.0.3:10911")


def topics(*names: str, **queues: int) -> dict[str, TopicConfig]:
    """Return topics with one queue, or with the number of a keyword."""
    counts = {**dict.fromkeys(names, 1), **queues}
    return {name: TopicConfig(name, read_queue_nums=count, write_queue_nums=count) for name, count in counts.items()}


def registration(
    broker: BrokerAddress,
    listed: Mapping[str, TopicConfig] | None = None,
    counter: int = 0,
    *,
    state: int = 0,
    heartbeat_timeout_ms: int = HEARTBEAT_TIMEOUT_MS,
    zone: str | None = None,
) -> Registration:
    return Registration(
        broker=broker,
        data_version=DataVersion(state_version=state, timestamp=5, counter=counter),
        topics=topics("S1", "S2") if listed is None else listed,
        ha_address=broker.address.replace("10911", "10912"),
        heartbeat_timeout_ms=heartbeat_timeout_ms,
        zone=zone,
    )


@pytest.fixture
def table() -> RouteTable[str]:
    return RouteTable[str]()


def queues_of(table: RouteTable[str], topic: str) -> dict[str, int] | None:
    route = table.route(topic)
    return None if route is None else {queue.broker_name: queue.read_queue_nums for queue in route.queue_datas}


def addresses_of(table: RouteTable[str], name: str) -> dict[int, str]:
    return table.cluster_info().broker_addr_table[name].broker_addrs


def test_a_registered_topic_has_a_route(table: RouteTable[str]) -> None:
    """A route contains the queues of the topic and the addresses of its brokers."""
    listed = topics("S1") | {"T": TopicConfig("T", read_queue_nums=8, write_queue_nums=4, perm=4, topic_sys_flag=1)}
    table.register(registration(MASTER, listed), "m", T0)
    route = table.route("T")
    assert route is not None
    assert route.queue_datas == [
        QueueData(broker_name="a", read_queue_nums=8, write_queue_nums=4, perm=4, topic_sys_flag=1)
    ]
    assert route.broker_datas == [BrokerData(cluster="C", broker_name="a", broker_addrs={0: MASTER.address})]
    assert table.route("U") is None


def test_each_broker_of_a_topic_has_its_own_permission(table: RouteTable[str]) -> None:
    """One broker may be read-only while another accepts writes."""
    for broker, perm in ((MASTER, 6), (OTHER, 4)):
        listed = topics("S1") | {"T": TopicConfig("T", perm=perm)}
        table.register(registration(broker, listed), broker.broker_name, T0)
    route = table.route("T")
    assert route is not None
    assert {queue.broker_name: queue.perm for queue in route.queue_datas} == {"a": 6, "b": 4}
    assert {broker.broker_name: broker.cluster for broker in route.broker_datas} == {"a": "C", "b": "C2"}


def test_a_first_registration_with_one_topic_is_refused_and_changes_nothing(table: RouteTable[str]) -> None:
    """One changed topic must not replace a broker's whole table."""
    with pytest.raises(RequestError, match="register broker failed") as refused:
        table.register(registration(MASTER, topics("T")), "m", T0)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    assert table.cluster_info().broker_addr_table == {}
    assert table.topics() == []
    table.register(registration(MASTER, {}), "m", T0)
    assert addresses_of(table, "a") == {0: MASTER.address}
    assert (table.statistics().refused, table.statistics().registrations) == (1, 1)


def test_a_later_registration_may_contain_a_single_topic(table: RouteTable[str]) -> None:
    """A registered broker may register only changed topics, and keeps the others."""
    table.register(registration(MASTER), "m", T0)
    table.register(registration(MASTER, topics("T"), 1), "m", T0)
    assert table.topics() == ["S1", "S2", "T"]


@pytest.mark.parametrize(("counter", "expected"), [(0, 1), (1, 9)])
def test_topics_are_processed_only_if_the_data_version_differs(
    table: RouteTable[str], counter: int, expected: int
) -> None:
    """With an equal DataVersion the topics count as unchanged."""
    table.register(registration(MASTER), "m", T0)
    table.register(registration(MASTER, topics("S2", S1=9), counter), "m", T0)
    assert queues_of(table, "S1") == {"a": expected}


def test_a_missing_topic_is_added_whatever_the_version(table: RouteTable[str]) -> None:
    """A topic deleted by an operator returns with the next registration of a broker that still has it."""
    table.register(registration(MASTER), "m", T0)
    table.delete_topic("S1")
    assert table.route("S1") is None
    table.register(registration(MASTER), "m", T0)
    assert queues_of(table, "S1") == {"a": 1}


def test_the_first_registration_of_another_address_counts_whatever_its_version(table: RouteTable[str]) -> None:
    """The DataVersions of two addresses are not comparable."""
    table.register(registration(MASTER), "m", T0)
    moved = BrokerAddress("C", "a", 0, "10.0.0.9:10911")
    table.register(registration(moved, topics("S2", S1=9)), "m2", T0)
    assert queues_of(table, "S1") == {"a": 9}


@pytest.mark.parametrize(("forgets", "expected"), [(False, ["S1", "S2", "S3"]), (True, ["S2", "S3"])])
def test_unlisted_topics_stay_unless_the_setting_removes_them(forgets: bool, expected: list[str]) -> None:
    """deleteTopicWithBrokerRegistration decides whether a registration removes topics that it no longer lists."""
    table = RouteTable[str](forget_unlisted_topics=forgets)
    table.register(registration(MASTER), "m", T0)
    table.register(registration(MASTER, topics("S2", "S3"), 1), "m", T0)
    assert table.topics() == expected


def test_a_slave_adds_an_address_but_no_topics(table: RouteTable[str]) -> None:
    """The topics of a broker name are those of its master."""
    table.register(registration(MASTER), "m", T0)
    table.register(registration(SLAVE, topics("S1", "X")), "s", T0)
    assert table.topics() == ["S1", "S2"]
    assert addresses_of(table, "a") == {0: MASTER.address, 1: SLAVE.address}


def test_a_slave_gets_its_master_while_it_is_live(table: RouteTable[str]) -> None:
    """A master gets no address, a slave the addresses for replication."""
    assert table.register(registration(SLAVE), "s", T0) is None
    assert table.register(registration(MASTER), "m", T0) is None
    assert table.register(registration(SLAVE), "s", T0) == MasterAddress(MASTER.address, "10.0.0.1:10912")
    table.connection_lost("m")
    assert table.register(registration(SLAVE), "s", T0) is None


def test_an_address_that_changes_its_role_drops_the_old_id(table: RouteTable[str]) -> None:
    """A slave that became master is not listed twice."""
    table.register(registration(SLAVE), "s", T0)
    table.register(registration(BrokerAddress("C", "a", 0, SLAVE.address)), "s", T0)
    assert addresses_of(table, "a") == {0: SLAVE.address}


def test_another_address_with_the_same_id_replaces_the_first(table: RouteTable[str]) -> None:
    """A broker that moved replaces itself, and losing its old connection later removes nothing."""
    moved = BrokerAddress("C", "a", 0, "10.0.0.9:10911")
    table.register(registration(MASTER), "old", T0)
    table.register(registration(moved), "new", T0)
    assert addresses_of(table, "a") == {0: moved.address}
    table.connection_lost("old")
    assert addresses_of(table, "a") == {0: moved.address}
    assert queues_of(table, "S1") == {"a": 1}


def test_a_registration_with_an_older_state_is_ignored(table: RouteTable[str]) -> None:
    """A former master that returns does not replace its successor while that is live."""
    deposed = BrokerAddress("C", "a", 0, "10.0.0.9:10911")
    table.register(registration(MASTER, state=2), "m", T0)
    assert table.register(registration(deposed, state=1), "d", T0) is None
    assert addresses_of(table, "a") == {0: MASTER.address}
    assert table.data_version("C", deposed.address) is None
    table.register(registration(deposed, state=2), "d", T0)
    assert addresses_of(table, "a") == {0: deposed.address}


def test_addresses_are_listed_by_id(table: RouteTable[str]) -> None:
    """Clients that use the first address get the master, whichever registered first."""
    table.register(registration(SLAVE), "s", T0)
    table.register(registration(MASTER), "m", T0)
    assert list(addresses_of(table, "a")) == [0, 1]


def test_the_zone_of_a_broker_is_listed(table: RouteTable[str]) -> None:
    """Clients may prefer brokers in their zone."""
    table.register(registration(MASTER, zone="z1"), "m", T0)
    assert table.cluster_info().broker_addr_table["a"].zone_name == "z1"


def test_the_topics_are_removed_with_the_last_address(table: RouteTable[str]) -> None:
    """While a slave is left, its topics can still be read."""
    table.register(registration(MASTER), "m", T0)
    table.register(registration(SLAVE), "s", T0)
    table.register(registration(OTHER, topics("S1", "B")), "o", T0)
    table.unregister(MASTER)
    assert queues_of(table, "S1") == {"a": 1, "b": 1}
    assert addresses_of(table, "a") == {1: SLAVE.address}
    table.unregister(SLAVE)
    assert table.topics() == ["S1", "B"]
    assert queues_of(table, "S1") == {"b": 1}
    table.unregister(OTHER)
    assert (table.topics(), table.cluster_info().cluster_addr_table) == ([], {})


def test_unregistering_an_unknown_broker_is_not_an_error(table: RouteTable[str]) -> None:
    """A broker may stop twice, or before it has registered."""
    table.unregister(MASTER)
    table.register(registration(MASTER), "m", T0)
    table.unregister(SLAVE)
    assert addresses_of(table, "a") == {0: MASTER.address}


def test_a_broker_expires_when_it_was_silent_for_too_long(table: RouteTable[str]) -> None:
    """120 s of silence are allowed, unless the broker requests another limit."""
    table.register(registration(MASTER), "m", T0)
    table.register(registration(OTHER, heartbeat_timeout_ms=5_000), "o", T0)
    assert table.expire(T0 + 5_000) == []
    assert table.expire(T0 + 5_001) == [(OTHER, "o")]
    assert table.expire(T0 + HEARTBEAT_TIMEOUT_MS) == []
    assert table.expire(T0 + HEARTBEAT_TIMEOUT_MS + 1) == [(MASTER, "m")]
    assert table.topics() == []
    assert table.statistics().expired == 2


def test_a_heartbeat_or_a_registration_postpones_the_expiry(table: RouteTable[str]) -> None:
    """The silence is counted from the last of both."""
    later = T0 + HEARTBEAT_TIMEOUT_MS
    table.register(registration(MASTER), "m", T0)
    table.register(registration(OTHER), "o", T0)
    table.record_heartbeat("C", MASTER.address, later)
    table.record_heartbeat("C", "10.9.9.9:1", later)
    table.register(registration(OTHER), "o", later)
    assert table.expire(later + 1) == []


def test_a_lost_connection_removes_its_brokers_at_once(table: RouteTable[str]) -> None:
    """Only brokers of that connection are removed, not those that registered through another one."""
    table.register(registration(MASTER), "one", T0)
    table.register(registration(OTHER), "one", T0)
    table.register(registration(MASTER), "two", T0)
    assert table.connection_lost("one") == [OTHER]
    assert list(table.cluster_info().broker_addr_table) == ["a"]
    assert table.connection_lost("two") == [MASTER]
    assert table.connection_lost("two") == []


def test_topics_by_cluster_and_their_deletion(table: RouteTable[str]) -> None:
    """A topic can be deleted in one cluster and stay in another."""
    table.register(registration(MASTER, topics("S1", "A")), "m", T0)
    table.register(registration(OTHER, topics("S1", "B")), "o", T0)
    assert table.topics_of_cluster("C") == ["S1", "A"]
    assert table.topics_of_cluster("C2") == ["S1", "B"]
    assert table.topics_of_cluster("?") == []
    table.delete_topic("S1", "C2")
    assert queues_of(table, "S1") == {"a": 1}
    table.delete_topic("S1", "C2")
    table.delete_topic("S1")
    table.delete_topic("S1")
    assert table.topics() == ["A", "B"]


def test_the_reason_for_a_missing_route(table: RouteTable[str]) -> None:
    """An operator sees whether no broker is registered or none has the topic."""
    assert "no broker is registered" in table.missing_route_reason("T")
    table.register(registration(MASTER), "m", T0)
    assert "none of the 1 registered brokers has a topic 'T'" in table.missing_route_reason("T")


def test_a_data_version_is_changed_if_it_differs_or_the_broker_is_unknown(table: RouteTable[str]) -> None:
    """This is the result of QUERY_DATA_VERSION (322)."""
    assert table.is_changed(MASTER, DataVersion(timestamp=5))
    table.register(registration(MASTER), "m", T0)
    assert not table.is_changed(MASTER, DataVersion(timestamp=5))
    assert table.is_changed(MASTER, DataVersion(timestamp=6))
    assert table.is_changed(MASTER, DataVersion(timestamp=5, state_version=1))


def test_statistics_and_repr_count(table: RouteTable[str]) -> None:
    """The table shows its size in one line and in one struct."""
    table.register(registration(MASTER), "m", T0)
    table.register(registration(SLAVE), "s", T0)
    figures = table.statistics()
    assert (figures.clusters, figures.brokers, figures.addresses, figures.topics) == (1, 1, 2, 2)
    assert repr(table) == "<RouteTable 1 brokers, 2 topics>"
