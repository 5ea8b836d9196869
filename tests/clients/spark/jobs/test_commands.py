"""The commands before the start of Spark."""

import re
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from skylarkmq import Message
from skylarkmq.clients.arrow.archive_schema import ARCHIVE_SCHEMA
from skylarkmq.clients.sdk.blocking import Producer
from skylarkmq.clients.spark.jobs import duplicates, trace_summary
from skylarkmq.clients.spark.jobs.dead_letters_command import letters
from skylarkmq.clients.spark.jobs.duplicates_command import duplicates as duplicates_command
from skylarkmq.clients.spark.jobs.lag_command import lag as lag_command
from skylarkmq.clients.spark.jobs.messages import NEEDED
from skylarkmq.clients.spark.jobs.traces_command import traces
from skylarkmq.clients.terminal.printed_output import fields_table
from tests.harness.ports import free_ports

UNUSED_ADDRESS = f"127.0.0.1:{free_ports(1)[0]}"
COMMANDS = {"lag": lag_command, "dead-letters": letters, "traces": traces, "duplicates": duplicates_command}


def error_of(command: str, *arguments: str) -> str:
    """Return the one line of a command that does not start."""
    done = CliRunner().invoke(COMMANDS[command], list(arguments))
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"mqspark-{command}: ")
    return line


@pytest.mark.parametrize(
    ("command", "arguments", "advice"),
    [
        ("duplicates", ("-t", "T"), "give one of --name-server, --store and --archive"),
        ("duplicates", ("-t", "T", "--store", "nowhere"), "nowhere is not a directory"),
        (
            "duplicates",
            ("-t", "T", "--store", ".", "--by", "size"),
            "--by must be one of key, id, mark, body, property:",
        ),
        ("duplicates", ("-t", "T", "--store", ".", "--by", "property:"), "--by must be one of"),
        ("duplicates", ("-t", "T", "--store", ".", "--since", "soon"), "--since must be a time"),
        ("duplicates", ("-t", "T", "--archive", "a", "--option", "x=1"), "an archive has no options"),
        ("duplicates", ("-t", "T", "-n", "h:1", "--option", "minPartition=3"), "did you mean minPartitions?"),
        ("duplicates", ("-t", "T", "-n", UNUSED_ADDRESS), "no name server responds"),
        ("dead-letters", ("--store", "."), "give --group GROUP, or --topic TOPIC"),
        ("dead-letters", ("--store", ".", "--group", "g", "-t", "T"), "give --group GROUP, or --topic TOPIC"),
        ("dead-letters", ("--store", ".", "--group", "g", "--by", "x"), "--by must be one of reason, key, tag, topic"),
        ("traces", ("-n", "h:1", "--by-client"), "--by-client needs --archive"),
        ("lag", ("sample", "-n", UNUSED_ADDRESS, "-o", "x", "--once"), "no name server responds"),
        ("lag", ("sample", "-n", "h:1", "-o", "x", "--every", "0"), "--every must be longer than 0"),
        ("lag", ("sample", "-n", "h:1", "-o", "x", "--groups", ","), "--groups must be names"),
        ("lag", ("sample", "-n", "h:1", "-o", "x", "--option", "accessKey=k"), "accessKey and secretKey go together"),
        ("lag", ("report", "x", "--window", "0s"), "--window must be longer than 0"),
    ],
)
def test_a_mistake_is_one_line_with_advice(command: str, arguments: tuple[str, ...], advice: str) -> None:
    """The command does not start, and the exit code is 2."""
    assert advice in error_of(command, *arguments)


def test_a_group_without_dead_letters_is_named(mq_broker: Any) -> None:
    """Its topic does not exist; traces are missing likewise."""
    with Producer("shop", namesrv=mq_broker.namesrv) as producer:
        producer.send(Message("Orders", b"x"))
    cluster = ("-n", mq_broker.namesrv)
    assert "group billing has no dead letters" in error_of("dead-letters", *cluster, "--group", "billing")
    assert "no client has sent traces" in error_of("traces", *cluster)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_help_has_examples(command: typer.Typer) -> None:
    """Of `mqspark-lag`, each of the two commands."""
    arguments = (["sample", "--help"], ["report", "--help"]) if command is lag_command else (["--help"],)
    for argument in arguments:
        assert "Examples:" in CliRunner().invoke(command, argument).output


def test_the_json_has_the_documented_names() -> None:
    """Names in JSON are those of the table, and a summary names its schema."""
    summary = duplicates.DuplicatesSummary(
        topic="T", by="key", messages=1, values=1, duplicated_values=0, extra_messages=0, distances=[], top=[]
    )
    made = msgspec.to_builtins(summary)
    assert made["schema"] == "mqspark-duplicates/1"
    assert set(made) == set(re.findall(r"^\| `(\w+)`", fields_table(type(summary)), flags=re.MULTILINE))


def test_the_columns_of_an_archive_are_enough() -> None:
    """`mqspark-archive` writes every column that the jobs read."""
    assert set(NEEDED) < set(ARCHIVE_SCHEMA.names)


def test_a_plot_has_a_bounded_number_of_points() -> None:
    """The step grows with the span of the traces."""
    assert [trace_summary.step_of(span) for span in (0, 120_000, 120_001, 86_400_000)] == [1_000, 1_000, 5_000, 900_000]
