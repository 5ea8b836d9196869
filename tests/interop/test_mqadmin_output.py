"""mqadmin prints what RocketMQ's tool 5.3.3 prints, against the same broker in the same state.

The tables of commands are in tests/interop/commands. CI compares against Skylark; against RocketMQ's brokers:

    pytest -m interop tests/interop/test_mqadmin_output.py --broker-under-test=apache-4.9.7
    pytest -m interop tests/interop/test_mqadmin_output.py --broker-under-test=apache-5.3.3
"""

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from skylarkmq import ConsumeFrom, Message
from skylarkmq.blocking import Producer, PushConsumer
from skylarkmq.clients.mqadmin.app.cli import ROCKETMQ, app, run
from skylarkmq.protocol import javajson
from tests.interop.brokers import BrokerUnderTest, running_broker, wait_until_committed
from tests.interop.commands import STACK_TRACE, Case, cluster, group, masked, messages, namesrv, topic
from tests.interop.mqadmin_process import CommandOutput, MqadminProcess

TOPIC, GROUP, BROKER, CLUSTER = "Orders", "billing", "broker-a", "DefaultCluster"
QUEUES, SENT = 4, 8
CASES: Final = [*messages.CASES, *cluster.CASES, *namesrv.CASES, *topic.CASES, *group.CASES]
FILES: Final = {
    "topics_file": '[{"topicName":"Listed"},{"topicName":"Wide","readQueueNums":3,"writeQueueNums":3,"perm":6}]',
    "groups_file": '[{"groupName":"listed"},{"groupName":"tried","retryMaxTimes":3}]',
}
"""Files for commands that read one, by their names in `arguments`."""
NOT_SERVED: Final[dict[str, frozenset[str]]] = {
    "skylark": frozenset({"resetMasterFlushOffset"}),
    "apache-4.9.7": frozenset({"haStatus", "resetMasterFlushOffset"}),
    "apache-5.3.3": frozenset(),
}
"""The commands that a broker refuses with REQUEST_CODE_NOT_SUPPORTED (3): RocketMQ's tool prints a stack trace."""
MASKS_OF: Final = {"apache-4.9.7": [(r"trackType=(CONSUMED|UNKNOWN)", "STATE")]}
"""Differences with a broker. Without GET_TOPIC_CONFIG (351), RocketMQ's tool 5.3.3 does not see a consumed message."""

pytestmark = pytest.mark.interop


class BothTools:
    """RocketMQ's tool and ours, and the broker that both administer."""

    def __init__(self, kind: str, broker: BrokerUnderTest, apache: MqadminProcess) -> None:
        self.kind = kind
        self.apache = apache
        self.names = {"broker": broker.broker_address, "namesrv": broker.namesrv, "cluster": CLUSTER, "name": BROKER}
        self.names |= {"topic": TOPIC, "group": GROUP}

    def by_apache(self, command: str, arguments: str) -> CommandOutput:
        return self.apache.run(command, *shlex.split(arguments.format_map(self.names)))

    def by_ours(self, command: str, arguments: str) -> tuple[CommandOutput, str]:
        """Return the code and stdout of a command, and its stderr."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run([command, *shlex.split(arguments.format_map(self.names))])
        return CommandOutput(command, code, out.getvalue()), err.getvalue()

    def masked(self, case: Case, text: str) -> list[str]:
        masks = [(pattern.replace("{name}", BROKER), replacement) for pattern, replacement in case.masks]
        return masked(case._replace(masks=[*masks, *MASKS_OF.get(self.kind, [])]), text)


@pytest.fixture(scope="module")
def tools(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothTools]:
    """Start the broker, the group's member, and RocketMQ's tool."""
    with (
        pytest.MonkeyPatch.context() as patch,
        running_broker(broker_kind, tmp_path_factory.mktemp("broker"), {"brokerName": BROKER}) as broker,
    ):
        home = tmp_path_factory.mktemp("home")
        for name in ("ROCKETMQ_HOME", "SKYLARK_PROFILE", "XDG_CONFIG_HOME"):
            patch.delenv(name, raising=False)
        patch.setenv("HOME", str(home))
        patch.chdir(home)  # consumerStatus writes files
        patch.setenv("NAMESRV_ADDR", broker.namesrv)
        broker.create_topic(TOPIC, QUEUES)
        for name, content in FILES.items():
            (home / name).write_text(content)
        apache = MqadminProcess("5.3.3", Path(home) / "mqadmin", broker.namesrv)
        try:
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
                    producer.send(Message(TOPIC, b"%d" % number, keys=[f"key-{number}"], tags="ab"[number % 2]))
                    for number in range(SENT)
                ]
                wait_until_committed(member, SENT)
                both = BothTools(broker_kind, broker, apache)
                both.names["member"] = member.participant.client.client_id
                both.names |= {name: str(home / name) for name in FILES}
                both.names |= {"unique_id": sent[0].msg_id, "offset_id": sent[0].offset_msg_id}
                yield both
        finally:
            apache.stop()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_output_is_that_of_rocketmqs_tool(tools: BothTools, case: Case) -> None:
    """The same lines. Where RocketMQ's tool fails, ours prints one line on stderr, and its exit code is not 0."""
    for prepared in case.before:
        tools.by_apache(*prepared.split(" ", 1))
    theirs = tools.by_apache(case.command, case.arguments)
    for prepared in case.before:
        tools.by_apache(*prepared.split(" ", 1))
    ours, err = tools.by_ours(case.command, case.arguments)
    if case.fails or case.command in NOT_SERVED[tools.kind]:
        assert STACK_TRACE in theirs.text
        assert (ours.code != 0, err.count("\n")) == (True, 1), (ours, err)
        return
    assert (ours.code, err) == (0, "")
    if case.requires_5 and tools.kind == "apache-4.9.7":
        assert ours.text
        assert STACK_TRACE in theirs.text
        return
    assert STACK_TRACE not in theirs.text, theirs.text
    assert tools.masked(case, ours.text) == tools.masked(case, theirs.text)


