"""Compressed messages: every codec is inflated, within limits, and no handler gets a body that is still compressed."""

import asyncio
import logging
import zlib

import pytest

from skylarkmq import ConsumeFrom, ConsumerSettings, InvalidBody, MessageExt, PullConsumer, PushConsumer
from skylarkmq.clients.sdk.messages.compression import (
    DEFAULT_LEVELS,
    CodecMissing,
    Compression,
    compress,
    compression_flags,
)
from skylarkmq.clients.sdk.messages.stored_messages import inflate_or_keep
from skylarkmq.protocol import compression
from skylarkmq.protocol.codes import RequestCode, SysFlag
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES, check_codec
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import until

MIB = 1024 * 1024
FAST = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02, rebalance_interval_s=0.05, suspend_pause_s=0.01)
RETRY = "%RETRY%g"


def pull_consumer(cluster: Cluster, **options: int) -> PullConsumer:
    settings = ConsumerSettings(suspend_s=0.5, max_inflated_bytes=options.pop("each", MAX_PAYLOAD_BYTES), **options)
    return PullConsumer("g", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings)


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if neither lz4 nor zstd were installed."""

    def missing(name: str) -> None:
        raise ImportError(name)

    compression._codec.cache_clear()
    monkeypatch.setattr(compression, "import_module", missing)


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
async def test_consumers_inflate_every_codec(kind: Compression) -> None:
    """`body` is the original, and the compression bits of `sys_flag` are cleared."""
    try:
        check_codec(kind)
    except CodecMissing as error:
        pytest.skip(str(error))
    body = b"x" * 100_000
    async with running_cluster() as cluster, pull_consumer(cluster) as consumer:
        cluster.topics["T"] = 1
        packed = compress(body, kind, DEFAULT_LEVELS[kind])
        cluster.broker.store("T", 0, packed, sys_flag=compression_flags(kind))
        await consumer.subscribe("T")
        (message,) = await consumer.poll(timeout_s=10)
        assert (message.body, message.value, message.sys_flag) == (body, body, 0)


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize("kind", ["lz4", "zstd"])
async def test_a_push_consumer_sends_back_a_message_whose_codec_is_missing(
    kind: Compression, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler is not called with it. An error names the extra; the message goes to the retry topic; the next
    message is handled."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    async with running_cluster() as cluster:
        cluster.topics = {"T": 1}
        cluster.broker.store("T", 0, b"compressed", sys_flag=compression_flags(kind))
        cluster.broker.store("T", 0, b"plain")
        async with PushConsumer(
            "g", namesrv=cluster.namesrv, handler=handler, topics="T", consume_from=ConsumeFrom.FIRST, settings=FAST
        ) as consumer:
            await cluster.wait_committed("g", "T", {0: 2})
            assert (consumer.statistics().failed, consumer.statistics().sent_back) == (1, 1)
        assert seen == [b"plain"]
        assert len(cluster.broker.queues[RETRY, 0]) == 1
    (error,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert f"pip install 'skylarkmq[{kind}]'" in error.getMessage()


async def test_an_orderly_consumer_stops_at_a_damaged_message() -> None:
    """It handles neither this message nor those after it, and moves on after `max_reconsume_times`."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    settings = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02, suspend_pause_s=0.01, max_reconsume_times=2)
    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, RETRY: 1}
        cluster.broker.on(RequestCode.SEND_MESSAGE_V2, {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"})
        cluster.broker.store("T", 0, b"damaged", sys_flag=int(SysFlag.COMPRESSED))
        cluster.broker.store("T", 0, b"plain")
        async with PushConsumer(
            "g",
            namesrv=cluster.namesrv,
            handler=handler,
            topics="T",
            orderly=True,
            consume_from=ConsumeFrom.FIRST,
            settings=settings,
        ) as consumer:
            await until(lambda: seen == [b"plain"])
            assert consumer.statistics().failed == 3


async def test_a_loop_skips_a_damaged_message_and_sends_it_back() -> None:
    """The loop gets the messages before and after it."""
    async with running_cluster() as cluster:
        cluster.topics = {"T": 1}
        for body, flags in ((b"0", 0), (b"damaged", int(SysFlag.COMPRESSED)), (b"2", 0)):
            cluster.broker.store("T", 0, body, sys_flag=flags)
        seen: list[bytes] = []
        async with PushConsumer(
            "g", namesrv=cluster.namesrv, topics="T", consume_from=ConsumeFrom.FIRST, settings=FAST
        ) as consumer:
            async for message in consumer:
                seen.append(message.body)
                await message.ack()
                if len(seen) == 2:
                    break
            await cluster.wait_committed("g", "T", {0: 3})
        assert seen == [b"0", b"2"]
        assert len(cluster.broker.queues[RETRY, 0]) == 1


async def test_poll_raises_for_a_bomb_until_it_is_skipped() -> None:
    """The error names the place and the setting. The position stays before the message; `seek` skips it."""
    bomb = zlib.compress(bytes(64 * MIB), 1)
    async with running_cluster() as cluster, pull_consumer(cluster) as consumer:
        cluster.topics["T"] = 1
        cluster.broker.store("T", 0, b"first")
        cluster.broker.store("T", 0, bomb, sys_flag=int(SysFlag.COMPRESSED))
        cluster.broker.store("T", 0, zlib.compress(b"good"), sys_flag=int(SysFlag.COMPRESSED))
        await consumer.subscribe("T")
        await until(lambda: consumer.statistics().waiting == 3)
        (queue,) = consumer.assignment
        assert [message.body for message in await consumer.poll(timeout_s=10)] == [b"first"]
        for _ in range(2):
            with pytest.raises(InvalidBody, match=f"queue_offset=1 .*max_inflated_bytes={MAX_PAYLOAD_BYTES}"):
                await consumer.poll(timeout_s=10)
        with pytest.raises(InvalidBody):
            await anext(aiter(consumer))
        assert await consumer.position(queue) == 1
        consumer.seek(queue, 2)
        assert [message.body for message in await consumer.poll(timeout_s=10)] == [b"good"]


async def test_inflated_bytes_count_against_the_limit() -> None:
    """At most max_bytes and one message are inflated; the rest is pulled again when there is capacity."""
    async with running_cluster() as cluster, pull_consumer(cluster, each=MIB, max_bytes=2 * MIB) as consumer:
        cluster.topics["T"] = 1
        for n in range(8):
            body = zlib.compress(bytes([n]) * MIB)
            cluster.broker.store("T", 0, body, sys_flag=int(SysFlag.COMPRESSED))
        await consumer.subscribe("T")
        got: list[int] = []
        while len(got) < 8:
            await until(lambda: consumer.statistics().waiting, "a message")
            for _ in range(20):
                await asyncio.sleep(0)
            assert consumer.statistics().unfinished <= 3
            got += [message.body[0] for message in await consumer.poll(1, timeout_s=10)]
        assert got == list(range(8))


async def test_operators_see_a_damaged_message_as_it_is_stored(caplog: pytest.LogCaptureFixture) -> None:
    """`Admin` keeps its body and its compression bits, and logs a warning."""
    async with running_cluster() as cluster:
        cluster.broker.store("T", 0, b"damaged", sys_flag=int(SysFlag.COMPRESSED))
        message = cluster.broker.by_position[0]
        await inflate_or_keep(message)
        assert (message.body, message.sys_flag) == (b"damaged", SysFlag.COMPRESSED)
    assert "body kept as stored" in caplog.text
