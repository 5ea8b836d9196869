"""Pull consumers: positions, pauses, commits, timeouts. Loops and polls:
tests/clients/sdk/consuming/test_consumers.py."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Unpack

import pytest

from skylarkmq import (
    BrokerError,
    ClientClosed,
    ConsumeFrom,
    ConsumerSettings,
    InvalidArgument,
    InvalidBody,
    MessageQueue,
    PullConsumer,
    RequestTimeout,
    Sql92,
)
from skylarkmq.clients.sdk.consuming.options import PullConsumerOptions
from skylarkmq.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.queue import OffsetResponseHeader
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import PeerConnection, refuse, until
from tests.harness.limits import WAIT_LIMIT_S

FAST = ConsumerSettings(suspend_s=0.05, commit_interval_s=0.02)
QUEUE = MessageQueue("T", "broker-a", 0)


def pull_consumer(cluster: Cluster, count: int = 9, **options: Unpack[PullConsumerOptions]) -> PullConsumer:
    cluster.topics["T"] = 1
    for n in range(count):
        cluster.broker.store("T", 0, b"%d" % n)
    options = {"settings": FAST, "consume_from": ConsumeFrom.FIRST, **options}
    return PullConsumer("g", namesrv=cluster.namesrv, **options)


async def test_seek_continues_at_a_time_the_begin_or_the_end() -> None:
    """Each variant returns the offset. Messages received before are dropped, also polled ones."""

    def search(_: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        assert request.ext_fields()["timestamp"] == "1704067200000"
        return RemotingCommand.response(ext=OffsetResponseHeader(offset=5))

    async with running_cluster() as cluster, pull_consumer(cluster) as consumer:
        cluster.broker.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        await consumer.assign([QUEUE])
        assert [message.queue_offset for message in await consumer.poll(2)] == [0, 1]
        assert await consumer.seek_to_time(QUEUE, datetime(2024, 1, 1, tzinfo=UTC)) == 5
        assert [message.queue_offset for message in await consumer.poll(2)] == [5, 6]
        assert await consumer.seek_to_begin(QUEUE) == 0
        assert [message.queue_offset for message in await consumer.poll(1)] == [0]
        assert await consumer.seek_to_end(QUEUE) == 9
        cluster.broker.store("T", 0, b"new")
        assert [message.body for message in await consumer.poll(2, timeout_s=WAIT_LIMIT_S)] == [b"new"]
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 10


async def test_the_position_is_the_offset_of_the_next_message() -> None:
    """Messages that are read ahead do not count; before the first pull it is where reading begins."""
    async with running_cluster() as cluster, pull_consumer(cluster) as consumer:
        with pytest.raises(ClientClosed, match="assign it first"):
            await consumer.position(QUEUE)
        await consumer.assign([QUEUE])
        assert await consumer.position(QUEUE) == 0
        await until(lambda: consumer.statistics().waiting == 9)
        assert await consumer.position(QUEUE) == 0
        await consumer.poll(2)
        assert await consumer.position(QUEUE) == 2
        consumer.seek(QUEUE, 7)
        assert await consumer.position(QUEUE) == 7
        await consumer.poll(9)
        assert await consumer.position(QUEUE) == 9


async def test_chosen_offsets_are_committed() -> None:
    """They need not be those of the position; nothing is acknowledged."""
    async with running_cluster() as cluster, pull_consumer(cluster, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(4, timeout_s=WAIT_LIMIT_S)
        await consumer.commit({QUEUE: 1})
        assert await consumer.committed(QUEUE) == 1
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 4


async def test_without_auto_commit_only_commit_commits() -> None:
    """Neither a pull, nor giving up the queue, nor the stop."""
    async with running_cluster() as cluster, pull_consumer(cluster, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        for _ in range(4):
            await consumer.poll(2, timeout_s=WAIT_LIMIT_S)
        cluster.broker.store("T", 0, b"one more pull")
        await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE, 3)
        await consumer.assign([])
        pulls = cluster.broker.requests_of(RequestCode.PULL_MESSAGE)
        assert all(not pull.header(PullMessageHeader).sys_flag & PullSysFlag.COMMIT_OFFSET for pull in pulls)
    assert cluster.broker.committed("g", "T") == {}


async def test_a_commit_that_fails_raises() -> None:
    """The offset is committed by the next call."""
    async with running_cluster() as cluster, pull_consumer(cluster, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(2, timeout_s=WAIT_LIMIT_S)
        original = cluster.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]
        cluster.broker.on(RequestCode.UPDATE_CONSUMER_OFFSET, refuse(ResponseCode.SYSTEM_ERROR))
        for offsets in (None, {QUEUE: 1}):
            with pytest.raises(BrokerError, match="UPDATE_CONSUMER_OFFSET"):
                await consumer.commit(offsets)
        cluster.broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = original
        await consumer.commit()
        assert await consumer.committed(QUEUE) == 2


async def test_every_call_has_a_timeout() -> None:
    """RequestTimeout names the call; a timeout of 0 is rejected."""
    async with running_cluster() as cluster, pull_consumer(cluster) as consumer:
        await consumer.assign([QUEUE])
        silent = (
            RequestCode.GET_MAX_OFFSET,
            RequestCode.GET_MIN_OFFSET,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            RequestCode.QUERY_CONSUMER_OFFSET,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            RequestCode.CHECK_CLIENT_CONFIG,
        )
        for code in silent:
            cluster.broker.on(code, lambda *_: None)
        when = datetime(2024, 1, 1, tzinfo=UTC)
        calls: dict[str, Callable[[float], Awaitable[object]]] = {
            "seek_to_end": lambda t: consumer.seek_to_end(QUEUE, timeout_s=t),
            "seek_to_begin": lambda t: consumer.seek_to_begin(QUEUE, timeout_s=t),
            "seek_to_time": lambda t: consumer.seek_to_time(QUEUE, when, timeout_s=t),
            "committed": lambda t: consumer.committed(QUEUE, timeout_s=t),
            "commit": lambda t: consumer.commit({QUEUE: 1}, timeout_s=t),
            "subscribe": lambda t: consumer.subscribe("T", Sql92("a > 5"), timeout_s=t),
        }
        for name, call in calls.items():
            with pytest.raises(RequestTimeout, match=f"{name} took more than 0.02 s"):
                await call(0.02)
            with pytest.raises(InvalidArgument, match="timeout_s"):
                await call(0)


async def test_values_are_deserialized() -> None:
    """`value` is the result, `body` stays as it is; a body that cannot be deserialized is an InvalidBody."""
    async with running_cluster() as cluster, pull_consumer(cluster, 1, deserializer=json.loads) as consumer:
        cluster.broker.store("T", 0, b"not JSON")
        await consumer.assign([QUEUE])
        (message,) = await consumer.poll(timeout_s=WAIT_LIMIT_S)
        assert (message.value, message.body) == (0, b"0")
        with pytest.raises(InvalidBody, match=r"queue_offset=1 .*JSONDecodeError"):
            await consumer.poll(timeout_s=WAIT_LIMIT_S)


async def test_a_topic_that_cannot_be_subscribed_to_fails_the_start() -> None:
    """The member has left the group: another consumer can start."""
    async with running_cluster() as cluster:
        cluster.broker.on(RequestCode.CHECK_CLIENT_CONFIG, refuse(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "at 3"))
        consumer = PullConsumer("g", namesrv=cluster.namesrv, topics={"T": Sql92("a >")}, settings=FAST)
        with pytest.raises(BrokerError, match="at 3"):
            await consumer.start()
        async with PullConsumer("g", namesrv=cluster.namesrv, topics={"T": "a || b"}, settings=FAST):
            (pull, *_) = await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE)
            assert pull.header(PullMessageHeader).subscription == "a || b"


async def test_a_paused_queue_is_not_pulled() -> None:
    """Its messages wait at the broker."""
    async with running_cluster() as cluster, pull_consumer(cluster, 1) as consumer:
        await consumer.assign([QUEUE])
        assert len(await consumer.poll(timeout_s=WAIT_LIMIT_S)) == 1
        consumer.pause(QUEUE)
        pulls = len(cluster.broker.requests_of(RequestCode.PULL_MESSAGE))
        await until(lambda: consumer.statistics().waiting == 0)
        cluster.broker.store("T", 0, b"in flight")  # ends the pull that the broker holds
        await consumer.poll(timeout_s=0.2)
        cluster.broker.store("T", 0, b"later")
        assert await consumer.poll(timeout_s=0.1) == []
        assert len(cluster.broker.requests_of(RequestCode.PULL_MESSAGE)) <= pulls + 1
        consumer.resume(QUEUE)
        assert [message.body for message in await consumer.poll(timeout_s=WAIT_LIMIT_S)] == [b"later"]


async def test_queues_that_are_not_assigned_raise() -> None:
    """The error names the remedy."""
    async with running_cluster() as cluster, pull_consumer(cluster) as consumer:
        for use in (consumer.pause, consumer.resume):
            with pytest.raises(ClientClosed, match="assign it first"):
                use(QUEUE)
        with pytest.raises(ClientClosed, match="assign it first"):
            await consumer.seek_to_end(QUEUE)


async def test_each_pull_has_the_expression() -> None:
    """Type and text, for brokers without a heartbeat of the group."""
    async with running_cluster() as cluster, pull_consumer(cluster) as consumer:
        cluster.broker.on(RequestCode.CHECK_CLIENT_CONFIG, None)
        await consumer.subscribe("T", Sql92("a > 5"))
        (pull, *_) = await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE)
        header = pull.header(PullMessageHeader)
        assert header.sys_flag & PullSysFlag.SUBSCRIPTION
        assert (header.subscription, header.expression_type) == ("a > 5", "SQL92")
