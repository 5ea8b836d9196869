"""Connected clients: the producers of all brokers, and the members of consumer groups."""

from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.cluster import Cluster
from skylarkmq.clients.console.pages.groups import members_of
from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import respond
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import BrokerError
from skylarkmq.protocol.bodies.connections import ConsumerConnection, ProducerTable
from skylarkmq.protocol.codes import ResponseCode


class ProducerRow(NamedTuple):
    """A producer, and a broker that it is connected to."""

    group: str
    client_id: str
    client_address: str
    language: str
    version: int
    broker: str
    last_heartbeat_ms: int


class MemberRow(NamedTuple):
    """A member of a consumer group."""

    group: str
    client_id: str
    client_address: str
    language: str
    version: int


async def connections(request: Request) -> Response:
    """Serve the page. Members are read for the groups of the page only."""
    cluster = cluster_of(request)
    masters = await cluster.admin.masters()
    tables = await gathered([partial(_producers, cluster, where) for where in masters.values()])
    producers = sorted(
        ProducerRow(
            group, its.client_id, its.remote_ip.removeprefix("/"), its.language, its.version, broker,
            its.last_update_timestamp,
        )
        for broker, table in zip(masters, tables, strict=True)
        for group, infos in table.data.items()
        for its in infos
    )  # fmt: skip
    groups = list(await cluster.groups())
    page, group_page = paging(request, len(producers)), paging(request, len(groups), "groups")
    of_page = group_page.of(groups)
    found = await gathered([partial(members_of, cluster, name) for name in of_page])
    members = [row for name, members in zip(of_page, found, strict=True) for row in _members(name, members)]
    member_page = paging(request, len(members), "members")
    return respond(
        request, "connections.html", producers=page.of(producers), paging=page, members=member_page.of(members),
        member_paging=member_page, group_paging=group_page,
    )  # fmt: skip


async def _producers(cluster: Cluster, where: str) -> ProducerTable:
    try:
        return await cluster.admin.brokers.producers(where)
    except BrokerError as error:
        if error.code not in {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.SYSTEM_ERROR}:
            raise
        return ProducerTable()  # there are none, or the broker is older than this request


def _members(group: str, found: ConsumerConnection | None) -> list[MemberRow]:
    connected = [] if found is None else found.connection_set
    return sorted(MemberRow(group, its.client_id, its.client_addr, its.language, its.version) for its in connected)


ROUTES = [Route("/connections", connections)]
