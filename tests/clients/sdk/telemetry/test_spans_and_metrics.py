"""Spans and metrics of sends and handler calls."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from skylarkmq import (
    LATER,
    BrokerError,
    ConsumeFrom,
    ConsumerSettings,
    Later,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
)
from skylarkmq.clients.sdk.messages.message_types import message_type
from skylarkmq.clients.sdk.telemetry.hooks import Several
from skylarkmq.clients.sdk.telemetry.metrics import ClientMetrics
from skylarkmq.clients.sdk.telemetry.spans import Spans
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from tests.clients.cluster import running_cluster
from tests.clients.peer import refuse, until

FAST = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02)


class Kinds:
    PRODUCER, CONSUMER, CLIENT = "PRODUCER", "CONSUMER", "CLIENT"


class FakeSpan:
    def __init__(self, name: str, kind: str, context: object, attributes: Mapping[str, Any]) -> None:
        self.name, self.kind, self.context = name, kind, context
        self.attributes = dict(attributes)
        self.ended = False

    def set_attribute(self, key: str, value: object) -> None:
        self.attributes[key] = value

    def end(self) -> None:
        self.ended = True


class FakeTracer:
    """A tracer like OpenTelemetry's, which keeps every span."""

    def __init__(self) -> None:
        self.spans: list[FakeSpan] = []

    @contextmanager
    def start_as_current_span(
        self, name: str, context: Any = None, kind: Any = None, attributes: Mapping[str, Any] | None = None
    ) -> Iterator[FakeSpan]:
        span = FakeSpan(name, kind, context, attributes or {})
        self.spans.append(span)
        try:
            yield span
        finally:
            span.end()

    def start_span(
        self, name: str, *, kind: Any = None, attributes: Mapping[str, Any] | None = None, start_time: int | None = None
    ) -> FakeSpan:
        span = FakeSpan(name, kind, start_time, attributes or {})
        self.spans.append(span)
        return span


async def handle(message: MessageExt) -> Later | None:
    return LATER if message.body == b"bad" and not message.reconsume_times else None


async def test_spans_and_metrics_of_a_message_from_end_to_end() -> None:
    """With names and attributes of the conventions. A property carries the context. Both hooks see all events."""
    tracer, registry = FakeTracer(), CollectorRegistry()
    spans = Spans(
        tracer,
        Kinds,
        inject=lambda properties: properties.update(traceparent="00-1"),
        extract=lambda properties: properties.get("traceparent"),
    )
    hooks = Several(spans, ClientMetrics(registry))
    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, "%RETRY%g": 1}
        async with (
            Producer("p", namesrv=cluster.namesrv, hooks=hooks) as producer,
            PushConsumer(
                "g", namesrv=cluster.namesrv, handler=handle, hooks=hooks, consume_from=ConsumeFrom.FIRST, settings=FAST
            ) as consumer,
        ):
            sent = await producer.send(Message("T", b"good", tags="a", keys=["k1", "k2"]), message_group="one")
            await consumer.subscribe("T")
            await producer.send(Message("T", b"bad"))
            await until(lambda: consumer.statistics().handled == 2)
            client_id = consumer.client.client_id
            name = "rocketmq_consumer_cached_messages"
            assert registry.get_sample_value(name, {"consumer_group": "g", "client_id": client_id}) == 0
    send, process = tracer.spans[0], next(span for span in tracer.spans if span.kind == "CONSUMER")
    assert (send.name, send.kind, send.ended) == ("send T", "PRODUCER", True)
    assert send.attributes["messaging.system"] == "rocketmq"
    assert send.attributes["messaging.message.id"] == sent.msg_id
    assert send.attributes["messaging.rocketmq.message.keys"] == ["k1", "k2"]
    assert send.attributes["messaging.rocketmq.message.type"] == "fifo"
    assert send.attributes["messaging.rocketmq.message.group"] == "one"
    assert (process.name, process.context) == ("process T", "00-1")
    assert process.attributes["messaging.consumer.group.name"] == "g"
    assert [span.attributes.get("error.type") for span in tracer.spans].count("LATER") == 1
    labels = {"topic": "T", "consumer_group": "g", "client_id": client_id}
    for status, count in (("success", 2), ("failure", 1)):
        found = registry.get_sample_value("rocketmq_process_time_count", labels | {"invocation_status": status})
        assert found == count
    assert registry.get_sample_value("rocketmq_await_time_count", labels) == 3
    assert registry.get_sample_value("rocketmq_delivery_latency_count", labels) == 3
    operation = {"messaging_operation_name": "send", "messaging_destination_name": "T", "error_type": ""}
    assert registry.get_sample_value("messaging_client_sent_messages_total", operation) == 2


