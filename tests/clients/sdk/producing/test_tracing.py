"""Message traces of RocketMQ: their content, and that they do not delay sends."""

from typing import Any

import pytest

from skylarkmq import (
    LATER,
    Client,
    ConsumeFrom,
    ConsumerSettings,
    Later,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from skylarkmq.clients.sdk.connection.client import unique_ids
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.clients.sdk.producing.tracing import MAX_WAITING, Tracing
from skylarkmq.clients.sdk.telemetry import trace_records as records
from skylarkmq.clients.sdk.telemetry.hooks import ObservedSend
from skylarkmq.clients.sdk.telemetry.trace_records import Place
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.message_id import encode_host, encode_offset_id
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import refuse, until
from tests.clients.sdk.consuming.test_handler_calls import message as received

TRACE = "RMQ_SYS_TRACE_TOPIC"
PLACE = encode_offset_id(encode_host("127.0.0.1", 10911), 7)


def traced(cluster: Cluster) -> list[list[str]]:
    """Return the fields of all records in the trace topic."""
    bodies = [
        bytes(request.body).decode()
        for request in cluster.broker.requests_of(RequestCode.SEND_MESSAGE_V2)
        if request.ext_fields()["b"] == TRACE
    ]
    return [record.split("\x01") for body in bodies for record in body.split("\x02") if record]


def of_kind(cluster: Cluster, kind: str) -> list[list[str]]:
    return [fields for fields in traced(cluster) if fields[0] == kind]


def stored(**more: str) -> dict[str, str]:
    return {"msgId": PLACE, "queueId": "0", "queueOffset": "0"} | more


async def test_sends_and_handler_calls_are_traced() -> None:
    """With producer, topic, broker and time; two records for each call; found by id and key."""

    async def handler(message: MessageExt) -> Later | None:
        return LATER if message.body == b"bad" else None

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, TRACE: 1}
        for body in (b"good", b"bad"):
            cluster.broker.store("T", 0, body, f"UNIQ_KEY\x01ID-{body.decode()}\x02KEYS\x01k1 k2\x02")
        async with (
            Producer("p", namesrv=cluster.namesrv, trace=True) as producer,
            PushConsumer(
                "g",
                namesrv=cluster.namesrv,
                handler=handler,
                trace=True,
                consume_from=ConsumeFrom.FIRST,
                settings=ConsumerSettings(suspend_s=0.5),
            ) as consumer,
        ):
            await consumer.subscribe("T")
            await until(lambda: consumer.statistics().handled == 1 and consumer.statistics().failed == 1)
            cluster.broker.on(RequestCode.SEND_MESSAGE_V2, stored(MSG_REGION="eu", TRACE_ON="true"))
            sent = await producer.send(Message("T", b"hello", tags="a", keys=["k1", "k2"]), message_group="one")
        (pub,) = of_kind(cluster, "Pub")
        assert int(pub[1]) > 1_600_000_000_000
        assert pub[2:10] == ["eu", "p", "T", sent.msg_id, "a", "k1 k2", "127.0.0.1:10911", "5"]
        assert int(pub[10]) >= 0
        assert pub[11:] == ["4", PLACE, "true"]
        before, after = of_kind(cluster, "SubBefore"), of_kind(cluster, "SubAfter")
        assert [(row[2], row[3], row[5], row[6], row[7]) for row in before] == [
            ("DefaultRegion", "g", "ID-good", "0", "k1 k2"),
            ("DefaultRegion", "g", "ID-bad", "0", "k1 k2"),
        ]
        assert {(row[2], row[4], row[5], row[6], row[8]) for row in after} == {
            ("ID-good", "true", "k1 k2", "0", "g"),
            ("ID-bad", "false", "k1 k2", "4", "g"),
        }
        assert {row[1] for row in after} == {row[4] for row in before}
        keys = [
            decode_properties(request.ext_fields()["i"])["KEYS"].split()
            for request in cluster.broker.requests_of(RequestCode.SEND_MESSAGE_V2)
            if request.ext_fields()["b"] == TRACE
        ]
        assert {"ID-good", "ID-bad", "k1", "k2", sent.msg_id} == {key for row in keys for key in row}


