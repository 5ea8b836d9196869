"""Commands about the offsets of groups."""

import re

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.protocol.bodies.client_state import ResetOffsets
from skylarkmq.protocol.bodies.connections import ClientConnection, ConsumerConnection
from skylarkmq.protocol.bodies.enums import MessageModel
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset, TopicStatsTable
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.queue import OffsetResponseHeader
from tests.clients.mqadmin.conftest import Result, RunCommand
from tests.clients.mqadmin.rocketmq.conftest import GROUP, SENT, TOPIC, Live
from tests.clients.peer import Peer

C = ("-c", "DefaultCluster")
LATER = "9999999999999"
HEADS = "#Topic #Broker Name #QID #Broker Offset #Consumer Offset #Diff #Inflight #LastTime"


def offsets(result: Result, topic: str = TOPIC) -> list[list[str]]:
    """Return queue id, broker offset, consumer offset and lag of each queue in the table of consumerProgress."""
    assert (result.code, result.err) == (0, "")
    return [row[2:6] for row in result.rows if row[0] == topic]


def test_the_progress_of_a_group_is_printed(mqadmin: RunCommand, live: Live) -> None:
    """For all of its topics, or for one; with the hosts of its members if they are requested."""
    result = mqadmin("consumerProgress", "-g", GROUP)
    assert re.sub(" +", " ", result.out.splitlines()[0]) == HEADS
    half = str(SENT // 2)
    assert offsets(result) == [["0", half, half, "0"], ["1", half, half, "0"]]
    assert offsets(result, f"%RETRY%{GROUP}") == [["0", "0", "0", "0"]]
    assert re.search(r"\n\nConsume TPS: \d+\.\d\d\nConsume Diff Total: 0\nConsume Inflight Total: 0\n$", result.out), (
        result.out
    )
    assert re.search(r"0 +0 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", result.out)
    assert offsets(mqadmin("consumerProgress", "-g", GROUP, "-t", TOPIC)) == offsets(result)
    with_hosts = mqadmin("consumerProgress", "-g", GROUP, "-t", TOPIC, "-s", "true")
    host = live.member.split("@")[0]
    assert [row[5].split()[0] for row in with_hosts.rows] == [host, host]


def test_all_groups_are_printed(mqadmin: RunCommand, live: Live) -> None:
    """Those that have a retry topic, with the number and version of their members."""
    assert live.member
    mqadmin("updateTopic", *C, "-t", "%RETRY%offline")
    result = mqadmin("consumerProgress")
    assert (result.code, result.err) == (0, "")
    table = {row[0]: row[1:] for row in result.rows}
    assert table[GROUP][:4] == ["1", "V5_3_3", "PUSH", "CLUSTERING"]
    assert table["offline"] == ["0", "OFFLINE", "0", "0"]


def test_an_unknown_group_is_one_line(mqadmin: RunCommand) -> None:
    """With exit code 2, also for an unknown topic."""
    for arguments in (("-g", "missing"), ("-g", "missing", "-t", "Nothing"), ("-g", "missing", "-t", "Nothing", *C)):
        result = mqadmin("consumerProgress", *arguments)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)


@pytest.fixture
def idle(mqadmin: RunCommand, live: Live) -> str:
    """Return a group without members."""
    assert live.member
    mqadmin("updateSubGroup", *C, "-g", "idle")
    return "idle"


