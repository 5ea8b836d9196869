"""The page of replication: masters, copies, slaves, and brokers without a state."""

from collections.abc import AsyncIterator

import pytest

from skylarkmq.clients.console.cluster import Target
from skylarkmq.clients.console.options import ConsoleOptions
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.ha import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from skylarkmq.protocol.bodies.route import BrokerData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.console.conftest import Browser, opened, text_of
from tests.clients.peer import Peer, peers

COPIES = [
    HAConnectionInfo("10.0.0.3:5000", 40, 60_000, False, 0, 40),
    HAConnectionInfo("10.0.0.2:5000", 100, 0, True, 2048, 100),
]
EMPTY = ("No copy is connected.", "No slave is registered.")


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """Yield a name server that is also the broker `b`."""
    async with peers(1) as (peer,):
        yield peer


def set_state(peer: Peer, info: HARuntimeInfo, broker_id: int = 0) -> None:
    """Register the peer with this id, and let it report this state."""
    registered = ClusterInfo({"b": BrokerData("c", "b", {broker_id: peer.address})}, {"c": ["b"]})
    peer.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: RemotingCommand.response(body=registered.encode()))
    peer.on(RequestCode.GET_BROKER_HA_STATUS, lambda *_: RemotingCommand.response(body=info.encode()))


async def page_text(peer: Peer) -> str:
    async with opened(ConsoleOptions(Target(peer.address))) as browser:
        page = await browser.get("/replication")
        assert page.status_code == 200
        return text_of(page)


async def test_a_broker_without_replication_has_no_copies(browser: Browser) -> None:
    """Of this repository: a master without copies."""
    text = text_of(await browser.get("/replication"))
    assert "broker-a 127.0.0.1:" in text
    assert all(line in text for line in EMPTY)


async def test_a_master_has_its_copies(peer: Peer) -> None:
    """By address, with state and lag."""
    set_state(peer, HARuntimeInfo(True, 61_234, 1, COPIES))
    text = await page_text(peer)
    assert f"b {peer.address} 61,234 2 1" in text
    assert "b 10.0.0.2:5000 in sync 100 0 2,048 b 10.0.0.3:5000 behind 40 60,000 0" in text


async def test_a_slave_has_its_connection(peer: Peer) -> None:
    """Or shows that it knows no master."""
    client = HAClientInfo("10.0.0.1:10912", 7, 50, 1_700_000_000_123)
    set_state(peer, HARuntimeInfo(ha_client_runtime_info=client), broker_id=1)
    text = await page_text(peer)
    assert "No master is registered." in text
    assert f"b 1 {peer.address} 10.0.0.1:10912 50 7 2023-11-14 22:13:20.123" in text
    set_state(peer, HARuntimeInfo(), broker_id=1)
    assert f"b 1 {peer.address} no master 0 0 –" in await page_text(peer)


@pytest.mark.parametrize("broker_id", [0, 1])
async def test_a_broker_of_rocketmq_4_9_shows_the_reason(peer: Peer, broker_id: int) -> None:
    """The page is served."""
    set_state(peer, HARuntimeInfo(), broker_id)
    del peer.handlers[RequestCode.GET_BROKER_HA_STATUS]
    text = await page_text(peer)
    assert f"{peer.address} no figures" in text
    assert "REQUEST_CODE_NOT_SUPPORTED (3)" in text
