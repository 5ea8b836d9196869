"""The SDK against a broker process that is started as users start it."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from skylarkmq import ConsumeFrom, Message, MessageExt, Producer, PushConsumer
from tests.clients.peer import until
from tests.harness.daemon import running

pytestmark = pytest.mark.daemon

COUNT = 1000


def order(n: int) -> Message:
    body = b"x" if n % 10 else f"größer {n}".encode() * 1000
    return Message("Orders", body, tags="abc"[n % 3], keys=[f"k{n}"], properties={"n": str(n), "ort": "Köln"})


async def test_a_thousand_messages_reach_two_members_intact_and_once(tmp_path: Path) -> None:
    """Bodies, tags, keys and properties arrive as sent. When one member leaves, the other one reads all queues."""
    received: dict[str, MessageExt] = {}
    counts: Counter[str] = Counter()

    async def handler(message: MessageExt) -> None:
        counts[message.properties["n"]] += 1
        received[message.properties["n"]] = message

    def member(namesrv: str) -> PushConsumer:
        return PushConsumer("g", namesrv=namesrv, handler=handler, consume_from=ConsumeFrom.FIRST)

    with running(directory=tmp_path) as daemon:
        async with Producer("shop", namesrv=daemon.namesrv) as producer, member(daemon.namesrv) as first:
            await producer.send(order(0))
            await first.subscribe("Orders")
            await until(lambda: len(first.statistics().queues) == 5, "four queues and that of the retry topic")
            async with member(daemon.namesrv) as second:
                await second.subscribe("Orders")
                await until(lambda: len(second.statistics().queues) == 2)
                await until(
                    lambda: len(first.statistics().queues) == 3
                )  # before that, both members would read the same queues
                await asyncio.gather(*(producer.send(order(n)) for n in range(1, COUNT)))
                await until(lambda: len(received) == COUNT)
                assert second.statistics().handled > 0
            await until(lambda: len(first.statistics().queues) == 5)
            await producer.send(order(COUNT))
            await until(lambda: str(COUNT) in received)
        assert daemon.stop() == 0, daemon.output
    assert set(counts.values()) == {1}
    for n in range(COUNT + 1):
        sent, got = order(n), received[str(n)]
        assert (got.body, got.tags, got.keys) == (sent.body, sent.tags, sent.keys)
        assert got.properties["ort"] == "Köln"
