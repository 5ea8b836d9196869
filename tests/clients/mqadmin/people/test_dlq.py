"""`mqadmin dlq`: groups with dead letters, the letters, resends by id, by filter and of all, failures."""

from collections.abc import Callable
from typing import Any

import pytest

from skylarkmq import Message
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX
from skylarkmq.protocol.message import PropertyName
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.people.conftest import Sender

GROUP = "billing"
LETTERS = DLQ_PREFIX + GROUP
RETRIES = RETRY_PREFIX + GROUP


@pytest.fixture(scope="module", autouse=True)
def letters(sender: Sender) -> list[str]:
    """Return the ids of four letters, of which the last one does not name the topic that it came from."""
    for topic in ("Orders", LETTERS, RETRIES):
        sender.run(sender.admin.create_topic(topic, queues=1))
    came_from = {PropertyName.RETRY_TOPIC: "Orders"}
    named = [Message(LETTERS, b"letter %d" % at, keys=f"k{at}", properties=came_from) for at in range(3)]
    return [sender.send(message).msg_id for message in (*named, Message(LETTERS, b"nameless"))]


def bodies(sender: Sender, topic: str) -> list[bytes]:
    """Return the bodies in the queue of a topic."""
    (queue,) = sender.run(sender.admin.queues(topic))
    return [message.body for message in sender.run(sender.admin.messages.pull(queue, 0)).messages]


def test_letters_are_listed_and_shown(json_of: Callable[..., Any], mqadmin: RunCommand, letters: list[str]) -> None:
    """By group, and with the topic that each came from."""
    (row,) = json_of("dlq", "list")["groups"]
    assert (row["group"], row["letters"]) == (GROUP, 4)
    assert mqadmin("dlq", "list", "--filter", "none").out == "No dead letters.\n"
    shown = json_of("dlq", "show", GROUP)
    assert [each["message"]["id"] for each in shown["letters"]] == letters
    assert [each["originTopic"] for each in shown["letters"]] == ["Orders", "Orders", "Orders", None]
    (found,) = json_of("dlq", "show", GROUP, "--contains", "k1")["letters"]
    assert found["message"]["id"] == letters[1]
    assert json_of("dlq", "show", GROUP, "--limit", "2")["isCut"]
    assert json_of("dlq", "show", GROUP, "--until", "1d")["letters"] == []
    assert mqadmin("dlq", "show", GROUP).out.startswith(f"Dead letters of group {GROUP}\n")


def test_letters_are_sent_again(
    mqadmin: RunCommand,
    json_of: Callable[..., Any],
    sender: Sender,
    letters: list[str],
    answers: Callable[[str], None],
) -> None:
    """One by its id to its group; those of a filter to their topic; of all, those that name their topic."""
    sent = json_of("dlq", "resend", GROUP, letters[2], "--yes")
    assert sent == {"group": GROUP, "target": "group", "sent": 1, "failed": 0}
    assert bodies(sender, RETRIES) == [b"letter 2"]
    answers("y\n")
    filtered = mqadmin("dlq", "resend", GROUP, "--contains", "letter 1", "--to", "topic")
    assert (filtered.code, filtered.out) == (0, f"Sent 1 dead letter of group {GROUP} again.\n")
    assert "Copies of up to 4 dead letters" in filtered.err
    assert bodies(sender, "Orders") == [b"letter 1"]
    every = mqadmin("dlq", "resend", GROUP, "--all", "--yes")
    assert every.code == 1
    assert every.out == f"Sent 3 dead letters of group {GROUP} again, 1 failed.\n"
    assert every.err == f"mqadmin: message {letters[3]} does not name the topic that it came from.\n"
    assert bodies(sender, RETRIES) == [b"letter 2", b"letter 0", b"letter 1", b"letter 2"]
    assert json_of("dlq", "list")["groups"][0]["letters"] == 4


def test_a_message_of_another_topic_is_not_sent_again(mqadmin: RunCommand, sender: Sender) -> None:
    """An offset id names any message of a broker."""
    sender.run(sender.admin.create_topic("%DLQ%other", queues=1))
    came_from = {PropertyName.RETRY_TOPIC: "Orders"}
    other = sender.send(Message("%DLQ%other", b"of another group", properties=came_from))
    before = bodies(sender, RETRIES)
    refused = mqadmin("dlq", "resend", GROUP, other.offset_msg_id, "--yes")
    assert (refused.code, refused.out) == (2, "")
    assert f"is in %DLQ%other, and is not a dead letter of group {GROUP}." in refused.err
    assert bodies(sender, RETRIES) == before


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("show", "missing"), 2, "group missing has no dead letters."),
        (("resend", "missing", "--all", "--yes"), 2, "group missing has no dead letters."),
        (("resend", GROUP, "missing", "--yes"), 2, "missing"),
        (("resend", GROUP), 1, "give ids of letters, or --all, or a filter"),
        (("resend", GROUP, "x", "--all"), 1, "give ids of letters, or --all, or a filter"),
        (("resend", GROUP, "--all", "--to", "moon"), 1, "'moon' is not a target; use group or topic."),
        (("resend", GROUP, "--all"), 1, "without --yes"),
    ],
)
def test_failures_are_one_line(mqadmin: RunCommand, arguments: tuple[str, ...], code: int, cause: str) -> None:
    """With the cause, and the exit code of its class; nothing is sent."""
    result = mqadmin("dlq", *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert cause in result.err