def test_a_group_is_moved_to_a_time(mqadmin: RunCommand, idle: str) -> None:
    """To the first message, to the end, and to a date; in the order of Java's hash tables."""
    result = mqadmin("resetOffsetByTime", "-g", idle, "-t", TOPIC, "-s", "0")
    first, head, *rows = result.out.splitlines()
    assert first == (
        f"start reset consumer offset by specified, group[idle], topic[{TOPIC}], force[true], timestamp(string)[0], "
        "timestamp(long)[0]"
    )
    assert head.split() == ["#brokerName", "#queueId", "#offset"]
    assert [row.split() for row in rows] == [["broker-a", "1", "0"], ["broker-a", "0", "0"]]
    half = str(SENT // 2)
    assert [row[2:] for row in offsets(mqadmin("consumerProgress", "-g", idle, "-t", TOPIC))] == [["0", half]] * 2
    result = mqadmin("resetOffsetByTime", "-g", idle, "-t", TOPIC, "-s", LATER, "-f", "false")
    assert [row[2] for row in result.rows] == [half, half]
    assert "force[false]" in result.out
    result = mqadmin("resetOffsetByTime", "-g", idle, "-t", TOPIC, "-s", "2020-01-01#00:00:00:000", *C)
    assert [row[2] for row in result.rows] == ["0", "0"]
    assert re.search(r"timestamp\(string\)\[2020-01-01#00:00:00:000], timestamp\(long\)\[15778\d{8}]", result.out)
    assert "timestamp(string)[now]" in mqadmin("resetOffsetByTime", "-g", idle, "-t", TOPIC, "-s", "now").out


def test_one_queue_is_moved(mqadmin: RunCommand, broker: InProcessBroker, idle: str) -> None:
    """To a time, or to an offset; also to offset 0."""
    mqadmin("skipAccumulatedMessage", "-g", idle, "-t", TOPIC)
    one = ("-g", idle, "-t", TOPIC, "-b", broker.address, "-q", "1")
    result = mqadmin("resetOffsetByTime", *one, "-s", "0", "-o", "1")
    assert result.out == (
        f"start reset consumer offset by specified, group[idle], topic[{TOPIC}], queueId[1], "
        f"broker[{broker.address}], timestamp(string)[0], timestamp(long)[0]\nreset consumer offset to 1\n"
    )
    half = str(SENT // 2)
    progress = ("consumerProgress", "-g", idle, "-t", TOPIC)
    assert [row[2] for row in offsets(mqadmin(*progress))] == [half, "1"]
    assert mqadmin("resetOffsetByTime", *one, "-s", LATER).out.endswith(f"reset consumer offset to {half}\n")
    assert mqadmin("resetOffsetByTime", *one, "-s", "0").out.endswith("reset consumer offset to 0\n")
    assert [row[2] for row in offsets(mqadmin(*progress))] == [half, "0"]


def test_messages_are_skipped(mqadmin: RunCommand, idle: str) -> None:
    """Up to the end of each queue."""
    mqadmin("resetOffsetByTime", "-g", idle, "-t", TOPIC, "-s", "0")
    result = mqadmin("skipAccumulatedMessage", "-g", idle, "-t", TOPIC)
    half = str(SENT // 2)
    assert result.out.splitlines()[0].split() == ["#brokerName", "#queueId", "#offset"]
    assert result.rows == [["broker-a", "1", half], ["broker-a", "0", half]]


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("-t", TOPIC, "-s", "yesterday"), 1, "a time must be milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS"),
        (("-t", TOPIC, "-s", "2020-02-30#00:00:00:000"), 1, "a time must be milliseconds since 1970"),
        (("-t", "Nothing", "-s", "now"), 2, "has topic Nothing"),
        (("-t", TOPIC, "-s", "now", "-g", "missing"), 2, "Group missing does not exist"),
        (("-s", "now"), 1, "--topic"),
    ],
)
def test_a_reset_that_is_not_possible_is_one_line(
    mqadmin: RunCommand, idle: str, arguments: tuple[str, ...], code: int, cause: str
) -> None:
    """With the exit code of its class."""
    result = mqadmin("resetOffsetByTime", "-g", idle, *arguments)
    assert (result.code, result.out) == (code, "")
    assert cause in result.err


def test_offsets_are_copied(mqadmin: RunCommand, live: Live) -> None:
    """To a group that has none; an unknown group is one line."""
    assert live.member
    mqadmin("updateSubGroup", *C, "-g", "copy")
    result = mqadmin("cloneGroupOffset", "-s", GROUP, "-d", "copy", "-t", TOPIC, "-o", "true")
    line = f"clone group offset success. srcGroup[{GROUP}], destGroup=[copy], topic[{TOPIC}]\n"
    assert result == (0, line, "")
    half = str(SENT // 2)
    assert [row[2] for row in offsets(mqadmin("consumerProgress", "-g", "copy", "-t", TOPIC))] == [half, half]
    result = mqadmin("cloneGroupOffset", "-s", "missing", "-d", "copy", "-t", TOPIC)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)


# ------------------------------------------------------------------------------------- brokers of RocketMQ 4.9

QUEUE = MessageQueue("T", "b", 0)


@pytest.fixture
def old_broker(scripted: Peer) -> Peer:
    """Return a broker that leaves resets to the members of a group, with one queue of topic T, offsets 1 to 9."""
    route = TopicRouteData(
        queue_datas=[QueueData("b", 1, 1, 6)], broker_datas=[BrokerData("c", "b", {0: scripted.address})]
    )
    answers = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: RemotingCommand.response(body=route.encode()),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: RemotingCommand.response(
            ResponseCode.CONSUMER_NOT_ONLINE, "Consumer not online"
        ),
        RequestCode.GET_CONSUME_STATS: RemotingCommand.response(body=ConsumeStats().encode()),
        RequestCode.GET_TOPIC_STATS_INFO: RemotingCommand.response(
            body=TopicStatsTable({QUEUE: TopicOffset(1, 9)}).encode()
        ),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: RemotingCommand.response(ext=OffsetResponseHeader(offset=5)),
        RequestCode.GET_MAX_OFFSET: RemotingCommand.response(ext=OffsetResponseHeader(offset=9)),
        RequestCode.UPDATE_CONSUMER_OFFSET: RemotingCommand.response(),
    }
    for code, answer in answers.items():
        scripted.on(code, lambda *_, answer=answer: answer)
    return scripted


