"""The dialect of requests: JSON, until the response to a heartbeat announces another one."""

from skylarkmq import Client, Message, Producer, SendStatus
from skylarkmq.clients.sdk.base.settings import ConsumerSettings
from skylarkmq.clients.sdk.consuming.queue_calls import QueueCalls
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import JSON, MSGPACK, RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.msgpack_header import ANNOUNCED_AS, ANNOUNCED_BY
from tests.clients.cluster import running_cluster
from tests.clients.peer import Peer, peers

ANNOUNCEMENT = {ANNOUNCED_BY: ANNOUNCED_AS}


async def dialects(peer: Peer, client: Client) -> list[int]:
    """Return the dialects of the first heartbeat, and of later requests on the same connection."""
    peer.on(RequestCode.GET_MAX_OFFSET, {"offset": "7"})
    answer = await client.request(peer.address, RequestCode.GET_MAX_OFFSET)
    assert answer.ext_fields() == {"offset": "7"}
    connection = await client.brokers.get(peer.address)
    await connection.send_oneway(RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, oneway=True))
    await peer.wait_requests(RequestCode.UPDATE_CONSUMER_OFFSET)
    return [request.dialect for request in peer.requests]


async def test_requests_to_this_broker_use_its_dialect() -> None:
    """The first heartbeat of a connection is JSON; requests after its response are not, nor are the responses."""
    async with peers(1) as (peer,):
        peer.on(RequestCode.HEART_BEAT, ANNOUNCEMENT)
        client = Client(peer.address)
        assert await dialects(peer, client) == [JSON, MSGPACK, MSGPACK]
        await client.close()


async def test_requests_to_other_brokers_are_json() -> None:
    """Also if a broker announces an unknown dialect."""
    for told in ({}, {ANNOUNCED_BY: "CBOR"}, {"IS_SUB_CHANGE": "true"}):
        async with peers(1) as (peer,):
            peer.on(RequestCode.HEART_BEAT, told)
            client = Client(peer.address)
            assert await dialects(peer, client) == [JSON, JSON, JSON]
            await client.close()


async def test_sends_and_pulls_use_the_announced_dialect() -> None:
    """From its announcement on; after a reconnect only if it is announced again."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        cluster.broker.on(RequestCode.PULL_MESSAGE, {"nextBeginOffset": "7"})
        for announced, dialect in ((ANNOUNCEMENT, MSGPACK), ({}, JSON)):
            cluster.broker.on(RequestCode.HEART_BEAT, announced)
            cluster.broker.requests.clear()
            result = await producer.send(Message("T", b"hello"))
            batch = await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
            await producer.send_oneway(Message("T", b"bye"))
            sent = await cluster.broker.wait_requests(RequestCode.SEND_MESSAGE_V2, 2)
            batches = cluster.broker.requests_of(RequestCode.SEND_BATCH_MESSAGE)
            assert [command.dialect for command in sent + batches] == [dialect] * 3
            assert [bytes(command.body) for command in sent] == [b"hello", b"bye"]
            assert (result.status, batch[0].status) == (SendStatus.OK, SendStatus.OK)
            calls = QueueCalls(producer.client, "g")
            pulls = calls.pulls_of(result.queue, SubscriptionData("T", "*"), ConsumerSettings(), with_subscription=True)
            await calls.pull(pulls, 7, None)
            (pull,) = cluster.broker.requests_of(RequestCode.PULL_MESSAGE)
            assert (pull.dialect, pull.header(PullMessageHeader).queue_offset) == (dialect, 7)
            (await producer.client.brokers.get(cluster.broker.address)).close()


async def test_each_connection_has_its_own_dialect() -> None:
    """A new connection begins with JSON; requests to name servers are always JSON."""
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
