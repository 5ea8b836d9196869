"""What the producers and consumers of a process may share: connections, routes, heartbeats, one client id.

Each producer or consumer makes a client of its own unless it is given one. Members of one consumer group must not share
a client: a broker tells members apart by connection and client id.

A broker connection begins with a heartbeat that names all groups here, and repeats it every `heartbeat_s`; a group that
joins or changes beats at once. A broker that leaves a heartbeat unanswered is taken for dead, and its connection is
closed, so that nothing waits for it any longer.

Answers other than SUCCESS become BrokerError here, for whoever calls `ask`.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol, Self

import msgspec

from skylarkmq.clients.connection.background_tasks import Background
from skylarkmq.clients.connection.broker_requests import Callbacks
from skylarkmq.clients.connection.connection import Connection, ConnectionStatistics
from skylarkmq.clients.connection.connection_events import ConnectionObservers
from skylarkmq.clients.connection.connection_pool import Connections
from skylarkmq.clients.connection.routes import NameServers, Routes
from skylarkmq.clients.connection.tls import tls_context
from skylarkmq.clients.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    InvalidArgument,
    RequestTimeout,
    checking_argument,
    printable,
    reading_response,
)
from skylarkmq.clients.settings import ClientSettings
from skylarkmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import MSGPACK, RemotingCommand
from skylarkmq.protocol.headers.consumer import UnregisterClientHeader
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.message_id import UniqueIds
from skylarkmq.protocol.msgpack_header import ANNOUNCED_AS, ANNOUNCED_BY

log = logging.getLogger(__name__)


class Member(Protocol):
    """A consumer, as its client sees it."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """What a heartbeat says of it."""


class Stoppable(Protocol):
    """A producer, consumer or Admin that runs on a client."""

    async def stop(self) -> None:
        """Leave the client; it still runs."""


class ClientStatistics(msgspec.Struct, frozen=True):
    """A client at one moment."""

    client_id: str
    producer_groups: tuple[str, ...]
    consumer_groups: tuple[str, ...]
    name_servers: tuple[ConnectionStatistics, ...]
    brokers: tuple[ConnectionStatistics, ...]


class Client:
    """`namesrv` is `host:port;host:port`, or a list of `host:port`. Use as `async with`, or `start` and `close`."""

    def __init__(self, namesrv: str | Sequence[str], settings: ClientSettings | None = None) -> None:
        self.settings = settings or ClientSettings()
        self.ip = local_ip()
        self.client_id = f"{self.ip}@{os.getpid()}#{time.time_ns()}"
        self._background = Background("client")
        self.callbacks = Callbacks(self._background.spawn)
        with checking_argument("tls"):
            tls = tls_context(self.settings.tls)
        self._name_server_connections = Connections(self.settings, {}, tls=tls)
        self.brokers = Connections(self.settings, self.callbacks.handlers(), self._greet, tls)
        self.observers = ConnectionObservers(self.client_id)
        for connections, is_name_server in ((self._name_server_connections, True), (self.brokers, False)):
            connections.on_connected = partial(self.observers.connected, is_name_server=is_name_server)
            connections.on_disconnected = partial(self.observers.disconnected, is_name_server=is_name_server)
        name_servers = NameServers(namesrv, self._name_server_connections, self.settings.request_timeout_s)
        self.routes = Routes(name_servers, self.settings.max_route_queues)
        self.running: list[Stoppable] = []  # in the order of their starts
        self._producer_groups: list[str] = []
        self._members: dict[str, Member] = {}
        self._running = self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __repr__(self) -> str:
        return f"<Client {self.client_id} {self.brokers}>"

    def statistics(self) -> ClientStatistics:
        """The client's figures now."""
        return ClientStatistics(
            client_id=self.client_id,
            producer_groups=tuple(self._producer_groups),
            consumer_groups=tuple(self._members),
            name_servers=self._name_server_connections.statistics(),
            brokers=self.brokers.statistics(),
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to refresh routes and to send heartbeats; connections open when they are needed."""
        if self._running:
            raise ClientClosed("this client was started before: make another one")
        self._running = True
        self._loop = asyncio.get_running_loop()
        self._background.repeat("routes", self.routes.refresh, self.settings.route_refresh_s)
        self._background.repeat("heartbeats", self.beat, self.settings.heartbeat_s)

    async def close(self) -> None:
        """Stop the objects that still run, in the reverse order of their starts, and close all connections."""
        self._closed = True
        try:
            while self.running:
                await self.running[-1].stop()
        finally:
            await self._background.stop()
            await self.routes.close()
            await asyncio.gather(self.brokers.close(), self._name_server_connections.close())

    def check_usable(self) -> None:
        """Raise ClientClosed before the start and after `close`, InvalidArgument on another event loop."""
        if self._closed:
            raise ClientClosed("this client is closed: make another one")
        if self._loop is None:
            raise ClientClosed("this client is not started: use it inside `async with`, or call start()")
        if self._loop is not asyncio.get_running_loop():
            raise InvalidArgument("this client runs on another event loop: make one on this loop")

    @property
    def name_servers(self) -> Sequence[str]:
        """The addresses of the name servers, `host:port`."""
        return self.routes.name_servers.addresses

    # ------------------------------------------------------------------------------------------------------ requests

    async def ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        topic: str | None = None,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Return the successful response of the broker at `address`. BrokerError for any other code, or an error of
        the transport. `timeout_s` includes the time to connect; without it the settings' times apply one by one.
        """
        request = RemotingCommand.request(code, header, body)
        if timeout_s is None:
            connection = await self.brokers.get(address)
            answer = await connection.invoke(request, self.settings.request_timeout_s)
        else:
            answer = await self._invoke_within(timeout_s, address, request)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError.of(code, answer.code, answer.remark, f"broker {address}", topic)
        return answer

    async def _invoke_within(self, timeout_s: float, address: str, request: RemotingCommand) -> RemotingCommand:
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline_s):
                connection = await self.brokers.get(address)
        except TimeoutError as error:
            raise RequestTimeout(
                f"no connection to {address} within {timeout_s:g} s; nothing was sent. Check that it runs.",
                broker=address,
            ) from error
        return await connection.invoke(request, deadline_s - asyncio.get_running_loop().time())

    # -------------------------------------------------------------------------------------------------------- groups

    def join_as_producer(self, group: str) -> None:
        """Name `group` in heartbeats from now on."""
        self._producer_groups.append(group)

    def join_as_consumer(self, member: Member) -> None:
        """Name the member's group in heartbeats from now on; one member of a group per client."""
        if member.group in self._members:
            raise InvalidArgument(
                f"group {member.group} has a member on this client already: give each member its own client"
            )
        self._members[member.group] = member

    async def leave_as_producer(self, group: str) -> None:
        """Tell the brokers that a producer is gone."""
        self._producer_groups.remove(group)
        if group not in self._producer_groups:
            await self._unregister(UnregisterClientHeader(client_id=self.client_id, producer_group=group))

    async def leave_as_consumer(self, member: Member) -> None:
        """Tell the brokers that a member is gone; the others take over its queues."""
        del self._members[member.group]
        await self._unregister(UnregisterClientHeader(client_id=self.client_id, consumer_group=member.group))

    async def _unregister(self, header: UnregisterClientHeader) -> None:
        await asyncio.gather(*(self._unregister_at(address, header) for address in self.brokers.addresses()))

    async def _unregister_at(self, address: str, header: UnregisterClientHeader) -> None:
        try:
            await self.ask(address, RequestCode.UNREGISTER_CLIENT, header)
        except ClientError as error:
            log.info("broker not told of the leave, it will notice the closed connection error=%s", error)

    # ---------------------------------------------------------------------------------------------------- heartbeats

    async def beat(self) -> None:
        """Send a heartbeat to every broker of the known routes."""
        if not self._producer_groups and not self._members:
            return
        addresses = self.routes.broker_addresses(masters_only=not self._members)
        await asyncio.gather(*(self._beat_one(address) for address in addresses))

    async def _beat_one(self, address: str) -> None:
        connection = self.brokers.current(address)
        try:
            if connection is None:
                await self.brokers.get(address)  # which begins with a heartbeat
            else:
                await self._greet(connection)
        except RequestTimeout:
            log.warning("closing connection, its heartbeat was not answered peer=%s", address)
            if connection is not None:
                connection.close()
        except ClientError as error:
            log.warning("heartbeat failed peer=%s error=%s", address, error)

    async def _greet(self, connection: Connection) -> None:
        heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, body=self._heartbeat().encode())
        answer = await connection.invoke(heartbeat, self.settings.request_timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            remark = printable(answer.remark or "")
            log.warning("heartbeat refused peer=%s code=%d remark=%s", connection.peer, answer.code, remark)
            return
        with reading_response(RequestCode.HEART_BEAT, connection.peer):
            if answer.ext_fields().get(ANNOUNCED_BY) == ANNOUNCED_AS:
                connection.dialect = MSGPACK

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in dict.fromkeys(self._producer_groups)],
            consumer_data_set=[member.consumer_data() for member in self._members.values()],
        )


def unique_ids(client: Client) -> UniqueIds:
    """Ids for the messages of one participant."""
    return UniqueIds(client.ip, os.getpid(), time.time_ns() & 0xFFFF_FFFF)


def local_ip() -> str:
    """The address from which this host reaches others; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation: only the routing table is asked
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
