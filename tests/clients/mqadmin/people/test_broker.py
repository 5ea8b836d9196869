"""`mqadmin cluster`, `broker` and `namesrv`: state and settings."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.app.in_process import free_ports
from skylarkmq.protocol.bodies.cluster import ClusterInfo, KVTable
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.peer import Peer

KEY = "fileReservedTime"


def test_the_cluster_has_a_row_for_each_broker(json_of: Callable[..., Any], mqadmin: RunCommand) -> None:
    """With its place, version and disk."""
    (row,) = json_of("cluster", "status")["brokers"]
    assert (row["place"]["role"], row["place"]["id"], row["version"]) == ("master", 0, "V5_3_3")
    assert 0 < row["diskUsed"] < 1
    assert (row["storedToday"], row["problem"]) == (0, None)
    heads, line = mqadmin("cluster", "status").out.splitlines()
    assert heads.split()[0] == "Broker"
    assert line.split()[:3] == [row["place"][key] for key in ("name", "role", "address")]
    (listed,) = json_of("broker", "list")["brokers"]
    assert listed == row["place"]


def test_a_silent_broker_is_a_row_with_its_problem(scripted: Peer, run_mqadmin: RunCommand) -> None:
    """And exit code 3."""
    (port,) = free_ports(1)
    silent = f"127.0.0.1:{port}"
    info = ClusterInfo({"b": BrokerData("c", "b", {0: silent})}, {"c": ["b"]})
    scripted.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info.encode()))
    result = run_mqadmin("cluster", "status")
    assert result.code == 3
    assert "no response" in result.out
    assert "\nProblems\n" in result.out
    assert result.err == f"mqadmin: no response from 1 broker: {silent}. See Problems.\n"


@pytest.mark.parametrize("value", ["9" * 5000, "nan", "inf", "-1e999", "1e18", "x", ""], ids=ascii)
def test_any_text_of_a_broker_is_read_as_a_number_or_left_out(
    scripted: Peer, run_mqadmin: RunCommand, value: str
) -> None:
    """In the rates, counters and times of its state."""
    keys = ("putTps", "msgPutTotalTodayNow", "msgPutTotalTodayMorning", "commitLogDiskRatio", "bootTimestamp")
    table = KVTable(dict.fromkeys((*keys, "earliestMessageTimeStamp"), value))
    scripted.on(RequestCode.GET_BROKER_RUNTIME_INFO, lambda *_: RemotingCommand.response(body=table.encode()))
    result = run_mqadmin("cluster", "status", "--json")
    assert (result.code, result.err) == (0, "")
    (state,) = msgspec.json.decode(result.out)["brokers"]
    assert (state["started"], state["oldestMessage"]) == (None, None)


def test_a_broker_reports_its_counters(json_of: Callable[..., Any], mqadmin: RunCommand) -> None:
    """By its name or its address."""
    place = json_of("broker", "list")["brokers"][0]
    shown = json_of("broker", "status", place["name"])
    assert shown["state"]["place"] == place
    assert shown["counters"]["brokerVersionDesc"] == "V5_3_3"
    text = mqadmin("broker", "status", place["address"]).out
    assert text.startswith(f"Broker {place['name']}, master, {place['address']}\n")


def test_a_setting_is_changed_and_read_back(json_of: Callable[..., Any], mqadmin: RunCommand) -> None:
    """Of a broker."""
    name = json_of("broker", "list")["brokers"][0]["name"]
    changed = json_of("broker", "config", "set", name, KEY, "48")
    assert (changed["kind"], changed["name"], changed["action"]) == ("setting", KEY, "updated")
    (setting,) = json_of("broker", "config", "get", name, KEY)["settings"]
    assert setting == {"server": changed["servers"][0], "key": KEY, "value": "48"}
    refused = mqadmin("broker", "config", "set", name, "noSuchSetting", "1")
    assert (refused.code, refused.out) == (5, "")
    assert "has no setting noSuchSetting, and ignored it" in refused.err


def test_settings_of_name_servers_are_shown_and_changed(json_of: Callable[..., Any], mqadmin: RunCommand) -> None:
    """On each of them."""
    key = "deleteTopicWithBrokerRegistration"
    assert mqadmin("namesrv", "config", "set", key, "true").out.startswith(f"Setting {key} is updated on ")
    (setting,) = json_of("namesrv", "config", "get", key)["settings"]
    assert setting["value"] == "true"
    assert key in mqadmin("namesrv", "config", "get").out


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("cluster", "status", "--cluster", "none"), 2, "no cluster none is registered."),
        (("broker", "status", "missing"), 2, "no master with the name missing is registered."),
        (("broker", "status", "missing:x"), 1, "'missing:x' is neither the name of a broker nor host:port."),
        (("broker", "config", "get", "broker-a", "noSuchSetting"), 2, "has no setting noSuchSetting."),
        (("namesrv", "config", "get", "noSuchSetting"), 2, "has no setting noSuchSetting."),
    ],
)
def test_failures_are_one_line(mqadmin: RunCommand, arguments: tuple[str, ...], code: int, cause: str) -> None:
    """With the cause, and the exit code of its class."""
    result = mqadmin(*arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert cause in result.err
