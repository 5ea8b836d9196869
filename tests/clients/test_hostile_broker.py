"""Brokers and name servers that answer nonsense: the SDK raises its own errors in time, and works once they do right.

Each response that the SDK reads is replaced, one code and one kind of nonsense at a time, while a client uses it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from skylarkmq import (
    Admin,
    Client,
    ClientError,
    ClientSettings,
    ConsumeFrom,
    ConsumerSettings,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PushConsumer,
)
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from tests.clients.cluster import Cluster, running_cluster
from tests.clients.peer import Peer

LIMIT_S: Final = 8.0
"""For any call; those of the settings below are far less."""

DIGITS: Final = "9" * 5_000
CONTROL: Final = "\x00\x1b[2J\n\u202e"

Warp = Callable[[], RemotingCommand]


def every_ext(value: str) -> dict[str, str]:
    """Every field of every response that the SDK reads."""
    names = ("msgId", "queueId", "queueOffset", "transactionId", "batchUniqId", "regionId", "MSG_REGION", "TRACE_ON")
    more = ("offset", "suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "offsetDelta")
    return dict.fromkeys((*names, *more, "groupSysFlag"), value)


WARPS: Final[dict[str, Warp]] = {
    "nothing": RemotingCommand.response,
    "texts": lambda: RemotingCommand.response(ext=every_ext("x")),
    "empty texts": lambda: RemotingCommand.response(ext=every_ext("")),
    "negative": lambda: RemotingCommand.response(ext=every_ext("-1")),
    "beyond 64 bits": lambda: RemotingCommand.response(ext=every_ext(str(1 << 70))),
    "many digits": lambda: RemotingCommand.response(ext=every_ext(DIGITS)),
    "control characters": lambda: RemotingCommand.response(1, CONTROL, every_ext(CONTROL)),
    "unknown code": lambda: RemotingCommand.response(31_999, "x" * 100_000),
    "no json": lambda: RemotingCommand.response(ext=every_ext("0"), body=b"\xff\xfe{"),
    "a number": lambda: RemotingCommand.response(ext=every_ext("0"), body=b"7"),
    "a list": lambda: RemotingCommand.response(ext=every_ext("0"), body=b"[null,{}]"),
    "nested": lambda: RemotingCommand.response(ext=every_ext("0"), body=b"[" * 50_000),
    "wrong members": lambda: RemotingCommand.response(
        ext=every_ext("0"),
        body=b'{"brokerDatas":7,"queueDatas":{},"consumerIdList":[1],"lockOKMQSet":[{"queueId":"x"}],"topicList":7}',
    ),
    "huge numbers": lambda: RemotingCommand.response(
        ext=every_ext("0"),
        body=b'{"brokerDatas":[{"brokerName":"b","cluster":"c","brokerAddrs":{"0":"nowhere"}}],"queueDatas":[{'
        b'"brokerName":"b","readQueueNums":2147483647,"writeQueueNums":%s,"perm":6}]}' % DIGITS.encode(),
    ),
}


async def in_time(call: Awaitable[object]) -> bool:
    """Whether a call succeeded; it may raise the SDK's errors and no others, and takes no longer than its limit."""
    async with asyncio.timeout(LIMIT_S):
        [result] = await asyncio.gather(call, return_exceptions=True)
    if not isinstance(result, BaseException):
        return True
    assert isinstance(result, ClientError), repr(result)
    assert str(result).isprintable()
    assert len(str(result)) < 2_000
    return False


def warped(server: Peer, code: RequestCode, warp: Warp) -> Callable[[], None]:
    """Have a server answer a code so; returns what undoes it."""
    before = server.handlers.get(code)
    server.handlers[code] = lambda *_: warp()

    def undo() -> None:
        if before is None:
            del server.handlers[code]
        else:
            server.handlers[code] = before

    return undo


@pytest.mark.parametrize("warp", WARPS)
async def test_a_producer(warp: str) -> None:
    """Routes and responses to sends."""
    async with running_cluster() as cluster:
        for server, code in (
            (cluster.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC),
            (cluster.broker, RequestCode.SEND_MESSAGE_V2),
            (cluster.broker, RequestCode.HEART_BEAT),
        ):
            settings = ProducerSettings(send_timeout_s=0.5)
            undo = warped(server, code, WARPS[warp])
            async with client(cluster) as ours, Producer("g", client=ours, settings=settings) as producer:
                await in_time(producer.send(Message("T", b"odd")))
                undo()
                assert await in_time(producer.send(Message("T", b"good")))


