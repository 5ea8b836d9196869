"""Sending messages."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from skylarkmq import (
    BrokerError,
    Client,
    ClientClosed,
    ClientSettings,
    ConnectFailed,
    InvalidArgument,
    InvalidMessage,
    Message,
    MessageQueue,
    NoRoute,
    Producer,
    ProducerSettings,
    RequestTimeout,
    SendResult,
    SendStatus,
)
from skylarkmq.clients.sdk.producing.queue_selection import queue_of_key
from skylarkmq.clients.sdk.producing.sends import RETRY_CODES
from skylarkmq.protocol.bodies.heartbeat import HeartbeatData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import UnregisterClientHeader
from skylarkmq.protocol.headers.send import SendMessageResponseHeader
from skylarkmq.protocol.message import decode_properties
from tests.clients.cluster import running_cluster
from tests.clients.peer import refuse, silence, until
from tests.harness.limits import WAIT_LIMIT_S

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


async def test_a_send_returns_where_the_message_is_stored() -> None:
    """Status, both ids, queue and offset of the response."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        result = await producer.send(Message("T", b"hello", tags="paid", keys=["o-1"]))
        (request,) = cluster.broker.requests_of(SEND)
        properties = decode_properties(request.ext_fields()["i"])
        assert (result.status, result.msg_id, result.queue_offset) == (SendStatus.OK, properties["UNIQ_KEY"], 0)
        assert (result.queue.topic, result.queue.broker_name) == ("T", "broker-a")
        assert result.offset_msg_id == f"{0:032X}"
        assert (properties["TAGS"], properties["KEYS"]) == ("paid", "o-1")
        assert producer.statistics().sent == 1


async def test_a_thousand_sends_share_one_connection_without_waiting() -> None:
    """All are in flight before the first response."""
    settings = ProducerSettings(send_timeout_s=WAIT_LIMIT_S)
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv, settings=settings) as producer:
        gate = asyncio.Event()

        async def answer(request: RemotingCommand) -> RemotingCommand:
            await gate.wait()
            header = SendMessageResponseHeader(msg_id="0", queue_id=0, queue_offset=int(request.opaque))
            return RemotingCommand.response(ext=header)

        cluster.broker.on(SEND, lambda _, request: answer(request))
        sends = [producer.send_nowait(Message("T", b"%d" % n)) for n in range(1000)]
        await cluster.broker.wait_requests(SEND, 1000)
        assert not any(send.done() for send in sends)
        gate.set()
        results = await asyncio.gather(*sends)
        assert len({result.msg_id for result in results}) == 1000
        assert [bytes(r.body) for r in cluster.broker.requests_of(SEND)] == [b"%d" % n for n in range(1000)]
        assert len(cluster.broker.connections) == 1


@pytest.mark.parametrize("code", sorted(RETRY_CODES))
async def test_sends_with_these_codes_are_repeated_on_another_broker(code: int) -> None:
    """With the same message id."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        refusing, _ = cluster.brokers
        refusing.on(SEND, refuse(code))
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        tried = {decode_properties(request.ext_fields()["i"])["UNIQ_KEY"] for request in refusing.requests_of(SEND)}
        assert tried
        assert tried <= {result.msg_id for result in results}
        assert producer.statistics().retried == len(tried)


@pytest.mark.parametrize("code", [3, 4, 13, 26, 29])
async def test_other_codes_are_raised_at_once(code: int) -> None:
    """With code, remark, broker, topic and a remedy."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        cluster.broker.on(SEND, refuse(code, "because"))
        with pytest.raises(BrokerError, match=f"broker-a .* refused SEND_MESSAGE_V2 .*{code}.*because") as caught:
            await producer.send(Message("T", b"x"))
        assert (caught.value.code, caught.value.remark, caught.value.topic) == (code, "because", "T")
        assert len(cluster.broker.requests_of(SEND)) == 1


