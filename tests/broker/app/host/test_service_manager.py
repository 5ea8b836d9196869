"""systemd is notified when a daemon is ready and when it stops."""

import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skylarkmq.broker.app.host.service_manager import READY, notify
from tests.harness.daemon import MQBROKER, MQNAMESRV, Daemon, running
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK

Receive = Callable[[], str]


@pytest.fixture(params=["file", "abstract"])
def receive(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receive]:
    """Return the next message to a socket that NOTIFY_SOCKET names, as systemd makes it: of both kinds."""
    address = str(tmp_path / "notify") if request.param == "file" else f"@{uuid.uuid4()}"
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address.replace("@", "\0"))
        listener.settimeout(PROCESS_LIMIT_S)
        yield lambda: listener.recv(4096).decode()


def test_a_state_is_one_datagram(receive: Receive) -> None:
    """State and status are lines of it."""
    notify(READY, "ready, port 1")
    assert receive() == "READY=1\nSTATUS=ready, port 1\n"


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is started by hand has no NOTIFY_SOCKET."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify(READY, "ready")


def test_a_socket_that_does_not_exist_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon continues."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    notify(READY, "ready")
    assert "service manager not notified state=READY=1" in caplog.text


@pytest.mark.parametrize(
    "address", ["@", "relative", "/", "/dev/null", "vsock:2:1", "\x1b[2J", "/" + "a" * 200, "@" + "a" * 200, "\udcff"]
)
def test_an_address_that_is_none_is_logged(
    address: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever the variable contains, the daemon continues."""
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify(READY, "ready")
    assert caplog.text.count("service manager not notified state=READY=1 error=") == 1


@pytest.mark.daemon
@pytest.mark.parametrize("command", [MQBROKER, MQNAMESRV])
def test_both_daemons_notify_of_their_start_and_stop(
    receive: Receive, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """READY once clients are served, STOPPING at SIGTERM."""
    own = {"bindAddress": LOOPBACK, "kvConfigPath": tmp_path / "kvConfig.json"} if command is MQNAMESRV else {}
    with running(command, tmp_path, own, must_be_consistent=False) as daemon:
        assert receive() == f"READY=1\nSTATUS=ready, port {port_of(daemon)}\n"
        with socket.create_connection((LOOPBACK, port_of(daemon)), PROCESS_LIMIT_S):
            assert daemon.stop() == 0
        assert receive() == "STOPPING=1\nSTATUS=stopping\n"


def port_of(daemon: Daemon) -> int:
    return daemon.broker_port
