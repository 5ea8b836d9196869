"""`connect`: objects that share one client, their defaults, and the end of the connection."""

import asyncio

import pytest

from skylarkmq import (
    ClientClosed,
    ClientSettings,
    ConnectFailed,
    ConsumeFrom,
    ConsumerSettings,
    Credentials,
    Hooks,
    InvalidArgument,
    Message,
    MessageExt,
    MessageQueueClient,
    TransactionState,
    UnknownOption,
    connect,
)
from skylarkmq.clients.sdk.telemetry.hooks import ObservedSend
from skylarkmq.protocol.codes import RequestCode
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import until

FAST = ConsumerSettings(suspend_s=0.5, commit_interval_s=0.02, rebalance_interval_s=0.05)


async def checker(_: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


def cluster_with_topics(cluster: Cluster) -> Cluster:
    cluster.topics |= {"T": 1, "%RETRY%billing": 1, "%RETRY%report": 1}
    return cluster


async def test_all_objects_of_a_connection_share_its_sockets() -> None:
    """A producer, both consumers and an Admin use one connection to the name server and one to the broker."""
    seen = asyncio.Event()

    async def handle(_: MessageExt) -> None:
        seen.set()

    async with running_cluster() as cluster, connect(cluster_with_topics(cluster).namesrv) as mq:
        async with (
            mq.producer("shop") as producer,
            mq.transaction_producer("payments", checker=checker),
            mq.consumer("billing", handler=handle, consume_from=ConsumeFrom.FIRST, settings=FAST) as consumer,
            mq.pull_consumer("report", consume_from=ConsumeFrom.FIRST, settings=FAST) as reader,
            mq.admin() as admin,
        ):
            await consumer.subscribe("T")
            await reader.subscribe("T")
            await producer.send(Message("T", b"x"))
            assert [message.body for message in await reader.poll(timeout_s=10)] == [b"x"]
            await seen.wait()
            assert len(await admin.queues("T")) == 1
            assert len(cluster.broker.connections) == len(cluster.name_server.connections) == 1
            statistics = mq.statistics()
            assert set(statistics.producer_groups) == {"shop", "payments"}
            assert set(statistics.consumer_groups) == {"billing", "report"}
        await producer.stop()  # a second stop does nothing


async def test_the_end_of_the_connection_stops_its_objects() -> None:
    """Objects that were started and not stopped leave their groups before the connections close."""
    async with running_cluster() as cluster:
        async with connect(cluster_with_topics(cluster).namesrv) as mq:
            producer, reader = mq.producer("shop"), mq.pull_consumer("report", settings=FAST)
            await producer.start()
            await reader.start()
            await reader.subscribe("T")
            await producer.send(Message("T", b"x"))
            await until(lambda: cluster.members("report") == 1)
        assert len(cluster.broker.requests_of(RequestCode.UNREGISTER_CLIENT)) == 2
        with pytest.raises(ClientClosed):
            await producer.send(Message("T", b"x"))
        with pytest.raises(ClientClosed):
            await mq.producer("shop").start()


async def test_objects_take_the_namespace_and_the_hooks_of_their_connection() -> None:
    """An option of the object replaces that of the connection."""
    sent: list[tuple[str, str]] = []

    class Recording(Hooks):
        def sending(self, send: ObservedSend):  # type: ignore[no-untyped-def]  # as that of Hooks
            sent.append((send.namespace, send.group))
            return super().sending(send)

    async with running_cluster() as cluster:
        cluster.topics |= {"team-a%T": 1, "team-b%T": 1}
        async with (
            connect(cluster.namesrv, namespace="team-a", hooks=Recording()) as mq,
            mq.producer("p") as producer,
            mq.producer("p", namespace="team-b") as other,
            mq.producer("p", hooks=None) as silent,
        ):
            for each in (producer, other, silent):
                await each.send(Message("T", b"x"))
            assert sent == [("team-a", "team-a%p"), ("team-b", "team-b%p")]
            assert sorted(topic for topic, _ in cluster.broker.queues) == ["team-a%T", "team-b%T"]


async def test_requests_of_a_connection_are_signed_with_its_credentials() -> None:
    async with (
        running_cluster() as cluster,
        connect(cluster.namesrv, credentials=Credentials("shop", "secret")) as mq,
        mq.producer("p") as producer,
    ):
        await producer.send(Message("T", b"x"))
        (request,) = cluster.broker.requests_of(RequestCode.SEND_MESSAGE_V2)
        assert request.ext_fields()["AccessKey"] == "shop"


async def test_connect_fails_if_no_name_server_answers() -> None:
    """The block is not entered, and nothing keeps running; with one of two addresses reachable it is."""
    async with running_cluster() as cluster:
        unreachable = "127.0.0.1:1"
        with pytest.raises(ConnectFailed):
            async with connect(unreachable):
                pytest.fail("no name server is there")
        async with connect([unreachable, cluster.namesrv]) as mq, mq.producer("p") as producer:
            await producer.send(Message("T", b"x"))


@pytest.mark.parametrize("namesrv", ["", "no port", [], ["h:1", "x"], 9876, None])
def test_an_invalid_address_is_an_invalid_argument(namesrv: object) -> None:
    with pytest.raises(InvalidArgument, match="namesrv"):
        connect(namesrv)  # type: ignore[arg-type]  # on purpose


def test_invalid_options_are_refused_at_once() -> None:
    """By `connect` and by its methods; an unknown option is also a TypeError, as Python's own."""
    with pytest.raises(UnknownOption, match=r"connect has no option tsl\. Its options: credentials"):
        connect("h:1", tsl=None)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(InvalidArgument, match=r"namespace: .*illegal characters"):
        connect("h:1", namespace="team a")
    with pytest.raises(InvalidArgument, match="credentials is given twice"):
        connect("h:1", credentials=Credentials("a", "b"), settings=ClientSettings(credentials=Credentials("a", "b")))
    mq = connect("h:1")
    with pytest.raises(TypeError, match="producer has no option namesrv"):
        mq.producer("p", namesrv="h:1")  # type: ignore[call-arg]  # on purpose
    with pytest.raises(InvalidArgument, match=r"group: .*illegal characters"):
        mq.consumer("not a group")


async def test_objects_start_after_their_connection() -> None:
    """Before its start, and on another event loop, they raise an error that names the remedy."""
    async with running_cluster() as cluster:
        mq = connect(cluster.namesrv)
        with pytest.raises(ClientClosed, match="async with"):
            await mq.producer("p").start()
        async with mq:

            def on_another_loop(mq: MessageQueueClient) -> None:
                asyncio.run(mq.producer("p").start())

            with pytest.raises(InvalidArgument, match="another event loop"):
                await asyncio.to_thread(on_another_loop, mq)
