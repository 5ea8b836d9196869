"""Requests of a broker to a client, and the responses."""

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
    """A handler that keeps its messages."""

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


async def test_a_reset_of_a_running_consumer_continues_at_the_new_offset() -> None:
    """RESET_CONSUMER_CLIENT_OFFSET (220): messages from there are delivered again, and the offset is committed."""
    reader = Reader()
    async with running_cluster() as cluster, push(cluster, reader) as consumer:
        await consumer.subscribe("T")
        await cluster.wait_committed("g", "T", {0: 3})
        cluster.broker.connections[0].send(reset(1, "another group"))
        cluster.broker.connections[0].send(reset(1))
        await until(lambda: reader.seen == [b"0", b"1", b"2", b"1", b"2"])
        assert "1" in {
            request.ext_fields()["commitOffset"]
            for request in cluster.broker.requests_of(RequestCode.UPDATE_CONSUMER_OFFSET)
        }
        await cluster.wait_committed("g", "T", {0: 3})


async def test_a_reset_of_an_orderly_queue_waits_for_the_running_message() -> None:
    """Two handlers at once would break the order of the queue."""
    reader = Reader()
    reader.gate.clear()
    async with running_cluster() as cluster, push(cluster, reader, orderly=True) as consumer:
        await consumer.subscribe("T")
        await until(lambda: reader.seen == [b"0"])
        cluster.broker.connections[0].send(reset(2))
        await cluster.broker.call(RemotingCommand.request(999))  # its response shows that the reset has arrived
        assert reader.seen == [b"0"]
        reader.gate.set()
        await until(lambda: reader.seen == [b"0", b"2"])


async def test_positions_are_returned_by_queue() -> None:
    """GET_CONSUMER_STATUS_FROM_CLIENT (221)."""
    async with running_cluster() as cluster, push(cluster, Reader()) as consumer:
        await consumer.subscribe("T")
        await cluster.wait_committed("g", "T", {0: 3})
        header = ConsumerStatusHeader(topic="T", group="g")
        answer = await cluster.broker.call(RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
        assert ConsumerStatus.decode(answer.body).message_queue_table == {QUEUE: 3}


async def test_running_info_has_settings_subscriptions_and_queues() -> None:
    """GET_CONSUMER_RUNNING_INFO (307), with stacks if requested; SYSTEM_ERROR (1) for an unknown group."""
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
    """CONSUME_MESSAGE_DIRECTLY (309): the handler is called out of order, and its result is the response."""
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


async def test_an_exception_of_a_handler_is_in_the_response() -> None:
    """CONSUME_MESSAGE_DIRECTLY (309): the remark contains it."""

    async def handler(message: MessageExt) -> None:
        raise ValueError("broken")

    async with running_cluster() as cluster:
        cluster.topics["T"] = 1
        async with PushConsumer("g", namesrv=cluster.namesrv, handler=handler, settings=FAST) as consumer:
            await consumer.subscribe("T")
            await cluster.broker.wait_requests(RequestCode.PULL_MESSAGE)
            cluster.broker.store("Other", 0, b"x")
            header = ConsumeDirectlyHeader(consumer_group="g", client_id="x")
            request = RemotingCommand.request(
                RequestCode.CONSUME_MESSAGE_DIRECTLY, header, cluster.broker.queues["Other", 0][0]
            )
            result = ConsumeDirectlyResult.decode((await cluster.broker.call(request)).body)
            assert (result.consume_result, result.remark) == ("CR_THROW_EXCEPTION", "ValueError: broken")


async def test_a_producer_refuses_requests_to_consumers() -> None:
    """307 and 309 get SYSTEM_ERROR (1) for any group."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        await producer.publish_queues("T")
        await producer.client.brokers.get(cluster.broker.address)
        header = ConsumerRunningInfoHeader(consumer_group="g", client_id="x")
        answer = await cluster.broker.call(RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))
        assert answer.code == 1


async def test_running_info_has_times_and_rates() -> None:
    """By topic; with the failures of the last hour and the age of a lock."""
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
