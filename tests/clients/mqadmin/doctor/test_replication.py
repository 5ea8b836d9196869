"""Checks of replication."""

import time

import pytest

from skylarkmq.clients.mqadmin.doctor.broker_state import CHECKS as STATE_CHECKS
from skylarkmq.clients.mqadmin.doctor.replication import CHECKS
from skylarkmq.protocol.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from skylarkmq.protocol.codes import RequestCode
from tests.clients.mqadmin.doctor.conftest import ScriptedCluster, examined

CLOSE = HAConnectionInfo("10.0.0.2:5000", 100, 0, True)
MIB = 1 << 20


def findings(cluster: ScriptedCluster) -> list[tuple[str, str]]:
    """Return severity and text of each finding about replication."""
    return [(its.severity.value, its.what) for its in examined(cluster.peer.address, *CHECKS).findings]


def test_a_master_alone_is_no_finding(cluster: ScriptedCluster) -> None:
    """Without settings that require copies."""
    assert findings(cluster) == []
    cluster.settings.update(brokerRole="ASYNC_MASTER", minInSyncReplicas="2")
    assert findings(cluster) == []


@pytest.mark.parametrize(
    "setting",
    [
        {"totalReplicas": "3"},
        {"haPeers": "n1=h1:10912,n2=h2:10912,n3=h3:10912"},
        {"haPeers": "n1=h1:10912;n2=h2:10912;n3=h3:10912"},
    ],
)
def test_missing_copies_are_found(cluster: ScriptedCluster, setting: dict[str, str]) -> None:
    """By the number of nodes in the settings of the master."""
    cluster.settings.update(setting)
    cluster.replication.ha_connection_info = [CLOSE]
    assert findings(cluster) == [("warning", "1 of 2 copies of its log are connected")]
    cluster.replication.ha_connection_info = [CLOSE, CLOSE]
    assert findings(cluster) == []


def test_a_registered_slave_without_a_connection_is_found(cluster: ScriptedCluster) -> None:
    """Both of the master and of the slave."""
    cluster.brokers["b"][1] = cluster.peer.address
    found = findings(cluster)
    assert ("warning", "0 of 1 copies of its log are connected") in found


def test_a_synchronous_master_without_slaves_is_found(cluster: ScriptedCluster) -> None:
    """With the code that producers get."""
    cluster.settings["brokerRole"] = "SYNC_MASTER"
    (finding,) = examined(cluster.peer.address, *CHECKS).findings
    assert finding.severity.value == "warning"
    assert finding.what == "brokerRole is SYNC_MASTER and no slave is connected: messages are on one machine only"
    assert "SLAVE_NOT_AVAILABLE (11)" in finding.next_step


def test_too_few_copies_for_the_minimum_are_an_error(cluster: ScriptedCluster) -> None:
    """The master counts as one of `minInSyncReplicas`, which classic replication does not have."""
    cluster.settings.update(brokerRole="SYNC_MASTER", minInSyncReplicas="2")
    assert [severity for severity, _ in findings(cluster)] == ["warning"]
    cluster.settings["enableControllerMode"] = "true"
    what = "1 of at least 2 stores are in sync (minInSyncReplicas, with the master): sends fail"
    assert findings(cluster) == [("error", what)]
    cluster.replication.ha_connection_info = [CLOSE]
    cluster.replication.in_sync_slave_nums = 1
    assert findings(cluster) == []


@pytest.mark.parametrize(
    ("diff", "in_sync", "is_found"), [(64 * MIB, True, False), (65 * MIB, True, True), (300 * MIB, False, True)]
)
def test_a_copy_far_behind_is_found(cluster: ScriptedCluster, diff: int, in_sync: bool, is_found: bool) -> None:
    """With its address and the bytes."""
    cluster.replication.ha_connection_info = [HAConnectionInfo("10.0.0.2:5000", 0, diff, in_sync)]
    what = f"the copy 10.0.0.2:5000 lacks {diff // MIB} MiB of the log"
    assert findings(cluster) == ([("warning", what)] if is_found else [])


def slave(cluster: ScriptedCluster, info: HARuntimeInfo) -> list[tuple[str, str]]:
    """Return the findings about the only broker, a slave."""
    address = cluster.peer.address
    cluster.brokers["b"] = {1: address}
    cluster.replication.master = info.master
    cluster.replication.ha_client_runtime_info = info.ha_client_runtime_info
    return findings(cluster)


def test_a_slave_that_receives_is_no_finding(cluster: ScriptedCluster) -> None:
    """Masters send something every 5 s."""
    now_ms = time.time_ns() // 1_000_000
    client = HAClientInfo("10.0.0.1:10912", 0, 100, now_ms - 5_000, now_ms)
    assert slave(cluster, HARuntimeInfo(ha_client_runtime_info=client)) == []


@pytest.mark.parametrize(
    ("info", "severity", "what"),
    [
        (HARuntimeInfo(), "warning", "the slave has no master to copy from"),
        (HARuntimeInfo(True), "error", "the broker is registered as a slave and acts as a master: it copies nothing"),
        (
            HARuntimeInfo(ha_client_runtime_info=HAClientInfo("10.0.0.1:10912")),
            "warning",
            "the slave has received nothing from 10.0.0.1:10912 since its start",
        ),
    ],
)
def test_a_slave_that_copies_nothing_is_found(
    cluster: ScriptedCluster, info: HARuntimeInfo, severity: str, what: str
) -> None:
    """With the reason."""
    assert slave(cluster, info) == [(severity, what)]


def test_a_silent_connection_is_found(cluster: ScriptedCluster) -> None:
    """After the time in which both sides close one."""
    now_ms = time.time_ns() // 1_000_000
    client = HAClientInfo("10.0.0.1:10912", 0, 100, now_ms - 3_600_000, now_ms)
    ((severity, what),) = slave(cluster, HARuntimeInfo(ha_client_runtime_info=client))
    assert severity == "warning"
    assert what.startswith("the slave has received nothing from 10.0.0.1:10912 for 36")


def test_a_broker_of_rocketmq_4_9_is_not_examined(cluster: ScriptedCluster) -> None:
    """It does not serve the request, and the other checks go on."""
    del cluster.peer.handlers[RequestCode.GET_BROKER_HA_STATUS]
    report = examined(cluster.peer.address, *CHECKS, *STATE_CHECKS)
    assert report.findings == []
    (only,) = report.not_examined
    assert only.check == "replication"
    assert "REQUEST_CODE_NOT_SUPPORTED (3)" in only.reason
