"""`mqadmin user`, `mqadmin acl` and the console's login with RocketMQ's own brokers, 4.9.7 and 5.3.3.

5.3.3 has users and policies, which are created, changed, copied to and from Skylark, and deleted. 4.9.7 has accounts of
plain_acl.yml: `user` and `acl` end with the next step. The accounts of both log in to the console.
"""

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.cluster_accounts import ClusterAccounts
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.mqadmin.app.cli import run
from skylarkmq.clients.sdk.base.errors import ClientError
from tests.clients.console.conftest import notice_of, opened
from tests.harness.access_table import ADMINISTRATOR, AUTH, PLAIN, SECRET
from tests.interop.access import SKYLARK, guarded_broker
from tests.interop.brokers import APACHE_VERSIONS, BrokerUnderTest, running_broker

pytestmark = pytest.mark.interop

READER = "publisher"
"""An account without the rights of an administrator, in both versions."""


class Printed(NamedTuple):
    """The exit code of a command, and its output."""

    code: int
    out: str
    err: str


def mqadmin(broker: BrokerUnderTest, *arguments: str) -> Printed:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*arguments, "-n", broker.namesrv])
    return Printed(code, out.getvalue(), err.getvalue())


def json_of(broker: BrokerUnderTest, *arguments: str) -> Any:
    printed = mqadmin(broker, *arguments, "--json")
    assert (printed.code, printed.err) == (0, "")
    return json.loads(printed.out)


