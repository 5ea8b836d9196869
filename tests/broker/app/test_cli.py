"""The commands as separate processes, tested through stdout, stderr and exit code."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from skylarkmq.broker.app import cli
from skylarkmq.broker.base.errors import DaemonEnded, StartError
from tests.harness.daemon import MQBROKER, MQNAMESRV, running, variables
from tests.harness.limits import PROCESS_LIMIT_S
from tests.harness.ports import LOOPBACK, free_ports

UNWRITABLE = "/sys/skylark-store"


def run(directory: Path, *arguments: object, command: Sequence[str] = MQBROKER) -> subprocess.CompletedProcess[str]:
    """Run a command that ends by itself."""
    return subprocess.run(
        [*command, *map(str, arguments)],
        cwd=directory,
        env=variables({}) | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=PROCESS_LIMIT_S,
        check=False,
    )


def refusal(directory: Path, *arguments: object, command: Sequence[str] = MQBROKER) -> str:
    """Return the one line on stderr of a command that does not start."""
    done = run(directory, *arguments, command=command)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    return line


def on_free_ports() -> list[str]:
    keys = ("listenPort", "embeddedNamesrvPort", "metricsPromExporterPort")
    return [part for key, port in zip(keys, free_ports(3), strict=True) for part in ("--set", f"{key}={port}")]


@pytest.mark.parametrize("host", ["a..b", "a" * 300, "\x1b[2J.."])
def test_a_host_that_is_no_name_is_one_line(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without control characters: brokerIP1 and POD_IP come from the environment."""
    with pytest.raises(typer.Exit), cli.one_line_on_stderr("mqbroker"):
        cli.resolved(host)
    line = capsys.readouterr().err.removesuffix("\n")
    assert "has no address: a label of the name is empty or too long" in line
    assert line.isprintable()


def test_control_characters_of_an_error_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), cli.one_line_on_stderr("mqbroker"):
        raise StartError("a\x1b[2J\nb")
    assert capsys.readouterr().err == "mqbroker: a\\x1b[2J\\nb\n"


@pytest.mark.daemon
def test_p_prints_every_setting_with_its_origin(tmp_path: Path) -> None:
    """-p prints the daemon's settings, one per line, and starts nothing."""
    (tmp_path / "b.conf").write_text("brokerName=from-file\n")
    done = run(tmp_path, "-c", "b.conf", "-n", "ns1:9876;ns2:9876", "--set", "listenPort=1234", "-p")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["brokerName"] == ["from-file", "b.conf:1"]
    assert rows["listenPort"] == ["1234", "--set"]
    assert rows["namesrvAddr"] == ["ns1:9876;ns2:9876", "-n"]
    assert rows["brokerPermission"] == ["6", "default"]
    assert [path.name for path in tmp_path.iterdir()] == ["b.conf"]


@pytest.mark.daemon
def test_p_with_json_prints_an_object(tmp_path: Path) -> None:
    """--json prints the same as an object; warnings about keys go to stderr."""
    done = run(tmp_path, "-p", "--json", "--set", "listenPrt=1", command=MQNAMESRV)
    assert json.loads(done.stdout)["listenPort"] == {"value": "9876", "origin": "default"}
    assert done.stderr == "warning: --set: unknown key listenPrt, did you mean listenPort?\n"


@pytest.mark.daemon
@pytest.mark.parametrize(("command", "name"), [(MQBROKER, "mqbroker"), (MQNAMESRV, "mqnamesrv")])
def test_help_has_examples_and_version_has_versions(tmp_path: Path, command: Sequence[str], name: str) -> None:
    """--help shows how the command is used, --version the installed versions."""
    text = run(tmp_path, "--help", command=command).stdout
    assert f"{name} --set " in text
    assert "--config" in text
    assert run(tmp_path, "--version", command=command).stdout.startswith("skylarkmq 0.1.0 (Python 3.")


