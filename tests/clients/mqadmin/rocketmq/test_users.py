"""Commands about users and policies, against a broker with authentication."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, running
from tests.clients.mqadmin.conftest import RunCommand

ROOT_SECRET = "the-secret-of-root"
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT_SECRET}),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture(autouse=True)
def tools_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a ROCKETMQ_HOME with the credentials of the super user."""
    (home / "conf").mkdir()
    (home / "conf/tools.yml").write_text(f"accessKey: root\nsecretKey: {ROOT_SECRET}\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    return home


def test_users_are_created_changed_and_deleted(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With the texts and columns of RocketMQ's tool."""
    at, address = ("-b", broker.address), broker.address
    assert mqadmin("createUser", *at, "-u", "alice", "-p", "first").out == f"create user to {address} success.\n"
    assert mqadmin("updateUser", *at, "-u", "alice", "-t", "Super").out == f"update user to {address} success.\n"
    assert mqadmin("updateUser", *at, "-u", "alice", "-s", "disable").code == 0
    assert mqadmin("getUser", *at, "-u", "alice").out.splitlines() == [
        "#UserName         #Password               #UserType               #UserStatus           ",
        "alice             first                   Super                   disable               ",
    ]
    assert mqadmin("deleteUser", *at, "-u", "alice").out == f"delete user to {address} success.\n"
    gone = mqadmin("getUser", *at, "-u", "alice")
    assert (gone.code, gone.out, gone.err) == (2, "", "mqadmin: no user alice. `mqadmin listUser` lists the users.\n")


def test_users_of_a_cluster_are_listed(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """From the first master that has any; a filter selects names."""
    mqadmin("createUser", "-c", "DefaultCluster", "-u", "bob", "-p", "secret")
    listed = mqadmin("listUser", "-c", "DefaultCluster")
    assert [row[0] for row in listed.rows] == ["bob", "root", f"get user from {broker.address} success."]
    assert [row[0] for row in mqadmin("listUser", "-b", broker.address, "-f", "oo").rows] == ["root"]
    assert mqadmin("listUser", "-b", broker.address, "-f", "zz").out == ""
    copied = mqadmin("copyUser", "-f", broker.address, "-t", broker.address, "-u", "bob,missing")
    assert copied.out == f"copy user of bob from {broker.address} to {broker.address} success.\n"


def test_policies_are_created_changed_and_deleted(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With the texts and columns of RocketMQ's tool."""
    at, address = ("-b", broker.address, "-s", "User:carol"), broker.address
    mqadmin("createUser", "-b", address, "-u", "carol", "-p", "secret")
    resources = ("-r", "Topic:A, Group:g*", "-a", "Pub,Sub")
    assert mqadmin("createAcl", *at, *resources, "-d", "Allow").out == f"create acl to {address} success.\n"
    changed = mqadmin("updateAcl", *at, "-r", "Topic:A", "-a", "Sub", "-d", "Deny", "-i", "10.0.0.0/8,127.0.0.1")
    assert changed.out == f"update acl to {address} success.\n"
    heads = "#Subject          #PolicyType  #Resource               #Actions              #SourceIp                 "
    group = "User:carol        Custom      Group:g*                [Pub, Sub]            null                      "
    topic = "User:carol        Custom      Topic:A                 [Sub]                 [10.0.0.0/8, 127.0.0.1]   "
    shown = mqadmin("getAcl", *at).out.splitlines()
    assert (shown[0], sorted(shown[1:])) == (f"{heads}#Decision ", [f"{group}Allow     ", f"{topic}Deny      "])
    listed = mqadmin("listAcl", "-c", "DefaultCluster", "-s", "carol", "-r", "Topic").out.splitlines()
    assert listed == [f"{heads}#Decision ", f"{topic}Deny      "]
    copied = mqadmin("copyAcl", "-f", address, "-t", address)
    assert copied.out == f"copy acl of User:carol from {address} to {address} success.\n"
    assert mqadmin("deleteAcl", *at, "-r", "Topic:A").out == f"delete acl to {address} success.\n"
    assert mqadmin("deleteAcl", *at).code == 0
    assert mqadmin("getAcl", *at).code == 2
    assert mqadmin("listAcl", "-b", address).out == ""


def test_a_password_is_read_from_a_file(mqadmin: RunCommand, broker: InProcessBroker, home: Path) -> None:
    """Which only its owner may read; it is an alternative to the option."""
    file = home / "password"
    file.write_text("from-a-file\n")
    file.chmod(0o600)
    given = ("-b", broker.address, "-u", "dora", "--passwordFile", str(file))
    assert mqadmin("createUser", *given).code == 0
    assert mqadmin("getUser", *given[:4]).rows[0][1] == "from-a-file"
    both = mqadmin("updateUser", *given, "-p", "other")
    assert (both.code, both.err) == (1, "mqadmin: give the secret either as a value or as a file.\n")
    file.chmod(0o644)
    exposed = mqadmin("updateUser", *given)
    assert exposed.code == 1
    assert f"chmod 600 {file}" in exposed.err
    file.chmod(0o600)
    for content, cause in ((b"\xff\xfe\0", f"{file} is not UTF-8 text"), (b" \n", f"{file} is empty")):
        file.write_bytes(content)
        refused = mqadmin("updateUser", *given)
        assert (refused.code, refused.err.count("\n")) == (1, 1)
        assert cause in refused.err
    missing = mqadmin("updateUser", *given[:4], "--passwordFile", str(home / "none"))
    assert (missing.code, missing.err) == (1, f"mqadmin: {home / 'none'}: No such file or directory\n")


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("createUser", "-b", "BROKER", "-u", "root", "-p", "hidden"), 4, "The user is existed"),
        (("createUser", "-b", "BROKER", "-u", "eve"), 1, "a user needs a password"),
        (("createUser", "-u", "eve", "-p", "hidden"), 1, "give the address of a broker (-b) or the name of a cluster"),
        (("createUser", "-c", "Nowhere", "-u", "eve", "-p", "hidden"), 2, "no cluster Nowhere is registered"),
        (("createUser", "-b", "127.0.0.1:1", "-u", "eve", "-p", "hidden"), 3, "127.0.0.1:1"),
        (("updateUser", "-b", "BROKER", "-u", "root"), 1, "nothing to change"),
        (("createAcl", "-b", "BROKER", "-s", "User:root", "-r", "Topic:A", "-a", "Any", "-d", "Allow"), 4, "Any"),
    ],
)
def test_failures_are_one_line_without_passwords(
    mqadmin: RunCommand, broker: InProcessBroker, arguments: tuple[str, ...], code: int, cause: str
) -> None:
    """On stderr, with the cause."""
    result = mqadmin(*(argument.replace("BROKER", broker.address) for argument in arguments))
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert cause in result.err
    assert "hidden" not in result.err


def test_without_credentials_nothing_is_permitted(mqadmin: RunCommand, broker: InProcessBroker, home: Path) -> None:
    """The exit code is that of missing permissions."""
    (home / "conf/tools.yml").unlink()
    result = mqadmin("listUser", "-b", broker.address)
    assert (result.code, result.out, result.err.count("\n")) == (4, "", 1)
