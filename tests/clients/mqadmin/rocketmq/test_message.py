"""Commands that find messages."""

import re
from pathlib import Path

import pytest

from skylarkmq import Message, SendResult, blocking
from skylarkmq.broker.app.in_process import InProcessBroker
from skylarkmq.clients.mqadmin.rocketmq import message_text
from skylarkmq.clients.sdk.telemetry.trace_records import SUCCEEDED, Place, finished, messages, sent
from skylarkmq.protocol.codes import SystemTopic
from tests.clients.mqadmin.conftest import RunCommand
from tests.clients.mqadmin.rocketmq.conftest import GROUP, TOPIC, Live

MASKS = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"(?<=CommitLog Offset:    )\d+", "N"),
)
FIELDS = """\
OffsetID:            {offset_id}
Topic:               Found
Tags:                [tag]
Keys:                [same k{number}]
Queue ID:            0
Queue Offset:        {number}
CommitLog Offset:    N
Reconsume Times:     0
Born Timestamp:      TIME
Store Timestamp:     TIME
Born Host:           HOST
Store Host:          HOST
System Flag:         0
Properties:          {{UNIQ_KEY={msg_id}, CLUSTER=DefaultCluster, {min}TAGS=tag, KEYS=same k{number}{max}}}
Message Body Path:   {bodies}/{msg_id}
"""
NO_CONSUMER = "\n\nWARN: No Consumer"