@pytest.mark.daemon
def test_an_invalid_value_names_file_line_key_and_expected_values(tmp_path: Path) -> None:
    """A mistake in the file gives one line."""
    (tmp_path / "b.conf").write_text("# mine\nflushDiskType=NEVER\n")
    expected = "mqbroker: b.conf:2: flushDiskType=NEVER: expected ASYNC_FLUSH or SYNC_FLUSH"
    assert refusal(tmp_path, "-c", "b.conf") == expected


@pytest.mark.daemon
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A missing file, or one that is not text, stops the start."""
    assert refusal(tmp_path, "-c", "none.conf") == "mqbroker: cannot read none.conf: No such file or directory"
    (tmp_path / "b.conf").write_bytes(b"\xff\xfe")
    assert refusal(tmp_path, "-c", "b.conf").startswith("mqbroker: cannot read b.conf: 'utf-8' codec")


@pytest.mark.daemon
def test_tls_settings_can_have_their_own_file(tmp_path: Path) -> None:
    """tls.config.file overrides broker.conf, and flags override it; a file that is set must exist."""
    (tmp_path / "b.conf").write_text("tls.config.file=tls.properties\ntls.server.mode=disabled\ntls.enable=false\n")
    assert refusal(tmp_path, "-c", "b.conf", "-p") == "mqbroker: cannot read tls.properties: No such file or directory"
    (tmp_path / "tls.properties").write_text(
        "tls.server.mode=permissive\ntls.enable=true\ntls.server.keyPassword=xyz\n"
    )
    done = run(tmp_path, "-c", "b.conf", "--set", "tls.enable=false", "-p")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows["tls.server.mode"] == ["permissive", "tls.properties:1"]
    assert rows["tls.enable"] == ["false", "--set"]
    assert "xyz" not in done.stdout


@pytest.mark.daemon
def test_a_certificate_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """One line names the setting and the file."""
    settings = ("--set", "tls.server.certPath=none.pem", "--set", "tls.server.keyPath=none.key")
    line = refusal(tmp_path, *on_free_ports(), *settings)
    assert line.startswith("mqbroker: tls.server.certPath")
    assert "none.pem" in line


@pytest.mark.daemon
@pytest.mark.parametrize("key", ["listenPort", "embeddedNamesrvPort", "metricsPromExporterPort"])
def test_a_port_in_use_stops_the_start(tmp_path: Path, key: str) -> None:
    """One line names the port, for each of the three."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = refusal(tmp_path, *on_free_ports(), "--set", f"{key}={port}")
    assert f"port {port} on {LOOPBACK} is in use" in line


@pytest.mark.daemon
def test_a_port_in_use_stops_the_start_of_a_name_server(tmp_path: Path) -> None:
    """mqnamesrv prints the same line."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = ("--set", f"listenPort={port}", "--set", f"bindAddress={LOOPBACK}")
        line = refusal(tmp_path, *settings, "--set", f"kvConfigPath={tmp_path / 'kv.json'}", command=MQNAMESRV)
    assert f"port {port} on {LOOPBACK} is in use" in line


@pytest.mark.daemon
def test_a_store_in_use_stops_the_start(tmp_path: Path) -> None:
    """Two brokers never write into one store; the second prints the reason."""
    with running(directory=tmp_path) as first:
        line = refusal(tmp_path, *on_free_ports())
        assert first.stop() == 0
    assert line == "mqbroker: the store directory store is in use by another broker"


@pytest.mark.daemon
def test_an_unwritable_directory_stops_the_start(tmp_path: Path) -> None:
    """A store that even root cannot write is named with the reason."""
    line = refusal(tmp_path, *on_free_ports(), "--set", f"storePathRootDir={UNWRITABLE}")
    assert line.startswith(f"mqbroker: the store directory {UNWRITABLE} cannot be used: ")


@pytest.mark.daemon
def test_a_store_that_is_a_file_stops_the_start(tmp_path: Path) -> None:
    """The obstacle in place of the store's directory is named."""
    (tmp_path / "store").write_text("")
    assert "store" in refusal(tmp_path, *on_free_ports())


