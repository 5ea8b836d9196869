"""The login of `mqadmin console --login`: accounts of a cluster, verified by its brokers."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.console.app import application as console_application
from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.cluster_accounts import MAX_LENGTH, ClusterAccounts
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.clients.mqadmin.app.cli import run
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError, ConnectFailed
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.bodies.auth import UserInfo
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.console.conftest import notice_of, opened
from tests.clients.peer import Peer
from tests.harness.certificates import Certificates
from tests.harness.limits import PROCESS_LIMIT_S, WAIT_LIMIT_S

SECRET = "secret-of-root"
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": SECRET}),
}
PLAIN = [
    {"accessKey": "operator", "secretKey": SECRET, "admin": True},
    {"accessKey": "reader-1", "secretKey": "secret-of-reader", "admin": False},
    {"accessKey": "trusted", "secretKey": "secret-of-trusted", "admin": True, "whiteRemoteAddress": "127.0.0.1"},
]
CHECKS_NOTHING = r"accepts requests from this host with any password, so no login can be verified"


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_application, "FAILED_LOGIN_S", 0.0)


@pytest.fixture(scope="module")
def with_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """Yield a broker with users: `root` is a super user, `ben` has no rights, `off` is disabled."""

    async def fill(broker: InProcessBroker) -> None:
        async with Admin(namesrv=broker.namesrv, credentials=Credentials("root", SECRET)) as admin:
            await admin.access.create_user(broker.address, UserInfo("ben", "secret-of-ben"))
            await admin.access.create_user(broker.address, UserInfo("off", "secret-of-off"))
            await admin.access.update_user(broker.address, UserInfo("off", user_status="disable"))

    with running(tmp_path_factory.mktemp("users"), USERS) as broker:
        asyncio.run(fill(broker))
        yield broker


@pytest.fixture(scope="module")
def with_plain_acl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    """Yield a broker with accounts of RocketMQ 4.9."""
    home = tmp_path_factory.mktemp("plain")
    file = home / "store/conf/plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"accounts": PLAIN}))
    file.chmod(0o600)
    with running(home, {"aclEnable": "true"}) as broker:
        yield broker


def accounts_of(broker: InProcessBroker) -> ClusterAccounts:
    return ClusterAccounts(Target(broker.namesrv))


@pytest.mark.parametrize(
    ("account", "password", "role"),
    [
        ("root", SECRET, True),
        ("ben", "secret-of-ben", False),
        ("off", "secret-of-off", None),
        ("ben", "secret-of-root", None),
        ("eve", SECRET, None),
        ("root", "", None),
        ("root", "x" * (MAX_LENGTH + 1), None),
    ],
)
async def test_users_are_verified_by_their_broker(
    with_users: InProcessBroker, account: str, password: str, role: bool | None
) -> None:
    """Super users act, others read; wrong passwords and disabled users are no accounts."""
    assert await accounts_of(with_users).may_act(account, password) is role


@pytest.mark.parametrize(
    ("account", "password", "role"),
    [("operator", SECRET, True), ("reader-1", "secret-of-reader", False), ("operator", "no", None), ("x", "y", None)],
)
async def test_accounts_of_4_9_are_verified_by_their_broker(
    with_plain_acl: InProcessBroker, account: str, password: str, role: bool | None
) -> None:
    """Accounts with `admin: true` act, others read. No setting changes."""
    async with Admin(namesrv=with_plain_acl.namesrv, credentials=Credentials("operator", SECRET)) as admin:
        before = await admin.brokers.config(with_plain_acl.address)
        assert await accounts_of(with_plain_acl).may_act(account, password) is role
        assert await admin.brokers.config(with_plain_acl.address) == before


async def test_an_account_whose_address_is_trusted_cannot_log_in(with_plain_acl: InProcessBroker) -> None:
    """From a white address the broker accepts every password, so the login says that it cannot be verified."""
    with pytest.raises(ClientError, match=CHECKS_NOTHING):
        await accounts_of(with_plain_acl).may_act("trusted", "any")


async def test_a_cluster_without_access_control_has_no_login(broker: InProcessBroker) -> None:
    """It would accept every password."""
    with pytest.raises(ClientError, match=CHECKS_NOTHING):
        await accounts_of(broker).check_cluster()
    with pytest.raises(ClientError, match=CHECKS_NOTHING):
        await accounts_of(broker).may_act("root", SECRET)


async def test_a_cluster_that_is_not_running_is_no_wrong_password(with_users: InProcessBroker) -> None:
    """A login raises the error of the connection; the check of the cluster waits for the first login."""
    absent = ClusterAccounts(Target("127.0.0.1:1"))
    with pytest.raises(ConnectFailed):
        await absent.may_act("root", SECRET)
    await absent.check_cluster()
    await accounts_of(with_users).check_cluster()


class Cluster:
    """A name server that names masters: a broker with users, and an address or a scripted peer."""

    def __init__(self, broker: InProcessBroker, peer: Peer) -> None:
        self.peer = peer
        self._broker = broker
        self.accounts = ClusterAccounts(Target(peer.address))

    def masters(self, *others: str) -> None:
        addresses = {f"b{number}": address for number, address in enumerate((self._broker.address, *others))}
        table = {name: BrokerData("c", name, {0: address}) for name, address in addresses.items()}
        info = ClusterInfo(table, {"c": list(table)})
        self.peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info.encode()))


@pytest.fixture
async def cluster(with_users: InProcessBroker) -> AsyncIterator[Cluster]:
    peer = Peer()
    await peer.listen()
    yield Cluster(with_users, peer)
    await peer.stop()


async def test_every_master_that_responds_must_accept_the_account(cluster: Cluster) -> None:
    """A master that does not run is skipped; one that refuses, or accepts any password, is not."""
    cluster.masters("127.0.0.1:1")
    assert await cluster.accounts.may_act("root", SECRET) is True
    cluster.masters(cluster.peer.address)
    cluster.peer.on(
        RequestCode.UNREGISTER_CLIENT, lambda *_: RemotingCommand.response(ResponseCode.NO_PERMISSION, "no")
    )
    assert await cluster.accounts.may_act("root", SECRET) is None
    cluster.peer.on(RequestCode.UNREGISTER_CLIENT, lambda *_: RemotingCommand.response())
    with pytest.raises(ClientError, match=CHECKS_NOTHING):
        await cluster.accounts.may_act("root", SECRET)
    with pytest.raises(ClientError, match=CHECKS_NOTHING):
        await cluster.accounts.check_cluster()
    cluster.peer.on(
        RequestCode.UNREGISTER_CLIENT, lambda *_: RemotingCommand.response(ResponseCode.SYSTEM_BUSY, "busy")
    )
    with pytest.raises(BrokerError, match="busy"):
        await cluster.accounts.may_act("root", SECRET)


async def test_a_login_acts_with_its_own_account(with_users: InProcessBroker) -> None:
    """Wrong passwords get 401 and one line; a super user creates a topic; no page and no object shows the password."""
    options = ConsoleOptions(Target(with_users.namesrv), accounts=accounts_of(with_users))
    async with opened(options) as browser:
        await browser.get("/")
        refused = await browser.post("/login", account="root", password="wrong")
        assert (refused.status_code, notice_of(refused)[:41]) == (401, "Unknown account or wrong password. Use an")
        page = await browser.post("/login", account="root", password=SECRET)
        assert ("broker-a" in page.text, SECRET in page.text) == (True, False)
        await browser.get("/topic-form")
        page = await browser.act("/topics", topic="Made", write_queues=1, read_queues=1, perm=6)
        assert notice_of(page) == "Topic Made is stored on all brokers."
        await browser.post("/logout")
        page = await browser.post("/login", account="ben", password="secret-of-ben")
        assert "ben (read-only)" in page.text
        assert (await browser.get("/groups")).status_code == 403
    assert SECRET not in repr(options)


async def test_a_login_that_cannot_be_verified_is_a_page_with_the_reason(broker: InProcessBroker) -> None:
    """The login stays, with the cause and the next step instead of a wrong password."""
    for namesrv, status, cause in (
        (broker.namesrv, 502, "no login can be verified"),
        ("127.0.0.1:1", 503, "127.0.0.1:1"),
    ):
        async with opened(ConsoleOptions(Target(namesrv), accounts=ClusterAccounts(Target(namesrv)))) as browser:
            await browser.get("/")
            page = await browser.post("/login", account="root", password=SECRET)
            assert (page.status_code, cause in notice_of(page)) == (status, True)
            assert 'id="login"' in page.text


# -------------------------------------------------------------------------------------------------------- the command


def test_other_addresses_need_a_login(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --login the console listens on loopback addresses only: one line with the next step, exit code 1."""
    assert run(["console", "--address", "0.0.0.0"]) == 1
    line = capsys.readouterr().err
    assert "0.0.0.0 is not a loopback address, and this console has no login. Give --login" in line
    assert line.count("\n") == 1


