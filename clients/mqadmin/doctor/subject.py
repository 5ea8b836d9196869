"""The state of the cluster that several checks read. Each part is read once, when the first check needs it.

Requests to many brokers run at the same time, at most MAX_CONCURRENT. The result for one server is its data or its
ClientError, so that one broker does not end the examination of the others. `NotAvailable` ends a check that has nothing
to examine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeVar

from skylarkmq.clients.mqadmin.people.broker_state import number_of
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import BrokerError, ClientError
from skylarkmq.clients.sdk.connection.topic_route import MASTER, checked_cluster
from skylarkmq.protocol.bodies.cluster import ClusterInfo
from skylarkmq.protocol.bodies.connections import ConsumerConnection
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode

MAX_CONCURRENT: Final = 16
K = TypeVar("K")
T = TypeVar("T")


class NotAvailable(Exception):
    """A check has nothing to examine. The text is the reason."""


class Wanted(NamedTuple):
    """The options of the command. `sample_s`: seconds between the two readings of a group's lag."""

    topic: str | None = None
    group: str | None = None
    metrics_url: str | None = None
    sample_s: float = 5.0


class Target(NamedTuple):
    """A registered broker. `broker_id` 0 is a master."""

    cluster: str
    name: str
    broker_id: int
    address: str

    def __str__(self) -> str:
        return f"{self.name}:{self.broker_id} {self.address}"


class State(NamedTuple):
    """The runtime information of a broker, and the times (ms, of this host) of its request and response."""

    table: dict[str, str]
    sent_ms: int
    received_ms: int

    def number(self, key: str) -> float | None:
        """Return the first number of a value; None if the broker does not report it."""
        return number_of(self.table.get(key))


class Subject:
    """The cluster under examination."""

    def __init__(self, admin: Admin, wanted: Wanted) -> None:
        self.admin = admin
        self.wanted = wanted
        self._views: dict[str, ClusterInfo | ClientError] | None = None
        self._states: dict[Target, State | ClientError] | None = None
        self._configs: dict[Target, dict[str, str] | ClientError] | None = None

    def __repr__(self) -> str:
        return f"<Subject {self.admin!r}>"

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Return the addresses of the name servers."""
        return self.admin.name_servers.addresses

    async def views(self) -> dict[str, ClusterInfo | ClientError]:
        """Return the registered brokers by name server."""
        if self._views is None:
            self._views = await _each(self.name_servers, self._view)
        return self._views

    async def targets(self) -> list[Target]:
        """Return all brokers of all name servers, sorted. NotAvailable if there are none."""
        found: set[Target] = set()
        views = [view for view in (await self.views()).values() if isinstance(view, ClusterInfo)]
        if not views:
            raise NotAvailable("no name server responds")
        for view in views:
            found |= targets_in(view)
        if not found:
            raise NotAvailable("no broker is registered")
        return sorted(found)

    async def states(self) -> dict[Target, State | ClientError]:
        """Return the runtime information of each broker. NotAvailable if there are none."""
        if self._states is None:
            self._states = await _each(await self.targets(), self._state)
        return self._states

    async def known_states(self) -> dict[Target, State]:
        """Return the runtime information of the brokers that respond. NotAvailable if there are none."""
        found = {target: state for target, state in (await self.states()).items() if isinstance(state, State)}
        if not found:
            raise NotAvailable("no broker responds")
        return found

    async def configs(self) -> dict[Target, dict[str, str] | ClientError]:
        """Return the settings of the brokers that respond. NotAvailable if there are none."""
        if self._configs is None:
            self._configs = await _each(await self.known_states(), self._config)
        return self._configs

    async def setting(self, target: Target, key: str) -> float | None:
        """Return the number of a setting; None if it cannot be read, or the broker does not have it."""
        config = (await self.configs()).get(target)
        return number_of(config.get(key)) if isinstance(config, dict) else None

    async def group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group, from the first broker that has it; None if none has."""
        for target in await self._known_masters():
            config = (await self.admin.group_config.on_broker(target.address)).get(group)
            if config is not None:
                return config
        return None

    async def members(self, group: str) -> ConsumerConnection | None:
        """Return the members of a group, from the first broker that has some; None if the group is not online."""
        for target in await self._known_masters():
            try:
                return await self.admin.group_config.consumers(group, target.address)
            except BrokerError as problem:
                if problem.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
        return None

    async def _known_masters(self) -> list[Target]:
        return [target for target in await self.known_states() if is_master(target)]

    async def _view(self, address: str) -> ClusterInfo:
        servers = self.admin.client.routes.name_servers
        return checked_cluster(bytes((await servers.request_to(address, RequestCode.GET_BROKER_CLUSTER_INFO)).body))

    async def _state(self, target: Target) -> State:
        await self.admin.client.brokers.get(target.address)  # the time to connect is no part of the request's
        sent_ms = now_ms()
        table = await self.admin.brokers.runtime_info(target.address)
        return State(table, sent_ms, now_ms())

    async def _config(self, target: Target) -> dict[str, str]:
        return await self.admin.brokers.config(target.address)


async def _each(keys: Iterable[K], read: Callable[[K], Awaitable[T]]) -> dict[K, T | ClientError]:
    """Return the result of `read`, or its ClientError, for each key."""
    limit = asyncio.Semaphore(MAX_CONCURRENT)
    wanted = list(keys)

    async def one(key: K) -> T | ClientError:
        async with limit:
            try:
                return await read(key)
            except ClientError as problem:
                return problem

    results = await asyncio.gather(*map(one, wanted))
    return dict(zip(wanted, results, strict=True))


def targets_in(view: ClusterInfo) -> set[Target]:
    """Return the brokers that a name server has."""
    return {
        Target(data.cluster, data.broker_name, *each)
        for data in view.broker_addr_table.values()
        for each in data.broker_addrs.items()
    }


def is_master(target: Target) -> bool:
    """Return whether a broker is a master."""
    return target.broker_id == MASTER


def is_not_served(problem: Exception) -> bool:
    """Return whether a broker or name server of another version does not serve the request."""
    return isinstance(problem, BrokerError) and problem.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
