"""The connections of a client."""

import asyncio

import pytest

from skylarkmq.clients.sdk.base.errors import ClientClosed, ConnectFailed
from skylarkmq.clients.sdk.base.settings import ClientSettings
from skylarkmq.clients.sdk.connection.connection import Connection
from skylarkmq.clients.sdk.connection.connection_pool import Backoff, Connections
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.peer import Peer, peers, until

SETTINGS = ClientSettings(backoff_min_s=0.001, backoff_max_s=0.002)


async def test_concurrent_calls_share_one_connection() -> None:
    """Also calls while it is being opened."""
    async with peers(1) as (peer,):
        connections = Connections(SETTINGS, {})
        got = await asyncio.gather(*(connections.get(peer.address) for _ in range(50)))
        assert len(set(map(id, got))) == 1
        assert await connections.get(peer.address) is got[0]
        await connections.close()


async def test_a_broken_connection_is_opened_again() -> None:
    """The next call gets a new one."""
    async with peers(1) as (peer,):
        connections = Connections(SETTINGS, {})
        first = await connections.get(peer.address)
        await until(lambda: peer.connections)
        peer.connections[0].transport.abort()
        await until(lambda: first.closed)
        second = await connections.get(peer.address)
        assert second is not first
        await connections.close()


async def test_the_greeting_is_the_first_request() -> None:
    """Requests of that time follow it."""
    async with peers(1) as (peer,):

        async def greet(connection: Connection) -> None:
            await connection.invoke(RemotingCommand.request(RequestCode.HEART_BEAT), 5.0)

        async def invoke() -> None:
            connection = await connections.get(peer.address)
            await connection.invoke(RemotingCommand.request(28), 5.0)

        connections = Connections(SETTINGS, {}, greet)
        await asyncio.gather(invoke(), invoke())
        assert [request.code for request in peer.requests] == [RequestCode.HEART_BEAT, 28, 28]
        await connections.close()


async def test_a_failed_connect_names_the_address_and_is_repeated() -> None:
    """Once the peer listens, the same call works."""
    peer = Peer()
    await peer.listen()
    await peer.stop()
    connections = Connections(SETTINGS, {})
    for _ in range(3):
        with pytest.raises(ConnectFailed, match=f"no connection to {peer.address}") as caught:
            await connections.get(peer.address)
        assert caught.value.broker == peer.address
    await peer.listen(peer.address)
    assert not (await connections.get(peer.address)).closed
    await connections.close()
    await peer.stop()


def test_intervals_of_attempts_grow() -> None:
    """They double from the minimum to the maximum."""
    backoff, settings = Backoff(), ClientSettings(backoff_min_s=0.1, backoff_max_s=1.0)
    assert [backoff.failed(now_s, settings) for now_s in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.0,
        1.0,
    ]
    assert backoff.not_before_s == 7.0


async def test_no_connection_opens_after_close() -> None:
    """A closed client stays closed."""
    async with peers(1) as (peer,):
        connections = Connections(SETTINGS, {})
        connection = await connections.get(peer.address)
        await connections.close()
        assert connection.closed
        with pytest.raises(ClientClosed):
            await connections.get(peer.address)