async def test_a_lasting_refusal_is_raised_after_the_retries() -> None:
    """After three attempts by default."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        cluster.broker.on(SEND, refuse(ResponseCode.SYSTEM_BUSY, "busy"))
        with pytest.raises(BrokerError, match="busy"):
            await producer.send(Message("T", b"x"))
        assert len(cluster.broker.requests_of(SEND)) == 3
        assert producer.statistics().failed == 1


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_a_warning_status_is_a_result(code: int) -> None:
    """The status names it, and the send is not repeated."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        header = SendMessageResponseHeader(msg_id="0", queue_id=0, queue_offset=0)
        cluster.broker.on(SEND, lambda *_: RemotingCommand.response(code, ext=header))
        assert (await producer.send(Message("T", b"x"))).status == code
        assert len(cluster.broker.requests_of(SEND)) == 1


async def test_a_send_on_a_lost_connection_is_repeated_on_another_broker() -> None:
    """Also with other sends in flight on it."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        cluster.broker.on(SEND, lambda connection, _: connection.transport.abort())
        results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(40)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_a_dead_broker_is_skipped() -> None:
    """And used again after its return."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        address = cluster.broker.address
        await cluster.broker.stop()
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        await cluster.broker.listen(address)
        names = {(await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(4)}
        assert names == {"broker-a", "broker-b"}


async def test_the_error_without_any_broker_names_the_address() -> None:
    """Of the last attempt."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        await cluster.broker.stop()
        with pytest.raises(ConnectFailed, match=cluster.broker.address):
            await producer.send(Message("T", b"x"))
        await cluster.broker.listen(cluster.broker.address)


async def test_a_missing_response_is_a_timeout() -> None:
    """Its text warns that the message may be stored."""
    settings = ProducerSettings(send_timeout_s=0.05)
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv, settings=settings) as producer:
        await producer.send(Message("T", b"x"), timeout_s=WAIT_LIMIT_S)  # the route is known from here on
        cluster.broker.on(SEND, silence)
        with pytest.raises(RequestTimeout, match="may be stored") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.topic == "T"


@pytest.mark.parametrize("group", ["order-7", ""])
async def test_a_message_group_keeps_its_order_while_its_route_is_requested(group: str) -> None:
    """Sends that begin in the iteration in which route or connection becomes ready follow the first send."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        loop = asyncio.get_running_loop()
        sends: list[asyncio.Future[SendResult]] = []

        def send_one() -> None:
            sends.append(producer.send_nowait(Message("T", b"%d" % len(sends)), message_group=group))

        def send_in_every_turn_until_answered() -> None:
            send_one()
            if not sends[0].done():
                loop.call_soon(send_in_every_turn_until_answered)

        send_in_every_turn_until_answered()
        await sends[0]
        await asyncio.gather(*sends)
        assert [bytes(request.body) for request in cluster.broker.requests_of(SEND)] == [
            b"%d" % n for n in range(len(sends))
        ]


async def test_a_message_group_has_one_queue_and_no_retry() -> None:
    """The queue is that of RocketMQ's clients. A repetition could break the order."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        expected = queue_of_key(await producer.publish_queues("T"), "order-7")
        for _ in range(3):
            assert (await producer.send(Message("T", b"x"), message_group="order-7")).queue == expected
        broker = next(broker for broker in cluster.brokers if broker.name == expected.broker_name)
        assert decode_properties(broker.requests_of(SEND)[0].ext_fields()["i"])["__SHARDINGKEY"] == "order-7"
        broker.on(SEND, refuse(ResponseCode.SYSTEM_BUSY))
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"), message_group="order-7")
        assert len(broker.requests_of(SEND)) == 4


async def test_a_batch_is_one_request() -> None:
    """Consecutive offsets in one queue."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        (result,) = await producer.send_batch([Message("T", b"%d" % n) for n in range(3)])
        assert len(cluster.broker.requests_of(BATCH)) == 1
        assert (len(result.msg_id.split(",")), result.queue_offset) == (3, 0)
        assert len(cluster.broker.queues["T", result.queue.queue_id]) == 3


async def test_a_oneway_send_is_marked_and_waits_for_no_response() -> None:
    """It returns before the broker receives it."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        await producer.send_oneway(Message("T", b"x"))
        (request,) = await cluster.broker.wait_requests(SEND)
        assert request.is_oneway


async def test_a_send_to_an_unknown_topic_uses_the_template_or_fails() -> None:
    """With TBW102 the broker creates the topic; without it the error names a remedy."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        with pytest.raises(NoRoute, match="Create it"):
            await producer.send(Message("New", b"x"))
        cluster.topics["TBW102"] = 8
        assert (await producer.send(Message("New", b"x"))).queue.topic == "New"
        assert cluster.broker.requests_of(SEND)[0].ext_fields()["c"] == "TBW102"
        with pytest.raises(InvalidMessage):
            await producer.send(Message("no such name", b"x"))


async def test_the_group_is_in_the_heartbeat_and_in_the_unregistration() -> None:
    """The first request of the connection, and the last one: UNREGISTER_CLIENT (35)."""
    async with running_cluster() as cluster:
        async with Producer("my-group", namesrv=cluster.namesrv) as producer:
            await producer.send(Message("T", b"x"))
        first, *_, last = cluster.broker.requests
        assert [p.group_name for p in HeartbeatData.decode(first.body).producer_data_set] == ["my-group"]
        leave = last.header(UnregisterClientHeader)
        assert (leave.producer_group, leave.client_id) == ("my-group", producer.client.client_id)
        await until(lambda: not cluster.broker.connections)


async def test_heartbeats_are_repeated_and_detect_a_dead_peer() -> None:
    """The connection of a broker that does not respond to a heartbeat is closed."""
    settings = ClientSettings(heartbeat_s=0.01, request_timeout_s=0.05)
    async with (
        running_cluster() as cluster,
        Client(cluster.namesrv, settings) as client,
        Producer("g", client=client) as producer,
    ):
        await producer.send(Message("T", b"x"))
        await cluster.broker.wait_requests(RequestCode.HEART_BEAT, 3)
        cluster.broker.on(RequestCode.HEART_BEAT, silence)
        connection = client.brokers.current(cluster.broker.address)
        assert connection is not None
        await until(lambda: connection.closed)


async def test_a_producer_that_does_not_run_raises() -> None:
    """Before its start and after its stop."""
    async with running_cluster() as cluster:
        producer = Producer("g", namesrv=cluster.namesrv)
        with pytest.raises(ClientClosed, match="async with"):
            await producer.send(Message("T", b"x"))
        async with producer:
            pass
        with pytest.raises(ClientClosed, match="async with"):
            await producer.send(Message("T", b"x"))


def test_a_producer_needs_either_namesrv_or_client() -> None:
    """Not both, and not none."""
    with pytest.raises(ValueError, match="namesrv"):
        Producer("g")
    with pytest.raises(ValueError, match="namesrv"):
        Producer("g", namesrv="h:1", client=Client("h:1"))


SENDS_TO_A_QUEUE = {
    "send": lambda producer, message, queue: producer.send(message, queue=queue),
    "send_batch": lambda producer, message, queue: producer.send_batch([message, message], queue=queue),
    "send_oneway": lambda producer, message, queue: producer.send_oneway(message, queue=queue),
}


@pytest.mark.parametrize("namespace", ["", "ns"])
@pytest.mark.parametrize("send", SENDS_TO_A_QUEUE.values(), ids=SENDS_TO_A_QUEUE)
async def test_a_queue_of_another_topic_is_refused(
    send: Callable[[Producer, Message, MessageQueue], Awaitable[object]], namespace: str
) -> None:
    """A broker would store the message in the queue's topic. Nothing is sent; a queue of the topic is accepted."""
    async with running_cluster() as cluster:
        cluster.topics = {"T": 1, "ns%T": 1}
        async with Producer("g", namesrv=cluster.namesrv, namespace=namespace) as producer:
            refusal = r"queue must be one of the message's topic '(ns%)?T', not of '(ns%)?U'"
            with pytest.raises(InvalidArgument, match=refusal):
                await send(producer, Message("T", b"x"), MessageQueue("U", "broker-a", 0))
            assert cluster.broker.requests_of(SEND) + cluster.broker.requests_of(BATCH) == []
            await send(producer, Message("T", b"x"), MessageQueue("T", "broker-a", 0))
            await until(lambda: cluster.broker.requests_of(SEND) or cluster.broker.requests_of(BATCH))