async def test_each_message_of_a_batch_is_traced() -> None:
    """With its ids."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv, trace=True) as producer:
        cluster.topics = {"T": 1, TRACE: 1}
        (result,) = await producer.send_batch([Message("T", b"%d" % n) for n in range(3)])
        await producer.stop()
        rows = of_kind(cluster, "Pub")
        assert [row[5] for row in rows] == result.msg_id.split(",")
        assert [row[12] for row in rows] == result.offset_msg_id.split(",")


async def test_the_end_of_a_transaction_is_traced() -> None:
    """After its half message."""

    async def commit(_: str) -> TransactionState:
        return TransactionState.COMMIT

    async def checker(_: object) -> TransactionState:
        return TransactionState.UNKNOWN

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, TRACE: 1}
        cluster.broker.on(RequestCode.END_TRANSACTION, None)
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, stored(transactionId="TX"))
        async with TransactionProducer("p", namesrv=cluster.namesrv, checker=checker, trace=True) as producer:
            sent = await producer.send_in_transaction(Message("T", b"x", tags="a", keys=["k"]), commit)
        (pub,), (end,) = of_kind(cluster, "Pub"), of_kind(cluster, "EndTransaction")
        assert pub[11] == "1"
        assert end[3:9] == ["p", "T", sent.transaction_id, "a", "k", "127.0.0.1:10911"]
        assert end[9:] == ["1", "TX", "COMMIT_MESSAGE", "false"]


async def test_a_broker_can_disable_traces() -> None:
    """By traceOn=false in its responses, or in the properties of a message."""

    async def handler(_: MessageExt) -> None: ...

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, TRACE: 1}
        cluster.broker.store("T", 0, b"x", "TRACE_ON\x01false\x02")
        async with (
            Producer("p", namesrv=cluster.namesrv, trace=True) as producer,
            PushConsumer(
                "g", namesrv=cluster.namesrv, handler=handler, trace=True, consume_from=ConsumeFrom.FIRST
            ) as consumer,
        ):
            await consumer.subscribe("T")
            await until(lambda: consumer.statistics().handled == 1)
            cluster.broker.on(RequestCode.SEND_MESSAGE_V2, stored(TRACE_ON="false"))
            await producer.send(Message("T", b"x"))
        assert traced(cluster) == []


async def test_traces_that_cannot_be_sent_are_lost_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The traced sends succeed."""
    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, TRACE: 1}
        answer = cluster.broker.handlers[RequestCode.SEND_MESSAGE_V2]

        def sends(connection: Any, request: Any) -> Any:
            refusing = request.ext_fields()["b"] == TRACE
            return (
                refuse(ResponseCode.MESSAGE_ILLEGAL)(connection, request) if refusing else answer(connection, request)
            )

        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, sends)
        async with Producer("p", namesrv=cluster.namesrv, trace=True) as producer:
            await producer.send(Message("T", b"x"))
        assert "trace not sent, it is lost" in caplog.text


async def test_records_above_the_limit_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """They are counted, with one warning."""
    async with running_cluster() as cluster, Client(cluster.namesrv) as client:
        tracing = Tracing(client, "p", unique_ids(client))
        result = SendResult(SendStatus.OK, "ID", PLACE, MessageQueue("T", "broker-a", 0), 0)
        for _ in range(MAX_WAITING + 2):
            with tracing.sending(ObservedSend([Message("T", b"")], "p", "c", results=[result])):
                pass
        assert (tracing.statistics().waiting, tracing.statistics().dropped) == (MAX_WAITING, 2)
        assert caplog.text.count("traces dropped") == 1


def test_a_record_does_not_end_with_an_empty_field() -> None:
    """RocketMQ drops empty fields at the end, and cannot decode the record."""
    place, message = Place("g", "r"), received()
    for record in (
        records.begun(message, place, "REQ", 1),
        records.finished(message, place, "REQ", at_ms=5, cost_ms=4, outcome=records.SUCCEEDED),
    ):
        assert record.keys == ("ID",)
        assert not record.text.endswith("\x01\x02")
    assert records.begun(message, place, "REQ", 1).text == "SubBefore\x011\x01r\x01g\x01REQ\x01ID\x010\x01null\x02"


def test_records_are_combined_up_to_the_limits() -> None:
    """All records, in order, within the limits of bodies and keys."""
    every = [
        records.sent(
            Message("T", b"", keys=[f"key-{n}"]),
            Place("p", "r"),
            (f"ID-{n}", "O"),
            store="",
            begun_ms=0,
            cost_ms=0,
            succeeded=True,
        )
        for n in range(3000)
    ]
    made = list(records.messages(TRACE, every))
    assert len(made) > 1
    assert b"".join(message.body for message in made).decode() == "".join(record.text for record in every)
    for message in made:
        assert len(message.body) <= records.MAX_BODY_CHARS
        assert len(" ".join(message.keys)) <= records.MAX_KEYS_CHARS
    assert {key for message in made for key in message.keys} == {key for record in every for key in record.keys}
