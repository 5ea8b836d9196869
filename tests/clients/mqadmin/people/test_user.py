"""`mqadmin user`: effects on two brokers, passwords, tables and JSON, confirmation, failures."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.mqadmin import secret_options
from skylarkmq.clients.mqadmin.failures import INTERRUPTED
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.people.conftest import ROOT_SECRET, Two
from tests.clients.peer import Peer
from tests.harness.limits import PROCESS_LIMIT_S

PASSWORD = "the-password-of-the-test"


@pytest.fixture(scope="module")
def broker(two: Two) -> InProcessBroker:
    return two.first


@pytest.fixture(autouse=True)
def credentials(tools: Callable[[str, str], None]) -> None:
    """mqadmin has the credentials of `root`."""


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, answers: Callable[[str], None]) -> Callable[..., list[str]]:
    """Return a function that makes stdin a terminal on which these passwords are typed; it returns the questions."""

    def call(*passwords: str) -> list[str]:
        questions: list[str] = []
        left = list(passwords)

        def getpass(question: str) -> str:
            questions.append(question)
            if not left:
                raise EOFError
            return left.pop(0)

        answers("")
        monkeypatch.setattr(secret_options, "getpass", getpass)
        return questions

    return call


def password_file(home: Path, text: str = PASSWORD) -> str:
    file = home / "password"
    file.write_text(text)
    file.chmod(0o600)
    return str(file)


def password_of(mqadmin: RunCommand, address: str, user: str) -> str:
    """Return the password that a broker has, as RocketMQ's command prints it to super users."""
    return mqadmin("getUser", "-b", address, "-u", user).rows[0][1]


def test_a_user_is_created_listed_changed_and_deleted(
    mqadmin: RunCommand, json_of: Callable[..., Any], typed: Callable[..., list[str]], answers: Callable[[str], None],
    two: Two,
) -> None:  # fmt: skip
    """On all brokers; its password is typed twice, and never printed."""
    questions = typed(PASSWORD, PASSWORD)
    created = mqadmin("user", "create", "alice")
    assert (created.code, created.out) == (0, f"User alice is created on {two.first.address}, {two.second.address}.\n")
    assert questions == ["Password of user alice: ", "Again the password of user alice: "]
    assert [password_of(mqadmin, broker.address, "alice") for broker in two] == [PASSWORD, PASSWORD]
    (row,) = json_of("user", "list", "--filter", "ALI")["users"]
    places = [two.first.address, two.second.address]
    assert row == {"name": "alice", "type": "Normal", "status": "enable", "brokers": places}
    changed = json_of("user", "update", "alice", "--type", "super", "--disable")
    assert changed == {"kind": "user", "name": "alice", "action": "updated", "servers": places}
    shown = json_of("user", "show", "alice")
    assert shown["users"] == [row | {"type": "Super", "status": "disable"}]
    answers("no\n")
    refused = mqadmin("user", "delete", "alice")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("User alice with 0 policies will be deleted on 2 brokers. Go on? [y/N] ")
    answers("y\n")
    assert mqadmin("user", "delete", "alice").out.startswith("User alice is deleted on ")
    assert json_of("user", "list", "--filter", "ali") == {"users": []}
    assert mqadmin("user", "list", "--filter", "ali").out == "No users.\n"


def test_a_password_is_changed(mqadmin: RunCommand, typed: Callable[..., list[str]], home: Path, two: Two) -> None:
    """Typed, or from a file; the type and the status stay."""
    file = password_file(home)
    assert mqadmin("user", "create", "eva", "--type", "Super", "--password-file", file).code == 0
    typed("typed", "typed")
    assert mqadmin("user", "update", "eva", "--password").code == 0
    assert password_of(mqadmin, two.second.address, "eva") == "typed"
    assert mqadmin("user", "update", "eva", "--password-file", file, "--broker", "broker-b").code == 0
    assert [password_of(mqadmin, broker.address, "eva") for broker in two] == ["typed", PASSWORD]
    table = mqadmin("user", "list", "--filter", "eva").out.splitlines()
    assert [re.split(r"\s{2,}", line) for line in table] == [
        ["User", "Type", "Status", "Brokers"],
        ["eva", "Super", "enable", "2"],
    ]
    mqadmin("user", "delete", "eva", "--yes")


