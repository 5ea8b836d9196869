"""Request and reply."""

import asyncio

import pytest

from skylarkmq import InvalidMessage, Message, MessageExt, Producer, PullConsumer, RequestTimeout
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import PushReplyHeader
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.message import decode_properties
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import PeerConnection
from tests.harness.limits import WAIT_LIMIT_S

REPLY = RequestCode.SEND_REPLY_MESSAGE_V2


def pushing(cluster: Cluster) -> None:
    """Let the broker push replies to the client that connected first."""

    def reply(_: PeerConnection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(SendMessageV2Header)
        pushed = PushReplyHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            born_host="/10.0.0.1:5",
            store_host="127.0.0.1:10911",
            store_timestamp=2,
            properties=header.properties,
        )
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        cluster.broker.connections[0].send(RemotingCommand.request(code, pushed, bytes(request.body)))
        return RemotingCommand.response()

    cluster.broker.on(REPLY, reply)


def at(message: MessageExt, cluster: Cluster) -> MessageExt:
    """Return a request as a broker stores it."""
    host, _, port = cluster.broker.address.rpartition(":")
    message.store_host = (host, int(port))
    return message


async def test_a_reply_reaches_its_request() -> None:
    """By three properties, through the broker of the request; several concurrent requests get their own replies."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        cluster.topics["T"] = 1
        pushing(cluster)
        await producer.send(Message("T", b"first"))
        async with PullConsumer("g", namesrv=cluster.namesrv) as consumer:
            await consumer.assign(await consumer.queues("T"))
            consumer.seek(consumer.assignment[0], 0)
            asking = [
                asyncio.ensure_future(producer.request(Message("T", b"%d" % n), timeout_s=WAIT_LIMIT_S))
                for n in range(3)
            ]
            requests: list[MessageExt] = []
            while len(requests) < 3:
                requests += [m for m in await consumer.poll() if m.body != b"first"]
            for request in reversed(requests):
                await consumer.reply(at(request, cluster), b"re " + request.body, {"k": "v"})
            replies = await asyncio.gather(*asking)
        assert [reply.body for reply in replies] == [b"re 0", b"re 1", b"re 2"]
        assert (replies[0].properties["k"], replies[0].born_host) == ("v", ("10.0.0.1", 5))
        header = cluster.broker.requests_of(REPLY)[0].header(SendMessageV2Header)
        assert header.topic == "DefaultCluster_REPLY_TOPIC"
        properties = decode_properties(header.properties)
        assert (properties["MSG_TYPE"], properties["REPLY_TO_CLIENT"]) == ("reply", producer.client.client_id)
        assert properties["TTL"] == str(1_000 * WAIT_LIMIT_S)


async def test_a_request_without_a_reply_times_out() -> None:
    """A late reply is dropped."""
    async with running_cluster() as cluster, Producer("p", namesrv=cluster.namesrv) as producer:
        with pytest.raises(RequestTimeout, match="no reply"):
            await producer.request(Message("T", b"x"), timeout_s=0.05)
        assert repr(producer.client.callbacks.replies) == "<PendingReplies 0>"


async def test_only_a_request_can_be_replied_to() -> None:
    """Other messages name no client."""
    async with running_cluster() as cluster, PullConsumer("g", namesrv=cluster.namesrv) as consumer:
        cluster.broker.store("T", 0, b"x")
        await consumer.assign(await consumer.queues("T"))
        consumer.seek(consumer.assignment[0], 0)
        (message,) = await consumer.poll(timeout_s=WAIT_LIMIT_S)
        with pytest.raises(InvalidMessage, match="is no request"):
            await consumer.reply(message, b"x")
