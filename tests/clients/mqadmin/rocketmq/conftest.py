"""A topic with messages, their producer, and a group with one member, beside the tests in a thread."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from skylarkmq import Admin, ConsumeFrom, ConsumerSettings, Message, MessageExt, Producer, PushConsumer
from skylarkmq.broker.app.in_process import InProcessBroker, loop_in_a_thread, wait
from tests.clients.peer import until
from tests.harness.limits import WAIT_LIMIT_S

TOPIC, GROUP, PRODUCERS = "Orders", "billing", "shop"
SENT = 4
SOON = ConsumerSettings(commit_interval_s=0.05)


class Live(NamedTuple):
    """The client ids of the member and of the producer."""

    member: str
    producer: str


@asynccontextmanager
async def running_clients(namesrv: str) -> AsyncIterator[Live]:
    """Yield when the member has consumed the messages of both queues, and its offsets are at the broker."""
    seen: list[MessageExt] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message)

    async with (
        Admin(namesrv=namesrv) as admin,
        Producer(PRODUCERS, namesrv=namesrv) as producer,
        PushConsumer(
            GROUP, namesrv=namesrv, handler=handler, consume_from=ConsumeFrom.FIRST, settings=SOON
        ) as consumer,
    ):
        await admin.create_topic(TOPIC, queues=2)
        await consumer.subscribe(TOPIC)
        for number in range(SENT):
            await producer.send(Message(TOPIC, b"%d" % number))
        await until(lambda: len(seen) == SENT)
        async with asyncio.timeout(WAIT_LIMIT_S):
            while await admin.lag(GROUP, TOPIC):  # noqa: ASYNC110 - commits of a consumer have no event
                await asyncio.sleep(0.02)
        yield Live(consumer.client.client_id, producer.client.client_id)


@pytest.fixture(scope="module")
def live(broker: InProcessBroker) -> Iterator[Live]:
    with loop_in_a_thread() as loop:
        clients = running_clients(broker.namesrv)
        yield wait(loop, clients.__aenter__())
        wait(loop, clients.__aexit__(None, None, None))
