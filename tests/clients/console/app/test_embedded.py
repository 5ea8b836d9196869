"""The console on `consolePort` of a broker, and the server of `mqadmin console`, over real sockets."""

import asyncio
import json
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from skylarkmq.broker.access.console_accounts import ConsoleAccounts, console_accounts
from skylarkmq.broker.app.in_process import InProcessBroker, free_ports, running
from skylarkmq.broker.base.errors import StartError
from skylarkmq.clients.console.app.embedded import allowed_hosts, embedded_console, is_local
from skylarkmq.clients.mqadmin.app.cli import run
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.bodies.auth import UserInfo

SECRET = "secret-of-ada"


@contextmanager
def served(directory: Path, **settings: object) -> Iterator[str]:
    """Yield the address of the console of a broker with these settings."""
    (port,) = free_ports(1)
    with running(directory, {"consolePort": port, **settings}, embedded_console):
        yield f"{'https' if settings.get('consoleTls') else 'http'}://127.0.0.1:{port}"


def test_a_broker_serves_its_console(tmp_path: Path) -> None:
    """Pages and files come from `consolePort`; another Host is refused."""
    with served(tmp_path) as address, httpx.Client(base_url=address) as http:
        page = http.get("/")
        assert (page.status_code, "broker-a" in page.text) == (200, True)
        assert http.get("/static/htmx.min.js").status_code == 200
        assert http.get("/", headers={"host": "rebound.example"}).status_code == 421


def test_the_accounts_of_a_broker_log_in(tmp_path: Path) -> None:
    """The accounts of the metrics page log in, over TLS; requests of the session are signed."""
    file = tmp_path / "accounts.json"
    file.write_text(json.dumps([{"accessKey": "ada", "secretKey": SECRET}]))
    file.chmod(0o600)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    settings = {"accountsFile": file, "consoleTls": "true", "tls.test.mode.enable": "true"}
    with served(tmp_path, **settings) as address, httpx.Client(base_url=address, verify=context) as http:
        assert "Secure" in http.get("/login").headers["set-cookie"]
        page = logged_in(http, "ada", SECRET)
        assert (page.status_code, "broker-a" in page.text, SECRET in page.text) == (200, True, False)


def logged_in(http: httpx.Client, account: str, password: str) -> httpx.Response:
    """Return the first page after a login."""
    login = http.get("/", follow_redirects=True)
    (token,) = re.findall(r'name="csrf" value="([0-9a-f]+)"', login.text)
    form = {"csrf": token, "account": account, "password": password, "next": "/"}
    return http.post("/login", data=form, follow_redirects=True)


USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "secret-of-inner"}),
}


def test_a_super_user_acts_with_its_own_rights(tmp_path: Path) -> None:
    """The requests of the session are signed: a super user creates a topic. No page shows a secret."""
    with served(tmp_path, **USERS) as address, httpx.Client(base_url=address) as http:
        page = logged_in(http, "root", SECRET)
        assert "broker-a" in page.text
        assert "read-only" not in page.text
        form = http.get("/topic-form")
        (token, *_) = re.findall(r'name="csrf" value="([0-9a-f]+)"', form.text)
        fields = {"csrf": token, "topic": "Made", "read_queues": "1", "write_queues": "1", "perm": "6"}
        page = http.post("/topics", data=fields | {"confirmed": "yes"}, follow_redirects=True)
        assert "Topic Made is stored" in page.text
        for path in ("/", "/settings?q=auth", "/settings?q=credential", "/connections"):
            text = http.get(path).text
            assert SECRET not in text
            assert "secret-of-inner" not in text
        rows = re.findall(r"<tr><td>(\w+)</td><td>(.*?)</td><td>(.*?)</td></tr>", http.get("/settings?q=authen").text)
        assert ("authenticationEnabled", "true", "test") in rows
        assert ("initAuthenticationUser", "(hidden)", "test") in rows
        assert ("authenticationWhitelist", "", "default") in rows


async def created_user(broker: InProcessBroker, user: UserInfo) -> None:
    async with Admin(namesrv=broker.namesrv, credentials=Credentials("root", SECRET)) as admin:
        await admin.access.create_user(broker.address, user)


def test_a_normal_user_reads_what_its_rights_allow(tmp_path: Path) -> None:
    """Another user is read-only, and a page for which it has no right is one line with status 403."""
    (port,) = free_ports(1)
    with running(tmp_path, {"consolePort": port, **USERS}, embedded_console) as broker:
        asyncio.run(created_user(broker, UserInfo("ben", "secret-of-ben")))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
            page = logged_in(http, "ben", "secret-of-ben")
            assert "ben (read-only)" in page.text
            assert "no figures" in page.text
            refused = http.get("/groups")
            assert (refused.status_code, "NO_PERMISSION" in refused.text) == (403, True)


def test_a_broker_without_the_factory_names_the_command(tmp_path: Path) -> None:
    """A program that embeds a broker has no console, unless it passes the factory."""
    (port,) = free_ports(1)
    with (
        pytest.raises(StartError, match="consolePort: expected with the command mqbroker"),
        running(tmp_path, {"consolePort": port}),
    ):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.5", "console.example"])
def test_a_console_for_other_machines_needs_accounts(host: str) -> None:
    """Without accounts the console listens on loopback addresses only."""
    with pytest.raises(StartError, match=r"consoleHost=.*: expected a loopback address"):
        console_accounts(host, 8086, [])
    assert console_accounts(host, 0, []) is None
    assert console_accounts("localhost", 8086, []) is None


class Source:
    """Accounts whose password is `right`; those in `administrators` may administer."""

    def __init__(self, *administrators: str) -> None:
        self._administrators = administrators

    def is_known(self, account: str) -> bool:
        return True

    def password_matches(self, account: str, password: str) -> bool:
        return password == "right"

    def may_administer(self, account: str) -> bool:
        return account in self._administrators


async def test_an_account_may_act_if_its_source_says_so() -> None:
    """Administrators act, others read, and wrong passwords are no accounts."""
    accounts = ConsoleAccounts([Source(), Source("ada")])
    assert await accounts.may_act("ada", "right") is True
    assert await accounts.may_act("ben", "right") is False
    assert await accounts.may_act("ada", "wrong") is None


def test_addresses_of_this_machine_are_known() -> None:
    """Hosts are restricted for loopback addresses only."""
    assert [is_local(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "a.example")] == [
        *[True] * 4, *[False] * 2
    ]  # fmt: skip
    assert allowed_hosts("0.0.0.0") == frozenset()
    assert "127.9.9.9" in allowed_hosts("127.9.9.9")


def test_mqadmin_console_names_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    """A port in use is one line, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["console", "--port", str(taken.getsockname()[1])]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.daemon
def test_mqadmin_console_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    """The first line is the address; SIGINT ends the process without a traceback."""
    with running(tmp_path) as broker:
        command = [sys.executable, "-c", "from skylarkmq.commands import mqadmin; mqadmin()", "console", "--port", "0"]
        process = subprocess.Popen(
            [*command, "-n", broker.namesrv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            address = process.stdout.readline().removeprefix("console: ").strip()
            assert "broker-a" in httpx.get(address).text
            process.send_signal(2)
            assert process.wait() in {0, 130}
            assert process.stderr.read() == ""


def test_mqadmin_lists_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    """The list and the help name the command."""
    assert run([]) == 0
    assert "console" in capsys.readouterr().out
    assert run(["help", "Console"]) == 0
    assert "--read-only" in capsys.readouterr().out
