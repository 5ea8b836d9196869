"""Skylark's SDK against Skylark's broker and RocketMQ's own brokers."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skylarkmq import (
    LATER,
    Admin,
    BrokerError,
    ConsumeFrom,
    ConsumerSettings,
    Later,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    Sql92,
    TransactionProducer,
    TransactionState,
)
from skylarkmq.clients.sdk.producing.transactions import LocalTransaction
from tests.harness.limits import PROCESS_LIMIT_S
from tests.interop.brokers import BrokerUnderTest, running_broker

pytestmark = pytest.mark.interop

FAST = ConsumerSettings(suspend_pause_s=0.05, commit_interval_s=0.1, rebalance_interval_s=0.5)
SETTINGS = {
    "messageDelayLevel": "1s 1s 1s 1s 2s 2s",
    "enablePropertyFilter": "true",
    "brokerFastFailureEnable": "false",  # machines that run tests are busy
    "recallMessageEnable": "true",
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
}


@pytest.fixture(scope="module", params=["skylark", "apache-4.9.7", "apache-5.3.3"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerUnderTest]:
    with running_broker(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker: BrokerUnderTest, request: pytest.FixtureRequest) -> str:
    name = f"SDK_{request.node.originalname}"[:60]
    broker.create_topic(name, 2)
    return name


async def wait_for(condition: Callable[[], object]) -> None:
    """Wait until the condition holds in this process."""

    async def holds() -> object:
        return condition()

    await wait_for_async(holds)


async def wait_for_async(condition: Callable[[], Awaitable[object]]) -> None:
    """Wait until a condition holds that needs requests to the broker."""
    async with asyncio.timeout(PROCESS_LIMIT_S):
        while not await condition():  # noqa: ASYNC110 - the state of another process has no event here
            await asyncio.sleep(0.02)


async def wait_for_queues(consumer: PushConsumer, topic: str, count: int = 2) -> None:
    """Wait until the consumer has `count` queues of the topic."""
    await wait_for(lambda: sum(queue.topic == topic for queue in consumer.statistics().queues) == count)


async def test_a_failed_message_is_retried_and_becomes_a_dead_letter(broker: BrokerUnderTest, topic: str) -> None:
    """CONSUMER_SEND_MSG_BACK (36): redelivered with its own topic and a retry count, then a dead letter."""
    seen: list[tuple[str, int]] = []

    async def handler(message: MessageExt) -> Later | None:
        seen.append((message.topic, message.reconsume_times))
        return LATER

    group = f"g-{topic}"
    settings = ConsumerSettings(max_reconsume_times=2, commit_interval_s=0.1)
    async with (
        Producer("p", namesrv=broker.namesrv) as producer,
        PushConsumer(
            group, namesrv=broker.namesrv, handler=handler, consume_from=ConsumeFrom.FIRST, settings=settings
        ) as consumer,
    ):
        await consumer.subscribe(topic)
        await wait_for_queues(consumer, topic)
        await producer.send(Message(topic, b"x", keys=["k"]))
        await wait_for(lambda: len(seen) == 3)
        assert seen == [(topic, 0), (topic, 1), (topic, 2)]
        dead = await dead_letters(broker, group)
        assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"x", topic)


async def dead_letters(broker: BrokerUnderTest, group: str) -> MessageExt:
    async with Admin(namesrv=broker.namesrv) as admin:
        topic = f"%DLQ%{group}"

        async def is_there() -> bool:
            return topic in await admin.topics()

        await wait_for_async(is_there)
        async with PullConsumer("dead-reader", namesrv=broker.namesrv) as reader:
            (queue,) = await reader.queues(topic)
            await reader.assign([queue])
            reader.seek(queue, 0)
            (message,) = await reader.poll(timeout_s=20)
            return message


async def test_orderly_members_keep_the_order_of_each_queue(broker: BrokerUnderTest, topic: str) -> None:
    """Also while a member joins and leaves: no message is overtaken or delivered twice."""
    order: defaultdict[int, list[int]] = defaultdict(list)
    tried: Counter[int] = Counter()

    async def handler(message: MessageExt) -> Later | None:
        number = int(message.body)
        tried[number] += 1
        if number % 10 == 0 and tried[number] == 1:
            return LATER
        order[message.queue_id].append(number)
        return None

    def member() -> PushConsumer:
        return PushConsumer(
            f"g-{topic}",
            namesrv=broker.namesrv,
            handler=handler,
            orderly=True,
            consume_from=ConsumeFrom.FIRST,
            settings=FAST,
        )

    async with Producer("p", namesrv=broker.namesrv) as producer, member() as first:
        await first.subscribe(topic)
        await wait_for_queues(first, topic)
        queues = await producer.publish_queues(topic)
        for n in range(40):
            await producer.send(Message(topic, b"%d" % n), queue=queues[n % 2])
        await wait_for(lambda: sum(map(len, order.values())) == 40)
        async with member() as second:
            await second.subscribe(topic)
            await wait_for_queues(second, topic, 1)
            for n in range(40, 80):
                await producer.send(Message(topic, b"%d" % n), queue=queues[n % 2])
            await wait_for(lambda: sum(map(len, order.values())) == 80)
        await wait_for_queues(first, topic)
    assert dict(order) == {queues[0].queue_id: list(range(0, 80, 2)), queues[1].queue_id: list(range(1, 80, 2))}


async def test_every_broadcasting_member_receives_every_message(
    broker: BrokerUnderTest, topic: str, tmp_path: Path
) -> None:
    """Each member receives every message."""
    seen: defaultdict[str, set[bytes]] = defaultdict(set)

    def member(name: str) -> PushConsumer:
        async def handler(message: MessageExt) -> None:
            seen[name].add(message.body)

        return PushConsumer(
            f"g-{topic}",
            namesrv=broker.namesrv,
            handler=handler,
            broadcast=True,
            offsets_path=tmp_path / name,
            consume_from=ConsumeFrom.FIRST,
        )

    async with Producer("p", namesrv=broker.namesrv) as producer, member("a") as first, member("b") as second:
        for consumer in (first, second):
            await consumer.subscribe(topic)
            await wait_for_queues(consumer, topic)
        for n in range(20):
            await producer.send(Message(topic, b"%d" % n))
        await wait_for(lambda: len(seen["a"]) == len(seen["b"]) == 20)


async def test_messages_are_delayed_by_level(broker: BrokerUnderTest, topic: str) -> None:
    """A message with a delay level is not delivered early."""
    async with Producer("p", namesrv=broker.namesrv) as producer, PullConsumer("g", namesrv=broker.namesrv) as reader:
        await reader.assign(await reader.queues(topic))
        for queue in reader.assignment:
            reader.seek(queue, 0)
        await producer.send(Message(topic, b"later"), delay_level=1)
        (message,) = await reader.poll(timeout_s=20)
        assert message.body == b"later"
        assert message.store_timestamp - message.born_timestamp >= 990


async def test_timer_messages_are_delivered_at_their_time(
    broker: BrokerUnderTest, topic: str, request: pytest.FixtureRequest
) -> None:
    """Timer messages are not delivered early. 4.9 has no timer messages, and delivers them at once."""
    waits_ms = (0, 0) if "4.9" in request.node.callspec.params["broker"] else (1900, 2900)
    async with Producer("p", namesrv=broker.namesrv) as producer, PullConsumer("g", namesrv=broker.namesrv) as reader:
        await reader.assign(await reader.queues(topic))
        for queue in reader.assignment:
            reader.seek(queue, 0)
        await producer.send(Message(topic, b"delay"), delay=timedelta(seconds=2))
        await producer.send(Message(topic, b"at"), deliver_at=datetime.now(UTC) + timedelta(seconds=3))
        seen: list[MessageExt] = []
        async with asyncio.timeout(PROCESS_LIMIT_S):
            while len(seen) < 2:
                seen += await reader.poll(timeout_s=1)
        seen.sort(key=lambda message: message.born_timestamp)
        assert [message.body for message in seen] == [b"delay", b"at"]
        delays_ms = [message.store_timestamp - message.born_timestamp for message in seen]
        assert all(delay >= wait for delay, wait in zip(delays_ms, waits_ms, strict=True)), delays_ms


async def test_a_timer_message_is_recalled(broker: BrokerUnderTest, topic: str, request: pytest.FixtureRequest) -> None:
    """A recalled message is not delivered, another one is. 4.9 returns no recall handle."""
    async with Producer("p", namesrv=broker.namesrv) as producer, PullConsumer("g", namesrv=broker.namesrv) as reader:
        await reader.assign(await reader.queues(topic))
        for queue in reader.assignment:
            reader.seek(queue, 0)
        recalled = await producer.send(Message(topic, b"gone"), delay=timedelta(seconds=3))
        assert (await producer.send(Message(topic, b"plain"))).recall_handle is None
        if "4.9" in request.node.callspec.params["broker"]:
            assert recalled.recall_handle is None
            return
        assert recalled.recall_handle is not None
        await producer.send(Message(topic, b"kept"), delay=timedelta(seconds=3))
        assert await producer.recall(topic, recalled.recall_handle) == recalled.msg_id
        seen: list[bytes] = []
        async with asyncio.timeout(PROCESS_LIMIT_S):
            while len(seen) < 2:
                seen += [message.body for message in await reader.poll(timeout_s=1)]
        seen += [message.body for message in await reader.poll(timeout_s=1)]
        assert seen == [b"plain", b"kept"]
        with pytest.raises(BrokerError):
            await producer.recall(topic, recalled.recall_handle)  # its delivery time has passed


async def test_transactions_commit_and_roll_back(broker: BrokerUnderTest, topic: str) -> None:
    """Committed messages arrive, rolled-back ones do not; an unknown result is decided by a transaction check."""
    checked_ids: list[str] = []

    async def checker(message: MessageExt) -> TransactionState:
        checked_ids.append(message.msg_id)
        return TransactionState.COMMIT if message.body == b"checked" else TransactionState.ROLLBACK

    def local(state: TransactionState) -> LocalTransaction:
        async def end(_: str) -> TransactionState:
            return state

        return end

    commit, rollback, unknown = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
    async with (
        TransactionProducer(f"tx-{topic}", namesrv=broker.namesrv, checker=checker) as producer,
        PullConsumer("g", namesrv=broker.namesrv) as reader,
    ):
        await reader.assign(await reader.queues(topic))
        for queue in reader.assignment:
            reader.seek(queue, 0)
        for body, state in ((b"kept", commit), (b"gone", rollback), (b"checked", unknown), (b"forgotten", unknown)):
            result = await producer.send_in_transaction(Message(topic, body), local(state))
            assert result.state is state
        seen: list[bytes] = []
        async with asyncio.timeout(PROCESS_LIMIT_S):
            while len(checked_ids) < 2 or len(set(seen)) < 2:
                seen += [message.body for message in await reader.poll(timeout_s=1)]
        seen += [message.body for message in await reader.poll(timeout_s=2)]
        assert set(seen) == {b"checked", b"kept"}  # 5.3.3 may check a transaction twice, and commit it twice


async def test_a_sql92_subscription_selects_by_properties(broker: BrokerUnderTest, topic: str) -> None:
    """The broker evaluates a SQL92 subscription."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    async with (
        Producer("p", namesrv=broker.namesrv) as producer,
        PushConsumer(f"g-{topic}", namesrv=broker.namesrv, handler=handler, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        await consumer.subscribe(topic, Sql92("a > 5 AND b = 'x'"))
        await wait_for_queues(consumer, topic)
        for n in range(10):
            await producer.send(Message(topic, b"%d" % n, properties={"a": str(n), "b": "xy"[n % 2]}))
        await wait_for(lambda: sorted(seen) == [b"6", b"8"])


async def test_a_request_gets_its_reply(broker: BrokerUnderTest, topic: str) -> None:
    """The reply reaches the requester through the broker."""
    replies: list[asyncio.Task[None]] = []

    async with (
        Producer("p-request", namesrv=broker.namesrv) as producer,
        PushConsumer(f"g-{topic}", namesrv=broker.namesrv, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        await consumer.subscribe(topic)
        await wait_for_queues(consumer, topic)

        async def serve() -> None:
            async for message in consumer:
                await consumer.reply(message, b"re " + message.body)
                return

        replies.append(asyncio.create_task(serve()))
        reply = await producer.request(Message(topic, b"ping"), timeout_s=15)
        assert reply.body == b"re ping"
        await asyncio.gather(*replies)


async def test_an_admin_client_reads_state_and_resets_offsets(broker: BrokerUnderTest, topic: str) -> None:
    """Topics, offsets, messages by key, id and time; an offset reset while a consumer runs."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    group = f"g-{topic}"
    begun = datetime.now(UTC) - timedelta(seconds=5)
    async with (
        Admin(namesrv=broker.namesrv) as admin,
        Producer("p", namesrv=broker.namesrv) as producer,
        PushConsumer(group, namesrv=broker.namesrv, handler=handler, settings=FAST) as consumer,
    ):
        await consumer.subscribe(topic)
        await wait_for_queues(consumer, topic)
        sent = [await producer.send(Message(topic, b"%d" % n, keys=[f"key-{n}"])) for n in range(4)]
        await wait_for(lambda: len(seen) == 4)
        assert topic in await admin.topics()
        offsets = await admin.topic_offsets(topic)
        assert sum(row.max_offset for row in offsets.values()) == 4
        assert (await admin.message_of_id(sent[1].offset_msg_id)).body == b"1"
        # RocketMQ indexes a message some time after it is stored.
        await wait_for_async(lambda: admin.messages_of_key(topic, "key-2"))
        assert [message.body for message in await admin.messages_of_key(topic, "key-2")] == [b"2"]
        between = [m.body async for m in admin.messages_between(topic, begun, datetime.now(UTC) + timedelta(days=1))]
        assert sorted(between) == [b"0", b"1", b"2", b"3"]

        async def caught_up() -> bool:
            return await admin.lag(group, topic) == 0

        await wait_for_async(caught_up)
        assert [member.client_id for member in (await admin.members(group)).connection_set] == [
            consumer.client.client_id
        ]
        assert group in await admin.groups()
        reset_offsets = await admin.reset_offsets(group, topic, begun)
        assert sum(reset_offsets.values()) == 0
        await wait_for(lambda: len(seen) == 8)
