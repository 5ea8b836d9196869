"""What a broker asks of a client, and what it hears."""

import asyncio

from skylarkmq import LATER, ConsumeFrom, ConsumerSettings, Later, MessageExt, Producer, PushConsumer
from skylarkmq.protocol.bodies.client_state import (
    ConsumeDirectlyResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    ResetOffsets,
)
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
    ResetOffsetHeader,
)
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import until

FAST = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02, suspend_pause_s=0.01)
QUEUE = MessageQueue("T", "broker-a", 0)


class Reader:
    """A handler that keeps what it got."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.result: Later | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, message: MessageExt) -> Later | None:
        self.seen.append(message.body)
        await self.gate.wait()
        return self.result


def push(cluster: Cluster, reader: Reader, *, orderly: bool = False) -> PushConsumer:
    cluster.topics["T"] = 1
    for n in range(3):
        cluster.broker.store("T", 0, b"%d" % n)
    return PushConsumer(
        "g", namesrv=cluster.namesrv, handler=reader, orderly=orderly, consume_from=ConsumeFrom.FIRST, settings=FAST
    )


def reset(offset: int, group: str = "g") -> RemotingCommand:
    header = ResetOffsetHeader(group=group, topic="T", timestamp=0, is_force="true")
    return RemotingCommand.request(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, ResetOffsets({QUEUE: offset}).encode(), oneway=True
    )


async def test_a_reset_while_running_goes_on_at_the_new_offset() -> None:
    """220: what was consumed comes again from there, and the offset is the group's."""
    reader = Reader()
    async with running_cluster() as cluster, push(cluster, reader) as consumer:
        await consumer.subscribe("T")
        await cluster.wait_committed("g", "T", {0: 3})
        cluster.broker.connections[0].send(reset(1, "another group"))
        cluster.broker.connections[0].send(reset(1))
        await until(lambda: reader.seen == [b"0", b"1", b"2", b"1", b"2"])
        assert "1" in {
            request.ext_fields()["commitOffset"] for request in cluster.broker.asked(RequestCode.UPDATE_CONSUMER_OFFSET)
        }
        await cluster.wait_committed("g", "T", {0: 3})


async def test_a_reset_of_an_orderly_queue_waits_for_the_running_message() -> None:
    """Two handlers at once in one queue would be out of order."""
    reader = Reader()
    reader.gate.clear()
    async with running_cluster() as cluster, push(cluster, reader, orderly=True) as consumer:
        await consumer.subscribe("T")
        await until(lambda: reader.seen == [b"0"])
        cluster.broker.connections[0].send(reset(2))
        await cluster.broker.call(RemotingCommand.request(999))  # answered, so the reset has come
        assert reader.seen == [b"0"]
        reader.gate.set()
        await until(lambda: reader.seen == [b"0", b"2"])


