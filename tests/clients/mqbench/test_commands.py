"""The commands against our broker, each with few messages."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from skylarkmq.clients.mqbench.commands import mqbench
from tests.harness.certificates import Certificates
from tests.harness.daemon import Daemon, running

SHORT = ("--seconds", "0.3", "--warmup", "0")
SMALL = ("--size", "100", "--connections", "2", "--in-flight", "8")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    settings = {"mappedFileSizeCommitLog": 16 << 20}
    with running(directory=tmp_path_factory.mktemp("mqbench"), settings=settings) as started:
        yield started
        assert started.stop() == 0, started.output


def json_of(*arguments: object) -> dict[str, Any]:
    """Return the output of a command with --json."""
    done = CliRunner().invoke(mqbench, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert isinstance(figures, dict)
    return figures


def address(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.broker_port}"


def expect_shape(figures: dict[str, Any]) -> None:
    assert figures["messages"] > 0
    assert figures["requests"] > 0
    assert figures["messages_per_s"] > 0
    assert figures["refused"] == {}
    names = ["mean", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max"]
    assert [*figures["latency_us"]] == names
    percentiles = [figures["latency_us"][name] for name in names[1:]]
    assert percentiles == sorted(percentiles)
    assert {"at_s", "messages_per_s", "p50_us", "p99_us", "max_us"} == set(figures["timeline"][0])


@pytest.mark.daemon
@pytest.mark.parametrize("more", [(), ("--batch", "5"), ("--rate", "2000"), ("--topics", "3", "--queues", "12")])
def test_produce(daemon: Daemon, more: tuple[str, ...]) -> None:
    """Sends one by one, in batches, at a rate, and over many queues; none is rejected."""
    figures = json_of("produce", address(daemon), *SHORT, *SMALL, "--topic", f"produce{len(more)}", *more)
    expect_shape(figures)
    assert figures["command"] == "produce"
    assert figures["workload"]["size"] == 100
    if "--rate" in more:
        assert 0 < figures["messages"] <= 620


@pytest.mark.daemon
def test_produce_in_two_processes(daemon: Daemon) -> None:
    """Each process has a share; their figures are combined."""
    figures = json_of("produce", address(daemon), *SHORT, *SMALL, "--processes", "2", "--rate", "1000")
    expect_shape(figures)


@pytest.mark.daemon
def test_a_plot_is_written(daemon: Daemon, tmp_path: Path) -> None:
    """The plot is written, and the table is still printed."""
    arguments = ["produce", address(daemon), *SHORT, *SMALL, "--plot", str(tmp_path / "x.svg")]
    done = CliRunner().invoke(mqbench, arguments)
    assert done.exit_code == 0, done.output
    assert "p99.99 ms" in done.stdout
    assert (tmp_path / "x.svg").exists()


@pytest.mark.daemon
def test_latency_finds_the_broker_by_its_name_server(daemon: Daemon) -> None:
    """One send in flight: as many requests as messages."""
    figures = json_of("latency", "-n", daemon.namesrv, *SHORT, "--size", "100")
    expect_shape(figures)
    assert figures["requests"] == figures["messages"]
    assert figures["workload"]["in_flight"] == 1


@pytest.mark.daemon
def test_consume_reads_what_was_produced(daemon: Daemon) -> None:
    """To the end once, or repeatedly."""
    filled = json_of("backlog", address(daemon), *SMALL, "--topic", "consume", "--messages", 1000)
    assert filled["fill"]["messages"] == 1000
    once = json_of("consume", address(daemon), "--topic", "consume", "--connections", 2)
    expect_shape(once)
    assert once["messages"] == 1000
    again = json_of("consume", address(daemon), "--topic", "consume", "--again", *SHORT)
    assert again["messages"] > 1000
    assert again["end_to_end_us"] is None


@pytest.mark.daemon
def test_consume_of_missing_topics_ends_at_once(daemon: Daemon) -> None:
    """No messages, no error."""
    json_of("latency", address(daemon), *SHORT, "--topic", "other")
    figures = json_of("consume", address(daemon), "--topic", "empty", "--queues", 1)
    assert figures["messages"] == 0


@pytest.mark.daemon
def test_backlog_reads_exactly_what_it_sent(daemon: Daemon) -> None:
    """Even if the queues had messages before."""
    for _ in range(2):
        figures = json_of("backlog", address(daemon), *SMALL, "--topic", "backlog", "--messages", 503)
        assert figures["fill"]["messages"] == figures["drain"]["messages"] == 503
        expect_shape(figures["drain"])


@pytest.mark.daemon
def test_compare_prints_ratios_with_their_spread(daemon: Daemon) -> None:
    """A broker compared with itself: minimum, median and maximum of each figure."""
    here = address(daemon)
    figures = json_of("compare", here, here, *SMALL, "--rounds", 3, "--seconds", 0.1, "--warmup", 0)
    assert (figures["first"], figures["second"]) == (here, here)
    for figure in ("messages_per_s", "p50_us", "p99_us", "p99.9_us"):
        ratio = figures["figures"][figure]["ratio"]
        assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"]


@pytest.mark.daemon
def test_a_workload_runs_by_its_name(daemon: Daemon) -> None:
    """The preset sets the parameters; options on the command line override them."""
    figures = json_of("run", "1-topic-16-queues-1kb", address(daemon), "--seconds", 0.3, "--rate", 500)
    expect_shape(figures)
    assert (figures["workload"]["queues"], figures["workload"]["rate"]) == (16, 500.0)
    figures = json_of("run", "backlog-1-topic-16-queues-1kb", address(daemon), "--messages", 200)
    assert figures["drain"]["messages"] == 200


@pytest.mark.daemon
def test_loads_over_tls(daemon: Daemon, tmp_path: Path) -> None:
    """Each command works over TLS, with a trusted authority or without a check, also in several processes."""
    made = Certificates(tmp_path)
    pair = made.issue("server")
    served = {"tls.server.mode": "enforcing", "tls.server.certPath": pair.cert, "tls.server.keyPath": pair.key}
    with running(directory=tmp_path, settings=served | {"mappedFileSizeCommitLog": 16 << 20}) as encrypted:
        here, trusted = address(encrypted), ("--tls", "--ca", made.authority.cert)
        expect_shape(json_of("produce", here, *trusted, *SHORT, *SMALL, "--processes", 2))
        expect_shape(json_of("latency", "-n", encrypted.namesrv, *trusted, *SHORT))
        sizes = ("--size", 3000, "--connections", 1, "--messages", 500)
        figures = json_of("backlog", here, "--tls", "--insecure", *sizes, "--topic", "backlog")
        assert figures["fill"]["messages"] == figures["drain"]["messages"] == 500
        stranger = CliRunner().invoke(mqbench, ["produce", here, "--tls"])
        assert (stranger.exit_code, "certificate" in stranger.stderr) == (2, True), stranger.output
        assert encrypted.stop() == 0, encrypted.output


@pytest.mark.daemon
def test_loads_with_an_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command signs its requests, with keys of options or of variables, also in several processes. No output has
    the secret key."""
    acl = tmp_path / "plain_acl.yml"
    acl.write_text("accounts:\n- {accessKey: load-generator, secretKey: a-secret-key, admin: true}\n")
    acl.chmod(0o600)
    settings = {"aclEnable": "true", "aclConfigDir": tmp_path, "mappedFileSizeCommitLog": 16 << 20}
    with running(directory=tmp_path, settings=settings) as protected:
        here, keys = address(protected), ("--access-key", "load-generator", "--secret-key", "a-secret-key")
        expect_shape(json_of("produce", here, *keys, *SHORT, *SMALL, "--processes", 2))
        expect_shape(json_of("produce", here, *keys, *SHORT, *SMALL, "--batch", 5, "--rate", 1000))
        wrong = CliRunner().invoke(mqbench, ["latency", here, *keys[:3], "another-key"])
        assert (wrong.exit_code, "Check signature failed" in wrong.stderr) == (2, True), wrong.output
        assert "another-key" not in wrong.output
        unsigned = CliRunner().invoke(mqbench, ["produce", here])
        assert (unsigned.exit_code, "No accessKey is configured" in unsigned.stderr) == (2, True), unsigned.output
        monkeypatch.setenv("MQBENCH_ACCESS_KEY", "load-generator")
        monkeypatch.setenv("MQBENCH_SECRET_KEY", "a-secret-key")
        expect_shape(json_of("latency", "-n", protected.namesrv, *SHORT))
        figures = json_of("backlog", here, *SMALL, "--topic", "backlog", "--messages", 503)
        assert figures["fill"]["messages"] == figures["drain"]["messages"] == 503
        expect_shape(json_of("consume", here, "--topic", "backlog", "--again", *SHORT))
        json_of("compare", here, here, *SMALL, "--rounds", 1, "--seconds", 0.1, "--warmup", 0)
        expect_shape(json_of("run", "1-topic-16-queues-1kb", here, "--seconds", 0.3, "--rate", 500))
        assert protected.stop() == 0, protected.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["latency", "127.0.0.1:1", "--access-key", "loader"], "set both or neither"),
        (["latency", "127.0.0.1:1", "--insecure"], "need --tls"),
        (["latency", "127.0.0.1:1", "--tls", "--ca", "none.pem"], "No such file"),
        (["produce", "127.0.0.1:1"], "no connection"),
        (["produce", "nowhere"], "HOST:PORT"),
        (["produce"], "HOST:PORT"),
        (["run", "no-such", "127.0.0.1:1"], "is not one of"),
        (["consume", "127.0.0.1:1", "--again", "--follow"], "not both"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(arguments: list[str], reason: str) -> None:
    """No traceback."""
    done = CliRunner().invoke(mqbench, arguments)
    assert done.exit_code == 2
    assert reason in done.stderr


@pytest.mark.parametrize("command", ["produce", "consume", "latency", "backlog", "compare", "run"])
def test_every_command_has_examples_in_its_help(command: str) -> None:
    """Each --help ends with commands to copy."""
    done = CliRunner().invoke(mqbench, [command, "--help"])
    assert done.exit_code == 0
    assert f"mqbench {command} " in done.stdout
