"""Sending messages."""

import asyncio

import pytest

from skylarkmq import (
    BrokerError,
    Client,
    ClientClosed,
    ClientSettings,
    ConnectFailed,
    InvalidMessage,
    Message,
    NoRoute,
    Producer,
    ProducerSettings,
    RequestTimeout,
    SendResult,
    SendStatus,
)
from skylarkmq.clients.producing.queue_selection import queue_of_key
from skylarkmq.clients.producing.sends import RETRY_CODES
from skylarkmq.protocol.bodies.heartbeat import HeartbeatData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import UnregisterClientHeader
from skylarkmq.protocol.headers.send import SendMessageResponseHeader
from skylarkmq.protocol.message import decode_properties
from tests.clients.cluster import running_cluster
from tests.clients.peer import refuse, silence, until

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


async def test_a_send_returns_where_the_message_is() -> None:
    """Status, both ids, queue and offset, as the broker said."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        result = await producer.send(Message("T", b"hello", tags="paid", keys=["o-1"]))
        (request,) = cluster.broker.asked(SEND)
        properties = decode_properties(request.ext_fields()["i"])
        assert (result.status, result.msg_id, result.queue_offset) == (SendStatus.OK, properties["UNIQ_KEY"], 0)
        assert (result.queue.topic, result.queue.broker_name) == ("T", "broker-a")
        assert result.offset_msg_id == f"{0:032X}"
        assert (properties["TAGS"], properties["KEYS"]) == ("paid", "o-1")
        assert producer.statistics().sent == 1


async def test_a_thousand_sends_share_one_connection_without_waiting() -> None:
    """All are in flight before the first answer comes."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        gate = asyncio.Event()

        async def answer(request: RemotingCommand) -> RemotingCommand:
            await gate.wait()
            header = SendMessageResponseHeader(msg_id="0", queue_id=0, queue_offset=int(request.opaque))
            return RemotingCommand.response(ext=header)

        cluster.broker.on(SEND, lambda _, request: answer(request))
        sends = [producer.send_nowait(Message("T", b"%d" % n)) for n in range(1000)]
        await cluster.broker.wait_asked(SEND, 1000)
        assert not any(send.done() for send in sends)
        gate.set()
        results = await asyncio.gather(*sends)
        assert len({result.msg_id for result in results}) == 1000
        assert [bytes(r.body) for r in cluster.broker.asked(SEND)] == [b"%d" % n for n in range(1000)]
        assert len(cluster.broker.connections) == 1


@pytest.mark.parametrize("code", sorted(RETRY_CODES))
async def test_these_refusals_go_to_another_broker(code: int) -> None:
    """The message keeps its id."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        refusing, _ = cluster.brokers
        refusing.on(SEND, refuse(code))
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        tried = {decode_properties(request.ext_fields()["i"])["UNIQ_KEY"] for request in refusing.asked(SEND)}
        assert tried
        assert tried <= {result.msg_id for result in results}
        assert producer.statistics().retried == len(tried)


@pytest.mark.parametrize("code", [3, 4, 13, 26, 29])
async def test_other_refusals_are_raised_at_once(code: int) -> None:
    """With code, remark, broker and topic, and what to do."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        cluster.broker.on(SEND, refuse(code, "because"))
        with pytest.raises(BrokerError, match=f"broker-a .* refused SEND_MESSAGE_V2 .*{code}.*because") as caught:
            await producer.send(Message("T", b"x"))
        assert (caught.value.code, caught.value.remark, caught.value.topic) == (code, "because", "T")
        assert len(cluster.broker.asked(SEND)) == 1


async def test_a_refusal_that_lasts_is_raised_after_the_retries() -> None:
    """Three attempts by default."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        cluster.broker.on(SEND, refuse(ResponseCode.SYSTEM_BUSY, "busy"))
        with pytest.raises(BrokerError, match="busy"):
            await producer.send(Message("T", b"x"))
        assert len(cluster.broker.asked(SEND)) == 3
        assert producer.statistics().failed == 1


@pytest.mark.parametrize("code", [10, 11, 12])
async def test_stored_less_safely_is_stored(code: int) -> None:
    """The status tells; nothing is sent again."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        header = SendMessageResponseHeader(msg_id="0", queue_id=0, queue_offset=0)
        cluster.broker.on(SEND, lambda *_: RemotingCommand.response(code, ext=header))
        assert (await producer.send(Message("T", b"x"))).status == code
        assert len(cluster.broker.asked(SEND)) == 1


