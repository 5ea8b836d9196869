"""The replication of brokers: masters with their connected copies, and slaves with their connections.

RocketMQ 4.9 does not report it; its brokers have the reason in their row.
"""

from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.cluster import Cluster
from skylarkmq.clients.console.rendering import respond
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.protocol.bodies.ha import HARuntimeInfo


class ReplicaRow(NamedTuple):
    """One broker: its place in the cluster, and the state of its replication; `problem`: why there is none."""

    name: str
    broker_id: int
    address: str
    state: HARuntimeInfo
    problem: str | None

    @property
    def is_master(self) -> bool:
        """Return whether the broker is registered as a master."""
        return self.broker_id == MASTER


async def replication(request: Request) -> Response:
    """Serve the page."""
    cluster = cluster_of(request)
    info = await cluster.admin.cluster()
    places = [
        (name, broker_id, address)
        for name, data in sorted(info.broker_addr_table.items())
        for broker_id, address in sorted(data.broker_addrs.items())
    ]
    rows = await gathered([partial(_row, cluster, *place) for place in places])
    masters = [row for row in rows if row.is_master]
    copies = [(row.name, copy) for row in masters for copy in row.state.ha_connection_info]
    return respond(
        request,
        "replication.html",
        masters=masters,
        copies=sorted(copies, key=lambda each: (each[0], each[1].addr)),
        slaves=[row for row in rows if not row.is_master],
    )


async def _row(cluster: Cluster, name: str, broker_id: int, address: str) -> ReplicaRow:
    try:
        state = await cluster.admin.brokers.ha_status(address)
    except ClientError as error:
        return ReplicaRow(name, broker_id, address, HARuntimeInfo(), str(error))
    return ReplicaRow(name, broker_id, address, state, None)


ROUTES = [Route("/replication", replication)]
