"""The shared part of Admin and its sections: requests to an address, and the addresses of a cluster or topic.

A section is a class that gets one AdminRequests and holds nothing else:

    class Brokers:
        def __init__(self, requests: AdminRequests) -> None: ...

        async def runtime_info(self, address: str, *, timeout_s: float | None = None) -> dict[str, str]:
            async with self._requests.within(timeout_s, "runtime_info"):
                return (await self._requests.read(KVTable, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table

`within` limits a whole call; each request in it also has the limits of `ClientSettings`, or its own `timeout_s`. All
methods raise BrokerError, NoRoute, InvalidResponse, or an error of the transport.
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

from skylarkmq.clients.sdk.base.errors import NoRoute, checking_argument, printable, reading_response
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.clients.sdk.connection.topic_route import MASTER, checked_cluster
from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.fields import Header

B = TypeVar("B", bound=Body)
H = TypeVar("H", bound=Header)


class Within(Protocol):
    """Limits the time of a call; None: `ClientSettings.call_timeout_s`."""

    def __call__(self, timeout_s: float | None, call: str) -> AbstractAsyncContextManager[None]: ...


class AdminRequests:
    """The requests of one Admin."""

    def __init__(self, client: Client, within: Within) -> None:
        self.client = client
        self.within = within

    def __repr__(self) -> str:
        return f"<AdminRequests {self.client}>"

    # ------------------------------------------------------------------------------------------------------- requests

    async def send(
        self, address: str, code: int, header: Header | None = None, body: bytes = b"", timeout_s: float | None = None
    ) -> RemotingCommand:
        """Return the successful response of a broker. BrokerError for any other code."""
        topic = getattr(header, "topic", None)
        return await self.client.request(address, code, header, body, topic=topic, timeout_s=timeout_s)

    async def read(
        self,
        kind: type[B],
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        timeout_s: float | None = None,
    ) -> B:
        """Return the body of a broker's response. InvalidResponse if it is none of this kind."""
        response = await self.send(address, code, header, body, timeout_s)
        with reading_response(code, f"broker {address}"):
            return kind.decode(response.body)

    async def read_header(
        self, kind: type[H], address: str, code: int, header: Header | None = None, timeout_s: float | None = None
    ) -> H:
        """Return the ext fields of a broker's response. InvalidResponse if they are not of this kind."""
        response = await self.send(address, code, header, timeout_s=timeout_s)
        with reading_response(code, f"broker {address}"):
            return response.header(kind)

    # ------------------------------------------------------------------------------------------------------ addresses

    async def cluster(self) -> ClusterInfo:
        """Return all registered brokers."""
        return checked_cluster(await self.client.routes.name_servers.request(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return the address of each master, by broker name, sorted. NoRoute if there is no such cluster."""
        addresses = await self.broker_addresses(cluster)
        return {name: by_id[MASTER] for name, by_id in addresses.items() if MASTER in by_id}

    async def broker_addresses(self, cluster: str | None = None) -> dict[str, dict[int, str]]:
        """Return all addresses by broker id, by broker name, sorted. NoRoute if there is no such cluster."""
        info = await self.cluster()
        brokers = {name: dict(sorted(data.broker_addrs.items())) for name, data in info.broker_addr_table.items()}
        if cluster is None:
            return dict(sorted(brokers.items()))
        if cluster not in info.cluster_addr_table:
            known = ", ".join(map(printable, sorted(info.cluster_addr_table))) or "none"
            raise NoRoute(f"no cluster {printable(cluster)} is registered. Registered: {known}.")
        return {name: brokers[name] for name in sorted(info.cluster_addr_table[cluster]) if name in brokers}

    async def master_addresses(self, brokers: Iterable[str] | None = None) -> list[str]:
        """Return the addresses of the masters with these names; None: of all. NoRoute if one is not registered."""
        with checking_argument("brokers"):
            names = None if brokers is None else set(brokers)
        masters = await self.masters()
        unknown = (names or set()) - set(masters)
        if unknown or not masters:
            raise NoRoute(
                f"no master is registered of {sorted(unknown) or 'any broker'}. Registered: {sorted(masters)}."
            )
        return [address for name, address in masters.items() if names is None or name in names]

    async def addresses_of(self, topic: str) -> list[str]:
        """Return an address of each broker that has the topic: its master, or else a slave. NoRoute if none has."""
        route = await self.client.routes.reload(topic)
        if not route.brokers:
            raise NoRoute(f"the route of topic {topic} names no broker. Check its registration.", topic=topic)
        return [route.address(name) for name in sorted(route.brokers)]