async def test_a_lost_connection_goes_to_another_broker() -> None:
    """Also while others are in flight on it."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        cluster.broker.on(SEND, lambda connection, _: connection.transport.abort())
        results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(40)))
        assert {result.queue.broker_name for result in results} == {"broker-b"}


async def test_a_broker_that_is_down_is_passed_over() -> None:
    """And is used again when it is back."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        address = cluster.broker.address
        await cluster.broker.stop()
        results = [await producer.send(Message("T", b"x")) for _ in range(4)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}
        await cluster.broker.listen(address)
        names = {(await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(4)}
        assert names == {"broker-a", "broker-b"}


async def test_nobody_left_is_an_error_that_names_the_address() -> None:
    """The last attempt's."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        await cluster.broker.stop()
        with pytest.raises(ConnectFailed, match=cluster.broker.address):
            await producer.send(Message("T", b"x"))
        await cluster.broker.listen(cluster.broker.address)


async def test_silence_is_an_error_within_the_time() -> None:
    """It says that the message may be stored."""
    settings = ProducerSettings(send_timeout_s=0.05)
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv, settings=settings) as producer:
        cluster.broker.on(SEND, silence)
        with pytest.raises(RequestTimeout, match="may be stored") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.topic == "T"


@pytest.mark.parametrize("group", ["order-7", ""])
async def test_a_message_group_keeps_its_order_while_its_route_comes(group: str) -> None:
    """Sends that begin in the very turns in which a route and a connection are there at last leave behind the first."""
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
        assert [bytes(request.body) for request in cluster.broker.asked(SEND)] == [b"%d" % n for n in range(len(sends))]


async def test_a_message_group_has_one_queue_and_no_retry() -> None:
    """The queue is that of RocketMQ's clients, and order is not risked by sending again."""
    async with running_cluster(brokers=2) as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        expected = queue_of_key(await producer.publish_queues("T"), "order-7")
        for _ in range(3):
            assert (await producer.send(Message("T", b"x"), message_group="order-7")).queue == expected
        broker = next(broker for broker in cluster.brokers if broker.name == expected.broker_name)
        assert decode_properties(broker.asked(SEND)[0].ext_fields()["i"])["__SHARDINGKEY"] == "order-7"
        broker.on(SEND, refuse(ResponseCode.SYSTEM_BUSY))
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"), message_group="order-7")
        assert len(broker.asked(SEND)) == 4


async def test_a_batch_is_one_request() -> None:
    """Consecutive offsets in one queue."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        (result,) = await producer.send_batch([Message("T", b"%d" % n) for n in range(3)])
        assert len(cluster.broker.asked(BATCH)) == 1
        assert (len(result.msg_id.split(",")), result.queue_offset) == (3, 0)
        assert len(cluster.broker.queues["T", result.queue.queue_id]) == 3


async def test_oneway_is_marked_and_awaits_nothing() -> None:
    """It is done before the broker has seen it."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        await producer.send_oneway(Message("T", b"x"))
        (request,) = await cluster.broker.wait_asked(SEND)
        assert request.is_oneway


async def test_an_unknown_topic_is_sent_by_the_template_or_refused() -> None:
    """With TBW102 the broker will create it; without, the error says what to do."""
    async with running_cluster() as cluster, Producer("g", namesrv=cluster.namesrv) as producer:
        with pytest.raises(NoRoute, match="Create it"):
            await producer.send(Message("New", b"x"))
        cluster.topics["TBW102"] = 8
        assert (await producer.send(Message("New", b"x"))).queue.topic == "New"
        assert cluster.broker.asked(SEND)[0].ext_fields()["c"] == "TBW102"
        with pytest.raises(InvalidMessage):
            await producer.send(Message("no such name", b"x"))


async def test_the_group_is_named_by_heartbeat_and_leave() -> None:
    """The heartbeat is the first request on the connection, 35 the last."""
    async with running_cluster() as cluster:
        async with Producer("my-group", namesrv=cluster.namesrv) as producer:
            await producer.send(Message("T", b"x"))
        first, *_, last = cluster.broker.requests
        assert [p.group_name for p in HeartbeatData.decode(first.body).producer_data_set] == ["my-group"]
        leave = last.header(UnregisterClientHeader)
        assert (leave.producer_group, leave.client_id) == ("my-group", producer.client.client_id)
        await until(lambda: not cluster.broker.connections)


async def test_heartbeats_are_repeated_and_a_dead_peer_is_noticed() -> None:
    """A broker that does not answer a heartbeat loses its connection."""
    settings = ClientSettings(heartbeat_s=0.01, request_timeout_s=0.05)
    async with (
        running_cluster() as cluster,
        Client(cluster.namesrv, settings) as client,
        Producer("g", client=client) as producer,
    ):
        await producer.send(Message("T", b"x"))
        await cluster.broker.wait_asked(RequestCode.HEART_BEAT, 3)
        cluster.broker.on(RequestCode.HEART_BEAT, silence)
        connection = client.brokers.current(cluster.broker.address)
        assert connection is not None
        await until(lambda: connection.closed)


async def test_a_producer_that_does_not_run_says_so() -> None:
    """Before the start and after the stop."""
    async with running_cluster() as cluster:
        producer = Producer("g", namesrv=cluster.namesrv)
        with pytest.raises(ClientClosed, match="async with"):
            await producer.send(Message("T", b"x"))
        async with producer:
            pass
        with pytest.raises(ClientClosed, match="async with"):
            await producer.send(Message("T", b"x"))


def test_a_producer_needs_one_way_to_the_cluster() -> None:
    """namesrv or client, not both and not neither."""
    with pytest.raises(ValueError, match="namesrv"):
        Producer("g")
    with pytest.raises(ValueError, match="namesrv"):
        Producer("g", namesrv="h:1", client=Client("h:1"))
