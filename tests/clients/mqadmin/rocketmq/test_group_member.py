"""Commands about the clients of groups."""

import re
from pathlib import Path

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.protocol.bodies.client_state import ConsumerRunningInfo, ProcessQueueInfo
from skylarkmq.protocol.bodies.connections import ClientConnection, ConsumerConnection
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.decimals import INT64_MAX
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.rocketmq.conftest import GROUP, PRODUCERS, TOPIC, Live
from tests.clients.peer import Peer


@pytest.fixture(autouse=True)
def in_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_members_of_a_group_are_printed(mqadmin: RunCommand, broker: InProcessBroker, live: Live) -> None:
    """With their subscriptions; from the first broker of the group, or from a given one."""
    result = mqadmin("consumerConnection", "-g", GROUP)
    assert (result.code, result.err) == (0, "")
    head, member, _, below, topics, *subscriptions = result.out.splitlines()
    assert head.split() == ["#ClientId", "#ClientAddr", "#Language", "#Version"]
    assert re.fullmatch(rf"{re.escape(live.member)} +127\.0\.0\.1:\d+ +PYTHON +V5_3_3", member), member
    assert below == "Below is subscription:"
    assert topics.split() == ["#Topic", "#SubExpression"]
    assert {tuple(line.split()) for line in subscriptions[:2]} == {(TOPIC, "*"), (f"%RETRY%{GROUP}", "*")}
    assert subscriptions[2:] == [
        "",
        "ConsumeType: CONSUME_PASSIVELY",
        "MessageModel: CLUSTERING",
        "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET",
    ]
    assert mqadmin("consumerConnection", "-g", GROUP, "-b", broker.address) == result


