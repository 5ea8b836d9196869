"""`Admin.brokers` and `Admin.name_servers` against the broker of this repository."""

from collections.abc import Iterator

import pytest

from skylarkmq import Admin, BrokerError, InvalidArgument, InvalidResponse, Message, NoRoute, Producer
from skylarkmq.broker.app.in_process import InProcessBroker, running
from skylarkmq.clients.sdk.admin.properties import decode_properties, encode_properties
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.peer import Peer


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


async def test_addresses_of_a_cluster_are_found(broker: InProcessBroker) -> None:
    """By broker name; an unknown cluster is an error."""
    async with Admin(namesrv=broker.namesrv) as admin:
        assert await admin.masters("DefaultCluster") == {"broker-a": broker.address}
        assert await admin.broker_addresses("DefaultCluster") == {"broker-a": {0: broker.address}}
        with pytest.raises(NoRoute, match=r"no cluster Nowhere is registered. Registered: DefaultCluster\."):
            await admin.masters("Nowhere")


async def test_state_and_settings_of_a_broker_are_read(broker: InProcessBroker) -> None:
    """By RocketMQ's names; a change is visible at once."""
    async with Admin(namesrv=broker.namesrv) as admin:
        assert (await admin.brokers.runtime_info(broker.address))["brokerVersionDesc"] == "V5_3_3"
        await admin.brokers.update_config(broker.address, {"flushIntervalCommitLog": "700"})
        assert (await admin.brokers.config(broker.address))["flushIntervalCommitLog"] == "700"


async def test_producers_and_counters_of_a_broker_are_read(broker: InProcessBroker) -> None:
    """A counter that does not exist is an error."""
    async with Admin(namesrv=broker.namesrv) as admin, Producer("shop", namesrv=broker.namesrv) as producer:
        await admin.create_topic("Counted")
        await producer.send(Message("Counted", b"x"))
        assert "shop" in (await admin.brokers.producers(broker.address)).data
        assert (await admin.brokers.consume_stats(broker.address)).broker_addr
        with pytest.raises(BrokerError):
            await admin.brokers.stats(broker.address, "TOPIC_PUT_NUMS", "Missing")


async def test_values_of_a_name_server_are_set_and_deleted(broker: InProcessBroker) -> None:
    """A missing key is an error."""
    async with Admin(namesrv=broker.namesrv) as admin:
        await admin.name_servers.put("ORDER_TOPIC_CONFIG", "Orders", "broker-a:4")
        assert await admin.name_servers.get("ORDER_TOPIC_CONFIG", "Orders") == "broker-a:4"
        await admin.name_servers.delete("ORDER_TOPIC_CONFIG", "Orders")
        with pytest.raises(BrokerError, match="QUERY_NOT_FOUND"):
            await admin.name_servers.get("ORDER_TOPIC_CONFIG", "Orders")


async def test_the_write_permission_of_a_broker_is_wiped_and_added(broker: InProcessBroker) -> None:
    """Of all its topics."""
    async with Admin(namesrv=broker.namesrv) as admin:
        wiped = await admin.name_servers.wipe_write_permission(broker.namesrv, "broker-a")
        assert wiped == await admin.name_servers.add_write_permission(broker.namesrv, "broker-a") > 0


async def test_settings_that_are_no_text_are_an_invalid_response(broker: InProcessBroker) -> None:
    """Not an error of Python."""
    peer = Peer()
    await peer.listen()
    peer.on(RequestCode.GET_BROKER_CONFIG, lambda *_: RemotingCommand.response(body=b"\xff\xfe"))
    async with Admin(namesrv=broker.namesrv) as admin:
        with pytest.raises(InvalidResponse, match="GET_BROKER_CONFIG"):
            await admin.brokers.config(peer.address)
    await peer.stop()


def test_settings_are_lines_of_text() -> None:
    """Values may contain anything but line breaks."""
    settings = {"a": "x=y: \\z", "b": ""}
    assert encode_properties(settings) == b"a=x=y: \\z\nb=\n"
    assert decode_properties(b"# a comment\n" + encode_properties(settings)) == settings


@pytest.mark.parametrize("settings", [{"": "x"}, {"a=b": "x"}, {"a": "x\ny=1"}, {"a\r": "x"}, {"a": 1}])
def test_a_setting_of_several_lines_is_not_sent(settings: dict[str, str]) -> None:
    """It would be another setting."""
    with pytest.raises(InvalidArgument):
        encode_properties(settings)