def test_a_user_about_which_brokers_differ_has_several_rows(
    mqadmin: RunCommand, json_of: Callable[..., Any], home: Path, two: Two
) -> None:
    """Each names its brokers. A change is made where the user exists; a copy brings it to the other broker."""
    assert mqadmin("user", "create", "ben", "--password-file", password_file(home), "-b", "broker-a").code == 0
    again = mqadmin("user", "create", "ben", "--password-file", password_file(home))
    assert again.code == 1
    assert f"user ben exists on {two.first.address}. `mqadmin user update` changes it" in again.err
    assert json_of("user", "update", "ben", "--enable")["servers"] == [two.first.address]
    copied = mqadmin("user", "copy", "ben", "--from", "broker-a", "--to", two.second.address)
    assert copied.out == f"Copied 1 user from {two.first.address} to {two.second.address}: ben.\n"
    assert password_of(mqadmin, two.second.address, "ben") == PASSWORD
    mqadmin("user", "update", "ben", "--disable", "-b", "broker-b")
    rows = json_of("user", "show", "ben")["users"]
    assert [(row["status"], row["brokers"]) for row in rows] == [
        ("disable", [two.second.address]),
        ("enable", [two.first.address]),
    ]
    over = ("user", "copy", "ben", "--from", "broker-a", "--to", "broker-b")
    unasked = mqadmin(*over)
    assert (unasked.code, unasked.out) == (1, "")
    assert f"On {two.second.address} will be changed: ben." in unasked.err
    assert json_of(*over, "--yes")["names"] == ["ben"]
    assert len(json_of("user", "show", "ben")["users"]) == 1
    assert mqadmin("user", "delete", "ben", "--yes").code == 0


def test_only_a_super_user_copies(mqadmin: RunCommand, tools: Callable[[str, str], None], home: Path) -> None:
    """Other users get no passwords: nothing is copied, exit code 4."""
    mqadmin("user", "create", "reader", "--password-file", password_file(home))
    mqadmin("acl", "create", "reader", "--resource", "Cluster:*", "--actions", "All")
    tools("reader", PASSWORD)
    refused = mqadmin("user", "copy", "root", "--from", "broker-a", "--to", "broker-b")
    assert (refused.code, refused.out, refused.err.count("\n")) == (4, "", 1)
    assert "returns the password of user root to super users only" in refused.err
    tools("root", ROOT_SECRET)
    assert mqadmin("user", "delete", "reader", "--yes").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("create", "root"), 1, "user root exists on "),
        (("create", "new"), 1, "a password is needed, and stdin is no terminal: give --password-file."),
        (("create", "new", "--type", "x"), 1, "'x' is not a user type; use one of super, normal."),
        (("create", "new", "--password-file", "/nonexistent"), 1, "/nonexistent: No such file or directory"),
        (("create", "new", "--cluster", "none"), 2, "no cluster none is registered"),
        (("create", "new", "--broker", "none"), 2, "no master with the name none"),
        (("create", "new", "-b", "broker-a", "-c", "DefaultCluster"), 1, "give either --broker or --cluster."),
        (("update", "root"), 1, "nothing to change"),
        (("update", "root", "--password", "--password-file", "FILE"), 1, "give either --password or --password-file."),
        (("update", "missing", "--disable"), 2, "none of 2 brokers has a user missing."),
        (("show", "missing", "-b", "broker-a"), 2, "has a user missing. `mqadmin user list` lists the users."),
        (("delete", "missing", "--yes"), 2, "none of 2 brokers has a user missing."),
        (("delete", "root"), 1, "Nothing is done without --yes, because stdin is no terminal."),
        (("copy", "missing", "--from", "broker-a", "--to", "broker-b"), 2, "has a user missing"),
        (("copy", "--from", "broker-a", "--to", "broker-a"), 1, "give two different ones"),
        (("list", "-b", "127.0.0.1:1"), 3, "127.0.0.1:1"),
    ],
)
def test_failures_are_one_line(
    mqadmin: RunCommand, home: Path, arguments: tuple[str, ...], code: int, cause: str
) -> None:
    """With the cause, and the exit code of its class; nothing is done."""
    file = password_file(home)
    result = mqadmin("user", *(file if argument == "FILE" else argument for argument in arguments))
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert cause in result.err
    assert PASSWORD not in result.err
    assert mqadmin("user", "list", "--filter", "new").out == "No users.\n"


@pytest.mark.parametrize(
    ("passwords", "cause"),
    [
        ((), "no password was typed; nothing was done."),
        (("one", "other"), "the two passwords differ; nothing was done. Repeat the command."),
        ((" ", " "), "the password is empty; nothing was done."),
    ],
)
def test_a_password_that_is_not_typed_twice_is_none(
    mqadmin: RunCommand, typed: Callable[..., list[str]], passwords: tuple[str, ...], cause: str
) -> None:
    """The user is not created."""
    typed(*passwords)
    refused = mqadmin("user", "create", "new")
    assert (refused.code, refused.out, refused.err) == (1, "", f"mqadmin: {cause}\n")
    assert mqadmin("user", "show", "new").code == 2


