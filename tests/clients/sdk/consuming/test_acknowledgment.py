"""Acknowledging messages one by one: `process`, `ack`, `nack`, and what the loop does by itself."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from skylarkmq import (
    ClientClosed,
    ConsumeFrom,
    ConsumerSettings,
    InvalidArgument,
    InvalidMessage,
    Later,
    MessageExt,
    PushConsumer,
    ReceivedMessage,
)
from skylarkmq.clients.sdk.consuming.later import LEVEL_SECONDS, level_of
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.headers.send_back import SendBackHeader
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import refuse, until
from tests.harness.limits import WAIT_LIMIT_S

FAST = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02, retry_pause_s=0.01, rebalance_interval_s=0.05)
BACK = RequestCode.CONSUMER_SEND_MSG_BACK
RETRY = "%RETRY%g"


def push(cluster: Cluster, count: int = 3, **options: object) -> PushConsumer:
    """A consumer of a topic with this number of messages in one queue."""
    cluster.topics = {"T": 1, RETRY: 1}
    for n in range(count):
        cluster.broker.store("T", 0, b"%d" % n)
    options = {"topics": "T", "consume_from": ConsumeFrom.FIRST, "settings": FAST} | options
    return PushConsumer("g", namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]  # shorthand of a test


async def take(consumer: PushConsumer, count: int) -> list[ReceivedMessage]:
    """Return the next messages of a loop, unacknowledged, and leave the loop after that."""
    loop = aiter(consumer)
    async with asyncio.timeout(WAIT_LIMIT_S):
        return [await anext(loop) for _ in range(count)]


async def committed(consumer: PushConsumer, cluster: Cluster) -> int | None:
    await consumer.commit()
    return cluster.broker.committed("g", "T").get(0)


async def test_the_offset_advances_exactly_over_acknowledged_messages() -> None:
    """In whatever order they are acknowledged."""
    async with running_cluster() as cluster, push(cluster, 4) as consumer:
        first, second, third, _ = await take(consumer, 4)
        await second.ack()
        assert await committed(consumer, cluster) in {None, 0}
        await first.ack()
        assert await committed(consumer, cluster) == 2
        await third.ack()
        assert await committed(consumer, cluster) == 3
        assert [message.is_acknowledged for message in (first, second, third)] == [True] * 3
    assert cluster.broker.committed("g", "T") == {0: 3}


async def test_a_block_acknowledges_its_message_at_the_end() -> None:
    """Not before, and once: a block may acknowledge by itself."""
    async with running_cluster() as cluster, push(cluster, 2) as consumer:
        first, second = await take(consumer, 2)
        async with first.process() as message:
            assert message is first
            assert not message.is_acknowledged
        async with second.process():
            await second.ack()
        assert await committed(consumer, cluster) == 2


async def test_a_block_that_raises_sends_its_message_back() -> None:
    """The exception passes; the message is redelivered, counted; `delay` chooses the level."""
    async with running_cluster() as cluster, push(cluster, 1) as consumer:
        (message,) = await take(consumer, 1)
        with pytest.raises(ValueError, match="not yet"):
            async with message.process(delay=timedelta(seconds=7)):
                raise ValueError("not yet")
        assert message.is_acknowledged
        assert cluster.broker.requests_of(BACK)[0].header(SendBackHeader).delay_level == 3
        (again,) = await take(consumer, 1)
        assert (again.topic, again.body, again.reconsume_times) == ("T", b"0", 1)
        assert (consumer.statistics().failed, consumer.statistics().sent_back) == (1, 1)
        assert await committed(consumer, cluster) == 1


@pytest.mark.parametrize(
    ("delay", "delay_level", "expected"), [(None, 0, 0), (None, 5, 5), (timedelta(minutes=1), 0, 5)]
)
async def test_nack_sends_a_message_back_with_a_delay(delay: timedelta | None, delay_level: int, expected: int) -> None:
    """The broker's own time, a level, or the next level of a time."""
    async with running_cluster() as cluster, push(cluster, 1) as consumer:
        (message,) = await take(consumer, 1)
        await message.nack(delay, delay_level=delay_level)
        (request,) = cluster.broker.requests_of(BACK)
        assert request.header(SendBackHeader).delay_level == expected
        assert await committed(consumer, cluster) == 1


def test_a_delay_is_rounded_up_to_a_level() -> None:
    """A time between two levels takes the longer one; other times are rejected."""
    assert [level_of(timedelta(seconds=s)) for s in (0, 0.5, 1, 1.1, 5, 6, 7200)] == [
        1,
        1,
        1,
        2,
        2,
        3,
        len(LEVEL_SECONDS),
    ]
    assert Later(delay=timedelta(minutes=1)).level == Later(5).level == 5
    for delay in (timedelta(seconds=-1), timedelta(hours=3)):
        with pytest.raises(InvalidArgument, match="7200 s"):
            Later(delay=delay)
    for bad in ({"delay": 5}, {"delay_level": "5"}, {"delay_level": True}):
        with pytest.raises(InvalidArgument, match="delay"):
            Later(**bad)
    with pytest.raises(InvalidArgument, match="not both"):
        Later(3, timedelta(seconds=1))


async def test_a_message_that_the_broker_does_not_take_back_is_delivered_again_here() -> None:
    """It keeps its offset, and the first handle can still acknowledge it."""
    async with running_cluster() as cluster, push(cluster, 1) as consumer:
        for code in (BACK, RequestCode.SEND_MESSAGE_V2):
            cluster.broker.on(code, refuse(ResponseCode.SYSTEM_ERROR))
        (message,) = await take(consumer, 1)
        await message.nack()
        assert not message.is_acknowledged
        assert await committed(consumer, cluster) in {None, 0}
        (again,) = await take(consumer, 1)
        assert (again.body, again.reconsume_times) == (b"0", 1)
        await again.ack()
        assert await committed(consumer, cluster) == 1


