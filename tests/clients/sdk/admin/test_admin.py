"""Admin against the broker of this repository."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from skylarkmq import Admin, BrokerError, ConsumeFrom, Message, MessageExt, NoRoute, Producer, PushConsumer
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from tests.clients.peer import until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


async def test_topics_are_created_listed_and_deleted(broker: InProcessBroker) -> None:
    """On all brokers or on named ones; an unknown broker is an error."""
    async with Admin(namesrv=broker.namesrv) as admin:
        await admin.create_topic("A", queues=3)
        await admin.create_topic("B", queues=1, brokers=["broker-a"])
        assert {"A", "B"} <= set(await admin.topics())
        assert (len(await admin.queues("A")), len(await admin.queues("B"))) == (3, 1)
        with pytest.raises(NoRoute, match="missing"):
            await admin.create_topic("C", brokers=["missing"])
        await admin.delete_topic("A")
        assert "A" not in await admin.topics()


async def test_groups_are_created_listed_and_deleted(broker: InProcessBroker) -> None:
    """With their settings; members have their client ids, and a group without members is an error."""
    async with Admin(namesrv=broker.namesrv) as admin:
        await admin.create_group(SubscriptionGroupConfig("made", retry_max_times=3))
        assert (await admin.groups())["made"].retry_max_times == 3
        with pytest.raises(BrokerError):
            await admin.members("made")
        await admin.delete_group("made")
        assert "made" not in await admin.groups()


async def test_messages_are_found_by_key_id_and_time(broker: InProcessBroker) -> None:
    """Inflated, in the order of their store times, without other keys of the same hash."""
    begun = datetime.now(UTC) - timedelta(seconds=1)
    async with Admin(namesrv=broker.namesrv) as admin, Producer("p", namesrv=broker.namesrv) as producer:
        await admin.create_topic("Found", queues=2)
        await producer.send(Message("Found", b"0", keys=["same", "BB"]))
        sent = await producer.send(Message("Found", b"1" * 10_000, keys=["same", "BB"]))
        assert [m.body for m in await admin.messages_of_key("Found", "same")] == [b"0", b"1" * 10_000]
        assert await admin.messages_of_key("Found", "Aa") == []  # has the hash of BB
        assert [m.msg_id for m in await admin.messages_of_key("Found", sent.msg_id)] == [sent.msg_id]
        assert (await admin.message_of_id(sent.offset_msg_id)).msg_id == sent.msg_id
        until_then = datetime.now(UTC) + timedelta(seconds=1)
        assert len([m async for m in admin.messages_between("Found", begun, until_then)]) == 2
        assert [m async for m in admin.messages_between("Found", begun - timedelta(hours=1), begun)] == []
        earliest = [await admin.earliest(queue) for queue in await admin.queues("Found")]
        assert all(when is None or when >= begun for when in earliest)
        with pytest.raises(ValueError, match="hex digits"):
            await admin.message_of_id("not an id")


async def test_the_offsets_of_a_running_group_are_reset(broker: InProcessBroker) -> None:
    """To a time: its lag grows, and its members consume again."""
    seen: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        seen.append(message.body)

    begun = datetime.now(UTC) - timedelta(seconds=1)
    async with (
        Admin(namesrv=broker.namesrv) as admin,
        Producer("p", namesrv=broker.namesrv) as producer,
        PushConsumer("moved", namesrv=broker.namesrv, handler=handler, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        await admin.create_topic("Moved", queues=2)
        await consumer.subscribe("Moved")
        await asyncio.gather(*(producer.send(Message("Moved", b"%d" % n)) for n in range(10)))
        await until(lambda: len(seen) == 10)
        assert (await admin.members("moved")).connection_set[0].client_id == consumer.client.client_id
        assert set((await admin.reset_offsets("moved", "Moved", begun)).values()) == {0}
        await until(lambda: len(seen) == 20)
        queues = await admin.queues("Moved")
    async with Admin(namesrv=broker.namesrv) as admin:
        assert await admin.lag("moved", "Moved") == 0
        for queue in queues:
            await admin.set_offset("moved", queue, 1)
        assert await admin.lag("moved", "Moved") == 8
        assert sum(row.max_offset for row in (await admin.topic_offsets("Moved")).values()) == 10
