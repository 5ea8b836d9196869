"""Commands that read queues."""

import re

import pytest

from skylarkmq import Message, MessageQueue, blocking
from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageResponseHeader
from skylarkmq.protocol.headers.queue import OffsetResponseHeader
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.rocketmq.conftest import GROUP, TOPIC, Live
from tests.clients.peer import Peer

QUEUE_0, QUEUE_1 = (f"MessageQueue [topic=Read, brokerName=broker-a, queueId={n}]" for n in (0, 1))
LINE = "-" * 56
RULE = "=" * 38


@pytest.fixture(scope="module", autouse=True)
def read(broker: InProcessBroker) -> None:
    """Send three messages to the first of two queues, and one to the second."""
    with blocking.Admin(namesrv=broker.namesrv) as admin:
        admin.create_topic("Read", queues=2)
    with blocking.Producer("p", namesrv=broker.namesrv) as producer:
        for queue, body, tag in ((0, b"a1", "a"), (0, b"b1", "b"), (0, b"a2", "a"), (1, "é".encode(), "c")):
            producer.send(Message("Read", body, tags=tag), queue=MessageQueue("Read", "broker-a", queue))


def shown(text: str) -> list[str]:
    """Return the lines of an output, with queue, offset and body of each message."""
    message = r"MSGID: \w+ MessageExt \[brokerName=broker-a, queueId=(\d), .*queueOffset=(\d+), .* BODY: (.*)"
    return [re.sub(message, r"\1 \2 \3", line) for line in text.splitlines()]


def test_messages_of_a_topic_are_printed_queue_by_queue(mqadmin: RunCommand) -> None:
    """In the order of a Java set of the queues, with their offsets."""
    result = mqadmin("printMsg", "-t", "Read")
    assert (result.code, result.err) == (0, "")
    first, second = f"minOffset=0, maxOffset=3, {QUEUE_0}", f"minOffset=0, maxOffset=1, {QUEUE_1}"
    of_first, of_second = [first, "0 0 a1", "0 1 b1", "0 2 a2", LINE], [second, "1 0 é", LINE]
    assert shown(result.out) in (of_first + of_second, of_second + of_first)
    with_tags = shown(mqadmin("printMsg", "-t", "Read", "-s", "b || x", "-d", "false").out)
    assert "0 1 NOT PRINT BODY" in with_tags
    assert f"{QUEUE_1} no matched msg. status=NO_MATCHED_MSG, offset=1" in with_tags
    no_time = shown(mqadmin("printMsg", "-t", "Read", "-b", "2024-05-01#13:00:00:000", "-e", "1").out)
    assert set(no_time) == {LINE, *(f"minOffset=0, maxOffset=0, {queue}" for queue in (QUEUE_0, QUEUE_1))}


def test_a_message_is_printed_with_all_its_fields(mqadmin: RunCommand) -> None:
    """As RocketMQ's class prints it: bytes are signed, and hosts begin with a slash."""
    out = mqadmin("printMsgByQueue", "-t", "Read", "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true").out
    for pattern, mask in MASKS:
        out = re.sub(pattern, mask, out)
    assert out == EXPECTED


MASKS = (
    (r"\b\d{13}\b", "TIME"),
    (r"(?<=127\.0\.0\.1:)\d+", "PORT"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"(storeSize|bodyCRC|commitLogOffset)=\d+", r"\1=N"),
)
EXPECTED = (
    "MSGID: ID MessageExt [brokerName=broker-a, queueId=1, storeSize=N, queueOffset=0, sysFlag=0, bornTimestamp=TIME, "
    "bornHost=/127.0.0.1:PORT, storeTimestamp=TIME, storeHost=/127.0.0.1:PORT, msgId=ID, commitLogOffset=N, bodyCRC=N, "
    "reconsumeTimes=0, preparedTransactionOffset=0, toString()=Message{topic='Read', flag=0, "
    "properties={UNIQ_KEY=ID, CLUSTER=DefaultCluster, MIN_OFFSET=0, TAGS=c, MAX_OFFSET=1}, body=[-61, -87], "
    "transactionId='null'}] BODY: é\n"
)


def test_control_characters_of_bodies_and_tags_are_printed_escaped(
    mqadmin: RunCommand, broker: InProcessBroker
) -> None:
    """A body with several lines keeps them."""
    with blocking.Admin(namesrv=broker.namesrv) as admin, blocking.Producer("p", namesrv=broker.namesrv) as producer:
        admin.create_topic("Escapes", queues=1)
        producer.send(Message("Escapes", b"one\ttwo\n\x1b[2Jthree", tags="\x1b]0;t"))
    result = mqadmin("printMsgByQueue", "-t", "Escapes", "-a", "broker-a", "-i", "0", "-p", "true", "-d", "true")
    assert "BODY: one\ttwo\n\\x1b[2Jthree\n" in result.out
    assert "TAGS=\\x1b]0;t" in result.out
    assert "\x1b" not in result.out


def test_the_messages_of_a_queue_are_counted_by_tag(mqadmin: RunCommand) -> None:
    """The most frequent tag first; messages are printed on request."""
    at = ("printMsgByQueue", "-t", "Read", "-a", "broker-a", "-i", "0")
    assert mqadmin(*at, "-f", "true").out == f"Tag: {'a':30} Count: 2\nTag: {'b':30} Count: 1\n"
    assert shown(mqadmin(*at, "-p", "true", "-s", "a").out) == ["0 0 NOT PRINT BODY", "0 2 NOT PRINT BODY"]
    assert mqadmin(*at).out == ""


