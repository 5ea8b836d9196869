"""What RocketMQ's mqadmin shows of our SDK's members, and of the messages that they trace."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from skylarkmq import ConsumeFrom, ConsumerSettings, Message, MessageExt, Producer, PushConsumer
from tests.interop.brokers import BrokerUnderTest, running_broker
from tests.interop.tools import VERSIONS, Tools

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

SETTINGS = {"traceTopicEnable": "true", "brokerFastFailureEnable": "false"}
SECONDS = 20
FAST = ConsumerSettings(commit_interval_s=0.1, rebalance_interval_s=0.5)


@pytest.fixture(scope="module")
def broker(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(broker_kind, tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=VERSIONS)
def tools(
    request: pytest.FixtureRequest, broker: BrokerUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    tools = Tools(request.param, tmp_path_factory.mktemp("tools") / "home", broker.namesrv)
    yield tools
    tools.stop()


async def soon(fact: Callable[[], object]) -> None:
    async with asyncio.timeout(40):
        while not fact():  # noqa: ASYNC110 - another process has no event of ours
            await asyncio.sleep(0.05)


async def test_operators_see_members_and_traces(broker: BrokerUnderTest, tools: Tools) -> None:
    """consumerStatus: settings, queues, rates, stacks; queryMsgTraceById: who sent a message, and who consumed it."""
    topic, group = f"Seen{tools.version.replace('.', '')}", f"seen-{tools.version.replace('.', '')}"
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
        await soon(lambda: sum(queue.topic == topic for queue in consumer.statistics().queues) == 2)
        sent = await producer.send(Message(topic, b"hello", keys=["k"], tags="a"))
        await producer.send(Message(topic, b"waits"))
        await soon(lambda: consumer.statistics().handled == 1 and consumer.statistics().unfinished == 1)

        client_id = consumer.client.client_id
        arguments = ("-g", group, "-i", client_id, *(("-s", "true") if tools.version.startswith("4") else ("-s",)))
        status = await asyncio.to_thread(tools.run, "consumerStatus", *arguments)
        assert status.code == 0, status
        (rates,) = (line.split() for line in status.lines if line.startswith(topic) and len(line.split()) == 7)
        assert float(rates[4]) > 0, status.text  # of what was consumed, per second
        assert "PROP_CONSUME_TYPE" in status.text
        assert "await gate.wait()" in status.text, status.text

        said = await asyncio.to_thread(tools.run, "queryMsgTraceById", "-i", sent.msg_id)
        for _ in range(SECONDS * 5):
            if "p-seen" in said.text and group in said.text:
                break
            await asyncio.sleep(0.2)  # RocketMQ's index is built behind the log
            said = await asyncio.to_thread(tools.run, "queryMsgTraceById", "-i", sent.msg_id)
        assert group in said.text, said
        (pub,) = (row for row in said.rows if row[0] == "Pub")
        assert pub[1] == "p-seen"
        assert pub[-1] == "success"
        gate.set()
