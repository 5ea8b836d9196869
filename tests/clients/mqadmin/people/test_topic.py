"""`mqadmin topic`: effects, tables and JSON, confirmation, failures."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from skylarkmq import Message
from skylarkmq.admin_types import TopicConfig
from tests.clients.mqadmin.conftest import Result, RunCommand
from tests.clients.mqadmin.people.conftest import Sender


@pytest.fixture(scope="module", autouse=True)
def orders(sender: Sender) -> None:
    sender.run(sender.admin.create_topic("Orders", queues=2))
    sender.send(Message("Orders", b"one"))


def test_a_topic_is_created_listed_changed_and_deleted(
    mqadmin: RunCommand, json_of: Callable[..., Any], answers: Callable[[str], None]
) -> None:
    """With the options that were given; those that are not given to `update` stay."""
    created = mqadmin("topic", "create", "Invoices", "--queues", "3", "--perm", "r", "--type", "FIFO")
    assert (created.code, created.err) == (0, "")
    assert created.out.startswith("Topic Invoices is created on 127.0.0.1:")
    updated = json_of("topic", "update", "Invoices", "--write-queues", "4")
    assert (updated["kind"], updated["name"], updated["action"]) == ("topic", "Invoices", "updated")
    (row,) = json_of("topic", "list", "--filter", "invo")["topics"]
    assert row == {
        "name": "Invoices",
        "kind": "normal",
        "brokers": row["brokers"],
        "readQueues": 3,
        "writeQueues": 4,
        "permission": "r",
        "messageType": "FIFO",
    }
    answers("no\n")
    refused = mqadmin("topic", "delete", "Invoices")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.endswith("Go on? [y/N] mqadmin: nothing is done.\n")
    answers("y\n")
    assert mqadmin("topic", "delete", "Invoices").out.startswith("Topic Invoices is deleted on ")
    assert json_of("topic", "list", "--filter", "invo") == {"topics": []}
    assert mqadmin("topic", "list", "--filter", "invo").out == "No topics.\n"


def test_the_list_is_a_table(mqadmin: RunCommand) -> None:
    """Without a terminal, a line for each topic, without colors and without the topics of the system."""
    result = mqadmin("topic", "list")
    heads, *rows = [re.split(r"\s{2,}", line.strip()) for line in result.out.splitlines()]
    assert heads == ["Topic", "Read queues", "Write queues", "Permission", "Type", "Brokers"]
    assert ["Orders", "2", "2", "rw", "NORMAL", "1"] in rows
    assert "\x1b" not in result.out
    assert not [row for row in rows if row[0].startswith(("rmq_sys_", "TBW102", "%"))]
    assert "TBW102" in mqadmin("topic", "list", "--kind", "system").out


def test_a_topic_is_shown_with_its_queues(mqadmin: RunCommand, json_of: Callable[..., Any]) -> None:
    """And with the groups that consume it."""
    shown = json_of("topic", "show", "Orders")
    assert (shown["name"], shown["messages"], shown["groups"]) == ("Orders", 1, [])
    assert [(each["readQueues"], each["permission"]) for each in shown["brokers"]] == [(2, "rw")]
    assert sorted(each["nextOffset"] for each in shown["queues"]) == [0, 1]
    stored = {each["lastStored"] is None: each["lastStoredMs"] for each in shown["queues"]}
    assert stored[True] == 0
    assert stored[False] > 0
    assert mqadmin("topic", "show", "Orders").out.startswith("Topic Orders: 1 message, ")


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("create", "Orders"), 1, "topic Orders exists. `mqadmin topic update` changes it."),
        (("create", "New", "--perm", "x"), 1, "'x' is not a permission; use one of rw, r, w, none."),
        (("create", "New", "--type", "x"), 1, "'x' is not a message type"),
        (("create", "New", "--attribute", "x"), 1, "an attribute must be NAME=VALUE, not 'x'."),
        (("create", "New", "--cluster", "none"), 2, "no cluster none is registered"),
        (("create", "bad name"), 5, "bad name"),
        (("update", "Orders"), 1, "nothing to change"),
        (("update", "Missing", "--queues", "2"), 2, "Missing"),
        (("show", "Missing"), 2, "Missing"),
        (("delete", "Missing", "--yes"), 2, "Missing"),
        (("delete", "Orders"), 1, "Nothing is done without --yes, because stdin is no terminal."),
        (("list", "--kind", "x"), 1, "'x' is not a kind of topic"),
    ],
)
def test_failures_are_one_line(mqadmin: RunCommand, arguments: tuple[str, ...], code: int, cause: str) -> None:
    """With the cause, and the exit code of its class; nothing is done."""
    result = mqadmin("topic", *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert cause in result.err
    assert "Orders" in mqadmin("topic", "list").out


def test_a_thousand_topics_fit_every_terminal(
    sender: Sender, mqadmin: RunCommand, in_terminal: Callable[..., Result]
) -> None:
    """No name is cut: it is folded, or its row becomes a block. Without a terminal each is one line."""
    names = [f"A-rather-long-name-of-a-topic-with-the-number-{number:04}" for number in range(1000)]
    (address,) = sender.run(sender.admin.masters()).values()
    sender.run(sender.admin.topic_config.put_all(address, [TopicConfig(name, 1, 1) for name in names]))
    listed = mqadmin("topic", "list", "--filter", "rather")
    assert [line.split()[0] for line in listed.out.splitlines()[1:]] == names
    for columns in (30, 70):
        result = in_terminal(columns, "topic", "list", "--filter", "rather")
        assert result.code == 0
        assert max(len(line.rstrip()) for line in result.out.splitlines()) <= columns
        assert len(re.findall(r"\b\d{4}\b", result.out)) >= 1000
    wide = in_terminal(200, "topic", "list", "--filter", "rather").out
    assert [line.split()[0] for line in wide.splitlines()[1:]] == names
