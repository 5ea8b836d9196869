"""Messages that inflate to a thousand times their size."""

import asyncio
import logging
import zlib

import pytest

from skylarkmq import ConsumeFrom, ConsumerSettings, PullConsumer
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.compression import MAX_PAYLOAD_BYTES
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import until

MIB = 1024 * 1024


def consumer(cluster: Cluster, **options: int) -> PullConsumer:
    settings = ConsumerSettings(suspend_s=0.5, max_inflated_bytes=options.pop("each", MAX_PAYLOAD_BYTES), **options)
    return PullConsumer("g", namesrv=cluster.namesrv, consume_from=ConsumeFrom.FIRST, settings=settings)


async def test_a_bomb_is_handed_over_as_stored(caplog: pytest.LogCaptureFixture) -> None:
    """With a warning that names its place and the setting; the messages behind it follow."""
    bomb = zlib.compress(bytes(64 * MIB), 1)
    async with running_cluster() as cluster, consumer(cluster) as reader:
        cluster.topics["T"] = 1
        cluster.broker.store("T", 0, bomb, sys_flag=int(SysFlag.COMPRESSED))
        cluster.broker.store("T", 0, zlib.compress(b"good"), sys_flag=int(SysFlag.COMPRESSED))
        with caplog.at_level(logging.WARNING):
            await reader.subscribe("T")
            first, second = await reader.poll(1, timeout_s=10), await reader.poll(1, timeout_s=10)
        assert (first[0].body, bool(first[0].sys_flag & SysFlag.COMPRESSED)) == (bomb, True)
        assert (second[0].body, bool(second[0].sys_flag & SysFlag.COMPRESSED)) == (b"good", False)
    assert "queue_offset=0" in caplog.text
    assert f"max_inflated_bytes={MAX_PAYLOAD_BYTES}" in caplog.text


async def test_inflated_bytes_count_against_the_limit() -> None:
    """No more is inflated than max_bytes and one message allow; what is left comes once there is room."""
    async with running_cluster() as cluster, consumer(cluster, each=MIB, max_bytes=2 * MIB) as reader:
        cluster.topics["T"] = 1
        for n in range(8):
            body = zlib.compress(bytes([n]) * MIB)
            cluster.broker.store("T", 0, body, sys_flag=int(SysFlag.COMPRESSED))
        await reader.subscribe("T")
        got: list[int] = []
        while len(got) < 8:
            await until(lambda: reader.statistics().waiting, "a message")
            for _ in range(20):
                await asyncio.sleep(0)
            assert reader.statistics().unfinished <= 3
            got += [message.body[0] for message in await reader.poll(1, timeout_s=10)]
        assert got == list(range(8))
