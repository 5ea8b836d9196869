"""The routes of topics: requested from the name servers, cached, and refreshed.

Name servers do not communicate with each other; every broker registers with each of them. So any name server can serve
a request: requests go to the one that responded last, and to the next one after an error of the transport.

A route is requested at the first use of its topic, after errors that suggest a change, and every `route_refresh_s`. A
refresh that fails keeps the known route. Producers of a topic that does not exist yet get the route of the template
topic, with the name replaced and the number of queues limited by the producer's settings; the broker creates the topic
at the first message. An invalid route is rejected (clients/sdk/connection/topic_route.py).
Source: docs/reference/wire.md, "Routes".
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from skylarkmq.clients.sdk.base.errors import (
    BrokerError,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidArgument,
    NoRoute,
    RequestTimeout,
    checking_argument,
    reading_response,
)
from skylarkmq.clients.sdk.base.settings import MAX_ROUTE_QUEUES
from skylarkmq.clients.sdk.connection.connection_pool import Connections
from skylarkmq.clients.sdk.connection.fork_safety import register
from skylarkmq.clients.sdk.connection.topic_route import MASTER, TopicRoute, is_address
from skylarkmq.protocol.bodies.route import TopicRouteData
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.topic import TopicHeader

TRANSPORT_ERRORS: Final = (ConnectFailed, ConnectionLost, RequestTimeout)

log = logging.getLogger(__name__)


class NameServers:
    """Requests to the name servers; `addresses` is `host:port;host:port`, or a list of `host:port`."""

    def __init__(self, addresses: str | Sequence[str], connections: Connections, timeout_s: float) -> None:
        with checking_argument("namesrv"):
            each = addresses.split(";") if isinstance(addresses, str) else [str(address) for address in addresses]
        self.addresses: Sequence[str] = [address for part in each if (address := part.strip())]
        if not self.addresses or not all(map(is_address, self.addresses)):
            raise InvalidArgument(f"namesrv must be host:port or host:port;host:port, not {addresses!r}")
        self._connections = connections
        self._timeout_s = timeout_s
        self._current = 0

    def __repr__(self) -> str:
        return f"<NameServers {self.addresses[self._current]} of {len(self.addresses)}>"

    async def connect(self) -> None:
        """Open a connection to the first name server that can be reached. The last transport error if none can."""
        failure: ClientError | None = None
        for _ in self.addresses:
            try:
                await self._connections.get(self.addresses[self._current])
            except TRANSPORT_ERRORS as error:
                failure = error
                self._current = (self._current + 1) % len(self.addresses)
            else:
                return
        assert failure is not None
        raise failure

    async def request(self, code: int, header: Header | None = None, topic: str | None = None) -> bytes:
        """Return the body of a successful response. BrokerError, or the last error of the transport."""
        return bytes((await self.request_any(code, header, topic)).body)

    async def request_any(self, code: int, header: Header | None = None, topic: str | None = None) -> RemotingCommand:
        """Return the successful response of one name server. BrokerError, or the last error of the transport."""
        failure: ClientError | None = None
        for _ in self.addresses:
            try:
                return await self.request_to(self.addresses[self._current], code, header, topic=topic)
            except TRANSPORT_ERRORS as error:
                failure = error
                self._current = (self._current + 1) % len(self.addresses)
        assert failure is not None
        raise failure

    async def request_to(
        self, address: str, code: int, header: Header | None = None, body: bytes = b"", topic: str | None = None
    ) -> RemotingCommand:
        """Return the successful response of the name server at `address`. BrokerError, or an error of the transport."""
        connection = await self._connections.get(address)
        response = await connection.invoke(RemotingCommand.request(code, header, body), self._timeout_s)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError.of(code, response.code, response.remark, f"name server {address}", topic)
        return response

    async def request_each(self, code: int, header: Header | None = None, body: bytes = b"") -> None:
        """Send a request to all name servers. The first error is raised after all requests."""
        failures: list[ClientError] = []
        for address in self.addresses:
            try:
                await self.request_to(address, code, header, body)
            except (BrokerError, *TRANSPORT_ERRORS) as error:
                failures.append(error)
        if failures:
            raise failures[0]


class Routes:
    """The routes of all topics in use. A route of more than `max_queues` queues is an InvalidResponse."""

    def __init__(self, name_servers: NameServers, max_queues: int = MAX_ROUTE_QUEUES) -> None:
        self.name_servers = name_servers
        self._max_queues = max_queues
        self._routes: dict[str, TopicRoute] = {}
        self._fetching: dict[str, asyncio.Task[TopicRoute]] = {}
        register(self.forked)

    def __repr__(self) -> str:
        return f"<Routes {len(self._routes)} topics>"

    def known(self, topic: str) -> TopicRoute | None:
        """Return the cached route, or None."""
        return self._routes.get(topic)

    def broker_addresses(self, *, masters_only: bool) -> set[str]:
        """Return the address of every broker in any cached route."""
        return {
            address
            for route in self._routes.values()
            for addresses in route.brokers.values()
            for broker_id, address in addresses.items()
            if broker_id == MASTER or not masters_only
        }

    async def find(self, topic: str) -> TopicRoute:
        """Return the cached route, or request it. NoRoute, or the errors of `NameServers.request`."""
        return self._routes.get(topic) or await self.reload(topic)

    async def find_or_template(self, topic: str, template: str, max_queues: int) -> TopicRoute:
        """Return the route as `find` does; for a topic that does not exist, the route of its first message."""
        try:
            return await self.find(topic)
        except NoRoute:
            try:
                data = await self.request(template)
            except NoRoute:
                raise self._no_route(topic) from None
            route = self._routes[topic] = TopicRoute.of(topic, data, max_queues, self._max_queues)
            log.info(
                "topic does not exist, its brokers will create it topic=%s queues=%d", topic, len(route.publish_queues)
            )
            return route

    async def reload(self, topic: str) -> TopicRoute:
        """Request a route again. Concurrent calls for the same topic share one request."""
        fetching = self._fetching.get(topic)
        if fetching is None:
            fetching = asyncio.create_task(self._fetch(topic), name=f"route/{topic}")
            self._fetching[topic] = fetching
            fetching.add_done_callback(lambda task: self._fetched(topic, task))
        try:
            return await asyncio.shield(fetching)
        finally:
            del fetching  # else a NoRoute, this frame in its traceback, and the task would be a reference cycle

    async def refresh(self) -> None:
        """Request every cached route again."""
        for topic in list(self._routes):
            try:
                await self.reload(topic)
            except NoRoute:
                log.debug("topic has no route now, keeping the old one topic=%s", topic)
            except TRANSPORT_ERRORS as error:  # requests for other topics would wait for the same name servers
                log.warning("routes not refreshed, keeping the old ones error=%s", error)
                return
            except ClientError as error:
                log.warning("route not refreshed, keeping the old one topic=%s error=%s", topic, error)

    def forked(self) -> None:
        """Drop the parent's routes and requests, in the child of a fork."""
        self._routes.clear()
        self._fetching.clear()

    async def close(self) -> None:
        """Cancel running requests."""
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, topic: str) -> TopicRoute:
        route = TopicRoute.of(topic, await self.request(topic), None, self._max_queues)
        if route != self._routes.get(topic):
            log.info("route topic=%s brokers=%s queues=%d", topic, sorted(route.brokers), len(route.publish_queues))
            self._routes[topic] = route
        return route

    def _fetched(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        del self._fetching[topic]
        if not task.cancelled():
            task.exception()  # the callers of `reload` receive the exception

    async def request(self, topic: str) -> TopicRouteData:
        """Return the route as a name server sends it: unchecked, not cached. NoRoute, as `find`."""
        header = TopicHeader(topic=topic, accept_standard_json_only="true")
        try:
            body = await self.name_servers.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, topic)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise self._no_route(topic) from error
            raise
        with reading_response(RequestCode.GET_ROUTEINFO_BY_TOPIC, "a name server", topic):
            return TopicRouteData.decode(body)

    def _no_route(self, topic: str) -> NoRoute:
        known = ", ".join(self.name_servers.addresses)
        return NoRoute(
            f"no name server ({known}) has topic {topic}. Create it, or allow autoCreateTopicEnable on a broker; "
            "if it exists, check that its broker is registered with these name servers.",
            code=ResponseCode.TOPIC_NOT_EXIST,
            topic=topic,
        )