@pytest.fixture(autouse=True)
def bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the bodies."""
    monkeypatch.setattr(message_text, "BODIES", tmp_path / "msgbodys")
    return tmp_path / "msgbodys"


@pytest.fixture(scope="module")
def found(broker: InProcessBroker) -> list[SendResult]:
    """Return where the three messages of a topic with one queue are."""
    with blocking.Admin(namesrv=broker.namesrv) as admin:
        admin.create_topic("Found", queues=1)
    with blocking.Producer("p", namesrv=broker.namesrv) as producer:
        return [producer.send(Message("Found", b"body %d" % n, tags="tag", keys=["same", f"k{n}"])) for n in range(3)]


def masked(text: str) -> str:
    for pattern, mask in MASKS:
        text = re.sub(pattern, mask, text)
    return text


def fields(found: list[SendResult], number: int, bodies: Path, bounds: tuple[str, str] = ("", "")) -> str:
    """Return the lines that describe a message, masked."""
    result = found[number]
    ids = {"offset_id": result.offset_msg_id, "msg_id": result.msg_id}
    return FIELDS.format(**ids, number=number, bodies=bodies, min=bounds[0], max=bounds[1])


def test_messages_are_printed_by_either_id(mqadmin: RunCommand, found: list[SendResult], bodies: Path) -> None:
    """With their bodies in files, and on request in the output."""
    result = mqadmin("queryMsgById", "-t", "Found", "-i", f"{found[0].offset_msg_id},{found[1].msg_id}")
    assert (result.code, result.err) == (0, "")
    assert masked(result.out) == fields(found, 0, bodies) + NO_CONSUMER + fields(found, 1, bodies) + NO_CONSUMER
    assert (bodies / found[1].msg_id).read_bytes() == b"body 1"
    with_body = mqadmin("queryMsgById", "-t", "Found", "-i", found[0].msg_id, "-f", "utf-8")
    assert masked(with_body.out) == fields(found, 0, bodies) + "Message Body:        body 0\n" + NO_CONSUMER


def test_tracks_and_direct_consumption(mqadmin: RunCommand, broker: InProcessBroker, live: Live) -> None:
    """Of a topic with a consumer group."""
    key = mqadmin("queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "0")
    track = f"MessageTrack [consumerGroup={GROUP}, trackType=CONSUMED, exceptionDesc=null]"
    assert key.out.endswith(f"\n\n\n{track}\n")
    msg_id = re.findall(r"UNIQ_KEY=(\w+)", key.out)[0]
    unique = mqadmin("queryMsgByUniqueKey", "-t", TOPIC, "-i", msg_id, "-a")
    assert unique.out.endswith(f"\n\n\n{track}")
    for command in ("queryMsgById", "queryMsgByUniqueKey"):
        direct = mqadmin(command, "-t", TOPIC, "-i", msg_id, "-g", GROUP, "-d", live.member)
        assert re.sub(r"Mills=\d+", "Mills=N", direct.out) == (
            "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS, remark=null, "
            "spentTimeMills=N]"
        )
    missing = mqadmin("queryMsgById", "-t", TOPIC, "-i", msg_id, "-g", GROUP, "-d", "missing")
    assert (missing.code, missing.out, missing.err.count("\n")) == (5, "", 1)
    assert "missing" in missing.err


def test_a_message_is_sent_again(mqadmin: RunCommand, broker: InProcessBroker) -> None:
    """With the same id: a query by this id returns both, in the order of their store times."""
    with blocking.Admin(namesrv=broker.namesrv) as admin:
        admin.create_topic("Again", queues=1)
    with blocking.Producer("p", namesrv=broker.namesrv) as producer:
        first = producer.send(Message("Again", b"x"))
    result = mqadmin("queryMsgById", "-t", "Again", "-i", first.offset_msg_id, "-s", "true")
    assert re.sub(r"offsetMsgId=\w+", "offsetMsgId=ID", result.out) == (
        f"prepare resend msg. originalMsgId={first.offset_msg_id}SendResult [sendStatus=SEND_OK, msgId={first.msg_id}, "
        "offsetMsgId=ID, messageQueue=MessageQueue [topic=Again, brokerName=broker-a, queueId=0], queueOffset=1, "
        "recallHandle=null]"
    )
    assert mqadmin("queryMsgById", "-t", "Again", "-i", first.msg_id, "-s", "false").out == ""
    both = mqadmin("queryMsgByUniqueKey", "-t", "Again", "-i", first.msg_id, "-a").out
    assert re.findall(r"Queue Offset: +(\d)", both) == ["0", "1"]
    assert f"msgbodys/{first.msg_id}_1\n" in both
    oldest = mqadmin("queryMsgByUniqueKey", "-t", "Again", "-i", first.msg_id).out
    assert re.findall(r"Queue Offset: +(\d)", oldest) == ["0"]


def test_messages_of_a_key_are_rows(mqadmin: RunCommand, found: list[SendResult]) -> None:
    """At most -m of each broker, and stored between -b and -e."""
    result = mqadmin("queryMsgByKey", "-t", "Found", "-k", "same", "-b", "0", "-e", "9999999999999")
    head, *rows = result.out.splitlines()
    assert head == f"{'#Message ID':50} {'#QID':>4} {'#Offset':>40}"
    assert rows == [f"{its.msg_id:50} {0:4} {number:40}" for number, its in enumerate(found)]
    assert len(mqadmin("queryMsgByKey", "-t", "Found", "-k", "same", "-m", "1", "-c", "DefaultCluster").rows) == 1


def test_a_message_is_printed_by_offset(mqadmin: RunCommand, found: list[SendResult], bodies: Path) -> None:
    """With the properties that a consumer adds."""
    result = mqadmin("queryMsgByOffset", "-t", "Found", "-b", "broker-a", "-i", "0", "-o", "2")
    bounds = ("MIN_OFFSET=0, ", ", MAX_OFFSET=3")
    assert masked(result.out) == fields(found, 2, bodies, bounds) + NO_CONSUMER


def test_a_trace_shows_the_send_and_the_calls_of_handlers(
    mqadmin: RunCommand, broker: InProcessBroker, found: list[SendResult]
) -> None:
    """Group by group, under their headings."""
    with blocking.Admin(namesrv=broker.namesrv) as admin:
        (stored,) = admin.messages_of_key("Found", found[0].msg_id)
    ids = found[0].msg_id, found[0].offset_msg_id
    message = Message("Found", b"body 0", tags="tag", keys=["same", "k0"])
    records = [
        sent(message, Place("shop", "r"), ids, store="h", begun_ms=1_000_000_000_000, cost_ms=5, succeeded=True),
        finished(stored, Place("billing", "r"), "q", at_ms=1_000_000_001_000, cost_ms=7, outcome=SUCCEEDED),
        finished(stored, Place("billing", "r"), "q", at_ms=1_000_000_002_000, cost_ms=8, outcome=SUCCEEDED + 1),
    ]
    with blocking.Producer("p", namesrv=broker.namesrv) as producer:
        for trace in messages(SystemTopic.TRACE, records):
            producer.send(trace)
    result = mqadmin("queryMsgTraceById", "-i", found[0].msg_id)
    assert re.sub(r"2001-09-09 \d\d:\d\d", "2001-09-09 HH:MM", result.out) == (
        "#Type      #ProducerGroup       #ClientHost          #SendTime            #CostTimes #Status   \n"
        "Pub        shop                 127.0.0.1            2001-09-09 HH:MM:40  5ms        success   \n"
        "\n"
        "#Type      #ConsumerGroup       #ClientHost          #ConsumerTime        #CostTimes #Status   \n"
        "Sub        billing              127.0.0.1            2001-09-09 HH:MM:41  7ms        success   \n"
        "Sub        billing              127.0.0.1            2001-09-09 HH:MM:42  8ms        failed    \n"
        "\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("queryMsgById", "-t", "Found", "-i", "0123456789ABCDEF0123456789ABCDEF"), 2, "no message of topic Found"),
        (("queryMsgById", "-t", "Found", "-i", "7F00000100000001" + "0" * 16), 3, "127.0.0.1:1"),
        (("queryMsgById", "-t", "Unknown", "-i", "x"), 2, "Unknown"),
        (("queryMsgById", "-t", "Found", "-i", "{id}", "-f", "martian"), 1, "no charset martian"),
        (("queryMsgById", "-t", "Found", "-i", "{id}", "-f", "hex"), 1, "no charset hex"),
        (("queryMsgById", "-t", "Found", "-i", "{id}", "-f", "utf-8\0"), 1, "no charset utf-8"),
        (("queryMsgByUniqueKey", "-t", "Found", "-i", "x"), 2, "no message of topic Found has the id x"),
        (("queryMsgByKey", "-t", "Found", "-k", "none"), 2, "no message of topic Found has the key none"),
        (("queryMsgByKey", "-t", "Found", "-k", "same", "-c", "Nowhere"), 2, "no cluster Nowhere is registered"),
        (("queryMsgByOffset", "-t", "Found", "-b", "broker-a", "-i", "0", "-o", "9"), 2, "Its offsets are 0 to 2."),
        (("queryMsgByOffset", "-t", "Found", "-b", "missing", "-i", "0", "-o", "0"), 2, "missing"),
        (("queryMsgTraceById", "-i", "none", "-t", "Found"), 2, "no trace of message none in topic Found"),
    ],
)
def test_failures_are_one_line(
    mqadmin: RunCommand, found: list[SendResult], arguments: tuple[str, ...], code: int, cause: str
) -> None:
    """On stderr, with the cause; nothing is printed."""
    result = mqadmin(*(argument.replace("{id}", found[0].msg_id) for argument in arguments))
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert cause in result.err


def test_ids_in_properties_do_not_choose_the_file(
    mqadmin: RunCommand, broker: InProcessBroker, tmp_path: Path, bodies: Path
) -> None:
    """A producer can set any unique id. Symbolic links in the shared directory are not followed."""
    with blocking.Admin(namesrv=broker.namesrv) as admin:
        admin.create_topic("Hostile", queues=1)
    with blocking.Producer("p", namesrv=broker.namesrv) as producer:
        producer.send(Message("Hostile", b"x", properties={"UNIQ_KEY": "../escaped\x1b"}))
        producer.send(Message("Hostile", b"x", properties={"UNIQ_KEY": "長" * 200}))
        linked = producer.send(Message("Hostile", b"x"))
    at = ("queryMsgByOffset", "-t", "Hostile", "-b", "broker-a", "-i", "0")
    assert [mqadmin(*at, "-o", offset).code for offset in ("0", "1")] == [0, 0]
    assert {path.name for path in bodies.iterdir()} == {"__escaped_", "長" * 66}
    (bodies / linked.msg_id).symlink_to(tmp_path / "target")
    refused = mqadmin(*at, "-o", "2")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert not (tmp_path / "target").exists()