def test_a_login_needs_access_control(broker: InProcessBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster that verifies no accounts stops the command with one line."""
    assert run(["console", "--login", "--address", "0.0.0.0", "--port", "0", "-n", broker.namesrv]) == 5
    line = capsys.readouterr().err
    assert re.search(CHECKS_NOTHING, line)
    assert line.count("\n") == 1


def test_the_certificate_must_be_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing, exposed or broken file is one line, exit code 1."""
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    broken.chmod(0o644)
    exposed = f"other users can read {broken}"
    cases: list[tuple[tuple[Any, ...], str]] = [
        (("--tls-key", broken), "--tls-key needs --tls-cert."),
        (("--tls-cert", tmp_path / "none"), f"{tmp_path / 'none'} is not a file"),
        (("--tls-cert", broken), exposed),
        (("--tls-cert", broken, "--tls-key", broken), exposed),
    ]
    for options, cause in cases:
        assert run(["console", "--port", "0", *map(str, options)]) == 1
        line = capsys.readouterr().err
        assert cause in line
        assert line.count("\n") == 1
    broken.chmod(0o600)
    assert run(["console", "--port", "0", "--tls-cert", str(broken)]) == 1
    assert "are not a certificate and its key in PEM" in capsys.readouterr().err


@contextmanager
def console_process(*options: object) -> Iterator[subprocess.Popen[str]]:
    """Yield a process of `mqadmin console --login` on all addresses, which is killed on failure."""
    command = [
        sys.executable,
        "-c",
        "from skylarkmq.commands import mqadmin; mqadmin()",
        "console",
        "--port",
        "0",
        "--login",
        "--address",
        "0.0.0.0",
        *map(str, options),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


@pytest.mark.daemon
def test_the_console_is_served_to_other_machines_over_tls(with_users: InProcessBroker, tmp_path: Path) -> None:
    """On all addresses, with a login, a Secure cookie and the names of any host; SIGINT ends it."""
    made = Certificates(tmp_path)
    pair = made.issue("console")
    files = ("--tls-cert", pair.cert, "--tls-key", pair.key)
    with console_process(*files, "-n", with_users.namesrv) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().removeprefix("console: ").strip()
        local = address.replace("0.0.0.0", "127.0.0.1")
        with httpx.Client(base_url=local, verify=made.client_context(), headers={"host": "console.example"}) as http:
            login = http.get("/login")
            assert login.headers["set-cookie"].endswith("; HttpOnly; SameSite=Strict; Secure")
            (token,) = re.findall(r'name="csrf" value="([0-9a-f]+)"', login.text)
            form = {"csrf": token, "account": "root", "password": SECRET, "next": "/"}
            cookie = login.headers["set-cookie"].partition(";")[0]
            page = http.post("/login", data=form, headers={"cookie": cookie})
            assert (page.status_code, "Secure" in page.headers["set-cookie"]) == (303, True)
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.get(local.replace("https", "http"))
        process.send_signal(signal.SIGINT)
        assert process.wait(PROCESS_LIMIT_S) in {0, 130}
        assert process.stderr.read() == ""


@pytest.mark.daemon
def test_logins_without_tls_and_refused_logins_are_lines_on_stderr(with_users: InProcessBroker) -> None:
    """Beyond the loopback device, passwords would cross the network in the clear. No line has a password."""
    with console_process("-n", with_users.namesrv) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().removeprefix("console: ").strip()
        assert "passwords cross the network in the clear: give --tls-cert" in process.stderr.readline()
        with httpx.Client(base_url=address.replace("0.0.0.0", "127.0.0.1"), timeout=WAIT_LIMIT_S) as http:
            (token,) = re.findall(r'name="csrf" value="([0-9a-f]+)"', http.get("/login").text)
            form = {"csrf": token, "account": "root", "password": "wrong-password"}
            assert http.post("/login", data=form).status_code == 401
        line = process.stderr.readline()
        assert "console login refused account='root' peer=127.0.0.1" in line
        assert "wrong-password" not in line
        process.send_signal(signal.SIGINT)
        assert process.wait(PROCESS_LIMIT_S) in {0, 130}