@pytest.fixture(scope="module", params=APACHE_VERSIONS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    """Yield RocketMQ's broker with the access control of its version."""
    version: str = request.param
    with guarded_broker(f"apache-{version}", version, tmp_path_factory.mktemp(version)) as running:
        yield running


@pytest.fixture
def generation(request: pytest.FixtureRequest) -> str:
    """Return the version of the broker, which names its access control."""
    params = request.node.callspec.params
    return str(params.get("broker") or params["version"])


@pytest.fixture
def as_administrator(generation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give mqadmin the credentials of the administrator; return a file with a password."""
    credentials = ADMINISTRATOR[generation]
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/tools.yml").write_text(
        f"accessKey: {credentials.access_key}\nsecretKey: {credentials.secret_key}\n"
    )
    password = tmp_path / "password"
    password.write_text("the-password-of-zoe")
    password.chmod(0o600)
    for name in ("NAMESRV_ADDR", "SKYLARK_PROFILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    return str(password)


def test_users_and_policies(broker: BrokerUnderTest, generation: str, as_administrator: str) -> None:
    """With 5.3.3 they are created, changed and deleted; 4.9.7 has none, and the line names what it has."""
    if generation == PLAIN:
        for arguments in (("user", "list"), ("user", "create", "zoe", "--password-file", as_administrator)):
            refused = mqadmin(broker, *arguments)
            assert (refused.code, refused.out, refused.err.count("\n")) == (5, "", 1)
            assert "older than RocketMQ 5.3" in refused.err
            assert "updateAclConfig" in refused.err
        return
    created = mqadmin(broker, "user", "create", "zoe", "--password-file", as_administrator)
    assert (created.code, created.out) == (0, f"User zoe is created on {broker.broker_address}.\n")
    row = {"name": "zoe", "type": "Normal", "status": "enable", "brokers": [broker.broker_address]}
    assert json_of(broker, "user", "list", "--filter", "zo")["users"] == [row]
    mqadmin(broker, "user", "update", "zoe", "--type", "super", "--disable")
    assert json_of(broker, "user", "show", "zoe")["users"] == [row | {"type": "Super", "status": "disable"}]
    orders = ("zoe", "--resource", "Topic:Orders")
    json_of(
        broker, "acl", "create", *orders, "--resource", "Group:bill*", "--actions", "Pub,Sub", "--source-ip", "10.0.0.1"
    )
    policy = {
        "subject": "User:zoe", "resource": "Topic:Orders", "actions": ["Pub", "Sub"], "decision": "Allow",
        "sourceIps": ["10.0.0.1"], "type": "Custom", "brokers": [broker.broker_address],
    }  # fmt: skip
    assert json_of(broker, "acl", "show", "zoe")["policies"] == [policy | {"resource": "Group:bill*"}, policy]
    json_of(broker, "acl", "update", *orders, "--decision", "deny", "--source-ip", "all")
    changed = policy | {"decision": "Deny", "sourceIps": []}
    assert json_of(broker, "acl", "list", "--resource", "Orders", "--subject", "zoe")["policies"] == [changed]
    json_of(broker, "acl", "delete", *orders, "--yes")
    assert [each["resource"] for each in json_of(broker, "acl", "show", "zoe")["policies"]] == ["Group:bill*"]
    json_of(broker, "acl", "delete", "zoe", "--all", "--yes")
    assert mqadmin(broker, "acl", "show", "zoe").code == 2
    json_of(broker, "user", "delete", "zoe", "--yes")
    assert mqadmin(broker, "user", "show", "zoe").code == 2


def test_users_are_copied_in_both_directions(
    broker: BrokerUnderTest, generation: str, as_administrator: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From RocketMQ to Skylark and back, with passwords and policies."""
    if generation == PLAIN:
        return
    with guarded_broker(SKYLARK, AUTH, tmp_path_factory.mktemp("skylark")) as skylark:
        theirs, ours = broker.broker_address, skylark.broker_address
        mqadmin(broker, "user", "create", "zoe", "--password-file", as_administrator)
        mqadmin(broker, "acl", "create", "zoe", "--resource", "Topic:Orders", "--actions", "Pub")
        for source, target, place in ((theirs, ours, skylark), (ours, theirs, broker)):
            between = ("--from", source, "--to", target)
            assert json_of(broker, "user", "copy", "zoe", *between)["names"] == ["zoe"]
            assert json_of(broker, "acl", "copy", "zoe", *between)["names"] == ["User:zoe"]
            (user,) = json_of(place, "user", "show", "zoe")["users"]
            assert (user["type"], user["brokers"]) == ("Normal", [target])
            assert "the-password-of-zoe" in mqadmin(place, "getUser", "-b", target, "-u", "zoe").out
            json_of(broker, "user", "delete", "zoe", "--yes", "--broker", source)
        json_of(broker, "user", "delete", "zoe", "--yes")


async def test_accounts_log_in_to_the_console(broker: BrokerUnderTest, generation: str) -> None:
    """Administrators act, others read; wrong passwords and unknown accounts are refused. A login shows pages."""
    administrator = ADMINISTRATOR[generation]
    accounts = ClusterAccounts(Target(broker.namesrv))
    await accounts.check_cluster()
    assert await accounts.may_act(*administrator[:2]) is True
    assert await accounts.may_act(READER, SECRET) is False
    for account, password in ((administrator.access_key, "wrong-password"), ("unknown-account", SECRET)):
        assert await accounts.may_act(account, password) is None
    async with opened(ConsoleOptions(Target(broker.namesrv), accounts=accounts)) as browser:
        await browser.get("/")
        page = await browser.post("/login", account=administrator.access_key, password=administrator.secret_key)
        assert ("broker-a" in page.text, SECRET in page.text) == (True, False)
        await browser.get("/topic-form")
        page = await browser.act("/topics", topic="Made", write_queues=1, read_queues=1, perm=6)
        assert notice_of(page) == "Topic Made is stored on all brokers."


@pytest.mark.parametrize("version", APACHE_VERSIONS)
@pytest.mark.usefixtures("as_administrator")
def test_a_broker_without_access_control(version: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """It has no login, and `user` ends with the next step."""
    with running_broker(f"apache-{version}", tmp_path_factory.mktemp("open")) as broker:
        with pytest.raises(ClientError, match="no login can be verified"):
            asyncio.run(ClusterAccounts(Target(broker.namesrv)).check_cluster())
        refused = mqadmin(broker, "user", "list")
        assert (refused.code, refused.out, refused.err.count("\n")) == (5, "", 1)
        assert ("older than RocketMQ 5.3" if version == PLAIN else "set authenticationEnabled=true") in refused.err
