"""The brokers to load, and the requests before a load: topics are created, and bounds of queues are read.

A target is the address of a broker. With name servers, the targets are all masters that have the topic TBW102, from
which topics are created automatically: these are the brokers that let clients create topics.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import msgspec

from skylarkmq.clients.mqbench.workloads import Workload
from skylarkmq.clients.sdk.base.errors import BrokerError
from skylarkmq.clients.sdk.base.settings import ClientSettings, TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.connection_pool import Connections
from skylarkmq.clients.sdk.connection.routes import NameServers, Routes
from skylarkmq.clients.sdk.connection.tls import tls_context
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.protocol.codes import Permission, RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.queue import OffsetResponseHeader, QueueHeader
from skylarkmq.protocol.headers.topic import CreateTopicHeader

TEMPLATE_TOPIC: Final = "TBW102"
DEFAULT_BROKER_NAME: Final = "broker-a"  # RocketMQ's default broker name
TIMEOUT_S: Final = 10.0
LAG_S: Final = 30.0
LAG_LOOKS_S: Final = 0.05

T = TypeVar("T")


class Security(msgspec.Struct, frozen=True):
    """How to connect to brokers and name servers. `tls` None: no TLS; `credentials` None: requests are not signed."""

    tls: TlsSettings | None = None
    credentials: Credentials | None = None


NO_SECURITY: Final = Security()


class Broker(msgspec.Struct, frozen=True):
    """A broker: its name, `host:port`, and how to connect to it."""

    name: str
    address: str
    security: Security = NO_SECURITY

    @property
    def credentials(self) -> Credentials | None:
        """Return the credentials that sign requests; None: they are not signed."""
        return self.security.credentials


class Bounds(msgspec.Struct, frozen=True):
    """A queue, its first offset, and its end offset (the offset of the next message)."""

    broker: Broker
    topic: str
    queue_id: int
    first: int
    end: int


def find_brokers(target: str | None, namesrv: str | None, security: Security = NO_SECURITY) -> list[Broker]:
    """Return the broker at an address, or the brokers of name servers. Raises ClientError, ValueError."""
    if (target is None) == (namesrv is None):
        raise ValueError("give either the broker's HOST:PORT or name servers with -n")
    if target is not None:
        host, _, port = target.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"a broker must be HOST:PORT, not {target!r}")
        return [Broker(DEFAULT_BROKER_NAME, target, security)]
    return with_connections(security, lambda connections: masters(namesrv or "", connections, security))


async def masters(namesrv: str, connections: Connections, security: Security = NO_SECURITY) -> list[Broker]:
    """Return every master that is registered with the name servers."""
    route = await Routes(NameServers(namesrv, connections, TIMEOUT_S)).find(TEMPLATE_TOPIC)
    return [Broker(name, by_id[MASTER], security) for name, by_id in sorted(route.brokers.items()) if MASTER in by_id]


def create_topics(brokers: Sequence[Broker], workload: Workload) -> None:
    """Create the workload's topics with their queues on every broker. Raises ClientError."""
    requests = [
        (
            broker,
            CreateTopicHeader(
                topic=topic,
                default_topic=TEMPLATE_TOPIC,
                read_queue_nums=workload.queues,
                write_queue_nums=workload.queues,
                perm=Permission.READ | Permission.WRITE,
                topic_filter_type="SINGLE_TAG",
                topic_sys_flag=0,
                order="false",
            ),
        )
        for broker in brokers
        for topic in workload.topic_names()
    ]

    async def create(connections: Connections) -> None:
        for broker, header in requests:  # one by one: a broker saves all its topics for each
            await request(connections, broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    with_connections(brokers[0].security, create)


def bounds_of(brokers: Sequence[Broker], workload: Workload) -> list[Bounds]:
    """Return the bounds of each queue of the workload. Raises ClientError."""
    queues = [
        (broker, QueueHeader(topic=topic, queue_id=queue_id, bname=broker.name))
        for broker in brokers
        for topic in workload.topic_names()
        for queue_id in range(workload.queues)
    ]

    async def bounds(connections: Connections, broker: Broker, header: QueueHeader) -> Bounds:
        first, end = [
            (await request(connections, broker, code, header)).header(OffsetResponseHeader).offset
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        ]
        return Bounds(broker, header.topic, header.queue_id, max(first, 0), max(end, 0))

    async def all_bounds(connections: Connections) -> list[Bounds]:
        return list(await asyncio.gather(*(bounds(connections, *queue) for queue in queues)))

    return with_connections(brokers[0].security, all_bounds)


def added_since(before: Sequence[Bounds], workload: Workload, messages: int) -> list[Bounds]:
    """Return the bounds of the messages added since `before`, once there are `messages` of them. Raises ClientError.

    RocketMQ writes queue units after it responds. Messages that are missing after LAG_S are not waited for.
    """
    brokers = list(dict.fromkeys(queue.broker for queue in before))
    until_s = time.monotonic() + LAG_S
    while True:
        now = bounds_of(brokers, workload)
        added = [msgspec.structs.replace(queue, first=old.end) for old, queue in zip(before, now, strict=True)]
        if sum(queue.end - queue.first for queue in added) >= messages or time.monotonic() >= until_s:
            return added
        time.sleep(LAG_LOOKS_S)


async def request(connections: Connections, broker: Broker, code: int, header: Header) -> RemotingCommand:
    """Return the response of a broker. Raises an error if it is not a success."""
    connection = await connections.get(broker.address)
    response = await connection.invoke(RemotingCommand.request(code, header), TIMEOUT_S)
    if response.code != ResponseCode.SUCCESS:
        raise BrokerError.of(code, response.code, response.remark, f"broker {broker.address}")
    return response


def with_connections(security: Security, work: Callable[[Connections], Awaitable[T]]) -> T:
    """Run `work` with connections, on an event loop of its own."""

    async def run() -> T:
        settings = ClientSettings(credentials=security.credentials)
        connections = Connections(settings, {}, tls=tls_context(security.tls))
        try:
            return await work(connections)
        finally:
            await connections.close()

    return asyncio.run(run())
