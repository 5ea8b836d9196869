"""The client that producers and consumers share: connections, routes, heartbeats, one client id.

Each producer or consumer makes its own client unless one is given. Members of one consumer group must not share a
client: a broker distinguishes the members of a group by connection and client id.

The first request of a broker connection is a heartbeat that names all groups of the client. It is repeated every
`heartbeat_s`, and sent at once when a group joins or changes its subscriptions. If a broker does not respond to a
heartbeat, the client closes the connection, so that no request waits for it.

`Client.request` raises BrokerError for responses other than SUCCESS.
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

from skylarkmq.clients.sdk.base.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    InvalidArgument,
    RequestTimeout,
    checking_argument,
    printable,
    reading_response,
)
from skylarkmq.clients.sdk.base.settings import ClientSettings
from skylarkmq.clients.sdk.connection.background_tasks import Background
from skylarkmq.clients.sdk.connection.broker_requests import Callbacks
from skylarkmq.clients.sdk.connection.connection import Connection, ConnectionStatistics
from skylarkmq.clients.sdk.connection.connection_pool import Connections
from skylarkmq.clients.sdk.connection.routes import NameServers, Routes
from skylarkmq.clients.sdk.connection.tls import tls_context
from skylarkmq.clients.sdk.telemetry.connection_events import ConnectionObservers
from skylarkmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import MSGPACK, RemotingCommand
from skylarkmq.protocol.headers.consumer import UnregisterClientHeader
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.message_id import UniqueIds
from skylarkmq.protocol.msgpack_header import ANNOUNCED_AS, ANNOUNCED_BY

log = logging.getLogger(__name__)


class Member(Protocol):
    """A consumer that belongs to a client."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """Return the part of a heartbeat that describes the consumer."""


class Stoppable(Protocol):
    """A producer, consumer or Admin that runs on a client."""

    async def stop(self) -> None:
        """Leave the client, which still runs."""


class ClientStatistics(msgspec.Struct, frozen=True):
    """The figures of a client."""

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
        """Return the client's figures now."""
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
        """Start refreshing routes and sending heartbeats; connections open when they are needed."""
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
        """Return the addresses of the name servers, `host:port`."""
        return self.routes.name_servers.addresses

    # ------------------------------------------------------------------------------------------------------ requests

    async def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        topic: str | None = None,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Return the successful response of the broker at `address`.

        BrokerError for any other code, or an error of the transport. `timeout_s` includes the time to connect. Without
        it, `connect_timeout_s` and `request_timeout_s` of the settings apply one after the other.
        """
        request = RemotingCommand.request(code, header, body)
        if timeout_s is None:
            connection = await self.brokers.get(address)
            response = await connection.invoke(request, self.settings.request_timeout_s)
        else:
            response = await self._invoke_within(timeout_s, address, request)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError.of(code, response.code, response.remark, f"broker {address}", topic)
        return response

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
        """Include `group` in heartbeats from now on."""
        self._producer_groups.append(group)

    def join_as_consumer(self, member: Member) -> None:
        """Include the member's group in heartbeats from now on. InvalidArgument if the group has a member already."""
        if member.group in self._members:
            raise InvalidArgument(
                f"group {member.group} has a member on this client already: give each member its own client"
            )
        self._members[member.group] = member

    async def leave_as_producer(self, group: str) -> None:
        """Unregister a producer from the brokers."""
        self._producer_groups.remove(group)
        if group not in self._producer_groups:
            await self._unregister(UnregisterClientHeader(client_id=self.client_id, producer_group=group))

    async def leave_as_consumer(self, member: Member) -> None:
        """Unregister a member from the brokers; the other members take over its queues."""
        del self._members[member.group]
        await self._unregister(UnregisterClientHeader(client_id=self.client_id, consumer_group=member.group))

    async def _unregister(self, header: UnregisterClientHeader) -> None:
        await asyncio.gather(*(self._unregister_at(address, header) for address in self.brokers.addresses()))

    async def _unregister_at(self, address: str, header: UnregisterClientHeader) -> None:
        try:
            await self.request(address, RequestCode.UNREGISTER_CLIENT, header)
        except ClientError as error:
            log.info("client not unregistered, the broker will detect the closed connection error=%s", error)

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
                await self.brokers.get(address)  # its first request is a heartbeat
            else:
                await self._greet(connection)
        except RequestTimeout:
            log.warning("closing connection, no response to its heartbeat peer=%s", address)
            if connection is not None:
                connection.close()
        except ClientError as error:
            log.warning("heartbeat failed peer=%s error=%s", address, error)

    async def _greet(self, connection: Connection) -> None:
        heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, body=self._heartbeat().encode())
        response = await connection.invoke(heartbeat, self.settings.request_timeout_s)
        if response.code != ResponseCode.SUCCESS:
            remark = printable(response.remark or "")
            log.warning("heartbeat refused peer=%s code=%d remark=%s", connection.peer, response.code, remark)
            return
        with reading_response(RequestCode.HEART_BEAT, connection.peer):
            is_announced = response.ext_fields().get(ANNOUNCED_BY) == ANNOUNCED_AS
            if is_announced and self.settings.credentials is None:  # see signing.py
                connection.dialect = MSGPACK

    def _heartbeat(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in dict.fromkeys(self._producer_groups)],
            consumer_data_set=[member.consumer_data() for member in self._members.values()],
        )


def unique_ids(client: Client) -> UniqueIds:
    """Return a generator of the message ids of one producer or consumer."""
    return UniqueIds(client.ip, os.getpid(), time.time_ns() & 0xFFFF_FFFF)


def local_ip() -> str:
    """Return the address from which this host reaches other hosts. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address; connect() only reads the routing table
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
