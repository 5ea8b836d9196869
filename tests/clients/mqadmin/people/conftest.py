"""Results of commands for people, a stdout that is a terminal, and two brokers with users and policies."""

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest

from skylarkmq import Admin, Message, Producer, SendResult, blocking
from skylarkmq.broker.app.in_process import InProcessBroker, loop_in_a_thread, running, wait
from skylarkmq.clients.mqadmin.app.cli import run
from tests.clients.mqadmin.conftest import Result, RunCommand
from tests.harness.limits import PROCESS_LIMIT_S

ROOT_SECRET: Final = "the-secret-of-root"
WITH_USERS: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT_SECRET}),
}

STYLES = re.compile(r"\x1b\[\d*m")
"""Bold text in a terminal."""


@pytest.fixture
def json_of(mqadmin: RunCommand) -> Callable[..., Any]:
    """Return a function that runs a command with --json and returns what it prints, decoded."""

    def call(*arguments: str) -> Any:
        result = mqadmin(*arguments, "--json")
        assert (result.code, result.err) == (0, "")
        return msgspec.json.decode(result.out)

    return call


class Terminal(io.StringIO):
    """A text file that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def in_terminal(broker: InProcessBroker, mqadmin: RunCommand, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Return a function that runs a command with a stdout of this many columns."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    def call(columns: int, *arguments: str) -> Result:
        monkeypatch.setenv("COLUMNS", str(columns))
        screen = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", screen)
            code = run(arguments)
        return Result(code, STYLES.sub("", screen.getvalue()), "")

    return call


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes stdin a terminal with this text."""
    return lambda text: monkeypatch.setattr(sys, "stdin", Terminal(text))


class Sender:
    """An Admin and a producer of the test, in a thread."""

    def __init__(self, namesrv: str, loop: Any) -> None:
        self._loop = loop
        self.admin = Admin(namesrv=namesrv)
        self._producer = Producer("shop", namesrv=namesrv)

    def start(self) -> None:
        wait(self._loop, self.admin.start())
        wait(self._loop, self._producer.start())

    def stop(self) -> None:
        wait(self._loop, self._producer.stop())
        wait(self._loop, self.admin.stop())

    def run(self, call: Any) -> Any:
        """Return the result of a coroutine."""
        return wait(self._loop, call)

    def send(self, message: Message) -> SendResult:
        """Send a message."""
        result: SendResult = wait(self._loop, self._producer.send(message))
        return result


@pytest.fixture(scope="module")
def sender(broker: InProcessBroker) -> Iterator[Sender]:
    with loop_in_a_thread() as loop:
        sender = Sender(broker.namesrv, loop)
        sender.start()
        yield sender
        sender.stop()


class Two(NamedTuple):
    """Two brokers with the name server of the first one: `broker-a` and `broker-b`."""

    first: InProcessBroker
    second: InProcessBroker


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Yield two brokers whose only user is the super user `root`, once both are registered."""
    with running(tmp_path_factory.mktemp("first"), WITH_USERS) as first:
        settings = WITH_USERS | {"brokerName": "broker-b", "namesrvAddr": first.namesrv}
        with (
            running(tmp_path_factory.mktemp("second"), settings) as second,
            blocking.Admin(namesrv=first.namesrv) as admin,
        ):
            deadline = time.monotonic() + PROCESS_LIMIT_S
            while len(admin.masters()) < len((first, second)):
                assert time.monotonic() < deadline, "both brokers are registered"
                time.sleep(0.02)
            yield Two(first, second)


@pytest.fixture
def tools(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return a function that sets the credentials of mqadmin, those of `root` at first."""
    (home / "conf").mkdir()
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))

    def act_as(account: str, secret: str) -> None:
        (home / "conf/tools.yml").write_text(f"accessKey: {account}\nsecretKey: {secret}\n")

    act_as("root", ROOT_SECRET)
    return act_as