def committed(peer: Peer) -> list[int]:
    """Return the offsets that were committed, in their order."""
    updates = [request for request in peer.requests if request.code == RequestCode.UPDATE_CONSUMER_OFFSET]
    return [int(request.ext_fields()["commitOffset"]) for request in updates]


def test_without_members_the_offset_of_each_queue_is_set(run_mqadmin: RunCommand, old_broker: Peer) -> None:
    """The table shows the offset before and after; a group without offsets counts as one at the first message."""
    result = run_mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "1000")
    first, head, row = result.out.splitlines()
    assert first == (
        "reset consumer offset by specified consumerGroup[g], topic[T], force[true], timestamp(string)[1000], "
        "timestamp(long)[1000]"
    )
    names = "#brokerName #queueId #brokerOffset #consumerOffset #timestampOffset #resetOffset"
    assert (head.split(), row.split()) == (names.split(), ["b", "0", "9", "1", "5", "5"])
    assert committed(old_broker) == [5]


def test_without_force_no_queue_moves_forward(run_mqadmin: RunCommand, old_broker: Peer) -> None:
    """It keeps its offset, and nothing is committed."""
    result = run_mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "1000", "-f", "false")
    assert result.rows == [["b", "0", "9", "1", "5", "1"]]
    assert committed(old_broker) == []


def test_without_members_messages_are_skipped(run_mqadmin: RunCommand, old_broker: Peer) -> None:
    """From the group's own offset, to the end of the queue."""
    stats = ConsumeStats({QUEUE: OffsetWrapper(9, 7), MessageQueue("Other", "b", 0): OffsetWrapper(3, 3)})
    old_broker.on(RequestCode.GET_CONSUME_STATS, lambda *_: RemotingCommand.response(body=stats.encode()))
    result = run_mqadmin("skipAccumulatedMessage", "-g", "g", "-t", "T")
    assert result.out.splitlines()[0].split()[-1] == "#rollbackOffset"
    assert result.rows == [["b", "0", "9", "7", "9", "9"]]
    assert committed(old_broker) == [9]


def test_members_of_an_old_broker_get_the_offsets(run_mqadmin: RunCommand, old_broker: Peer) -> None:
    """With -c the request has the language of C++ clients, so that the broker sends them the form that they read."""
    reset = ResetOffsets({QUEUE: 5})
    old_broker.on(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, lambda *_: RemotingCommand.response(body=reset.encode()))
    for arguments, language in (((), "PYTHON"), (("-c", "c"), "CPP")):
        result = run_mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "1000", *arguments)
        assert result.rows == [["b", "0", "5"]]
        assert old_broker.requests[-1].language == language


def test_a_broadcast_group_has_no_progress(run_mqadmin: RunCommand, old_broker: Peer) -> None:
    """Its members store their offsets themselves: one line, with exit code 2."""
    members = ConsumerConnection([ClientConnection("m", "10.0.0.1:1", "JAVA", 479)])
    for model, code in ((MessageModel.CLUSTERING, 0), (MessageModel.BROADCASTING, 2)):
        members.message_model = model
        body = members.encode()
        old_broker.on(
            RequestCode.GET_CONSUMER_CONNECTION_LIST, lambda *_, body=body: RemotingCommand.response(body=body)
        )
        assert run_mqadmin("consumerProgress", "-g", "g").code == code


def test_a_refusal_is_one_line(run_mqadmin: RunCommand, old_broker: Peer) -> None:
    """With the exit code of its class."""
    refusal = RemotingCommand.response(ResponseCode.NO_PERMISSION, "not you")
    for code in (RequestCode.GET_CONSUME_STATS, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET):
        old_broker.on(code, lambda *_: refusal)
    for command in (
        ("consumerProgress", "-g", "g"),
        ("cloneGroupOffset", "-s", "g", "-d", "h", "-t", "T"),
        ("skipAccumulatedMessage", "-g", "g", "-t", "T"),
        ("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "now"),
    ):
        result = run_mqadmin(*command)
        assert (result.code, result.out, result.err.count("\n")) == (4, "", 1), command
