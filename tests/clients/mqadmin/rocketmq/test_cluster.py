"""Commands about a whole cluster."""

import re
from collections.abc import AsyncIterator

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, free_ports
from skylarkmq.protocol.bodies.cluster import ClusterInfo, KVTable
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.peer import Peer

DENIED = "org.apache.rocketmq.acl.common.AclException"


def test_cluster_list_prints_a_row_for_each_broker(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With the columns of RocketMQ's tool 5.3.3."""
    result = mqadmin("clusterList")
    assert (result.code, result.err) == (0, "")
    head, row = result.out.splitlines()
    assert head.split("  ")[0] == "#Cluster Name"
    assert head.endswith("#SPACE    #ACTIVATED")
    times = r"\d+\.\d\d +  0\.\d{4}    +true"
    pattern = (
        r"DefaultCluster          broker-a                0     127.0.0.1:\d{5}        V5_3_3          "
        r"       0\.00\(0,0ms\) "
        rf"              0\.00\(0,0ms\|0,0ms\)  0-0\(0\.0w, 0\.0, 0\.0\)               0  {times}"
    )
    assert re.fullmatch(pattern, row), row
    assert f" {broker.address} " in row


def test_cluster_list_prints_totals(mqadmin: RunCommand) -> None:
    """Of yesterday and of today, with -m."""
    result = mqadmin("clusterList", "-m", "-c", "DefaultCluster")
    assert result.rows == [["DefaultCluster", "broker-a", "0", "0", "0", "0"]]


def test_an_unknown_cluster_is_one_line(mqadmin: RunCommand) -> None:
    """With exit code 2 and the names of those that exist."""
    result = mqadmin("clusterList", "-c", "Nowhere")
    assert (result.code, result.out) == (2, "")
    assert result.err == "mqadmin: no cluster Nowhere is registered. Registered: DefaultCluster.\n"


@pytest.mark.parametrize(
    ("response", "code", "cause"),
    [
        (RemotingCommand.response(ResponseCode.NO_PERMISSION, "not you"), 4, "NO_PERMISSION (16): not you"),
        (RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"{DENIED}: no"), 4, f"{DENIED}: no"),
        (RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "broken"), 5, "SYSTEM_ERROR (1): broken"),
        (RemotingCommand.response(body=b"<html>"), 5, "not a valid KVTable"),
        (RemotingCommand.response(body=KVTable({"putTps": "fast"}).encode()), 5, "putTps is 'fast'"),
        (RemotingCommand.response(body=KVTable({"timerCongestNum": "nan"}).encode()), 5, "timerCongestNum is 'nan'"),
        (RemotingCommand.response(body=KVTable({"timerReadBehind": "9" * 400}).encode()), 5, "timerReadBehind is '999"),
    ],
)
def test_an_unusable_response_is_one_line(
    run_mqadmin: RunCommand, scripted: Peer, response: RemotingCommand, code: int, cause: str
) -> None:
    """With the exit code of its class."""
    scripted.on(RequestCode.GET_BROKER_RUNTIME_INFO, lambda *_: response)
    result = run_mqadmin("clusterList")
    assert result.code == code
    assert result.err.count("\n") == 1
    assert cause in result.err


def test_missing_figures_are_zero_or_null(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """As RocketMQ's tool prints those of an older broker."""
    scripted.on(RequestCode.GET_BROKER_RUNTIME_INFO, lambda *_: RemotingCommand.response(body=KVTable({}).encode()))
    result = run_mqadmin("clusterList")
    assert result.code == 0
    (row,) = result.rows
    assert row[4:] == [
        "null",
        "0.00(null,nullms)",
        "0.00(null,nullms|N,Nms)",
        "0-0(0.0w, 0.0, 0.0)",
        "null",
        "0.00",
        "0.0000",
        "false",
    ]


def test_a_broker_that_does_not_run_gets_a_row(
    run_mqadmin: RunCommand, scripted: Peer, broker: InProcessBroker
) -> None:
    """Without figures; the other brokers get theirs, and the exit code is 3."""
    (port,) = free_ports(1)
    dead, alive = (
        BrokerData("c", name, {0: address})
        for name, address in (("dead", f"127.0.0.1:{port}"), ("live", broker.address))
    )
    info = ClusterInfo({"dead": dead, "live": alive}, {"c": ["dead", "live"]})
    scripted.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info.encode()))
    result = run_mqadmin("clusterList")
    assert result.code == 3
    assert result.err.count("\n") == 1
    assert [(row[1], row[-1]) for row in result.rows] == [("dead", "false"), ("live", "true")]


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """End clusterRT after its first round."""

    async def once(_: float) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr("skylarkmq.clients.mqadmin.rocketmq.cluster.repeated", once)


@pytest.mark.usefixtures("one_round")
def test_the_times_of_sends_to_each_broker_are_printed(mqadmin: RunCommand) -> None:
    """As a table, or as lines for a log."""
    result = mqadmin("clusterRT", "-a", "3", "-s", "10", "-c", "DefaultCluster")
    assert (result.code, result.err) == (0, "")
    (row,) = result.rows
    assert (row[:2], row[3:]) == (["DefaultCluster", "broker-a"], ["3", "0"])
    lines = mqadmin("clusterRT", "-a", "2", "-p", "true", "-m", "here").out
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\|here\|DefaultCluster\|broker-a\|\d+\n", lines)


@pytest.mark.usefixtures("one_round")
def test_failed_sends_are_counted(run_mqadmin: RunCommand, scripted: Peer) -> None:
    """A command for measurements goes on."""
    result = run_mqadmin("clusterRT", "-a", "1")
    assert [row[1:] for row in result.rows] == [["b", "NaN", "0", "1"]]
