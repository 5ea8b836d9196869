"""The dialect of requests: JSON, until the broker has said in its answer to a heartbeat that it knows another one."""

from clients.client import Client
from protocol.codes import RequestCode
from protocol.command import JSON, MSGPACK, RemotingCommand
from protocol.msgpack_header import ANNOUNCED_AS, ANNOUNCED_BY
from tests.clients.peer import Peer, peers

ANNOUNCEMENT = {ANNOUNCED_BY: ANNOUNCED_AS}


async def dialects(peer: Peer, client: Client) -> list[int]:
    """Of the first heartbeat, and of what follows it on the same connection."""
    peer.on(RequestCode.GET_MAX_OFFSET, {"offset": "7"})
    answer = await client.ask(peer.address, RequestCode.GET_MAX_OFFSET)
    assert answer.ext_fields() == {"offset": "7"}
    connection = await client.brokers.get(peer.address)
    await connection.send_oneway(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, oneway=True))
    await peer.wait_asked(RequestCode.UPDATE_CONSUMER_OFFSET)
    return [request.dialect for request in peer.requests]


async def test_a_broker_of_ours_is_spoken_to_in_its_own_dialect() -> None:
    """The heartbeat that opens a connection is JSON; what comes behind its answer is not, nor are the answers."""
    async with peers(1) as (peer,):
        peer.on(RequestCode.HEART_BEAT, ANNOUNCEMENT)
        client = Client(peer.address)
        assert await dialects(peer, client) == [JSON, MSGPACK, MSGPACK]
        await client.close()


async def test_any_other_broker_is_spoken_to_in_json() -> None:
    """RocketMQ's brokers announce nothing, or who knows what, and get JSON."""
    for told in ({}, {ANNOUNCED_BY: "CBOR"}, {"IS_SUB_CHANGE": "true"}):
        async with peers(1) as (peer,):
            peer.on(RequestCode.HEART_BEAT, told)
            client = Client(peer.address)
            assert await dialects(peer, client) == [JSON, JSON, JSON]
            await client.close()


async def test_each_connection_has_its_own() -> None:
    """A connection begins in JSON whatever the one before it spoke; name servers get nothing else."""
    async with peers(2) as (peer, name_server):
        peer.on(RequestCode.HEART_BEAT, ANNOUNCEMENT)
        client = Client(name_server.address)
        assert await dialects(peer, client) == [JSON, MSGPACK, MSGPACK]
        (await client.brokers.get(peer.address)).close()
        peer.requests.clear()
        peer.on(RequestCode.HEART_BEAT, {})
        assert await dialects(peer, client) == [JSON, JSON, JSON]
        await client.close()
        assert all(request.dialect == JSON for request in name_server.requests)
