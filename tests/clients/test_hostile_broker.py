"""Brokers and name servers with malformed responses: the SDK raises its own errors in time, and recovers afterwards.

Each test replaces the responses to one request code by one malformed response (`MALFORMED`), uses a client, restores
the responses, and uses the client again.
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
from tests.harness.limits import WAIT_LIMIT_S

DIGITS: Final = "9" * 5_000
CONTROL: Final = "\x00\x1b[2J\n\u202e"

ResponseFactory = Callable[[], RemotingCommand]


def all_fields(value: str) -> dict[str, str]:
    """Return a header with all ext fields that the SDK reads in any response, each with the same value."""
    names = ("msgId", "queueId", "queueOffset", "transactionId", "batchUniqId", "regionId", "MSG_REGION", "TRACE_ON")
    more = ("offset", "suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset", "offsetDelta")
    return dict.fromkeys((*names, *more, "groupSysFlag"), value)


MALFORMED: Final[dict[str, ResponseFactory]] = {
    "nothing": RemotingCommand.response,
    "texts": lambda: RemotingCommand.response(ext=all_fields("x")),
    "empty texts": lambda: RemotingCommand.response(ext=all_fields("")),
    "negative": lambda: RemotingCommand.response(ext=all_fields("-1")),
    "beyond 64 bits": lambda: RemotingCommand.response(ext=all_fields(str(1 << 70))),
    "many digits": lambda: RemotingCommand.response(ext=all_fields(DIGITS)),
    "control characters": lambda: RemotingCommand.response(1, CONTROL, all_fields(CONTROL)),
    "unknown code": lambda: RemotingCommand.response(31_999, "x" * 100_000),
    "no json": lambda: RemotingCommand.response(ext=all_fields("0"), body=b"\xff\xfe{"),
    "a number": lambda: RemotingCommand.response(ext=all_fields("0"), body=b"7"),
    "a list": lambda: RemotingCommand.response(ext=all_fields("0"), body=b"[null,{}]"),
    "nested": lambda: RemotingCommand.response(ext=all_fields("0"), body=b"[" * 50_000),
    "wrong members": lambda: RemotingCommand.response(
        ext=all_fields("0"),
        body=b'{"brokerDatas":7,"queueDatas":{},"consumerIdList":[1],"lockOKMQSet":[{"queueId":"x"}],"topicList":7}',
    ),
    "huge numbers": lambda: RemotingCommand.response(
        ext=all_fields("0"),
        body=b'{"brokerDatas":[{"brokerName":"b","cluster":"c","brokerAddrs":{"0":"nowhere"}}],"queueDatas":[{'
        b'"brokerName":"b","readQueueNums":2147483647,"writeQueueNums":%s,"perm":6}]}' % DIGITS.encode(),
    ),
}


async def in_time(call: Awaitable[object]) -> bool:
    """Return whether a call succeeded. A call that fails must raise a short, printable ClientError in time."""
    async with asyncio.timeout(WAIT_LIMIT_S):
        [result] = await asyncio.gather(call, return_exceptions=True)
    if not isinstance(result, BaseException):
        return True
    assert isinstance(result, ClientError), repr(result)
    assert str(result).isprintable()
    assert len(str(result)) < 2_000
    return False


def replace_responses(server: Peer, code: RequestCode, response: ResponseFactory) -> Callable[[], None]:
    """Replace the responses of a server to one code, and return a function that restores them."""
    before = server.handlers.get(code)
    server.handlers[code] = lambda *_: response()

    def restore() -> None:
        if before is None:
            del server.handlers[code]
        else:
            server.handlers[code] = before

    return restore


@pytest.mark.parametrize("malformed", MALFORMED)
async def test_a_producer_survives_malformed_routes_and_send_results(malformed: str) -> None:
    """Holds for the responses to route requests, to sends and to heartbeats."""
    async with running_cluster() as cluster:
        for server, code in (
            (cluster.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC),
            (cluster.broker, RequestCode.SEND_MESSAGE_V2),
            (cluster.broker, RequestCode.HEART_BEAT),
        ):
            settings = ProducerSettings(send_timeout_s=0.5)
            restore = replace_responses(server, code, MALFORMED[malformed])
            async with client_of(cluster) as client, Producer("g", client=client, settings=settings) as producer:
                await in_time(producer.send(Message("T", b"odd")))
                restore()
                assert await in_time(producer.send(Message("T", b"good")))


CONSUMER_REQUESTS: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.HEART_BEAT,
)


@pytest.mark.parametrize("code", CONSUMER_REQUESTS)
@pytest.mark.parametrize("malformed", MALFORMED)
async def test_a_consumer_survives_malformed_responses(malformed: str, code: RequestCode) -> None:
    """The consumer receives the messages as soon as the responses are valid again."""
    async with running_cluster() as cluster:
        restore = replace_responses(cluster.broker, code, MALFORMED[malformed])
        async with client_of(cluster) as client, pull_consumer(client) as consumer:
            assert await in_time(consumer.subscribe("T"))
            await in_time(consumer.poll(1, timeout_s=0.04))
            restore()
            for number in range(100):
                cluster.broker.store("T", 0, b"%d" % number)
            async with asyncio.timeout(WAIT_LIMIT_S):
                while not await consumer.poll(1, timeout_s=1.0):
                    pass


def client_of(cluster: Cluster) -> Client:
    """Return a client with short timeouts."""
    return Client(cluster.namesrv, ClientSettings(request_timeout_s=0.5, connect_timeout_s=5.0, heartbeat_s=0.2))


def pull_consumer(client: Client) -> PullConsumer:
    """Return a consumer that pauses 50 ms after errors and reads from the first message."""
    settings = ConsumerSettings(
        suspend_s=0.1, pull_timeout_s=0.5, rebalance_interval_s=0.1, retry_pause_s=0.05, pull_retry_pause_s=0.05
    )
    return PullConsumer("g", client=client, settings=settings, consume_from=ConsumeFrom.FIRST)


@pytest.mark.parametrize("malformed", MALFORMED)
async def test_an_orderly_consumer_survives_malformed_locks(malformed: str) -> None:
    """The consumer handles messages once LOCK_BATCH_MQ (41) has valid responses."""
    async with running_cluster() as cluster:
        restore = replace_responses(cluster.broker, RequestCode.LOCK_BATCH_MQ, MALFORMED[malformed])
        handled = asyncio.Event()

        async def handle(_message: object) -> None:
            handled.set()

        settings = ConsumerSettings(suspend_s=0.1, rebalance_interval_s=0.1, lock_renewal_s=0.2)
        async with (
            client_of(cluster) as client,
            PushConsumer(
                "g", client=client, settings=settings, consume_from=ConsumeFrom.FIRST, handler=handle, orderly=True
            ) as consumer,
        ):
            await consumer.subscribe("T")
            cluster.broker.store("T", 0, b"first")
            for _ in range(100):
                await asyncio.sleep(0)
            restore()
            async with asyncio.timeout(WAIT_LIMIT_S):
                await handled.wait()


@pytest.mark.parametrize("malformed", MALFORMED)
async def test_admin_calls_raise_client_errors_for_malformed_responses(malformed: str) -> None:
    """Each operation returns a result or raises a ClientError, whatever the name server and the broker send."""
    async with running_cluster() as cluster, client_of(cluster) as client, Admin(client=client) as admin:
        for server in (cluster.name_server, cluster.broker):
            for code in RequestCode:
                server.handlers.setdefault(code, lambda *_: MALFORMED[malformed]())
        for call in (
            admin.cluster(),
            admin.topics(),
            admin.groups(),
            admin.members("g"),
            admin.topic_offsets("T"),
            admin.group_offsets("g", "T"),
            admin.lag("g", "T"),
            admin.queues("T"),
        ):
            await in_time(call)
        cluster.name_server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda *_: MALFORMED[malformed]()
        await in_time(admin.queues("T"))


BROKER_REQUESTS: Final = (39, 40, 220, 221, 307, 309, 326, 31_999)


@pytest.mark.parametrize("code", BROKER_REQUESTS)
async def test_malformed_requests_of_a_broker_do_not_stop_a_consumer(code: int) -> None:
    """The consumer still receives messages after them."""
    async with running_cluster() as cluster, client_of(cluster) as client, pull_consumer(client) as consumer:
        await consumer.subscribe("T")
        cluster.broker.store("T", 0, b"first")
        assert await in_time(consumer.poll(1, timeout_s=5.0))
        bodies = (b"", b"7", b"[" * 50_000, b"\xff", b"{}")
        for connection in list(cluster.broker.members):
            for ext in (None, all_fields(DIGITS), all_fields("-1"), {"group": CONTROL, "topic": "T", "timestamp": "x"}):
                for body in bodies:
                    request = RemotingCommand.request(code, body=body)
                    request.ext = ext
                    connection.send(request)
        cluster.broker.store("T", 0, b"second")
        async with asyncio.timeout(WAIT_LIMIT_S):
            while not await consumer.poll(1, timeout_s=1.0):
                pass
