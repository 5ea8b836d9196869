"""mqadmin in this process against the broker of this repository.

    def test_x(mqadmin: RunCommand) -> None:
        result = mqadmin("topicStatus", "-t", "Orders")
        assert result.rows == [["broker-a", "0", "0", "0", ""]]

Each test module has its own broker. NAMESRV_ADDR names it, and HOME is an empty directory. For responses that this
broker never sends, `scripted` is a name server and broker whose responses the test sets.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, loop_in_a_thread, running, wait
from skylarkmq.clients.mqadmin.app.cli import run
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.peer import Peer


class Result(NamedTuple):
    """The exit code of a command, and its output."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The cells of each line of stdout after the first heading, up to the first empty line."""
        lines = self.out.splitlines()
        first = next(at for at, line in enumerate(lines) if line.startswith("#"))
        table = lines[first + 1 :]
        end = next((at for at, line in enumerate(table) if not line.strip()), len(table))
        return [re.split(r"\s{2,}", line.strip()) for line in table[:end]]


class RunCommand(Protocol):
    """Runs mqadmin with these arguments, and returns its result."""

    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory; no variable of the environment names a cluster."""
    for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "SKYLARK_PROFILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def run_mqadmin(home: Path, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Return a function that runs a command without the address of a broker."""

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def mqadmin(broker: InProcessBroker, run_mqadmin: RunCommand, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Return a function that runs a command against the broker."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    return run_mqadmin


@pytest.fixture
def scripted(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """Yield a peer that is the name server of NAMESRV_ADDR, and the only broker `b` of cluster `c`."""
    with loop_in_a_thread() as loop:
        peer = Peer()
        wait(loop, peer.listen())
        info = ClusterInfo({"b": BrokerData("c", "b", {0: peer.address})}, {"c": ["b"]})
        peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=info.encode()))
        monkeypatch.setenv("NAMESRV_ADDR", peer.address)
        yield peer
        wait(loop, peer.stop())
