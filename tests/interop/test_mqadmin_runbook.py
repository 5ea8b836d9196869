"""The runbook of tests/interop/commands/runbook.py runs unchanged with our mqadmin, and prints what RocketMQ's prints.

Each tool has a broker of its own, of the same kind and in the same state. CI runs against Skylark; RocketMQ's brokers:

    pytest -m interop tests/interop/test_mqadmin_runbook.py --broker-under-test=apache-4.9.7
    pytest -m interop tests/interop/test_mqadmin_runbook.py --broker-under-test=apache-5.3.3
"""

import io
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from skylarkmq import ConsumeFrom, Message, MessageQueue
from skylarkmq.blocking import Producer, PushConsumer
from skylarkmq.clients.mqadmin.app.cli import run
from tests.interop.brokers import BrokerUnderTest, running_broker, wait_until_committed
from tests.interop.commands import STACK_TRACE, masked
from tests.interop.commands.runbook import RUNBOOK, Line
from tests.interop.mqadmin_process import MqadminProcess

TOPIC, GROUP, BROKER, CLUSTER = "Orders", "billing", "broker-a", "DefaultCluster"
QUEUES, SENT = 4, 8

pytestmark = pytest.mark.interop


class Place(NamedTuple):
    """A broker with messages, a producer and a member; `names`: the values of the runbook's variables."""

    broker: BrokerUnderTest
    names: dict[str, str]


@contextmanager
def place(kind: str, home: Path) -> Iterator[Place]:
    """Start a broker; yield when the member has consumed the messages."""
    with running_broker(kind, home, {"brokerName": BROKER}) as broker:
        broker.create_topic(TOPIC, QUEUES)
        with (
            PushConsumer(
                GROUP,
                namesrv=broker.namesrv,
                handler=lambda message: None,
                consume_from=ConsumeFrom.FIRST,
                topics=TOPIC,
            ) as member,
            Producer("shop", namesrv=broker.namesrv) as producer,
        ):
            sent = [
                producer.send(
                    Message(TOPIC, b"%d" % number, keys=[f"key-{number}"], tags="ab"[number % 2]),
                    queue=MessageQueue(TOPIC, BROKER, number % QUEUES),
                )
                for number in range(SENT)
            ]
            wait_until_committed(member, SENT)
            names = {"broker": broker.broker_address, "namesrv": broker.namesrv, "cluster": CLUSTER, "name": BROKER}
            names |= {"unique_id": sent[0].msg_id, "offset_id": str(sent[0].offset_msg_id)}
            names |= {"member": member.participant.client.client_id, "home": str(home)}
            yield Place(broker, names)


class Printed(NamedTuple):
    """The output of a tool for one line. `err` and `code` are of ours only: RocketMQ's exits with 0."""

    out: str
    err: str = ""
    code: int = 0


Pairs = list[tuple[Line, Printed, Printed]]


@pytest.fixture(scope="module")
def printed(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    """Run the whole runbook with ours and then with RocketMQ's tool."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in ("ROCKETMQ_HOME", "SKYLARK_PROFILE", "XDG_CONFIG_HOME"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        ours, theirs = (place(broker_kind, tmp_path_factory.mktemp(whose)) for whose in ("ours", "theirs"))
        with ours as our_place:
            patch.setenv("NAMESRV_ADDR", our_place.broker.namesrv)
            by_ours = [without_names(by_our_tool(line, our_place), our_place) for line in RUNBOOK]
            patch.delenv("NAMESRV_ADDR")  # a broker would register there
        with theirs as their_place:
            tool = MqadminProcess("5.3.3", tmp_path_factory.mktemp("tool") / "mqadmin", their_place.broker.namesrv)
            stack.callback(tool.stop)
            by_theirs = [
                without_names(Printed(tool.run(*line.arguments(their_place.names)).text), their_place)
                for line in RUNBOOK
            ]
        yield list(zip(RUNBOOK, by_ours, by_theirs, strict=True))


def by_our_tool(line: Line, at: Place) -> Printed:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(line.arguments(at.names))
    return Printed(out.getvalue(), err.getvalue(), code)


def without_names(result: Printed, at: Place) -> Printed:
    """Return the output without the names of one broker."""
    out = result.out
    for name in ("member", "home"):
        out = out.replace(at.names[name], f"${name}")
    return result._replace(out=out)


def test_the_runbook_has_60_lines() -> None:
    """Each of them has its own form."""
    assert len({line.text for line in RUNBOOK}) == len(RUNBOOK) == 60


@pytest.mark.parametrize("at", range(len(RUNBOOK)), ids=[str(line) for line in RUNBOOK])
def test_a_line_runs_unchanged(printed: Pairs, broker_kind: str, at: int) -> None:
    """With its exit code and content, and the output of RocketMQ's tool, where that serves it."""
    line, ours, theirs = printed[at]
    assert ours.code == line.code, ours
    assert re.search(line.shows, ours.err if line.code else ours.out, re.MULTILINE), ours
    if line.code:
        assert ours.err.count("\n") == 1, ours.err
        assert STACK_TRACE in theirs.out
    elif line.requires_5 and broker_kind == "apache-4.9.7":
        assert STACK_TRACE in theirs.out
    else:
        assert ours.err == ""
        assert STACK_TRACE not in theirs.out, theirs.out
        assert masked(line.case, ours.out) == masked(line.case, theirs.out)