CONSUMED: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.HEART_BEAT,
)


HALF: Final = [(warp, code) for n, warp in enumerate(WARPS) for m, code in enumerate(CONSUMED) if (n + m) % 2 == 0]
"""Every kind of nonsense for two or three codes; a second each."""


@pytest.mark.parametrize(("warp", "code"), HALF)
async def test_a_consumer(warp: str, code: RequestCode) -> None:
    """What a consumer asks for, until it gets what is there."""
    async with running_cluster() as cluster:
        undo = warped(cluster.broker, code, WARPS[warp])
        async with client(cluster) as ours, pull_consumer(ours) as consumer:
            assert await in_time(consumer.subscribe("T"))
            await in_time(consumer.poll(1, timeout_s=0.1))
            undo()
            for number in range(100):
                cluster.broker.store("T", 0, b"%d" % number)
            async with asyncio.timeout(LIMIT_S):
                while not await consumer.poll(1, timeout_s=1.0):
                    pass


def client(cluster: Cluster) -> Client:
    """A client of its own, that waits for a second at most."""
    return Client(cluster.namesrv, ClientSettings(request_timeout_s=0.5, connect_timeout_s=0.5, heartbeat_s=0.2))


def pull_consumer(ours: Client) -> PullConsumer:
    settings = ConsumerSettings(suspend_s=0.1, pull_timeout_s=0.5, rebalance_interval_s=0.1, retry_pause_s=0.05)
    return PullConsumer("g", client=ours, settings=settings, consume_from=ConsumeFrom.FIRST)


@pytest.mark.parametrize("warp", WARPS)
async def test_an_orderly_member(warp: str) -> None:
    """Locks that are no locks."""
    async with running_cluster() as cluster:
        undo = warped(cluster.broker, RequestCode.LOCK_BATCH_MQ, WARPS[warp])
        handled = asyncio.Event()

        async def handle(_message: object) -> None:
            handled.set()

        settings = ConsumerSettings(suspend_s=0.1, rebalance_interval_s=0.1, lock_renewal_s=0.2)
        async with (
            client(cluster) as ours,
            PushConsumer(
                "g", client=ours, settings=settings, consume_from=ConsumeFrom.FIRST, handler=handle, orderly=True
            ) as consumer,
        ):
            await consumer.subscribe("T")
            cluster.broker.store("T", 0, b"first")
            for _ in range(100):
                await asyncio.sleep(0)
            undo()
            async with asyncio.timeout(LIMIT_S):
                await handled.wait()


@pytest.mark.parametrize("warp", WARPS)
async def test_an_admin(warp: str) -> None:
    """Every question raises the SDK's errors, or is answered."""
    async with running_cluster() as cluster, client(cluster) as ours, Admin(client=ours) as admin:
        for server in (cluster.name_server, cluster.broker):
            for code in RequestCode:
                server.handlers.setdefault(code, lambda *_: WARPS[warp]())
        asked = (admin.cluster(), admin.topics(), admin.groups(), admin.members("g"), admin.topic_offsets("T"))
        for call in (*asked, admin.group_offsets("g", "T"), admin.lag("g", "T"), admin.queues("T")):
            await in_time(call)
        cluster.name_server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda *_: WARPS[warp]()
        await in_time(admin.queues("T"))


CALLBACKS: Final = (39, 40, 220, 221, 307, 309, 326, 31_999)


@pytest.mark.parametrize("code", CALLBACKS)
async def test_callbacks_with_odd_content(code: int) -> None:
    """Whatever a broker asks of a client, the client goes on."""
    async with running_cluster() as cluster, client(cluster) as ours, pull_consumer(ours) as consumer:
        await consumer.subscribe("T")
        cluster.broker.store("T", 0, b"first")
        assert await in_time(consumer.poll(1, timeout_s=5.0))
        bodies = (b"", b"7", b"[" * 50_000, b"\xff", b"{}")
        for connection in list(cluster.broker.members):
            for ext in (None, every_ext(DIGITS), every_ext("-1"), {"group": CONTROL, "topic": "T", "timestamp": "x"}):
                for body in bodies:
                    asked = RemotingCommand.request(code, body=body)
                    asked.ext = ext
                    connection.send(asked)
        cluster.broker.store("T", 0, b"second")
        async with asyncio.timeout(LIMIT_S):
            while not await consumer.poll(1, timeout_s=1.0):
                pass