def test_a_refused_password_is_masked(run_mqadmin: RunCommand, home: Path, scripted: Peer) -> None:
    """A broker that repeats the password in its refusal does not bring it to the terminal."""

    def refuse(*_: object) -> RemotingCommand:
        return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, f"bad secret {PASSWORD}")

    scripted.on(RequestCode.AUTH_LIST_USER, lambda *_: RemotingCommand.response(body=b"[]"))
    scripted.on(RequestCode.AUTH_CREATE_USER, refuse)
    refused = run_mqadmin("user", "create", "new", "--password-file", password_file(home))
    assert (refused.code, refused.out) == (5, "")
    assert "bad secret ******" in refused.err


@pytest.mark.parametrize(
    ("code", "remark", "cause"),
    [
        (3, "request type 3005 not supported", "is older than RocketMQ 5.3, whose users these are"),
        (1, "An system error occurred, please try again later.", "set authenticationEnabled=true in its configuration"),
        (1, "another error", "another error"),
    ],
)
def test_a_broker_without_users_is_one_line(
    run_mqadmin: RunCommand, scripted: Peer, code: int, remark: str, cause: str
) -> None:
    """RocketMQ 4.9, and brokers that are not configured for users: the line has the next step."""
    for request in (RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL):
        scripted.on(request, lambda *_: RemotingCommand.response(ResponseCode(code), remark))
    for arguments in (("user", "list"), ("user", "show", "a"), ("acl", "list"), ("acl", "show", "a")):
        refused = run_mqadmin(*arguments)
        assert (refused.code, refused.out, refused.err.count("\n")) == (5, "", 1)
        assert cause in refused.err


def test_users_are_completed(run_mqadmin: RunCommand, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of users, once each, for users and subjects."""
    monkeypatch.setenv("NAMESRV_ADDR", two.first.namesrv)
    monkeypatch.setenv("_MQADMIN_COMPLETE", "complete_bash")
    for group in ("user", "acl"):
        monkeypatch.setenv("COMP_WORDS", f"mqadmin {group} show ro")
        monkeypatch.setenv("COMP_CWORD", "3")
        assert run_mqadmin().out.split() == ["root"]


class Screen:
    """A process of mqadmin in a terminal of its own."""

    def __init__(self, namesrv: str, *arguments: str) -> None:
        self._leader, follower = pty.openpty()
        command = [sys.executable, "-c", "from skylarkmq.commands import mqadmin; mqadmin()", *arguments]
        environment = os.environ | {"NAMESRV_ADDR": namesrv}
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
        )
        os.close(follower)
        self.shown = b""

    def wait_for(self, text: bytes) -> None:
        """Wait until the terminal shows a text after those that were waited for."""
        before = len(self.shown)
        deadline = time.monotonic() + PROCESS_LIMIT_S
        terminal = select.poll()
        terminal.register(self._leader, select.POLLIN)
        while text not in self.shown[before:]:
            assert time.monotonic() < deadline, self.shown
            if terminal.poll(1_000):
                self.shown += os.read(self._leader, 4096)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self._leader, text.encode() + b"\n")

    def ended(self) -> int:
        """Wait until the process has ended, and return its exit code. Kill it if it does not end."""
        try:
            return self.process.wait(PROCESS_LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            os.close(self._leader)


@pytest.mark.daemon
def test_a_terminal_does_not_show_the_password(broker: InProcessBroker) -> None:
    """In a terminal, the typed password is not echoed, and the user has it."""
    screen = Screen(broker.namesrv, "user", "create", "zoe")
    screen.wait_for(b"Password of user zoe: ")
    screen.type(PASSWORD)
    screen.wait_for(b"Again the password of user zoe: ")
    screen.type(PASSWORD)
    screen.wait_for(b"User zoe is created on")
    assert screen.ended() == 0
    assert PASSWORD.encode() not in screen.shown


@pytest.mark.daemon
def test_an_interrupt_ends_a_question(broker: InProcessBroker) -> None:
    """The first Ctrl-C, at a password and at a confirmation; nothing is done."""
    for arguments, question in (
        (("user", "create", "yan"), b"Password of user yan: "),
        (("user", "delete", "root"), b"Go on? [y/N] "),
    ):
        screen = Screen(broker.namesrv, *arguments)
        screen.wait_for(question)
        screen.process.send_signal(signal.SIGINT)
        assert screen.ended() == INTERRUPTED
