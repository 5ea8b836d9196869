"""Commands about the accounts of RocketMQ 4.9, against a broker with `aclEnable`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from skylarkmq.broker.app.in_process import InProcessBroker, running
from tests.clients.mqadmin.conftest import RunCommand

SECRET = "an-admins-secret"


@pytest.fixture(scope="module")
def broker_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("broker")
    (directory / "store/conf").mkdir(parents=True)
    accounts = [{"accessKey": "operator", "secretKey": SECRET, "admin": True}]
    (directory / "store/conf/plain_acl.yml").write_text(json.dumps({"accounts": accounts}))
    return directory


@pytest.fixture(scope="module")
def broker(broker_home: Path) -> Iterator[InProcessBroker]:
    with running(broker_home, {"aclEnable": "true"}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def tools_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sign as the administrator."""
    (home / "conf").mkdir()
    (home / "conf/tools.yml").write_text(f"accessKey: operator\nsecretKey: {SECRET}\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))


def accounts(broker_home: Path) -> dict[str, dict[str, object]]:
    """Return the accounts in the broker's file, by name."""
    content = yaml.safe_load((broker_home / "store/conf/plain_acl.yml").read_text())
    return {account["accessKey"]: account for account in content["accounts"]}


def test_accounts_are_created_and_deleted(mqadmin: RunCommand, broker: InProcessBroker, broker_home: Path) -> None:
    """The file of the broker changes; the secret is never printed."""
    result = mqadmin(
        "updateAclConfig",
        "-b",
        broker.address,
        "-a",
        "the-reader",
        "-s",
        "hidden-secret",
        "-t",
        "A=SUB,B=DENY",
        "-g",
        "g=SUB",
        "-i",
        "DENY",
        "-u",
        "SUB",
        "-w",
        "10.0.0.*",
        "-m",
        "false",
    )
    assert result.out == (
        f"create or update plain access config to {broker.address} success.\naccount's accesskey is:the-reader"
    )
    assert accounts(broker_home)["the-reader"] == {
        "accessKey": "the-reader",
        "secretKey": "hidden-secret",
        "whiteRemoteAddress": "10.0.0.*",
        "admin": False,
        "defaultTopicPerm": "DENY",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["A=SUB", "B=DENY"],
        "groupPerms": ["g=SUB"],
    }
    deleted = mqadmin("deleteAclConfig", "-c", "DefaultCluster", "-a", "the-reader")
    assert deleted.out == (
        f"delete plain access config account from {broker.address} success.\naccount's accesskey is:the-reader"
    )
    assert "the-reader" not in accounts(broker_home)


def test_a_secret_is_read_from_a_file(mqadmin: RunCommand, broker: InProcessBroker, home: Path) -> None:
    """As an alternative to the option; one of both is needed."""
    file = home / "secret"
    file.write_text("a-secret-of-a-file")
    file.chmod(0o600)
    at = ("updateAclConfig", "-b", broker.address, "-a", "from-file")
    assert mqadmin(*at, "--secretKeyFile", str(file)).code == 0
    without = mqadmin(*at)
    assert (without.code, without.err) == (1, "mqadmin: an account needs a secret: give --secretKeyFile or -s.\n")


def test_versions_and_white_addresses(mqadmin: RunCommand, broker: InProcessBroker, broker_home: Path) -> None:
    """The version of each file is a row; for a cluster under a heading."""
    white = mqadmin("updateGlobalWhiteAddr", "-b", broker.address, "-g", "127.0.0.4,10.10.*.*")
    assert white.out == f"update global white remote addresses to {broker.address} success.\n"
    content = yaml.safe_load((broker_home / "store/conf/plain_acl.yml").read_text())
    assert content["globalWhiteRemoteAddresses"] == ["127.0.0.4", "10.10.*.*"]
    of_cluster = mqadmin("clusterAclConfigVersion", "-c", "DefaultCluster").out.splitlines()
    assert of_cluster[0] == (
        "#Cluster Name     #Broker Name            #Broker Addr            #AclFilePath          "
        "#AclConfigVersionNum    #AclLastUpdateTime    "
    )
    row = re.split(r"\s{2,}", of_cluster[1].strip())
    assert row[:4] == ["DefaultCluster", "broker-a", broker.address, str(broker_home / "store/conf/plain_acl.yml")]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row[5])
    assert of_cluster[2] == "get cluster's plain access config version success."
    of_broker = mqadmin("clusterAclConfigVersion", "-b", broker.address).out.splitlines()
    assert of_broker == [of_cluster[1], "get broker's plain access config version success."]


def test_refusals_are_one_line_without_secrets(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """Of invalid accounts, and of unknown ones."""
    short = mqadmin("updateAclConfig", "-b", broker.address, "-a", "newcomer", "-s", "short1")
    assert (short.code, short.out, short.err.count("\n")) == (5, "", 1)
    assert "secretKey=****** cannot be null" in short.err
    unknown = mqadmin("deleteAclConfig", "-b", broker.address, "-a", "missing")
    assert (unknown.code, unknown.out, unknown.err.count("\n")) == (5, "", 1)
