"""RocketMQ's mqadmin prints the members of Skylark's SDK, and the traces of its messages."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from skylarkmq import ConsumeFrom, ConsumerSettings, Message, MessageExt, Producer, PushConsumer
from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.mqadmin_process import VERSIONS, MqadminProcess

pytestmark = pytest.mark.interop

SETTINGS = {"traceTopicEnable": "true", "brokerFastFailureEnable": "false"}
SECONDS = 20
FAST = ConsumerSettings(commit_interval_s=0.1, rebalance_interval_s=0.5)


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=VERSIONS)
def mqadmin(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MqadminProcess]:
    mqadmin = MqadminProcess(request.param, tmp_path_factory.mktemp("mqadmin") / "home", broker.namesrv)
    yield mqadmin
    mqadmin.stop()


async def wait_for(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(PROCESS_LIMIT_S):
        while not condition():  # noqa: ASYNC110 - the state of a consumer has no event here
            await asyncio.sleep(0.05)


async def test_mqadmin_prints_members_and_traces(broker: BrokerUnderTest, mqadmin: MqadminProcess) -> None:
    """consumerStatus prints settings, queues, rates and stack traces of a member. queryMsgTraceById prints the producer
    of a message and the group that consumed it.
    """
    topic, group = f"Seen{mqadmin.version.replace('.', '')}", f"seen-{mqadmin.version.replace('.', '')}"
    broker.create_topic(topic, 2)
    gate = asyncio.Event()

    async def handler(message: MessageExt) -> None:
        if message.body == b"waits":
            await gate.wait()

    async with (
        Producer("p-seen", namesrv=broker.namesrv, trace=True) as producer,
        PushConsumer(
            group,
            namesrv=broker.namesrv,
            handler=handler,
            consume_from=ConsumeFrom.FIRST,
            settings=FAST,
            trace=True,
        ) as consumer,
    ):
        await consumer.subscribe(topic)
        await wait_for(lambda: sum(queue.topic == topic for queue in consumer.statistics().queues) == 2)
        sent = await producer.send(Message(topic, b"hello", keys=["k"], tags="a"))
        await producer.send(Message(topic, b"waits"))
        await wait_for(lambda: consumer.statistics().handled == 1 and consumer.statistics().unfinished == 1)

        client_id = consumer.client.client_id
        arguments = ("-g", group, "-i", client_id, *(("-s", "true") if mqadmin.version.startswith("4") else ("-s",)))
        status = await asyncio.to_thread(mqadmin.run, "consumerStatus", *arguments)
        assert status.code == 0, status
        (rates,) = (line.split() for line in status.lines if line.startswith(topic) and len(line.split()) == 7)
        assert float(rates[4]) > 0, status.text  # messages consumed per second
        assert "PROP_CONSUME_TYPE" in status.text
        assert "await gate.wait()" in status.text, status.text

        output = await asyncio.to_thread(mqadmin.run, "queryMsgTraceById", "-i", sent.msg_id)
        for _ in range(SECONDS * 5):
            if "p-seen" in output.text and group in output.text:
                break
            await asyncio.sleep(0.2)  # RocketMQ indexes a message some time after it is stored
            output = await asyncio.to_thread(mqadmin.run, "queryMsgTraceById", "-i", sent.msg_id)
        assert group in output.text, output
        (pub,) = (row for row in output.rows if row[0] == "Pub")
        assert pub[1] == "p-seen"
        assert pub[-1] == "success"
        gate.set()
