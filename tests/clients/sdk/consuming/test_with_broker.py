"""Consumers against a broker in this process: acknowledgments, redelivery, compressed bodies, callbacks."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue

import pytest

from skylarkmq import (
    ConsumeFrom,
    ConsumerSettings,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    blocking,
)
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.messages.compression import (
    DEFAULT_LEVELS,
    CodecMissing,
    Compression,
    check_codec,
    compress,
    compression_flags,
)
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers.send import SendMessageV2Header
from tests.clients.peer import until
from tests.harness.limits import WAIT_LIMIT_S

FAST = ConsumerSettings(rebalance_interval_s=0.1, commit_interval_s=0.1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker"), {"messageDelayLevel": "1s 1s 1s"}) as broker:
        yield broker


async def test_a_loop_processes_each_message_once(broker: InProcessBroker) -> None:
    """A failed message is redelivered, acknowledged ones are not, also not after a restart of the consumer."""
    seen: list[tuple[bytes, int]] = []

    def consumer() -> PushConsumer:
        return PushConsumer(
            "loops", namesrv=broker.namesrv, topics="Loops", consume_from=ConsumeFrom.FIRST, settings=FAST
        )

    async with Producer("p", namesrv=broker.namesrv) as producer:
        await producer.send_batch([Message("Loops", b"%d" % n) for n in range(4)])
    for stop_at in (2, 5):
        async with consumer() as running_consumer:
            async for message in running_consumer:
                with suppress(ValueError):
                    async with message.process(delay=timedelta(seconds=1)):
                        seen.append((message.body, message.reconsume_times))
                        if message.body == b"1" and not message.reconsume_times:
                            raise ValueError("not yet")
                if len(seen) == stop_at:
                    break
    assert sorted(seen) == [(b"0", 0), (b"1", 0), (b"1", 1), (b"2", 0), (b"3", 0)]


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd"])
async def test_bodies_of_every_codec_are_delivered_inflated(broker: InProcessBroker, kind: Compression) -> None:
    """As another client stored them."""
    try:
        check_codec(kind)
    except CodecMissing as error:
        pytest.skip(str(error))
    topic, body = f"Packed-{kind}", json.dumps(["x"] * 5000).encode()
    async with (
        Producer("p", namesrv=broker.namesrv) as producer,
        PullConsumer(
            f"g-{kind}", namesrv=broker.namesrv, deserializer=json.loads, consume_from=ConsumeFrom.FIRST, settings=FAST
        ) as consumer,
    ):
        first = await producer.send(Message(topic, b"[]"))
        header = SendMessageV2Header(
            producer_group="p",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=first.queue.queue_id,
            sys_flag=compression_flags(kind),
            born_timestamp=1,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode="false",
            batch="false",
        )
        packed = compress(body, kind, DEFAULT_LEVELS[kind])
        await producer.client.request(broker.address, RequestCode.SEND_MESSAGE_V2, header, packed)
        await consumer.assign([first.queue])
        values: list[object] = []
        while len(values) < 2:
            values += [message.value for message in await consumer.poll(timeout_s=10)]
        assert values == [[], ["x"] * 5000]


async def test_members_are_called_as_queues_change_hands(broker: InProcessBroker) -> None:
    """As the callbacks report it, two members share the queues, and one that leaves has none."""
    owned: dict[str, set[MessageQueue]] = {"a": set(), "b": set()}

    def member(name: str) -> PullConsumer:
        async def assigned(queues: Sequence[MessageQueue]) -> None:
            owned[name].update(queues)

        async def revoked(queues: Sequence[MessageQueue]) -> None:
            owned[name].difference_update(queues)

        return PullConsumer(
            "owners",
            namesrv=broker.namesrv,
            topics=["Owned"],
            on_assigned=assigned,
            on_revoked=revoked,
            settings=FAST,
        )

    async with Producer("p", namesrv=broker.namesrv) as producer:
        await producer.send(Message("Owned", b"x"))
    async with member("a") as first:
        async with member("b") as second:
            await until(lambda: len(owned["a"]) == len(owned["b"]) == 2)
            await until(lambda: owned == {"a": set(first.assignment), "b": set(second.assignment)})
        await until(lambda: (len(owned["a"]), len(owned["b"])) == (4, 0))
    assert owned == {"a": set(), "b": set()}


def test_a_blocking_loop_acknowledges_messages(broker: InProcessBroker) -> None:
    """`process`, `ack`, `nack`, and what they raise, are those of the asyncio classes."""
    with (
        blocking.Producer("p", namesrv=broker.namesrv) as producer,
        blocking.PushConsumer(
            "shells",
            namesrv=broker.namesrv,
            topics="Shells",
            deserializer=int,
            consume_from=ConsumeFrom.FIRST,
            settings=FAST,
        ) as consumer,
    ):
        producer.send_batch([Message("Shells", b"%d" % n) for n in range(4)], message_group="one")
        seen: list[tuple[int, int]] = []
        for message in consumer:
            seen.append((message.value, message.reconsume_times))
            if message.value == 0:
                message.ack()
            elif message.value == 1 and not message.reconsume_times:
                message.nack(timedelta(seconds=1))
            elif message.value == 2 and not message.reconsume_times:
                with suppress(ValueError), message.process():
                    raise ValueError("not yet")
            else:
                with message.process():
                    assert not message.is_acknowledged
            assert message.is_acknowledged
            if len(seen) == 6:
                break
        consumer.commit()
        (queue,) = (queue for queue in consumer.assignment if consumer.position(queue) == 4)
        assert consumer.committed(queue) == 4
    assert sorted(seen) == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]


def test_blocking_callbacks_and_handlers_run_in_threads(broker: InProcessBroker) -> None:
    """They may call the blocking methods of their consumer."""
    seen: SimpleQueue[bytes] = SimpleQueue()
    names: set[str] = set()

    def handle(message: ReceivedMessage) -> None:
        names.add(threading.current_thread().name)
        seen.put(message.body)

    def assigned(queues: Sequence[MessageQueue]) -> None:
        names.add(threading.current_thread().name)
        for queue in queues:
            reader.seek_to_begin(queue)

    reader = blocking.PullConsumer(
        "seekers", namesrv=broker.namesrv, topics="Threads", on_assigned=assigned, settings=FAST
    )
    with (
        blocking.Producer("p", namesrv=broker.namesrv) as producer,
        blocking.PushConsumer(
            "threads",
            namesrv=broker.namesrv,
            handler=handle,
            topics="Threads",
            consume_from=ConsumeFrom.FIRST,
            settings=FAST,
        ),
    ):
        producer.send(Message("Threads", b"x"))
        assert seen.get(timeout=WAIT_LIMIT_S) == b"x"
        with reader:
            assert [message.body for message in reader.poll(timeout_s=20)] == [b"x"]
    assert "skylark-clients" not in names
    assert len(names) >= 2
