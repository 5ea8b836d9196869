"""Consumers: which messages they receive, what they commit, how they share queues."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from skylarkmq import (
    ClientClosed,
    ConsumeFrom,
    ConsumerSettings,
    InvalidMessage,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
)
from skylarkmq.clients.sdk.consuming.allocation import in_turn
from skylarkmq.protocol.bodies.enums import ConsumeFromWhere, ConsumeType
from skylarkmq.protocol.bodies.heartbeat import HeartbeatData
from skylarkmq.protocol.codes import PullSysFlag, RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.queue import OffsetResponseHeader
from tests.clients.cluster import Cluster, pulled, running_cluster
from tests.clients.peer import PeerConnection, refuse, until
from tests.harness.limits import WAIT_LIMIT_S

FAST = ConsumerSettings(
    suspend_s=0.5, commit_interval_s=0.02, retry_pause_s=0.01, pull_retry_pause_s=0.01, handover_pause_s=0.05
)


def tags(tag: str) -> str:
    return f"TAGS\x01{tag}\x02"


async def take(consumer: PushConsumer | PullConsumer, count: int) -> list[MessageExt]:
    """Return the next messages of a loop; the last one is not acknowledged."""
    got: list[MessageExt] = []
    async with asyncio.timeout(WAIT_LIMIT_S):
        async for message in consumer:
            got.append(message)
            if len(got) == count:
                break
    return got


def push(cluster: Cluster, group: str = "g", **options: object) -> PushConsumer:
    options = {"consume_from": ConsumeFrom.FIRST, "settings": FAST, "auto_ack": "handler" not in options} | options
    return PushConsumer(group, namesrv=cluster.namesrv, **options)  # type: ignore[arg-type]  # shorthand of a test


async def test_a_loop_receives_all_messages_and_commits_acknowledged_ones() -> None:
    """With `auto_ack`, the offset advances over a message when the loop asks for the next one."""
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for n in range(3):
            cluster.broker.store("T", 0, b"%d" % n)
        async with push(cluster) as consumer:
            await consumer.subscribe("T")
            assert [message.body for message in await take(consumer, 3)] == [b"0", b"1", b"2"]
        await cluster.wait_committed("g", "T", {0: 2})
        async with push(cluster) as consumer:
            await consumer.subscribe("T")
            assert [message.body for message in await take(consumer, 1)] == [b"2"]


async def test_a_message_that_arrives_later_is_received() -> None:
    """The broker holds the pull until it arrives."""
    async with running_cluster() as cluster, push(cluster) as consumer:
        await consumer.subscribe("T")
        await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE, 2)
        cluster.broker.store("T", 1, b"late")
        assert [message.body for message in await take(consumer, 1)] == [b"late"]


async def test_only_subscribed_tags_are_received() -> None:
    """The broker compares hashes, the client compares text: BB and Aa have the same hash."""
    async with running_cluster() as cluster, push(cluster) as consumer:
        for tag in ("BB", "Aa", "", "c"):
            cluster.broker.store("T", 0, tag.encode(), tags(tag) if tag else "")
        await consumer.subscribe("T", "Aa || c")
        assert [message.body for message in await take(consumer, 2)] == [b"Aa", b"c"]


async def test_a_compressed_body_is_received_as_it_was_sent() -> None:
    """From producer to consumer."""
    async with (
        running_cluster() as cluster,
        push(cluster) as consumer,
        Producer("p", namesrv=cluster.namesrv) as producer,
    ):
        await consumer.subscribe("T")
        sent = await producer.send(Message("T", b"a" * 100_000, tags="t", keys=["k"], properties={"ü": "é"}))
        (message,) = await take(consumer, 1)
        assert (message.body, message.payload(), message.msg_id) == (b"a" * 100_000, b"a" * 100_000, sent.msg_id)
        assert (message.tags, message.keys, message.properties["ü"]) == ("t", ["k"], "é")
        assert len(cluster.broker.queues["T", sent.queue.queue_id][0]) < 1000


async def test_the_committed_offset_is_the_smallest_unacknowledged_one() -> None:
    """A call that hangs stops the offset, but not the other messages."""
    gate, seen = asyncio.Event(), Counter[bytes]()

    async def handler(message: MessageExt) -> None:
        seen[message.body] += 1
        if message.body == b"5":
            await gate.wait()

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        async with push(cluster, handler=handler) as consumer:
            for n in range(100):
                cluster.broker.store("T", 0, b"%d" % n)
            await consumer.subscribe("T")
            await until(lambda: len(seen) == 100)
            await cluster.wait_committed("g", "T", {0: 5})
            gate.set()
            await cluster.wait_committed("g", "T", {0: 100})
            assert set(seen.values()) == {1}
            assert consumer.statistics().handled == 100


async def test_stop_waits_for_running_handlers() -> None:
    """Their messages are committed; waiting messages are left to other members."""
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handler(message: MessageExt) -> None:
        begun.set()
        await gate.wait()

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for n in range(5):
            cluster.broker.store("T", 0, b"%d" % n)
        settings = ConsumerSettings(suspend_s=0.5, concurrency=2, commit_interval_s=3600)
        consumer = push(cluster, handler=handler, settings=settings)
        await consumer.start()
        await consumer.subscribe("T")
        await begun.wait()
        stopping = asyncio.create_task(consumer.stop())
        await asyncio.sleep(0)
        gate.set()
        await stopping
        assert cluster.broker.committed("g", "T") == {0: 2}


async def test_two_members_share_queues_and_take_over_from_each_other() -> None:
    """After the notification of the broker, without waiting for the interval, and without a repeated message."""
    seen: Counter[bytes] = Counter()

    async def handler(message: MessageExt) -> None:
        seen[message.body] += 1

    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        cluster.topics["T"] = 4
        async with push(cluster, handler=handler) as first:
            await first.subscribe("T")
            await until(lambda: len(first.statistics().queues) == 4)
            async with push(cluster, handler=handler) as second:
                await second.subscribe("T")
                await until(lambda: len(first.statistics().queues) == len(second.statistics().queues) == 2)
                assert not set(first.statistics().queues) & set(second.statistics().queues)
                for n in range(200):
                    await producer.send(Message("T", b"%d" % n))
                await until(lambda: len(seen) == 200)
                assert second.statistics().handled == 100
            await until(lambda: len(first.statistics().queues) == 4)
            await producer.send(Message("T", b"last"))
            await until(lambda: seen[b"last"])
        assert set(seen.values()) == {1}


async def test_members_share_queues_by_their_allocation_rule(caplog: pytest.LogCaptureFixture) -> None:
    """They keep their queues while the rule raises."""
    broken = False

    def rule(queues: Sequence[MessageQueue], members: Sequence[str], own_id: str) -> Sequence[MessageQueue]:
        if broken:
            raise ValueError("no room")
        return in_turn(queues, members, own_id)

    settings = ConsumerSettings(suspend_s=0.5, rebalance_interval_s=0.02, handover_pause_s=0)
    async with running_cluster() as cluster:
        cluster.topics["T"] = 4
        async with push(cluster, allocation=rule, settings=settings) as first:
            async with push(cluster, allocation=rule, settings=settings) as second:
                for consumer in (first, second):
                    await consumer.subscribe("T")
                shares = [[0, 2], [1, 3]]
                await until(
                    lambda: sorted([q.queue_id for q in c.statistics().queues] for c in (first, second)) == shares
                )
                broken = True
                await until(lambda: "allocation rule failed" in caplog.text)
                assert len(first.statistics().queues) == 2
            broken = False
            await until(lambda: len(first.statistics().queues) == 4)


async def test_a_member_whose_connection_breaks_is_replaced() -> None:
    """The other member takes over its queues; when it is back, they share again."""
    async with running_cluster() as cluster, push(cluster) as first, push(cluster) as second:
        for consumer in (first, second):
            await consumer.subscribe("T")
        await until(lambda: len(first.statistics().queues) == len(second.statistics().queues) == 1)
        cluster.broker.hang_up()
        await until(lambda: cluster.members("g") == 2)
        await until(lambda: {*first.statistics().queues} ^ {*second.statistics().queues} == {*queues_of("T", 2)})


def queues_of(topic: str, count: int) -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(topic, "broker-a", n) for n in range(count))


async def test_the_heartbeat_has_the_subscriptions_of_the_member() -> None:
    """Group, message model, start, topics with tags and hashes, and the retry topic."""
    async with running_cluster() as cluster, push(cluster, consume_from=ConsumeFrom.LAST) as consumer:
        await consumer.subscribe("T", "Aa || c")
        (request, *_) = await cluster.broker.wait_requests(RequestCode.HEART_BEAT)
        (data,) = HeartbeatData.decode(request.body).consumer_data_set
        assert (data.group_name, data.consume_type) == ("g", ConsumeType.CONSUME_PASSIVELY)
        assert data.consume_from_where == ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        wanted = {
            entry.topic: (entry.sub_string, entry.tags_set, entry.code_set) for entry in data.subscription_data_set
        }
        assert wanted == {"T": ("Aa || c", ["Aa", "c"], [2112, 99]), "%RETRY%g": ("*", [], [])}


SINCE = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("consume_from", "committed", "expected"),
    [
        (ConsumeFrom.LAST, None, 5),
        (ConsumeFrom.FIRST, None, 0),
        (SINCE, None, 3),
        (ConsumeFrom.LAST, 2, 2),
        (ConsumeFrom.FIRST, 4, 4),
    ],
)
async def test_a_queue_is_read_from_the_committed_offset_or_from_consume_from(
    consume_from: ConsumeFrom | datetime, committed: int | None, expected: int
) -> None:
    """Without a committed offset, `consume_from` decides."""
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for n in range(5):
            cluster.broker.store("T", 0, b"%d" % n)
        if committed is not None:
            cluster.broker.offsets["g", "T", 0] = committed
        asked: list[str] = []

        def search(_: PeerConnection, request: RemotingCommand) -> RemotingCommand:
            asked.append(request.ext_fields()["timestamp"])
            return RemotingCommand.response(ext=OffsetResponseHeader(offset=3))

        cluster.broker.on(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, search)
        async with push(cluster, consume_from=consume_from) as consumer:
            await consumer.subscribe("T")
            (pull, *_) = await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE)
            assert pull.header(PullMessageHeader).queue_offset == expected
            assert asked == (["1704067200000"] if consume_from is SINCE else [])


async def test_a_pull_of_a_push_consumer_is_what_rocketmq_expects() -> None:
    """The broker may hold it; it uses the subscription of the heartbeat, and commits an offset."""
    async with running_cluster() as cluster:
        cluster.broker.offsets["g", "T", 0] = 7
        cluster.broker.offsets["g", "T", 1] = 0
        async with push(cluster) as consumer:
            await consumer.subscribe("T", "a")
            pulls = await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE, 2)
            headers = {pull.header(PullMessageHeader).queue_id: pull.header(PullMessageHeader) for pull in pulls}
            assert headers[0].sys_flag == PullSysFlag.SUSPEND | PullSysFlag.COMMIT_OFFSET
            assert (headers[0].commit_offset, headers[0].max_msg_nums, headers[0].subscription) == (7, 32, None)
            assert headers[1].sys_flag == PullSysFlag.SUSPEND


async def test_an_offset_moved_by_the_broker_is_committed_and_read_from() -> None:
    """PULL_OFFSET_MOVED (21) drops the received messages."""
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        original = cluster.broker.handlers[RequestCode.PULL_MESSAGE]

        def moving(connection: PeerConnection, request: RemotingCommand) -> object:
            if request.header(PullMessageHeader).queue_offset > 100:
                return RemotingCommand.response(21, ext=pulled(1))
            return original(connection, request)

        cluster.broker.handlers[RequestCode.PULL_MESSAGE] = moving  # type: ignore[assignment]  # responds as `original`
        cluster.broker.offsets["g", "T", 0] = 1000
        for n in range(3):
            cluster.broker.store("T", 0, b"%d" % n)
        async with push(cluster) as consumer:
            await consumer.subscribe("T")
            assert [message.body for message in await take(consumer, 2)] == [b"1", b"2"]
            assert "1" in {
                r.ext_fields()["commitOffset"] for r in cluster.broker.requests_of(RequestCode.UPDATE_CONSUMER_OFFSET)
            }


@pytest.mark.parametrize("code", [24, 25])
async def test_a_broker_that_does_not_know_the_consumer_gets_a_heartbeat(code: int) -> None:
    """As after its restart."""
    async with running_cluster() as cluster, push(cluster) as consumer:
        cluster.broker.on(RequestCode.PULL_MESSAGE, refuse(code, "not known"))
        await consumer.subscribe("T")
        await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE)
        beats = len(cluster.broker.requests_of(RequestCode.HEART_BEAT))
        await cluster.broker.wait_requests(RequestCode.HEART_BEAT, beats + 1)


async def test_pulls_stop_at_the_limits_of_the_buffer() -> None:
    """They continue when there is capacity."""
    settings = ConsumerSettings(suspend_s=0.5, max_queue_messages=64, pull_batch=32)
    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for n in range(500):
            cluster.broker.store("T", 0, b"%d" % n)
        async with push(cluster, settings=settings) as consumer:
            await consumer.subscribe("T")
            await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE, 2)
            await until(lambda: consumer.statistics().unfinished == 64)
            await asyncio.sleep(0)
            assert len(cluster.broker.requests_of(RequestCode.PULL_MESSAGE)) == 2
            assert len(await take(consumer, 500)) == 500


async def test_a_topic_that_is_created_later_is_read() -> None:
    """Subscribing to it before is no error."""
    async with running_cluster() as cluster, push(cluster) as consumer:
        await consumer.subscribe("Later")
        cluster.topics["Later"] = 1
        cluster.broker.store("Later", 0, b"x")
        assert [message.body for message in await take(consumer, 1)] == [b"x"]


async def test_a_redelivered_message_has_its_original_topic() -> None:
    """Its offset is that of the retry topic."""
    async with running_cluster() as cluster:
        cluster.topics["%RETRY%g"] = 1
        cluster.broker.store("%RETRY%g", 0, b"again", "RETRY_TOPIC\x01Orders\x02")
        async with push(cluster) as consumer:
            await consumer.subscribe("T")
            (message,) = await take(consumer, 1)
            assert (message.topic, message.body) == ("Orders", b"again")


async def test_errors_of_the_program_raise() -> None:
    """A bad topic name, a consumer that is not started, a queue that is not read."""
    async with running_cluster() as cluster:
        with pytest.raises(ClientClosed, match="async with"):
            await push(cluster).subscribe("T")
        async with push(cluster) as consumer:
            with pytest.raises(InvalidMessage, match="illegal characters"):
                await consumer.subscribe("no such name")
        async with PullConsumer("g", namesrv=cluster.namesrv) as reader:
            with pytest.raises(ClientClosed, match="assign it first"):
                reader.seek(MessageQueue("T", "broker-a", 0), 0)


# ------------------------------------------------------------------------------------------------------ PullConsumer


async def test_poll_returns_up_to_max_messages() -> None:
    """And none if none arrives in time."""
    async with running_cluster() as cluster, PullConsumer("g", namesrv=cluster.namesrv, settings=FAST) as consumer:
        await consumer.assign((await consumer.queues("T"))[:1])
        assert await consumer.poll(timeout_s=0.01) == []
        await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE)  # the start offset is known from here on
        for n in range(10):
            cluster.broker.store("T", 0, b"%d" % n)
        await until(lambda: consumer.statistics().waiting == 10)
        assert len(await consumer.poll(7)) == 7
        assert len(await consumer.poll(7)) == 3


async def test_polled_messages_are_committed_by_the_next_poll_or_by_commit() -> None:
    """Not before: a program that fails in between receives them again."""
    async with running_cluster() as cluster:
        for n in range(4):
            cluster.broker.store("T", 0, b"%d" % n)
        queues = queues_of("T", 1)
        async with PullConsumer(
            "g", namesrv=cluster.namesrv, settings=FAST, consume_from=ConsumeFrom.FIRST, auto_commit=False
        ) as consumer:
            await consumer.assign(queues)
            assert len(await consumer.poll(2)) == 2
            assert cluster.broker.committed("g", "T") == {}
            await consumer.commit()
            assert cluster.broker.committed("g", "T") == {0: 2}
            assert len(await consumer.poll(2)) == 2
        assert cluster.broker.committed("g", "T") == {0: 2}


async def test_seek_drops_messages_that_were_read_ahead() -> None:
    """Reading continues at the offset."""
    async with running_cluster() as cluster:
        for n in range(9):
            cluster.broker.store("T", 0, b"%d" % n)
        (queue,) = queues_of("T", 1)
        async with PullConsumer(
            "g", namesrv=cluster.namesrv, settings=FAST, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            await consumer.assign([queue])
            assert [message.queue_offset for message in await consumer.poll(2)] == [0, 1]
            consumer.seek(queue, 7)
            assert [message.queue_offset for message in await consumer.poll(9)] == [7, 8]
            assert list(consumer.assignment) == [queue]
            await consumer.assign([])
            assert list(consumer.assignment) == []


async def test_a_pull_of_a_pull_consumer_has_its_subscription() -> None:
    """A broker without a heartbeat of the group serves it."""
    async with running_cluster() as cluster, PullConsumer("g", namesrv=cluster.namesrv, settings=FAST) as consumer:
        await consumer.subscribe("T", "a || b")
        (pull, *_) = await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE)
        header = pull.header(PullMessageHeader)
        assert header.sys_flag & PullSysFlag.SUBSCRIPTION
        assert (header.subscription, header.expression_type) == ("a || b", "TAG")
