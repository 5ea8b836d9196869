"""Commands that write the state of a cluster to files."""

import json
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.rocketmq.conftest import GROUP, TOPIC, Live

CLUSTER = ("-c", "DefaultCluster")


def test_settings_are_exported(mqadmin: RunCommand, tmp_path: Path) -> None:
    """Those of RocketMQ's tool, with the number of brokers and name servers."""
    result = mqadmin("exportConfigs", *CLUSTER, "-f", str(tmp_path / "new"))
    assert result.out == f"export {tmp_path / 'new/configs.json'} success"
    content = json.loads((tmp_path / "new/configs.json").read_text())
    assert content["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 1, "slaveBrokerSize": 0}
    config = content["brokerConfigs"]["broker-a"]
    assert (config["brokerClusterName"], config["brokerRole"]) == ("DefaultCluster", "ASYNC_MASTER")
    assert len(config) == 16


def test_topics_and_groups_are_exported(
    mqadmin: RunCommand, broker: InProcessBroker, live: Live, tmp_path: Path
) -> None:
    """Those of users: of a cluster in one file or in two, and of a broker with the version of the table."""
    to = ("-f", str(tmp_path))
    assert mqadmin("exportMetadata", *CLUSTER, *to).out == f"export {tmp_path / 'metadata.json'} success\n"
    content = json.loads((tmp_path / "metadata.json").read_text())
    assert sorted(content) == ["exportTime", "subscriptionGroupTable", "topicConfigTable"]
    assert content["topicConfigTable"][TOPIC]["readQueueNums"] == 2
    assert not any(name.startswith(("%RETRY%", "RMQ_SYS", "TBW102")) for name in content["topicConfigTable"])
    assert list(content["subscriptionGroupTable"]) == [GROUP]
    assert mqadmin("exportMetadata", *CLUSTER, *to, "-t", "-s").code == 0
    content = json.loads((tmp_path / "topic.json").read_text())
    assert sorted(content) == ["exportTime", "topicConfigTable"]
    assert f"%RETRY%{GROUP}" in content["topicConfigTable"]
    assert mqadmin("exportMetadata", *CLUSTER, *to, "-g").code == 0
    assert sorted(json.loads((tmp_path / "subscriptionGroup.json").read_text())) == [
        "exportTime",
        "subscriptionGroupTable",
    ]
    at = ("-b", broker.address)
    assert mqadmin("exportMetadata", *at, *to, "-t").out == f"export {tmp_path / 'topic.json'} success"
    assert json.loads((tmp_path / "topic.json").read_text())["dataVersion"]["counter"] > 0
    assert mqadmin("exportMetadata", *at, *to, "-g").code == 0
    assert list(json.loads((tmp_path / "subscriptionGroup.json").read_text())["subscriptionGroupTable"]) == [GROUP]


def test_figures_are_exported(mqadmin: RunCommand, live: Live, tmp_path: Path) -> None:
    """Of each master, and their sums."""
    assert mqadmin("exportMetrics", *CLUSTER, "-f", str(tmp_path)).out == f"export {tmp_path / 'metrics.json'} success"
    content = json.loads((tmp_path / "metrics.json").read_text())
    report = content["evaluateReport"]["broker-a"]
    assert report["runtimeVersion"] == {"rocketmqVersion": "V5_3_3", "clientInfo": ["PYTHON%V5_3_3"]}
    assert (report["runtimeQuota"]["groupSize"], report["runtimeQuota"]["topicSize"]) == (1, 1)
    assert sorted(report["runtimeQuota"]["diskRatio"]) == ["commitLogDiskRatio", "consumeQueueDiskRatio"]
    assert sorted(content["totalData"]["totalTps"]) == [
        "totalNormalInTps",
        "totalNormalOutTps",
        "totalScheduleInTps",
        "totalTransInTps",
    ]
    assert content["totalData"]["totalOneDayNum"] == report["runtimeQuota"]["oneDayNum"]


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("exportConfigs", "-c", "Nowhere"), 2, "no cluster Nowhere is registered"),
        (("exportMetadata",), 1, "give the name of a cluster (-c)"),
        (("exportMetadata", "-b", "BROKER"), 1, "with -b give -t for the topics or -g for the groups"),
        (("exportMetrics", "-c", "DefaultCluster", "-f", "FILE/sub"), 1, "FILE"),
    ],
)
def test_failures_are_one_line(
    mqadmin: RunCommand, broker: InProcessBroker, tmp_path: Path, arguments: tuple[str, ...], code: int, cause: str
) -> None:
    """On stderr, with the cause; no file is written."""
    file = tmp_path / "FILE"
    file.write_text("no directory")
    result = mqadmin(*(its.replace("BROKER", broker.address).replace("FILE", str(file)) for its in arguments))
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert cause in result.err
