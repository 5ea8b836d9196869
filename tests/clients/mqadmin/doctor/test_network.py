"""Checks of name servers, registrations and advertised addresses."""

from collections.abc import Iterator

import pytest

from skylarkmq import Admin
from skylarkmq.broker.app.in_process import free_ports, loop_in_a_thread, wait
from skylarkmq.clients.mqadmin.doctor.examination import examine
from skylarkmq.clients.mqadmin.doctor.findings import Check
from skylarkmq.clients.mqadmin.doctor.network import advertised_addresses
from skylarkmq.clients.mqadmin.doctor.subject import State, Subject, Target
from skylarkmq.clients.sdk.base.errors import ClientError, ConnectFailed
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.doctor.conftest import QUICK, ScriptedCluster
from tests.clients.peer import Peer, refuse


@pytest.fixture
def empty_name_server() -> Iterator[Peer]:
    """Yield a name server that has no broker."""
    with loop_in_a_thread() as loop:
        peer = Peer()
        wait(loop, peer.listen())
        peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=ClusterInfo().encode()))
        yield peer
        wait(loop, peer.stop())


def test_name_servers_that_disagree_are_found(cluster: ScriptedCluster, empty_name_server: Peer) -> None:
    """The finding names the name server and the broker that it does not have."""
    both = f"{cluster.peer.address};{empty_name_server.address}"
    (finding,) = cluster.report("-n", both).findings
    assert (finding.check, finding.where) == ("agreement of name servers", empty_name_server.address)
    assert f"b:0 {cluster.peer.address}" in finding.what


def test_one_name_server_that_does_not_respond_does_not_end_the_examination(cluster: ScriptedCluster) -> None:
    """The others have the brokers."""
    (port,) = free_ports(1)
    report = cluster.report("-n", f"127.0.0.1:{port};{cluster.peer.address}")
    assert [(its.check, its.where) for its in report.findings] == [("name servers", f"127.0.0.1:{port}")]


def test_a_cluster_without_brokers_is_an_error(empty_name_server: Peer, cluster: ScriptedCluster) -> None:
    """And the checks of brokers are not examined."""
    report = cluster.report("-n", empty_name_server.address)
    assert [(its.check, its.what) for its in report.findings] == [("registrations", "no broker is registered")]
    assert {each.reason for each in report.not_examined if each.check == "storage"} == {"no broker is registered"}


def test_a_broker_without_its_master_is_an_error(cluster: ScriptedCluster) -> None:
    """Only its slave is registered."""
    cluster.brokers["b"] = {1: cluster.peer.address}
    assert ("error", "registrations", "only slaves of this broker are registered") in cluster.findings()


def test_an_advertised_address_that_cannot_be_reached_is_an_error(cluster: ScriptedCluster) -> None:
    """The other broker is still examined."""
    (port,) = free_ports(1)
    cluster.brokers["a"] = {0: f"127.0.0.1:{port}"}
    cluster.runtime["commitLogDiskRatio"] = "0.95"
    first, second = cluster.report().findings
    assert (first.check, first.where) == ("advertised addresses", f"a:0 127.0.0.1:{port}")
    assert "brokerIP1" in first.next_step
    assert (second.check, second.where) == ("disks", f"b:0 {cluster.peer.address}")


def test_brokers_with_the_same_address_are_found(cluster: ScriptedCluster) -> None:
    """One of them gets the messages of both."""
    cluster.brokers["a"] = {0: cluster.peer.address}
    assert ("error", "distinct addresses", "several brokers advertise this address: a:0, b:0") in cluster.findings()


def test_a_broker_that_denies_its_state_is_a_warning(cluster: ScriptedCluster) -> None:
    """It can be reached, but its state cannot be examined."""
    cluster.peer.on(RequestCode.GET_BROKER_RUNTIME_INFO, refuse(ResponseCode.NO_PERMISSION, "not you"))
    (finding,) = cluster.report().findings
    assert (finding.severity.value, finding.check) == ("warning", "advertised addresses")
    assert "not you" in finding.what


class RemoteSubject(Subject):
    """A cluster whose name server is remote, and whose two brokers advertise loopback addresses."""

    @property
    def name_servers(self) -> tuple[str, ...]:
        return ("10.0.0.1:9876",)

    async def states(self) -> dict[Target, State | ClientError]:
        one = Target("c", "a", 0, "127.0.0.1:10911")
        return {one: State({}, 0, 0), one._replace(name="b", address="localhost:1"): ConnectFailed("refused")}


async def test_loopback_addresses_of_a_remote_cluster_are_errors() -> None:
    """Also if this host can connect to them: the peer is another one."""
    async with Admin(namesrv="10.0.0.1:9876") as admin:
        checks = (Check("addresses", advertised_addresses),)
        report = await examine(RemoteSubject(admin, QUICK), lambda _: None, checks)
    assert [(finding.where, "loopback" in finding.what) for finding in report.findings] == [
        ("a:0 127.0.0.1:10911", True),
        ("b:0 localhost:1", True),
    ]