async def test_positions_are_told_by_queue() -> None:
    """221."""
    async with running_cluster() as cluster, push(cluster, Reader()) as consumer:
        await consumer.subscribe("T")
        await cluster.wait_committed("g", "T", {0: 3})
        header = ConsumerStatusHeader(topic="T", group="g")
        answer = await cluster.broker.call(RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
        assert ConsumerStatus.decode(answer.body).message_queue_table == {QUEUE: 3}


async def test_running_info_has_settings_subscriptions_and_queues() -> None:
    """307, with stacks if they are wanted; a group that is not here is told by code 1."""
    reader = Reader()
    reader.gate.clear()
    async with running_cluster() as cluster, push(cluster, reader) as consumer:
        await consumer.subscribe("T", "a || b")
        await consumer.subscribe("T", "*")
        await until(lambda: len(reader.seen) == 3)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        header = ConsumerRunningInfoHeader(consumer_group="g", client_id="x", jstack_enable="true")
        info = ConsumerRunningInfo.decode((await cluster.broker.call(RemotingCommand.request(code, header))).body)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 0
        assert {entry.topic: entry.sub_string for entry in info.subscription_set} == {"T": "*", "%RETRY%g": "*"}
        assert (info.mq_table[QUEUE].cached_msg_count, info.mq_table[QUEUE].cached_msg_max_offset) == (3, 2)
        assert info.status_table["T"].pull_tps > 0
        assert info.mq_table[QUEUE].last_consume_timestamp >= info.mq_table[QUEUE].last_pull_timestamp > 0
        assert info.jstack is not None
        assert f"queue={QUEUE} running_s=" in info.jstack
        assert "await self.gate.wait()" in info.jstack  # where the handler is
        assert "thread MainThread" in info.jstack
        header = ConsumerRunningInfoHeader(consumer_group="other", client_id="x")
        answer = await cluster.broker.call(RemotingCommand.request(code, header))
        assert (answer.code, answer.remark) == (1, "The Consumer Group <other> not exist in this consumer")
        reader.gate.set()


async def test_a_message_is_consumed_directly() -> None:
    """309: the handler is called out of turn, and its end is the answer."""
    reader = Reader()
    async with running_cluster() as cluster, push(cluster, reader) as consumer:
        await consumer.subscribe("T")
        await until(lambda: len(reader.seen) == 3)
        header = ConsumeDirectlyHeader(consumer_group="g", client_id="x")
        code, record = RequestCode.CONSUME_MESSAGE_DIRECTLY, cluster.broker.queues["T", 0][1]
        for outcome, expected in ((None, "CR_SUCCESS"), (LATER, "CR_LATER")):
            reader.result = outcome
            answer = await cluster.broker.call(RemotingCommand.request(code, header, record))
            assert ConsumeDirectlyResult.decode(answer.body).consume_result == expected
        assert reader.seen[3:] == [b"1", b"1"]


async def test_what_a_handler_raises_is_told_too() -> None:
    """309: the remark names it."""

    async def handler(message: MessageExt) -> None:
        raise ValueError("broken")

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        async with PushConsumer("g", namesrv=cluster.namesrv, handler=handler, settings=FAST) as consumer:
            await consumer.subscribe("T")
            await cluster.broker.wait_asked(RequestCode.PULL_MESSAGE)
            cluster.broker.store("Other", 0, b"x")
            header = ConsumeDirectlyHeader(consumer_group="g", client_id="x")
            request = RemotingCommand.request(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, header, cluster.broker.queues["Other", 0][0]
            )
            result = ConsumeDirectlyResult.decode((await cluster.broker.call(request)).body)
            assert (result.consume_result, result.remark) == ("CR_THROW_EXCEPTION", "ValueError: broken")


async def test_a_producer_has_no_groups_to_tell_of() -> None:
    """307 and 309 of any group are answered, by code 1."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        await producer.publish_queues("T")
        await producer.client.brokers.get(cluster.broker.address)
        header = ConsumerRunningInfoHeader(consumer_group="g", client_id="x")
        answer = await cluster.broker.call(RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        assert answer.code == 1


async def test_an_operator_sees_how_handlers_fare() -> None:
    """307: times and rates by topic, failures of the hour, and the age of a lock."""
    outcomes = [None, LATER, None, None]

    async def handler(message: MessageExt) -> Later | None:
        return outcomes.pop(0) if outcomes else None

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        for n in range(3):
            cluster.broker.store("T", 0, b"%d" % n)
        async with PushConsumer(
            "g",
            namesrv=cluster.namesrv,
            handler=handler,
            orderly=True,
            consume_from=ConsumeFrom.FIRST,
            settings=FAST,
        ) as consumer:
            await consumer.subscribe("T")
            await cluster.wait_committed("g", "T", {0: 3})
            header = ConsumerRunningInfoHeader(consumer_group="g", client_id="x")
            request = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            info = ConsumerRunningInfo.decode((await cluster.broker.call(request)).body)
            status = info.status_table["T"]
            assert (status.consume_failed_msgs, status.consume_ok_tps, status.consume_failed_tps) == (1, 3, 1)
            assert 0 < status.consume_rt < 10_000
            assert info.status_table["%RETRY%g"].consume_ok_tps == 0
            assert info.mq_table[QUEUE].last_lock_timestamp >= consumer_start(info)
            assert info.jstack is None


def consumer_start(info: ConsumerRunningInfo) -> int:
    return int(info.properties["PROP_CONSUMER_START_TIMESTAMP"])
