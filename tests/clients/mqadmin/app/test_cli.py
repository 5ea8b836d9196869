"""The command line: the list of commands, help, usage, and one line for each failure."""

import os
import shlex
import subprocess
import sys
from typing import Final

import pytest

from skylarkmq.broker.app.in_process import free_ports
from skylarkmq.clients.mqadmin.app import cli
from tests.clients.mqadmin.conftest import RunCommand

LONG_COMMAND: Final = """
import sys
from skylarkmq.clients.mqadmin.app import cli

@cli.app.command("long")
def print_long() -> None:
    for number in range(200_000):
        print(number)

cli.main()
"""
"""A process of mqadmin with the additional command `long`, whose output is longer than a pipe and its buffers hold."""


def test_mqadmin_alone_lists_the_commands(run_mqadmin: RunCommand) -> None:
    """With their descriptions, as RocketMQ's tool."""
    result = run_mqadmin()
    assert result.code == 0
    assert "   clusterList                         List cluster infos.\n" in result.out


def test_help_alone_lists_the_commands(run_mqadmin: RunCommand) -> None:
    """As `mqadmin` alone."""
    assert run_mqadmin("help") == run_mqadmin()


def test_a_reader_of_the_output_may_end_early(run_mqadmin: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `head` does: no error, and no message of the interpreter when it exits."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        assert cli.run([]) == 0
        monkeypatch.undo()


@pytest.mark.daemon
@pytest.mark.parametrize("arguments", [[], ["help", "updateTopic"], ["updateTopic", "-h"], ["long"]])
def test_a_pipeline_with_head_succeeds(arguments: list[str]) -> None:
    """A command whose reader ends in the middle of its output ends with exit code 0, and writes nothing to stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", LONG_COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert (process.stderr.read(), process.wait()) == ("", 0)


@pytest.mark.daemon
def test_a_pipeline_with_pipefail_succeeds() -> None:
    """As a script with `set -o pipefail` runs it."""
    command = shlex.join([sys.executable, "-c", LONG_COMMAND, "long"])
    script = f"set -eo pipefail; {command} | head -1"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("arguments", [("help", "CLUSTERLIST"), ("clusterlist", "-h"), ("clusterList", "--help")])
def test_help_explains_the_options_of_a_command(run_mqadmin: RunCommand, arguments: tuple[str, ...]) -> None:
    """Regardless of the case of its name."""
    result = run_mqadmin(*arguments)
    assert (result.code, result.err) == (0, "")
    assert "--moreStats" in result.out


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("noSuchCommand",), "noSuchCommand"),
        (("clusterList", "--noSuchOption"), "--noSuchOption"),
        (("clusterList", "-i"), "'-i'"),
        (("clusterList", "-i", "often"), "'-i'"),
        (("clusterList", "-n", "no port"), "host:port"),
        (("brokerStatus", "-b", "no port"), "'no port' is not host:port"),
        (("clusterList", "--profile", "missing"), "no profile missing"),
        (("topic", "show", "\udcff"), "the argument '\\udcff' is not UTF-8"),
        (("topicRoute", "-t", "\udcff"), "the argument '\\udcff' is not UTF-8"),
        (("clusterList", "-i", "9" * 400), "'-i'"),
        (("clusterList", "-i", "9" * 5_000), "'-i'"),
        (("clusterRT", "-s", "9" * 13), "'-s'"),
        (("checkMsgSendRT", "-t", "T", "-s", "9" * 13), "'-s'"),
        (("sendMsgStatus", "-b", "b", "-s", "9" * 400), "'-s'"),
        (("brokerConsumeStats", "-b", "b:1", "-t", "9" * 400), "'-t'"),
        (("updateBrokerConfig", "-b", "b:1", "-k", "brokerPermission", "-v", "9" * 5_000), "brokerPermission is"),
    ],
)
def test_wrong_usage_is_named_on_stderr(run_mqadmin: RunCommand, arguments: tuple[str, ...], cause: str) -> None:
    """With exit code 1, and without output on stdout."""
    result = run_mqadmin(*arguments)
    assert (result.code, result.out) == (1, "")
    assert cause in result.err


def test_an_unreachable_name_server_is_one_line(run_mqadmin: RunCommand) -> None:
    """With exit code 3 and the address."""
    (port,) = free_ports(1)
    result = run_mqadmin("clusterList", "-n", f"127.0.0.1:{port}")
    assert (result.code, result.out) == (3, "")
    assert result.err.count("\n") == 1
    assert f"127.0.0.1:{port}" in result.err


def test_an_interrupt_ends_a_command(run_mqadmin: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """With exit code 130 and no output."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("skylarkmq.clients.mqadmin.commands.connection_of", interrupted)
    assert run_mqadmin("clusterList") == (130, "", "")


def test_names_of_commands_differ_in_more_than_case() -> None:
    """Names match regardless of case, so two that differ only in case would hide one another."""
    names = [command.name.lower() for command in cli.ROCKETMQ]
    assert len(names) == len(set(names))