@pytest.mark.daemon
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_daemon_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """After SIGTERM or SIGINT the exit code is 0, the store is closed cleanly, and the signal is logged."""
    with running(directory=tmp_path) as daemon:
        assert daemon.page("/healthz")[0] == 200
        assert daemon.stop(number) == 0, daemon.output
    assert f"stopping signal={number.name}" in daemon.output
    assert "Traceback" not in daemon.output
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.daemon
def test_a_daemon_raises_its_descriptor_limit(tmp_path: Path) -> None:
    """The soft limit of a shell is raised to the hard limit."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 400))

    with running(directory=tmp_path, preexec_fn=limited) as daemon:
        limits = Path(f"/proc/{daemon.process.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == ["400", "400"]
        assert "open files allowed: 400, raised from 100" in daemon.output
        assert daemon.stop() == 0


@pytest.mark.daemon
def test_a_name_server_runs_and_stops(tmp_path: Path) -> None:
    """mqnamesrv becomes ready, accepts connections on its port, and stops with exit code 0."""
    (port,) = free_ports(1)
    settings = {"listenPort": port, "bindAddress": LOOPBACK, "kvConfigPath": tmp_path / "kv.json"}
    with running(MQNAMESRV, tmp_path, settings) as daemon:
        socket.create_connection((LOOPBACK, port)).close()
        assert daemon.stop() == 0, daemon.output


@pytest.mark.daemon
def test_unknown_and_ignored_keys_are_logged(tmp_path: Path) -> None:
    """The start log lists unknown keys as warnings and ignored keys as information."""
    (tmp_path / "b.conf").write_text("brokerNam=x\ndLegerGroup=g\n")
    with running([*MQBROKER, "-c", "b.conf"], tmp_path) as daemon:
        assert daemon.stop() == 0, daemon.output
    ignored = "setting ignored: b.conf:1: unknown key brokerNam, did you mean brokerName?"
    assert f"WARNING skylarkmq.broker {ignored}" in daemon.output
    assert "INFO skylarkmq.broker setting without effect: b.conf:2: dLegerGroup" in daemon.output


async def test_a_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first signal requests a stop, the second ends the process."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    stop = asyncio.Event()
    cli.on_signal(signal.SIGTERM, stop)
    assert (stop.is_set(), codes) == (True, [])
    cli.on_signal(signal.SIGINT, stop)
    assert codes == [1]


def test_a_user_without_a_home_directory_has_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run under any user id, without HOME and without an entry in /etc/passwd."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", dict[int, object]().__getitem__)
    assert cli.this_machine().home == Path("/")


@pytest.mark.parametrize(
    "address", [" ", "nonsense", "\x1b[2J", "10.0.0.1/24", "[::1]", "a..b", "-", "10.0.0.7\nx", "\udcff", "a" * 300]
)
def test_a_pod_address_that_is_none_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the variable."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("POD_IP", address)
    machine = cli.this_machine()
    assert machine.pod_host == address
    with pytest.raises(StartError, match=r"\(brokerIP1, bindAddress or POD_IP\) has no address: ") as caught:
        machine.resolve(address)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("may_restart", "code"), [(True, 75), (False, 78)])
def test_a_daemon_that_had_to_end_says_why(capsys: pytest.CaptureFixture[str], may_restart: bool, code: int) -> None:
    """Supervisors tell by the exit code whether to start it again."""
    with pytest.raises(typer.Exit) as ended, cli.one_line_on_stderr("mqbroker"):
        raise DaemonEnded("the store has to be restarted", may_restart=may_restart)
    assert ended.value.exit_code == code
    assert capsys.readouterr().err == "mqbroker: the store has to be restarted\n"
