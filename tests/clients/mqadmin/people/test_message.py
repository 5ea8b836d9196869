"""`mqadmin message`: sends, the ways to find a message, its details, its trace, failures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq import Message, Producer
from skylarkmq.broker.app.in_process import InProcessBroker
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.people.conftest import Sender

TOPIC = "Orders"


@pytest.fixture(scope="module", autouse=True)
def sent(sender: Sender) -> str:
    """Return the id of a message with a key."""
    sender.run(sender.admin.create_topic(TOPIC, queues=1))
    for number in range(3):
        sender.send(Message(TOPIC, b"body %d" % number, keys=f"other-{number}"))
    message = Message(TOPIC, b'{"total": 7}', tags="paid", keys="k1 k2", properties={"color": "red"})
    return sender.send(message).msg_id


@pytest.fixture(scope="module", autouse=True)
def traced(broker: InProcessBroker, sender: Sender, sent: str) -> str:
    """Return the id of a message whose send is traced."""

    async def send() -> str:
        async with Producer("traced", namesrv=broker.namesrv, trace=True) as producer:
            return (await producer.send(Message("Traced", b"traced"))).msg_id

    message_id: str = sender.run(send())
    return message_id


def test_a_message_is_found_in_each_way(json_of: Callable[..., Any], mqadmin: RunCommand, sent: str) -> None:
    """By a key and an id, also without its topic; by its queue and offset; by time."""
    (row,) = json_of("message", "find", "--key", "k2")["messages"]
    assert (row["id"], row["topic"], row["queue"], row["offset"]) == (sent, TOPIC, 0, 3)
    assert (row["keys"], row["tag"], row["size"], row["preview"]) == (["k1", "k2"], "paid", 12, '{"total": 7}')
    for arguments in (
        ("--key", "k1", "--topic", TOPIC),
        ("--id", sent),
        ("--id", sent, "--topic", TOPIC),
        ("--id", row["offsetId"]),
        ("--topic", TOPIC, "--queue", f"{json_of('broker', 'list')['brokers'][0]['name']}:0", "--offset", "3"),
    ):
        assert json_of("message", "find", *arguments) == {"messages": [row], "isCut": False}
    first_two = json_of("message", "find", "--topic", TOPIC, "--since", "1d", "--limit", "2")
    assert [each["preview"] for each in first_two["messages"]] == ["body 0", "body 1"]
    assert first_two["isCut"]
    table = mqadmin("message", "find", "--topic", TOPIC, "--since", "1d", "--limit", "2").out
    assert table.splitlines()[0].split() == ["Id", "Topic", "Queue", "Offset", "Stored", "Keys", "Tag", "Body"]
    assert table.endswith("There are more: raise --limit, or narrow the search.\n")


def test_a_message_is_shown_with_its_body(json_of: Callable[..., Any], mqadmin: RunCommand, sent: str) -> None:
    """In the form that suits it, or in the given one, with all properties."""
    shown = json_of("message", "show", sent)
    assert (shown["bodyForm"], msgspec.json.decode(shown["body"])) == ("json", {"total": 7})
    assert (shown["bodyIsCut"], shown["redeliveries"], shown["properties"]["color"]) == (False, 0, "red")
    text = mqadmin("message", "show", sent, "--topic", TOPIC, "--as", "hex").out
    assert "7b 22 74 6f" in text
    assert "No group has consumed its topic." in text


def test_a_message_is_sent(json_of: Callable[..., Any], mqadmin: RunCommand, tmp_path: Path) -> None:
    """With keys, a tag and properties; its body is an argument or a file."""
    first = json_of("message", "send", TOPIC, "hello", "--key", "a", "--key", "b", "--tag", "t", "--property", "x=1=2")
    shown = json_of("message", "show", first["id"])
    assert (first["status"], first["topic"], first["queue"]) == ("OK", TOPIC, 0)
    assert (shown["body"], shown["message"]["keys"], shown["properties"]["x"]) == ("hello", ["a", "b"], "1=2")
    file = tmp_path / "body"
    file.write_bytes(b"\x00\xff")
    line = mqadmin("message", "send", TOPIC, "--file", str(file)).out
    assert line.endswith(f"OK, broker {first['broker']}, queue 0, offset {first['offset'] + 1}.\n")
    assert json_of("message", "show", line.split()[1].rstrip(":"))["bodyForm"] == "hex"


def test_a_trace_is_shown(json_of: Callable[..., Any], mqadmin: RunCommand, traced: str) -> None:
    """With the group and the result of each event."""
    (event,) = json_of("message", "trace", traced)["events"]
    assert (event["event"], event["group"], event["succeeded"]) == ("Pub", "traced", True)
    assert mqadmin("message", "trace", traced).out.splitlines()[2].split()[:2] == ["Pub", "traced"]


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("find",), 1, "give --key, --id, or --topic with"),
        (("find", "--topic", TOPIC), 1, "give --key, --id, or --topic with"),
        (("find", "--key", "a", "--id", "b"), 1, "three ways to search"),
        (("find", "--topic", TOPIC, "--since", "soon"), 1, "a time must be now, 15m"),
        (("find", "--topic", TOPIC, "--queue", "0"), 1, "a queue must be BROKER:ID"),
        (("find", "--topic", TOPIC, "--queue", "missing:0"), 2, "missing"),
        (("find", "--key", "missing"), 2, "no message matches"),
        (("find", "--key", "k1", "--topic", "Missing"), 2, "Missing"),
        (("show", "missing"), 2, "no topic has a message missing"),
        (("show", "missing", "--topic", TOPIC), 2, "topic Orders has no message missing"),
        (("show", "x", "--as", "xml"), 1, "'xml' is not a form of a body"),
        (("send", TOPIC), 1, "give the body as an argument, or a file"),
        (("send", TOPIC, "--file", "/missing"), 1, "/missing"),
        (("send", TOPIC, "--file", "/dev/zero"), 1, "exceeds the limit of 4194304"),
        (("send", TOPIC, "a", "--file", "/dev/zero"), 1, "give the body as an argument, or a file"),
        (("send", TOPIC, "a", "--property", "x"), 1, "a property must be NAME=VALUE"),
        (("trace", "missing"), 2, "missing"),
    ],
)
def test_failures_are_one_line(mqadmin: RunCommand, arguments: tuple[str, ...], code: int, cause: str) -> None:
    """With the cause, and the exit code of its class."""
    result = mqadmin("message", *arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert cause in result.err