OPTION_OF_HELP = re.compile(r"^ -(?P<short>\w)(,--(?P<long>\w+)(?= <arg>|  |$))?", re.MULTILINE)
"""A line of RocketMQ's help. Long names with a blank, such as `--print msg`, are left out: ours have none."""
OWN_OPTIONS: Final = {"--profile", "-h", "--help"}
ONLY_IN_4_9: Final = {"updateAclConfig", "deleteAclConfig", "clusterAclConfigVersion", "updateGlobalWhiteAddr"}


@pytest.mark.parametrize("command", sorted({command.name for command in ROCKETMQ} - ONLY_IN_4_9))
def test_options_are_those_of_rocketmqs_tool(tools: BothTools, command: str) -> None:
    """With the same letters, long names and values. Ours may have more long options."""
    theirs = {
        option
        for match in OPTION_OF_HELP.finditer(tools.by_apache("help", command).text)
        for option in (f"-{match['short']}", f"--{match['long']}" if match["long"] else None)
        if option is not None
    }
    assert "-n" in theirs
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    ours = {option for parameter in group.commands[command].params for option in parameter.opts}
    assert theirs - ours - OWN_OPTIONS == set()
    assert {option for option in ours - theirs - OWN_OPTIONS if len(option) == 2} == set()


@pytest.mark.parametrize(
    ("command", "arguments", "name"),
    [
        ("exportConfigs", "-c {cluster}", "configs.json"),
        ("exportMetadata", "-c {cluster}", "metadata.json"),
        ("exportMetadata", "-c {cluster} -t -s", "topic.json"),
        ("exportMetadata", "-b {broker} -t", "topic.json"),
        ("exportMetadata", "-b {broker} -g", "subscriptionGroup.json"),
        ("exportMetrics", "-c {cluster}", "metrics.json"),
    ],
)
def test_exported_files_are_those_of_rocketmqs_tool(
    tools: BothTools, command: str, arguments: str, name: str, tmp_path: Path
) -> None:
    """The same members, whose values change only with time."""
    theirs = tools.by_apache(command, f"{arguments} -f {tmp_path / 'theirs'}")
    ours, err = tools.by_ours(command, f"{arguments} -f {tmp_path / 'ours'}")
    assert (ours.code, err) == (0, "")
    if (command, tools.kind) == ("exportMetrics", "apache-4.9.7"):
        assert "getTransferredTps" in theirs.text  # which 4.9 spells otherwise
        return
    assert STACK_TRACE not in theirs.text, theirs.text
    assert ours.text.strip() == theirs.text.strip().replace("/theirs/", "/ours/")
    content = {whose: javajson.loads((tmp_path / whose / name).read_text()) for whose in ("ours", "theirs")}
    for exported in content.values():
        exported.pop("exportTime", None)
    if command == "exportMetrics":
        content = {whose: shape(exported) for whose, exported in content.items()}
    assert content["ours"] == content["theirs"]


def shape(value: object) -> object:
    """Return a JSON value with the names of its members only."""
    return {name: shape(member) for name, member in value.items()} if isinstance(value, dict) else None
