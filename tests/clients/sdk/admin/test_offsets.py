"""The section `Admin.offsets`."""

from collections.abc import AsyncIterator, Iterator

import pytest

from skylarkmq import Admin, BrokerError, Message, MessageQueue, NoRoute, Producer
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.admin.offsets import TO_END, Rollback
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import ResponseCode

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
async def admin(broker: InProcessBroker) -> AsyncIterator[Admin]:
    """Yield an Admin; topic T has at least one message in each of two queues, and group g is at the end of both."""
    async with Admin(namesrv=broker.namesrv) as admin, Producer("p", namesrv=broker.namesrv) as producer:
        await admin.create_topic("T", queues=2)
        for group in ("g", "copy"):
            await admin.create_group(SubscriptionGroupConfig(group))
        for _ in range(2):
            await producer.send(Message("T", b"1"))
        await admin.offsets.reset("g", "T", TO_END)
        yield admin


async def end_of(admin: Admin) -> dict[MessageQueue, int]:
    return {queue: row.max_offset for queue, row in (await admin.topic_offsets("T")).items()}


async def test_a_group_is_moved(admin: Admin) -> None:
    """To a time or to the end; its progress shows it."""
    end = await end_of(admin)
    assert await admin.offsets.reset("g", "T", 0) == dict.fromkeys(QUEUES, 0)
    assert (await admin.offsets.progress("g", "T")).diff == sum(end.values())
    assert await admin.offsets.reset("g", "T", TO_END, route_of="DefaultCluster") == end
    assert (await admin.offsets.progress("g", "T")).diff == 0


async def test_one_queue_is_moved(broker: InProcessBroker, admin: Admin) -> None:
    """An offset outside of the queue is refused."""
    await admin.offsets.reset_queue(broker.address, "g", "T", 1, 0)
    table = (await admin.offsets.progress("g", "T")).offset_table
    assert table[QUEUES[1]].consumer_offset == 0
    assert table[QUEUES[0]].consumer_offset > 0
    with pytest.raises(BrokerError):
        await admin.offsets.reset_queue(broker.address, "g", "T", 1, 10**9)


async def test_after_a_reset_commits_wait_for_a_member(broker: InProcessBroker, admin: Admin) -> None:
    """The broker ignores `set_offset` until a member pulls, as RocketMQ 5.3; `reset_queue` moves the group again."""
    await admin.create_group(SubscriptionGroupConfig("reset"))
    await admin.offsets.reset("reset", "T", 0)
    await admin.set_offset("reset", QUEUES[1], 1)
    assert (await admin.group_offsets("reset", "T"))[QUEUES[1]].consumer_offset == 0
    await admin.offsets.reset_queue(broker.address, "reset", "T", 1, 1)
    assert (await admin.group_offsets("reset", "T"))[QUEUES[1]].consumer_offset == 1


async def test_offsets_of_times(broker: InProcessBroker, admin: Admin) -> None:
    """The first message, and the end."""
    assert await admin.offsets.at_time(broker.address, "T", 0, 0) == 0
    assert await admin.offsets.at_time(broker.address, "T", 0, TO_END) == (await end_of(admin))[QUEUES[0]]


async def test_a_group_is_rolled_back(admin: Admin) -> None:
    """Queue by queue. Without force no queue is moved forward."""
    end = await end_of(admin)
    await admin.create_group(SubscriptionGroupConfig("back"))
    for queue in QUEUES:
        await admin.set_offset("back", queue, end[queue])
    assert set(await admin.offsets.roll_back("back", "T", 0)) == {
        Rollback(queue, end[queue], end[queue], 0, 0) for queue in QUEUES
    }
    assert set(await admin.offsets.roll_back("back", "T", TO_END, force=False)) == {
        Rollback(queue, end[queue], 0, end[queue], 0) for queue in QUEUES
    }
    assert (await admin.offsets.progress("back", "T")).diff == sum(end.values())
    assert set(await admin.offsets.roll_back("back", "T", TO_END, route_of="DefaultCluster")) == {
        Rollback(queue, end[queue], 0, end[queue], end[queue]) for queue in QUEUES
    }


async def test_a_group_without_offsets_counts_as_one_at_the_start(admin: Admin) -> None:
    """So a rollback to the end moves it forward."""
    await admin.create_group(SubscriptionGroupConfig("new"))
    end = await end_of(admin)
    rows = await admin.offsets.roll_back("new", "T", TO_END)
    assert rows == [Rollback(queue, end[queue], 0, end[queue], end[queue]) for queue in QUEUES]


async def test_offsets_are_copied(admin: Admin) -> None:
    """All offsets of the group on the brokers of the topic; the number of them is returned."""
    await admin.create_topic("%RETRY%g", queues=1)
    assert await admin.offsets.clone("g", "copy", "T") == len(QUEUES)
    copied = (await admin.offsets.progress("copy", "T")).offset_table
    assert {queue: row.consumer_offset for queue, row in copied.items()} == await end_of(admin)


async def test_unknown_groups_and_topics_are_errors(admin: Admin) -> None:
    """NoRoute without a route; the broker's refusal otherwise."""
    with pytest.raises(NoRoute, match="missing"):
        await admin.offsets.progress("missing")
    with pytest.raises(NoRoute, match="Unknown"):
        await admin.offsets.progress("missing", "Unknown")
    assert (await admin.offsets.progress("missing", "%LMQ%light", route_of="DefaultCluster")).offset_table == {}
    with pytest.raises(NoRoute, match="Unknown"):
        await admin.offsets.reset("g", "Unknown", 0)
    with pytest.raises(BrokerError) as error:
        await admin.offsets.reset("missing", "T", 0)
    assert error.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
