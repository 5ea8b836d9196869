"""`mqadmin ha status`: masters, their copies, slaves, and brokers without a state of replication."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.app.in_process import free_ports
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.peer import Peer

COPIES = [
    HAConnectionInfo("10.0.0.3:5000", 40, 60, False, 0, 40),
    HAConnectionInfo("10.0.0.2:5000", 100, 0, True, 2048, 100),
]
MASTER = HARuntimeInfo(True, 100, 1, COPIES)
SLAVE = HARuntimeInfo(ha_client_runtime_info=HAClientInfo("10.0.0.1:10912", 1024, 50, 1_700_000_000_123))


@pytest.fixture
def reports(scripted: Peer) -> Callable[[HARuntimeInfo], None]:
    """Return a function that sets what the scripted broker reports."""

    def report(info: HARuntimeInfo) -> None:
        scripted.on(RequestCode.GET_BROKER_HA_STATUS, lambda *_: RemotingCommand.response(body=info.encode()))

    return report


def register(scripted: Peer, addresses: dict[int, str]) -> None:
    info = ClusterInfo({"b": BrokerData("c", "b", addresses)}, {"c": ["b"]})
    scripted.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info.encode()))


def read_json(text: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(text)
    return found


def test_a_master_has_a_row_for_each_copy(
    run_mqadmin: RunCommand, reports: Callable[[HARuntimeInfo], None], scripted: Peer
) -> None:
    """By address, with state and lag."""
    reports(MASTER)
    result = run_mqadmin("ha", "status")
    assert (result.code, result.err) == (0, "")
    assert [line.split() for line in result.out.splitlines()] == [
        ["Masters"],
        ["Broker", "Address", "Log", "end", "Copies", "In", "sync"],
        ["b", scripted.address, "100", "2", "1"],
        [],
        ["Copies"],
        ["Broker", "Copy", "State", "Acknowledged", "Lag", "bytes", "Bytes/s"],
        ["b", "10.0.0.2:5000", "in", "sync", "100", "0", "2,048"],
        ["b", "10.0.0.3:5000", "behind", "40", "60", "0"],
    ]
    found = read_json(run_mqadmin("ha", "status", "--json").out)
    assert found["masters"][0]["copies"][1] == {
        "broker": "b", "address": "10.0.0.3:5000", "inSync": False, "acknowledged": 40, "lagBytes": 60,
        "bytesPerSecond": 0,
    }  # fmt: skip


def test_a_slave_has_its_connection(
    run_mqadmin: RunCommand, reports: Callable[[HARuntimeInfo], None], scripted: Peer
) -> None:
    """Also while its broker has no master."""
    register(scripted, {1: scripted.address})
    reports(SLAVE)
    result = run_mqadmin("ha", "status")
    assert (result.code, result.err) == (0, "")
    assert "No master is registered.\n" in result.out
    assert result.out.splitlines()[-1].split() == [
        "b",
        "1",
        scripted.address,
        "10.0.0.1:10912",
        "50",
        "1,024",
        "2023-11-14T22:13:20.123Z",
    ]
    (slave,) = read_json(run_mqadmin("ha", "status", "--json").out)["slaves"]
    assert (slave["master"], slave["logEnd"], slave["lastRead"]) == ("10.0.0.1:10912", 50, "2023-11-14T22:13:20.123Z")


def test_a_master_without_copies_is_no_failure(
    run_mqadmin: RunCommand, reports: Callable[[HARuntimeInfo], None]
) -> None:
    """It may be alone on purpose; `mqadmin doctor` compares with the settings."""
    reports(HARuntimeInfo(True, 100))
    result = run_mqadmin("ha", "status")
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith("No copy is connected.\n")


def test_a_broker_without_a_state_is_a_problem(
    run_mqadmin: RunCommand, reports: Callable[[HARuntimeInfo], None], scripted: Peer
) -> None:
    """The others are shown. The exit code is that of the first problem."""
    (port,) = free_ports(1)
    silent = f"127.0.0.1:{port}"
    register(scripted, {0: scripted.address, 1: silent})
    reports(MASTER)
    result = run_mqadmin("ha", "status")
    assert result.code == 3
    assert "10.0.0.2:5000" in result.out
    assert "\nProblems\n" in result.out
    assert result.err == f"mqadmin: 1 broker without a state of replication: {silent}. See Problems.\n"
    register(scripted, {0: scripted.address})
    del scripted.handlers[RequestCode.GET_BROKER_HA_STATUS]
    refused = run_mqadmin("ha", "status")
    assert refused.code == 5
    assert "REQUEST_CODE_NOT_SUPPORTED (3)" in refused.out