def test_a_group_without_members_is_one_line(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With exit code 2, whether it never had one, or has none at a given broker."""
    for arguments in ((), ("-b", broker.address)):
        for command in ("consumerConnection", "consumerStatus"):
            result = mqadmin(command, "-g", "missing", *arguments)
            assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
            assert "missing" in result.err


def test_the_producers_of_a_group_are_printed(mqadmin: RunCommand, live: Live) -> None:
    """With numbers; a group without producers is one line."""
    result = mqadmin("producerConnection", "-g", PRODUCERS, "-t", TOPIC)
    assert (result.code, result.err) == (0, "")
    assert re.fullmatch(rf"0001  {re.escape(live.producer)} +127\.0\.0\.1:\d+ +PYTHON +V5_3_3\n", result.out)
    result = mqadmin("producerConnection", "-g", "missing", "-t", TOPIC)
    assert (result.code, result.out, result.err.count("\n")) == (5, "", 1)


def test_the_producers_of_a_broker_are_printed(mqadmin: RunCommand, broker: InProcessBroker, live: Live) -> None:
    """A line for each."""
    result = mqadmin("producer", "-b", broker.address)
    line = (
        rf"producer group \({PRODUCERS}\) instance : clientId={re.escape(live.producer)},remoteIP=/127\.0\.0\.1:\d+, "
        r"language=PYTHON, version=\d+, lastUpdateTimestamp=\d{13}"
    )
    assert (result.code, result.err) == (0, "")
    assert any(re.fullmatch(line, printed) for printed in result.out.splitlines()), result.out


def test_the_state_of_each_member_is_written_to_a_file(mqadmin: RunCommand, live: Live, tmp_path: Path) -> None:
    """Named after its client id, in a directory named after the time; and checked."""
    result = mqadmin("consumerStatus", "-g", GROUP)
    assert (result.code, result.err) == (0, "")
    ((index, client_id, version, file),) = result.rows
    assert (index, client_id, version) == ("1", live.member, "V5_3_3")
    assert re.fullmatch(rf"\d{{13}}/{re.escape(live.member)}", file)
    text = (tmp_path / file).read_text()
    assert text.startswith("#Consumer Properties#\n")
    assert f"001 Topic: %RETRY%{GROUP} " in text
    assert "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n" in result.out


def test_the_state_of_one_member_is_printed(mqadmin: RunCommand, live: Live) -> None:
    """With the stacks of its threads if they are requested; an unknown member is one line."""
    result = mqadmin("consumerStatus", "-g", GROUP, "-i", live.member)
    assert (result.code, result.err) == (0, "")
    assert "#Consumer RT&TPS#" in result.out
    assert "#Consumer jstack#" not in result.out
    assert "#Consumer jstack#" in mqadmin("consumerStatus", "-g", GROUP, "-i", live.member, "-s").out
    result = mqadmin("consumerStatus", "-g", GROUP, "-i", "missing")
    assert (result.code, result.out, result.err.count("\n")) == (5, "", 1)


@pytest.fixture
def group(scripted: Peer) -> list[str]:
    """Return the list of members that the broker has of each group; a test changes it."""
    members: list[str] = []
    route = TopicRouteData(
        queue_datas=[QueueData("b", 1, 1, 6)], broker_datas=[BrokerData("c", "b", {0: scripted.address})]
    )

    def connections(*_: object) -> RemotingCommand:
        body = ConsumerConnection([ClientConnection(name, "10.0.0.1:1", "JAVA", 479) for name in members])
        return RemotingCommand.response(body=body.encode())

    scripted.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: RemotingCommand.response(body=route.encode()))
    scripted.on(RequestCode.GET_CONSUMER_CONNECTION_LIST, connections)
    return members


def test_an_empty_list_of_members_is_one_line(run_mqadmin: RunCommand, group: list[str]) -> None:
    """RocketMQ's brokers respond with one after the last member has left."""
    assert group == []
    result = run_mqadmin("consumerConnection", "-g", "g")
    assert (result.code, result.err.count("\n")) == (2, 1)


def test_client_ids_do_not_lead_out_of_the_directory(
    run_mqadmin: RunCommand, group: list[str], scripted: Peer, tmp_path: Path
) -> None:
    """Members choose their ids, of any length, and the times that they report."""
    group += ["../../evil", "..", "/etc/evil", "x" * 300, "a\0b\x1b"]
    state = ProcessQueueInfo(last_pull_timestamp=INT64_MAX, last_consume_timestamp=-INT64_MAX)
    info = ConsumerRunningInfo(mq_table={MessageQueue("T", "b", 1): state})
    scripted.on(RequestCode.GET_CONSUMER_RUNNING_INFO, lambda *_: RemotingCommand.response(body=info.encode()))
    result = run_mqadmin("consumerStatus", "-g", "g")
    assert result.code == 0
    files = {str(path.relative_to(tmp_path)).split("/", 1)[1] for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"__.._evil", "_", "_etc_evil", "x" * 200, "a_b_"}


def test_members_that_do_not_respond_are_left_out(run_mqadmin: RunCommand, group: list[str], scripted: Peer) -> None:
    """Each is a line on stderr, and the exit code is that of the first one; the checks cover the others."""
    group += ["old", "new"]
    state = ProcessQueueInfo(cached_msg_count=3)
    info = ConsumerRunningInfo({"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"}, mq_table={MessageQueue("T", "b", 1): state})

    def running(_: object, request: RemotingCommand) -> RemotingCommand:
        if request.ext_fields()["clientId"] == "old":
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "version too low")
        return RemotingCommand.response(body=info.encode())

    scripted.on(RequestCode.GET_CONSUMER_RUNNING_INFO, running)
    result = run_mqadmin("consumerStatus", "-g", "g")
    assert (result.code, result.err.count("\n")) == (5, 1)
    assert [row[:2] for row in result.rows] == [["1", "new"]]
    blocked = r"new MessageQueue \[topic=T, brokerName=b, queueId=1\] can't consume for a while, maybe blocked, \d+ms\n"
    assert re.search(blocked, result.out)