async def test_a_batch_and_a_poll_are_one_span_each() -> None:
    """With the number of messages; the context is in every message of a batch."""
    tracer, registry = FakeTracer(), CollectorRegistry()
    spans = Spans(tracer, Kinds, inject=lambda properties: properties.update(traceparent="00-1"))
    hooks = Several(spans, ClientMetrics(registry))
    async with running_cluster() as cluster:
        cluster.topics = {"ns%T": 1}
        async with (
            Producer("p", namesrv=cluster.namesrv, namespace="ns", hooks=hooks) as producer,
            PullConsumer(
                "g",
                namesrv=cluster.namesrv,
                namespace="ns",
                hooks=hooks,
                consume_from=ConsumeFrom.FIRST,
                settings=FAST,
            ) as consumer,
        ):
            (sent,) = await producer.send_batch([Message("T", b"%d" % n) for n in range(3)])
            await consumer.assign(await consumer.queues("T"))
            await until(lambda: consumer.statistics().waiting == 3)
            received = await consumer.poll()
            assert [message.properties["traceparent"] for message in received] == ["00-1"] * 3
    send, receive = tracer.spans
    assert (send.name, send.kind, receive.name, receive.kind) == ("send T", "PRODUCER", "receive T", "CLIENT")
    assert send.attributes["messaging.batch.message_count"] == 3
    assert receive.attributes["messaging.batch.message_count"] == 3
    assert send.attributes["messaging.message.id"] == sent.msg_id
    assert send.attributes["messaging.message.body.size"] == 3
    assert receive.attributes["messaging.consumer.group.name"] == "ns%g"
    assert isinstance(receive.context, int)  # the begin of the wait, ns
    assert 0 < receive.context <= received[0].born_timestamp * 1_000_000 + 10**10
    assert {span.attributes["messaging.rocketmq.namespace"] for span in tracer.spans} == {"ns"}
    for name, operation in (("sent", "send"), ("consumed", "receive")):
        labels = {"messaging_operation_name": operation, "messaging_destination_name": "T", "error_type": ""}
        assert registry.get_sample_value(f"messaging_client_{name}_messages_total", labels) == 3


async def test_a_failed_send_is_reported_with_its_error() -> None:
    """Spans have the name of the response code, metrics that of the error."""
    tracer, registry = FakeTracer(), CollectorRegistry()
    hooks = Several(Spans(tracer, Kinds), ClientMetrics(registry))
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv, hooks=hooks) as producer:
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, refuse(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"))
        labels = {"topic": "T", "client_id": producer.client.client_id, "invocation_status": "failure"}
        assert registry.get_sample_value("rocketmq_send_cost_time_count", labels) == 1
    assert tracer.spans[0].attributes["error.type"] == "MESSAGE_ILLEGAL"
    assert "messaging.message.id" not in tracer.spans[0].attributes


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, "normal"),
        ({"DELAY": "3"}, "delay"),
        ({"TIMER_DELIVER_MS": "1"}, "delay"),
        ({"__SHARDINGKEY": "k", "DELAY": "3"}, "fifo"),
        ({"TRAN_MSG": "true", "__SHARDINGKEY": "k"}, "transaction"),
    ],
)
def test_the_type_of_a_message_is_that_of_its_properties(properties: dict[str, str], expected: str) -> None:
    """As in the broker's metrics."""
    assert message_type(properties) == expected
