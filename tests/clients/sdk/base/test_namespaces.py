"""Namespaces: names with their prefix, and producers and consumers that use short names."""

import pytest

from skylarkmq import (
    LATER,
    ConsumeFrom,
    ConsumerSettings,
    InvalidArgument,
    Later,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from skylarkmq.clients.sdk.base.namespaces import NO_NAMESPACE, Namespace
from skylarkmq.protocol.bodies.heartbeat import HeartbeatData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers.send_back import SendBackHeader
from tests.clients.cluster import running_cluster
from tests.clients.peer import until


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("Orders", "ns%Orders"),
        ("ns%Orders", "ns%Orders"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%RETRY%ns%g", "%RETRY%ns%g"),
        ("%DLQ%g", "%DLQ%ns%g"),
        ("other%Orders", "ns%other%Orders"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
        ("", ""),
    ],
)
def test_names_are_prefixed_once_and_reserved_names_never(name: str, wrapped: str) -> None:
    """As in RocketMQ's clients; stripping removes the prefix."""
    namespace = Namespace("ns")
    assert namespace.wrap(name) == wrapped
    assert namespace.wrap(namespace.strip(wrapped)) == wrapped
    assert NO_NAMESPACE.wrap(name) == NO_NAMESPACE.strip(name) == name


def test_queues_have_prefixed_topics() -> None:
    """Only the topic changes."""
    namespace, queue = Namespace("ns"), MessageQueue("T", "broker-a", 3)
    assert namespace.wrap_queue(queue) == MessageQueue("ns%T", "broker-a", 3)
    assert namespace.strip_queue(namespace.wrap_queue(queue)) == queue
    assert NO_NAMESPACE.wrap_queue(queue) is queue
    with pytest.raises(InvalidArgument, match="illegal characters"):
        Namespace("no name")


async def test_an_application_uses_short_names_and_brokers_use_long_ones() -> None:
    """Sends, results, queues, subscriptions, messages and redeliveries."""
    seen: list[tuple[str, int]] = []

    async def handler(message: MessageExt) -> Later | None:
        seen.append((message.topic, message.reconsume_times))
        return LATER if not message.reconsume_times else None

    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02)
    async with running_cluster() as cluster:
        cluster.topics = {"ns%T": 1, "%RETRY%ns%g": 1}
        async with (
            Producer("p", namesrv=cluster.namesrv, namespace="ns") as producer,
            PushConsumer(
                "g",
                namesrv=cluster.namesrv,
                namespace="ns",
                handler=handler,
                consume_from=ConsumeFrom.FIRST,
                settings=settings,
            ) as consumer,
        ):
            queue = MessageQueue("T", "broker-a", 0)
            assert await producer.publish_queues("T") == (queue,)
            assert (await producer.send(Message("T", b"x"))).queue == queue
            await consumer.subscribe("T")
            await cluster.wait_committed("ns%g", "%RETRY%ns%g", {0: 1})
            assert seen == [("T", 0), ("T", 1)]
            assert queue in consumer.statistics().queues
            (request,) = cluster.broker.requests_of(RequestCode.CONSUMER_SEND_MSG_BACK)
            header = request.header(SendBackHeader)
            assert (header.group, header.origin_topic) == ("ns%g", "ns%T")
            (batch,) = await producer.send_batch([Message("T", b"y")], queue=queue)
            assert batch.queue == queue
            await producer.send_oneway(Message("T", b"z"), queue=queue)
            await until(lambda: len(cluster.broker.queues["ns%T", 0]) == 3)
        beats = [HeartbeatData.decode(beat.body) for beat in cluster.broker.requests_of(RequestCode.HEART_BEAT)]
        assert {data.group_name for beat in beats for data in beat.producer_data_set} == {"ns%p"}
        assert {data.group_name for beat in beats for data in beat.consumer_data_set} == {"ns%g"}


async def test_a_pull_consumer_uses_queues_with_short_topics() -> None:
    """Assigning, seeking, reading offsets."""
    async with running_cluster() as cluster:
        cluster.topics = {"ns%T": 1}
        for n in range(3):
            cluster.broker.store("ns%T", 0, b"%d" % n)
        cluster.broker.offsets["ns%g", "ns%T", 0] = 1
        settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=3600)
        async with PullConsumer("g", namesrv=cluster.namesrv, namespace="ns", settings=settings) as consumer:
            (queue,) = await consumer.queues("T")
            assert queue.topic == "T"
            await consumer.assign([queue])
            assert consumer.assignment == (queue,)
            assert await consumer.committed(queue) == 1
            assert await consumer.seek_to_begin(queue) == 0
            (message, *_) = await consumer.poll(timeout_s=10)
            assert (message.topic, message.queue_offset) == ("T", 0)
            await consumer.assign([])
            assert len(consumer.assignment) == 0
