"""Checks of the state and settings that brokers report."""

import time

import pytest

from skylarkmq.clients.mqadmin.doctor.broker_state import size_bytes, skew_ms
from skylarkmq.clients.mqadmin.doctor.subject import State
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.clients.mqadmin.doctor.conftest import ScriptedCluster
from tests.clients.peer import refuse


@pytest.mark.parametrize(
    ("key", "value", "severity", "check", "what"),
    [
        ("commitLogDiskRatio", "0.78", "warning", "disks", "the disk is 78 % full: from 75 % on, expired files"),
        ("commitLogDiskRatio", "0.86", "error", "disks", "the disk is 86 % full: from 85 % on, messages are deleted"),
        ("commitLogDiskRatio", "0.95", "error", "disks", "the disk is 95 % full: from 90 % on, sends fail"),
        ("brokerActive", "false", "warning", "storage", "the broker is not active"),
        ("dispatchBehindBytes", str(100 << 20), "warning", "storage", "100 MiB of stored messages are not yet visible"),
        ("remainHowManyDataToFlush", "1.5 GiB", "warning", "storage", "1,536 MiB of messages are not flushed"),
        ("pageCacheLockTimeMills", "1500", "error", "storage", "a write to the log takes 1500 ms: from 1000 ms on"),
        ("sendThreadPoolQueueHeadWaitTimeMills", "300", "error", "storage", "sends wait for 300 ms: from 200 ms on"),
        ("timerReadBehind", "90", "warning", "timers", "messages with a delivery time are 90 s late"),
    ],
)
def test_a_bad_state_is_one_finding(
    cluster: ScriptedCluster, key: str, value: str, severity: str, check: str, what: str
) -> None:
    """With the figure, and the limit from which it matters."""
    cluster.runtime[key] = value
    (finding,) = cluster.findings()
    assert finding[:2] == (severity, check)
    assert finding[2].startswith(what)


def test_limits_are_those_of_the_brokers_settings(cluster: ScriptedCluster) -> None:
    """Of the disk, and of the waits."""
    cluster.settings.update(diskMaxUsedSpaceRatio="40", waitTimeMillsInSendQueue="1000")
    cluster.runtime["sendThreadPoolQueueHeadWaitTimeMills"] = "300"
    assert [finding[1:] for finding in cluster.findings()] == [
        ("disks", "the disk is 50 % full: from 40 % on, expired files are deleted at any hour")
    ]


def test_states_that_a_broker_does_not_report_are_not_examined(cluster: ScriptedCluster) -> None:
    """As with other versions: they are no findings."""
    cluster.runtime.clear()
    cluster.runtime["commitLogDiskRatio"] = "unknown"
    report = cluster.report()
    assert report.findings == []
    missing = {each.check for each in report.not_examined if each.where == f"b:0 {cluster.peer.address}"}
    assert missing == {"clocks", "disks", "storage", "timers"}


def test_settings_that_cannot_be_read_are_not_examined(cluster: ScriptedCluster) -> None:
    """The defaults of RocketMQ are the limits of the other checks."""
    cluster.peer.on(RequestCode.GET_BROKER_CONFIG, refuse(ResponseCode.NO_PERMISSION))
    cluster.runtime["commitLogDiskRatio"] = "0.8"
    report = cluster.report()
    assert [finding.check for finding in report.findings] == ["disks"]
    assert {"settings", "delayed messages"} < {each.check for each in report.not_examined}


def test_settings_without_effect_are_a_note(cluster: ScriptedCluster) -> None:
    """The exit code is 0. On a broker of RocketMQ they have an effect."""
    cluster.settings.update(useEpollNativeSelector="true", asyncSendEnable="true")
    what = "settings of RocketMQ without effect here: asyncSendEnable, useEpollNativeSelector"
    assert cluster.findings() == [("note", "settings", what)]
    assert cluster.doctor().code == 0
    del cluster.settings["embeddedNamesrvPort"]
    assert cluster.findings() == []


@pytest.mark.parametrize(("shift_s", "direction"), [(-3600, "behind"), (3600, "ahead of")])
def test_a_clock_that_differs_is_found(cluster: ScriptedCluster, shift_s: int, direction: str) -> None:
    """In both directions."""
    cluster.runtime["bootTimestamp"] = str(time.time_ns() // 1_000_000 + shift_s * 1000)
    (finding,) = cluster.findings()
    assert finding[:2] == ("warning", "clocks")
    assert finding[2].endswith(f"s {direction} the clock of this host")


def test_the_difference_of_clocks_includes_the_resolution_and_the_request() -> None:
    """The least and the greatest possible difference."""
    runtime = "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
    elapsed_ms = (((24 + 2) * 60 + 3) * 60 + 4) * 1000
    state = State({"bootTimestamp": "1000", "runtime": runtime}, sent_ms=elapsed_ms, received_ms=elapsed_ms + 200)
    assert skew_ms(state) == (800, 1999)
    assert skew_ms(state._replace(table={"bootTimestamp": "1000"})) is None


@pytest.mark.parametrize(
    ("text", "size"),
    [("0 B", 0), ("2.5 KiB", 2560), ("1 GB", 2**30), ("", None), ("much", None), (None, None)],
)
def test_sizes_are_read_with_their_units(text: str | None, size: float | None) -> None:
    """In powers of 1024."""
    assert size_bytes(text) == size
