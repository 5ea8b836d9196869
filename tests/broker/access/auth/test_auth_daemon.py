"""A whole broker with access control of RocketMQ 5.3: users over their requests, restarts, files and secrets."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from skylarkmq.protocol.codes import RequestCode
from tests.harness.daemon import MQBROKER, Daemon, running, variables
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK
from tests.harness.raw import RawClient, RawResponse
from tests.harness.scraped import scrape
from tests.harness.signed import signed

pytestmark = pytest.mark.daemon

ROOT_SECRET = "root-secret-1"
INNER_SECRET = "inner-secret-2"
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT_SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": INNER_SECRET}),
}
SEND = {"a": "PG", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "m": False}
PULL = {
    "consumerGroup": "G", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "commitOffset": 0, "sysFlag": 4,
    "suspendTimeoutMillis": 0, "subVersion": 1, "subscription": "*",
}  # fmt: skip


class User:
    """A client that signs its requests."""

    def __init__(self, daemon: Daemon, username: str, password: str) -> None:
        self._client = RawClient(LOOPBACK, daemon.broker_port)
        self._username, self._password = username, password

    def call(self, code: int, ext: dict[str, object] | None = None, body: Any = None) -> RawResponse:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self._client.call(code, signed(self._username, self._password, ext, data), data)

    def send(self, topic: str, body: bytes = b"body") -> RawResponse:
        return self.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": topic}, body)

    def pull(self, topic: str) -> RawResponse:
        return self.call(RequestCode.PULL_MESSAGE, PULL | {"topic": topic})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def root(daemon: Daemon, password: str = ROOT_SECRET) -> User:
    return User(daemon, "root", password)


def alice(daemon: Daemon, password: str = "pw") -> User:
    return User(daemon, "alice", password)


def give(admin: User, username: str, *grants: tuple[str, str]) -> None:
    """Create or extend the policies of a user by (resource, action) pairs."""
    entries = [{"resource": resource, "actions": [action], "decision": "Allow"} for resource, action in grants]
    body = {"policies": [{"entries": entries}]}
    assert admin.call(RequestCode.AUTH_CREATE_ACL, {"subject": f"User:{username}"}, body).code == 0


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running(directory=tmp_path, settings=SETTINGS) as daemon:
        yield daemon


def test_a_user_gets_rights_at_once_and_loses_them_at_once(daemon: Daemon) -> None:
    """Without a restart, on an open connection, for sends and pulls on the fast path, too."""
    where = "from 127.0.0.1, no matched policies."
    with root(daemon) as admin, alice(daemon) as client:
        assert client.send("T").remark == "User:alice is not found."
        assert admin.call(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, {"password": "pw"}).code == 0
        assert client.send("T").remark == f"User:alice has no permission to access Topic:T {where}"
        give(admin, "alice", ("Topic:T", "Pub"))
        assert [client.send("T", b"%d" % number).code for number in range(3)] == [0, 0, 0]
        assert client.send("S").remark == f"User:alice has no permission to access Topic:S {where}"
        assert client.pull("T").remark == f"User:alice has no permission to access Topic:T {where}"
        give(admin, "alice", ("Topic:T", "Sub"), ("Group:G", "Sub"))
        assert client.pull("T").code == 0
        assert client.send("T").code == 16  # the entry about T was replaced
        assert admin.call(RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, {"userStatus": "disable"}).code == 0
        assert client.pull("T").remark == "User:alice is disabled."
    page = asyncio.run(scrape(daemon.health_port))
    assert [page.value(f"skylark_auth_{name}") for name in ("users", "subjects")] == [3, 1]
    refused = [page.value("skylark_auth_refused_total", step=step) for step in ("authentication", "authorization")]
    assert refused == [2, 4]


def test_a_run_of_sends_is_served_up_to_the_first_that_is_refused(daemon: Daemon) -> None:
    """Requests of one read: each has its own response, and only permitted messages are stored."""
    topics = "TTSTTST"
    requests = [(signed("alice", "pw", SEND | {"b": topic}, b"x"), b"x") for topic in topics]
    with root(daemon) as admin, RawClient(LOOPBACK, daemon.broker_port) as client:
        admin.call(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, {"password": "pw"})
        give(admin, "alice", ("Topic:T", "Pub"))
        codes = dict(client.pipeline(RequestCode.SEND_MESSAGE_V2, requests))
        assert [codes[number].code for number in range(len(topics))] == [0, 0, 16, 0, 0, 16, 0]
        offset = admin.call(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).ext["offset"]
        assert offset == "5"
        assert admin.call(RequestCode.GET_TOPIC_CONFIG, {"topic": "S"}).code != 0


def test_users_and_policies_survive_a_kill(tmp_path: Path) -> None:
    """An answered change is on disk; the user of the configuration does not get its old password back."""
    with running(directory=tmp_path, settings=SETTINGS) as daemon, root(daemon) as admin:
        assert admin.call(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, {"password": "pw"}).code == 0
        give(admin, "alice", ("Topic:T", "Pub"))
        assert admin.call(RequestCode.AUTH_UPDATE_USER, {"username": "root"}, {"password": "new"}).code == 0
        daemon.stop(signal.SIGKILL)
    with running(directory=tmp_path, settings=SETTINGS) as daemon, root(daemon, "new") as admin, root(daemon) as old:
        assert old.call(RequestCode.AUTH_LIST_USER).remark == "check signature failed."
        users = json.loads(admin.call(RequestCode.AUTH_LIST_USER).body)
        passwords = {user["username"]: user["password"] for user in users}
        assert passwords == {"alice": "pw", "inner": INNER_SECRET, "root": "new"}
        with alice(daemon) as client:
            assert client.send("T").code == 0


def test_the_files_are_private_and_nothing_else_contains_a_secret(tmp_path: Path) -> None:
    """Mode 0600, no backups; neither the log, the printed settings nor a response contain a password."""
    with running(directory=tmp_path, settings=SETTINGS) as daemon:
        with root(daemon) as admin, alice(daemon, "wrong") as client:
            admin.call(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, {"password": "secret-3"})
            admin.call(RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, {"password": "secret-4"})
            give(admin, "alice", ("Topic:T", "Pub"))
            give(admin, "alice", ("Topic:S", "Pub"))
            settings = admin.call(RequestCode.GET_BROKER_CONFIG).body.decode()
            refused = str(client.call(RequestCode.AUTH_GET_USER, {"username": "root"}))
        assert daemon.stop() == 0
        output = daemon.output
    config = tmp_path / "store" / "config"
    modes = {path.name: path.stat().st_mode & 0o777 for path in config.iterdir() if path.name[:4] in {"user", "acls"}}
    assert modes == {"users.json": 0o600, "acls.json": 0o600}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and b"secret-" in path.read_bytes()] == [
        "users.json"
    ]
    command = [*MQBROKER, "-p"]
    shown = subprocess.run(command, env=variables(SETTINGS), capture_output=True, text=True, check=True).stdout
    for text in (output, settings, shown, refused):
        assert "secret-" not in text
    assert "initAuthenticationUser" in shown


def test_accounts_of_rocketmq_4_9_are_migrated_at_the_start(tmp_path: Path) -> None:
    """They sign with their secrets and have their permissions; the next start migrates nothing again."""
    account = "- {accessKey: orders, secretKey: '12345678', topicPerms: ['T=PUB']}"
    (tmp_path / "plain_acl.yml").write_text(f"accounts:\n{account}\n")
    settings = SETTINGS | {"migrateAuthFromV1Enabled": "true", "aclConfigDir": str(tmp_path)}
    with running(directory=tmp_path, settings=settings) as daemon:
        with User(daemon, "orders", "12345678") as client:
            assert (client.send("T").code, client.send("S").code) == (0, 16)
        with root(daemon) as admin:
            admin.call(RequestCode.AUTH_UPDATE_USER, {"username": "orders"}, {"password": "other"})
        daemon.stop(signal.SIGKILL)
    with running(directory=tmp_path, settings=settings) as daemon, User(daemon, "orders", "other") as client:
        assert client.send("T").code == 0


@pytest.mark.parametrize("name", ["users.json", "acls.json"])
def test_a_torn_file_prevents_the_start(tmp_path: Path, name: str) -> None:
    """The error names the file and contains no password; no list of users is lost unnoticed."""
    with running(directory=tmp_path, settings=SETTINGS) as daemon:
        with root(daemon) as admin:
            admin.call(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, {"password": "pw"})
            give(admin, "alice", ("Topic:T", "Pub"))
        assert daemon.stop() == 0
    path = tmp_path / "store" / "config" / name
    os.truncate(path, path.stat().st_size // 2)
    with running(directory=tmp_path, settings=SETTINGS, is_awaited=False, must_be_consistent=False) as daemon:
        assert daemon.process.wait(PROCESS_LIMIT_S) == 1
        assert f"{path.name}: not a table of" in daemon.output
        assert "secret-" not in daemon.output


def test_requests_cannot_turn_access_control_off(daemon: Daemon) -> None:
    """UPDATE_BROKER_CONFIG (25) of a super user is refused for these keys."""
    with root(daemon) as admin:
        for key in ("authenticationEnabled", "authorizationEnabled", "initAuthenticationUser"):
            assert admin.call(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}=x".encode()).code == 16


def test_a_broker_without_authentication_has_no_users(tmp_path: Path) -> None:
    """Requests about users fail as at RocketMQ's broker without a provider, and no file is made."""
    user = b'{"password":"p","userType":"Super"}'
    with running(directory=tmp_path) as daemon, RawClient(LOOPBACK, daemon.broker_port) as client:
        response = client.call(RequestCode.AUTH_CREATE_USER, {"username": "root"}, user)
        assert (response.code, response.remark) == (1, "An system error occurred, please try again later.")
        assert client.call(RequestCode.SEND_MESSAGE_V2, SEND | {"b": "T"}, b"x").code == 0
    assert not (tmp_path / "store" / "config" / "users.json").exists()
