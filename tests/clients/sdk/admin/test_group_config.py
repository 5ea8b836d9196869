"""The section `Admin.group_config`."""

from collections.abc import AsyncIterator, Iterator

import pytest

from skylarkmq import Admin, BrokerError, MessageExt, NoRoute, Producer, PushConsumer
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.peer import Peer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
async def admin(broker: InProcessBroker) -> AsyncIterator[Admin]:
    async with Admin(namesrv=broker.namesrv) as admin:
        yield admin


async def test_groups_are_set_and_deleted(broker: InProcessBroker, admin: Admin) -> None:
    """On one broker, one by one or several at once."""
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1}}
    config = SubscriptionGroupConfig("one", retry_max_times=3, group_retry_policy=policy)
    await admin.group_config.put(broker.address, config)
    await admin.group_config.put_all(broker.address, [SubscriptionGroupConfig("two"), SubscriptionGroupConfig("three")])
    groups = await admin.group_config.on_broker(broker.address)
    assert groups["one"] == config
    assert {"two", "three"} <= groups.keys()
    await admin.group_config.delete(broker.address, "one")
    await admin.group_config.delete(broker.address, "one", offsets=False)
    assert "one" not in await admin.group_config.on_broker(broker.address)


async def test_the_clients_of_a_group_are_shown(broker: InProcessBroker, admin: Admin) -> None:
    """Its members, what a member reports, and producers."""

    async def handler(_: MessageExt) -> None:
        pass

    await admin.create_topic("T", queues=1)
    async with (
        PushConsumer("members", namesrv=broker.namesrv, handler=handler, topics="T") as consumer,
        Producer("producers", namesrv=broker.namesrv) as producer,
    ):
        await producer.client.brokers.get(broker.address)  # its first request is a heartbeat
        member = consumer.client.client_id
        for address in (None, broker.address):
            found = await admin.group_config.consumers("members", address)
            assert [one.client_id for one in found.connection_set] == [member]
        info = await admin.group_config.running_info("members", member)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert info.jstack is None
        assert (await admin.group_config.running_info("members", member, jstack=True)).jstack
        producers = await admin.group_config.producers("producers", "T")
        assert [one.client_id for one in producers.connection_set] == [producer.client.client_id]


async def test_a_group_without_members_is_an_error(broker: InProcessBroker, admin: Admin) -> None:
    """NoRoute if it never had one; BrokerError with CONSUMER_NOT_ONLINE (206) if it has none now."""
    with pytest.raises(NoRoute, match="group missing: the group never had a member"):
        await admin.group_config.consumers("missing")
    with pytest.raises(NoRoute, match="missing"):
        await admin.group_config.running_info("missing", "id")
    await admin.create_topic("%RETRY%missing", queues=1)
    with pytest.raises(BrokerError) as error:
        await admin.group_config.consumers("missing")
    assert error.value.code == ResponseCode.CONSUMER_NOT_ONLINE


async def test_other_refusals_of_a_list_are_errors() -> None:
    """Only a broker that does not serve the request gets the groups one by one."""
    peer = Peer()
    await peer.listen()
    refusal = RemotingCommand.response(ResponseCode.NO_PERMISSION, "not you")
    peer.on(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, lambda *_: refusal)
    async with Admin(namesrv=peer.address) as admin:
        with pytest.raises(BrokerError, match="not you"):
            await admin.group_config.put_all(peer.address, [SubscriptionGroupConfig("g")])
    assert RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP not in [request.code for request in peer.requests]
    await peer.stop()
