"""Where a PullConsumer reads on: positions, pauses, expressions. Its loops:
tests/clients/consuming/test_consumers.py."""

from datetime import UTC, datetime

import pytest

from skylarkmq import ClientClosed, ConsumeFrom, ConsumerSettings, MessageQueue, PullConsumer, Sql92
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.queue import OffsetResponseHeader
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import PeerConnection, until

FAST = ConsumerSettings(suspend_s=0.05, commit_interval_s=0.02)
QUEUE = MessageQueue("T", "broker-a", 0)


def reader(cluster: Cluster, count: int = 9) -> PullConsumer:
    cluster.topics["T"] = 1
    for n in range(count):
        cluster.broker.store("T", 0, b"%d" % n)
    return PullConsumer("g", namesrv=cluster.namesrv, settings=FAST, consume_from=ConsumeFrom.FIRST)


async def test_a_queue_is_read_on_from_a_time_its_begin_or_its_end() -> None:
    """Each returns the offset; what was received before is forgotten, also what a poll returned."""

    def search(_: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        assert request.ext_fields()["timestamp"] == "1704067200000"
        return RemotingCommand.response(ext=OffsetResponseHeader(offset=5))

    async with running_cluster() as cluster, reader(cluster) as consumer:
        cluster.broker.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        await consumer.assign([QUEUE])
        assert [message.queue_offset for message in await consumer.poll(2)] == [0, 1]
        assert await consumer.seek_to_time(QUEUE, datetime(2024, 1, 1, tzinfo=UTC)) == 5
        assert [message.queue_offset for message in await consumer.poll(2)] == [5, 6]
        assert await consumer.seek_to_begin(QUEUE) == 0
        assert [message.queue_offset for message in await consumer.poll(1)] == [0]
        assert await consumer.seek_to_end(QUEUE) == 9
        cluster.broker.store("T", 0, b"new")
        assert [message.body for message in await consumer.poll(2, timeout_s=5)] == [b"new"]
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 10


async def test_a_paused_queue_is_not_pulled() -> None:
    """What comes meanwhile waits at the broker."""
    async with running_cluster() as cluster, reader(cluster, 1) as consumer:
        await consumer.assign([QUEUE])
        assert len(await consumer.poll(timeout_s=5)) == 1
        consumer.pause(QUEUE)
        pulls = len(cluster.broker.asked(RequestCode.PULL_MESSAGE))
        await until(lambda: consumer.statistics().waiting == 0)
        cluster.broker.store("T", 0, b"under way")  # ends the pull that is held
        await consumer.poll(timeout_s=0.2)
        cluster.broker.store("T", 0, b"later")
        assert await consumer.poll(timeout_s=0.1) == []
        assert len(cluster.broker.asked(RequestCode.PULL_MESSAGE)) <= pulls + 1
        consumer.resume(QUEUE)
        assert [message.body for message in await consumer.poll(timeout_s=5)] == [b"later"]


async def test_queues_that_are_not_read_have_no_position() -> None:
    """The error says what to do."""
    async with running_cluster() as cluster, reader(cluster) as consumer:
        for use in (consumer.pause, consumer.resume):
            with pytest.raises(ClientClosed, match="assign it first"):
                use(QUEUE)
        with pytest.raises(ClientClosed, match="assign it first"):
            await consumer.seek_to_end(QUEUE)


async def test_an_expression_goes_along_with_each_pull() -> None:
    """Type and text, for brokers that know no heartbeat of the group."""
    async with running_cluster() as cluster, reader(cluster) as consumer:
        cluster.broker.on(RequestCode.CHECK_CLIENT_CONFIG, None)
        await consumer.subscribe("T", Sql92("a > 5"))
        (pull, *_) = await cluster.broker.wait_asked(RequestCode.PULL_MESSAGE)
        header = pull.header(PullMessageHeader)
        assert header.sys_flag & PullSysFlag.SUBSCRIPTION
        assert (header.subscription, header.expression_type) == ("a > 5", "SQL92")
