"""The output of commands for people: repetitions, completion, help, and rows of any width."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from rich.console import Console

from skylarkmq.broker.app.in_process import free_ports
from skylarkmq.clients.mqadmin.people import output
from skylarkmq.clients.mqadmin.people.output import Rows, print_rows, with_default_watch
from skylarkmq.protocol.bodies.cluster import ClusterInfo, TopicList
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.mqadmin.conftest import Result, RunCommand
from tests.clients.mqadmin.people.conftest import Sender
from tests.clients.peer import Peer

NAME = "a-name-of-forty-characters-without-blank"


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Let `--watch` repeat once; return the list of its pauses."""
    pauses: list[float | None] = []

    async def repeated(interval_s: float | None) -> AsyncIterator[None]:
        pauses.append(interval_s)
        yield
        await asyncio.sleep(0)
        yield

    monkeypatch.setattr(output, "repeated", repeated)
    return pauses


def test_watch_repeats_with_the_given_pause(mqadmin: RunCommand, twice: list[float | None]) -> None:
    """Or every two seconds; JSON is one line each time."""
    lines = mqadmin("cluster", "status", "--watch", "5", "--json").out.splitlines()
    assert [list(msgspec.json.decode(line)) for line in lines] == [["brokers"], ["brokers"]]
    assert mqadmin("topic", "list", "--watch").out == "No topics.\n\n" * 2
    assert mqadmin("topic", "list", "--watch", "--filter", "x").out == "No topics.\n\n" * 2
    assert twice == [5.0, 2.0, 2.0]


def test_a_terminal_is_cleared_between_repetitions(
    in_terminal: Callable[..., Result], twice: list[float | None]
) -> None:
    """And shows the time."""
    assert in_terminal(80, "topic", "list", "--watch").out.count("Every 2 s, ") == len(twice) + 1


def test_watch_goes_on_after_a_failure(scripted: Peer, run_mqadmin: RunCommand, twice: list[float | None]) -> None:
    """Of a later reading: a broker may restart. A failure of the first reading ends the command."""
    first = ClusterInfo({"b": BrokerData("c", "b", {0: "h:1"})}, {"c": ["b"]})
    responses = [RemotingCommand.response(body=first.encode()), RemotingCommand.response(1, "restarting")]
    scripted.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: responses.pop(0))
    result = run_mqadmin("broker", "list", "--watch")
    assert (result.code, result.out.count("h:1"), result.err.count("restarting")) == (0, 1, 1)
    responses += [RemotingCommand.response(1, "restarting")]
    result = run_mqadmin("broker", "list", "--watch")
    assert (result.code, result.out, result.err.count("restarting")) == (5, "", 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["--watch"], ["--watch", "2"]),
        (["--watch", "--json"], ["--watch", "2", "--json"]),
        (["--watch", "0.5", "x"], ["--watch", "0.5", "x"]),
        (["--watch=3"], ["--watch=3"]),
    ],
)
def test_watch_needs_no_number(given: list[str], expected: list[str]) -> None:
    """Without one, the default is inserted."""
    assert with_default_watch(given) == expected


@pytest.mark.parametrize("width", [8, 20, 44, 60, 200])
def test_no_width_cuts_a_text(width: int) -> None:
    """Folded texts and blocks have all characters, within the width."""
    file = io.StringIO()
    console = Console(file=file, width=width, markup=False, highlight=False)
    print_rows(console, iter([Rows("", ("Name", "Other", "Number"), [(NAME, "text", 12_345)])]))
    lines = file.getvalue().splitlines()
    assert max(map(len, map(str.rstrip, lines))) <= width
    letters = "".join(lines).replace(" ", "")
    assert all(part in letters for part in ("text", "12,345"))
    assert len(letters) == len("NameOtherNumber" + NAME + "text" + "12,345")


@pytest.mark.parametrize(
    ("line", "proposals"),
    [
        ("mqadmin top", ["topic", "topicList"]),
        ("mqadmin conso", ["console"]),
        ("mqadmin doc", ["doctor"]),
        ("mqadmin topic ", ["create", "update", "delete", "list", "show"]),
        ("mqadmin broker config ", ["get", "set"]),
        ("mqadmin topic show Comp", ["Completed-1", "Completed-2"]),
        ("mqadmin message find --topic Comp", ["Completed-1", "Completed-2"]),
        ("mqadmin group lag com", ["completing"]),
        ("mqadmin dlq show com", ["completing-letters"]),
    ],
)
def test_a_shell_completes_commands_and_names(
    sender: Sender, mqadmin: RunCommand, monkeypatch: pytest.MonkeyPatch, line: str, proposals: list[str]
) -> None:
    """Of the cluster."""
    for name in ("Completed-1", "Completed-2", "%DLQ%completing-letters"):
        sender.run(sender.admin.create_topic(name, queues=1))
    assert mqadmin("group", "delete", "completing", "--yes").code in {0, 2}
    assert mqadmin("group", "create", "completing").code == 0
    monkeypatch.setenv("_MQADMIN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    result = mqadmin()
    assert (result.code, result.err) == (0, "")
    assert [found for found in result.out.split() if found in proposals] == proposals


def test_names_that_a_shell_could_run_are_not_proposed(
    scripted: Peer, run_mqadmin: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only names of RocketMQ's characters."""
    names = TopicList(["Comp", "Comp;date", "Comp$(date)", "Comp\n", "Comp\x1b[2J", "../Comp"])
    scripted.on(
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, lambda *_: RemotingCommand.response(body=names.encode())
    )
    monkeypatch.setenv("_MQADMIN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "mqadmin topic show ")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert run_mqadmin().out.split() == ["Comp"]


def test_completion_without_a_cluster_is_empty(run_mqadmin: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell has no place for an error."""
    (port,) = free_ports(1)
    monkeypatch.setenv("_MQADMIN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "mqadmin topic show ")
    monkeypatch.setenv("COMP_CWORD", "3")
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{port}")
    result = run_mqadmin()
    assert (result.code, result.out.strip(), result.err) == (0, "", "")


def test_groups_are_listed_before_the_commands_of_rocketmq(run_mqadmin: RunCommand) -> None:
    """And explained by `help`, regardless of case."""
    text = run_mqadmin().out
    assert text.startswith("Commands for people:\n   topic create ")
    assert text.index("   namesrv config set ") < text.index("   clusterList ")
    explained = run_mqadmin("help", "TOPIC", "Create")
    assert (explained.code, explained.err) == (0, "")
    assert "  Examples:\n    mqadmin topic create Orders --queues 8\n" in explained.out