def test_consume_message_prints_the_first_messages(mqadmin: RunCommand) -> None:
    """Of one queue, from an offset on or in a range of times."""
    at = ("consumeMessage", "-t", "Read", "-b", "broker-a", "-i", "0")
    end = f"{QUEUE_0} print msg finished. status=NO_NEW_MSG, offset=3"
    assert shown(mqadmin(*at).out) == ["Consume ok", "0 0 a1", "0 1 b1", "0 2 a2", end]
    assert shown(mqadmin(*at, "-o", "2", "-g", "readers").out) == ["Consume ok", "0 2 a2", end]
    limited = mqadmin(*at, "-c", "2")
    assert shown(limited.out) == ["The oldler 2 message will be provided", "Consume ok", "0 0 a1", "0 1 b1"]
    assert mqadmin(*at, "-o", "9").out == f"{QUEUE_0} no matched msg, offset=9\n"
    everything = shown(mqadmin("consumeMessage", "-t", "Read").out)
    assert sorted(line for line in everything if line[0].isdigit()) == ["0 0 a1", "0 1 b1", "0 2 a2", "1 0 é"]


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("consumeMessage", "-t", "Read", "-c", "0"), 1, "Please input a positive messageNumber!"),
        (("consumeMessage", "-t", "Read", "-i", "0"), 1, "Please set the brokerName before queueId!"),
        (("consumeMessage", "-t", "Read", "-o", "0"), 1, "Please set queueId before offset!"),
        (("consumeMessage", "-t", "Read", "-s", "9999999999999"), 1, "Please set the beginTimestamp before now!"),
        (("consumeMessage", "-t", "Read", "-e", "9999999999999"), 1, "Please set the endTimestamp before now!"),
        (("consumeMessage", "-t", "Read", "-s", "9", "-e", "5"), 1, "is less than or equal to the endTimestamp"),
        (("consumeMessage", "-t", "Unknown"), 2, "Unknown"),
        (("printMsg", "-t", "Unknown"), 2, "Unknown"),
        (("printMsg", "-t", "Read", "-c", "martian"), 1, "no charset martian"),
        (("printMsg", "-t", "Read", "-b", "yesterday"), 1, "yesterday"),
        (("printMsgByQueue", "-t", "Read", "-a", "missing", "-i", "0"), 2, "missing"),
        (("queryCq", "-t", "Unknown", "-q", "0", "-i", "0"), 2, "Unknown"),
        (("queryCq", "-t", "Read", "-q", "0", "-i", "0", "-b", "127.0.0.1:1"), 3, "127.0.0.1:1"),
    ],
)
def test_failures_are_one_line(mqadmin: RunCommand, arguments: tuple[str, ...], code: int, cause: str) -> None:
    """On stderr, with the cause; nothing is printed."""
    result = mqadmin(*arguments)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert cause in result.err


def test_units_of_a_consume_queue_are_printed(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With the bounds of the queue."""
    result = mqadmin("queryCq", "-t", "Read", "-q", "0", "-i", "1", "-c", "1", "-b", broker.address)
    assert re.sub(r"(?<=physicOffset=)\d+|(?<=physicSize=)\d+", "N", result.out) == (
        f"Queue data: \nmax: 3, min: 0\n{RULE}\nidx: 1\n"
        "ConsumeQueueData{physicOffset=N, physicSize=N, tagsCode=98, extendDataJson='null', bitMap='null', eval=false, "
        f"msg='null'}}\n{RULE}\n"
    )


def test_the_filter_of_a_group_is_applied_to_units(mqadmin: RunCommand, live: Live) -> None:
    """Its subscription is printed as indented JSON."""
    out = mqadmin("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-g", GROUP).out
    assert out.startswith('Subscription data: \n{\n\t"classFilterMode":false,\n\t"codeSet":[],\n')
    assert f'\t"topic":"{TOPIC}"\n}}\n{RULE}\nFilter data: \nnull\n{RULE}\nQueue data: \n' in out
    assert "eval=true" in out


@pytest.mark.parametrize("command", ["printMsg -t T", "consumeMessage -t T", "printMsgByQueue -t T -a b -i 0"])
@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY])
def test_a_broker_that_repeats_an_offset_is_one_line(
    run_mqadmin: RunCommand, scripted: Peer, command: str, code: ResponseCode
) -> None:
    """A read ends, also if the broker returns the same offset again and again."""
    data = BrokerData("c", "b", {0: scripted.address})
    route = TopicRouteData(queue_datas=[QueueData("b", 1, 1, 6)], broker_datas=[data])
    scripted.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: RemotingCommand.response(body=route.encode()))
    for request, offset in ((RequestCode.GET_MIN_OFFSET, 0), (RequestCode.GET_MAX_OFFSET, 9)):
        response = OffsetResponseHeader(offset=offset)
        scripted.on(request, lambda *_, response=response: RemotingCommand.response(ext=response))
    repeated = PullMessageResponseHeader(suggest_which_broker_id=0, next_begin_offset=0, min_offset=0, max_offset=9)
    scripted.on(RequestCode.PULL_MESSAGE, lambda *_: RemotingCommand.response(code, ext=repeated))
    result = run_mqadmin(*command.split())
    assert result.code == (0 if command.startswith("printMsgByQueue") and code != ResponseCode.SUCCESS else 5)
    assert ("the offset after 0 is 0" in result.err) == (result.code == 5)