async def test_a_canceled_block_leaves_its_message_to_the_next_loop() -> None:
    """Nothing is sent back, and nothing acknowledged."""
    async with running_cluster() as cluster, push(cluster, 1) as consumer:
        (message,) = await take(consumer, 1)

        async def work() -> None:
            async with message.process():
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (again,) = await take(consumer, 1)
        assert (again.body, again.reconsume_times) == (b"0", 0)
        assert not cluster.broker.requests_of(BACK)


async def test_leaving_the_loop_neither_loses_nor_repeats_a_message() -> None:
    """The message in hand is delivered again if it is not acknowledged; acknowledged ones are not."""
    seen: list[bytes] = []
    async with running_cluster() as cluster, push(cluster, 4) as consumer:
        for _ in range(3):
            async for message in consumer:
                seen.append(message.body)
                if seen.count(message.body) == 1 and message.body == b"1":
                    break  # unacknowledged
                await message.ack()
                if message.body in {b"0", b"3"}:
                    break
        assert seen == [b"0", b"1", b"1", b"2", b"3"]
    assert cluster.broker.committed("g", "T") == {0: 4}


async def test_a_message_is_not_repeated_if_it_is_acknowledged_after_the_loop() -> None:
    """It waits for the next loop, and is taken out of the buffer."""
    async with running_cluster() as cluster, push(cluster, 2) as consumer:
        loop = aiter(consumer)
        first = await anext(loop)
        await loop.aclose()
        await until(lambda: consumer.statistics().waiting == 2)
        await first.ack()
        assert [message.body for message in await take(consumer, 1)] == [b"1"]


async def test_auto_ack_acknowledges_when_the_loop_asks_for_the_next_message() -> None:
    """An explicit `nack` is honored; the last message is not acknowledged."""
    async with running_cluster() as cluster, push(cluster, 3, auto_ack=True) as consumer:
        loop = aiter(consumer)
        first = await anext(loop)
        before = first.is_acknowledged
        second = await anext(loop)
        assert (before, first.is_acknowledged) == (False, True)
        await second.nack()
        await anext(loop)
        assert len(cluster.broker.requests_of(BACK)) == 1
        assert await committed(consumer, cluster) == 2


async def test_a_message_is_acknowledged_once() -> None:
    """A second time is an error of the program."""
    async with running_cluster() as cluster, push(cluster, 1) as consumer:
        (message,) = await take(consumer, 1)
        await message.ack()
        for use in (message.ack(), message.nack(), message.process().__aenter__()):
            with pytest.raises(InvalidMessage, match="acknowledged already"):
                await use


async def test_acknowledging_after_the_stop_is_an_error() -> None:
    """Offsets are committed by then: the error says that the message is redelivered."""
    async with running_cluster() as cluster:
        async with push(cluster, 2) as consumer:
            message, other = await take(consumer, 2)
            with pytest.raises(ValueError, match="of the block"):
                await fail_after_the_stop(consumer, other)
        for use in (message.ack(), message.nack(), message.process().__aenter__()):
            with pytest.raises(ClientClosed, match="is redelivered"):
                await use
        assert cluster.broker.committed("g", "T").get(0, 0) == 0


async def fail_after_the_stop(consumer: PushConsumer, message: ReceivedMessage) -> None:
    async with message.process():
        await consumer.stop()
        raise ValueError("of the block")


async def test_a_message_of_a_revoked_queue_belongs_to_another_member() -> None:
    """Acknowledging it has no effect, either way."""
    async with running_cluster() as cluster, push(cluster, 2) as consumer:
        first, second = await take(consumer, 2)
        await consumer.unsubscribe("T")
        await first.ack()
        await second.nack()
        assert not cluster.broker.requests_of(BACK)
        assert cluster.broker.committed("g", "T").get(0, 0) == 0


async def test_a_broadcasting_consumer_sends_nothing_back(tmp_path: Path) -> None:
    """A negatively acknowledged message is finished."""
    async with running_cluster() as cluster:
        async with push(cluster, 1, broadcast=True, offsets_path=tmp_path / "offsets.json") as consumer:
            (message,) = await take(consumer, 1)
            await message.nack()
            await consumer.commit()
            (queue,) = consumer.assignment
            assert await consumer.committed(queue) == 1
        assert not cluster.broker.requests_of(BACK)


async def handle(message: MessageExt) -> None:
    """A handler."""


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"auto_ack": True, "handler": handle}, "auto_ack=True is for `async for`"),
        ({"thread": True}, "thread=True needs a handler"),
        ({"handler": print}, "not an `async def` function"),
        ({"handler": handle, "thread": True}, "not a plain function"),
        ({"on_assigned": 5}, "on_assigned=5 is not a function"),
        ({"deserializer": 5}, "deserializer must be a function"),
        ({"topics": 5}, "topics: "),
        ({"topics": ["no such name"]}, "topic: .*illegal characters"),
        ({"topics": {"T": 5}}, "expression must be a str or Sql92"),
    ],
)
async def test_options_that_contradict_each_other_are_rejected(options: dict[str, object], match: str) -> None:
    """When the consumer is made."""
    async with running_cluster() as cluster:
        with pytest.raises(InvalidArgument, match=match):
            push(cluster, **options)  # type: ignore[arg-type]  # shorthand of a test


async def test_a_consumer_with_a_handler_has_no_loop() -> None:
    """The handler gets all messages."""
    async with running_cluster() as cluster, push(cluster, handler=handle) as consumer:
        with pytest.raises(InvalidArgument, match="with a handler"):
            aiter(consumer)
