"""The first page: brokers with their state and rates. Rates are drawn from the samples of `rates.py`."""

import time
from functools import partial
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.charts import line_chart
from skylarkmq.clients.console.cluster import Cluster
from skylarkmq.clients.console.rates import Counters
from skylarkmq.clients.console.rendering import respond
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.protocol.decimals import decimal


class BrokerRow(NamedTuple):
    """One broker: its place in the cluster, and its runtime info; `problem`: why there is none."""

    cluster: str
    name: str
    broker_id: int
    address: str
    info: dict[str, str]
    problem: str | None

    @property
    def counters(self) -> Counters | None:
        """Return the counters of stored and delivered messages; None if the broker gives none."""
        stored, delivered = (decimal(self.info.get(key)) for key in ("msgPutTotalTodayNow", "msgGetTotalTodayNow"))
        return None if stored is None or delivered is None else Counters(stored, delivered)

    @property
    def started_ms(self) -> int | None:
        """Return when the broker has started, Unix ms."""
        return decimal(self.info.get("bootTimestamp"))

    def rate(self, key: str) -> str:
        """Return the rate of the last 10 s, the first of three numbers."""
        first = self.info.get(key, "").split()[:1]
        try:
            return f"{float(first[0]):,.1f}" if first else "–"
        except ValueError:
            return "–"

    def percent(self, key: str) -> str:
        """Return a ratio as percent."""
        try:
            return f"{float(self.info.get(key, '')) * 100:.0f} %"
        except ValueError:
            return "–"


async def broker_rows(cluster: Cluster) -> list[BrokerRow]:
    """Return all registered brokers. A broker that does not respond has a `problem`."""
    info = await cluster.admin.cluster()
    places = [
        (data.cluster, name, broker_id, address)
        for name, data in sorted(info.broker_addr_table.items())
        for broker_id, address in sorted(data.broker_addrs.items())
    ]
    return await gathered([partial(_row, cluster, *place) for place in places])


async def _row(cluster: Cluster, cluster_name: str, name: str, broker_id: int, address: str) -> BrokerRow:
    try:
        info = await cluster.admin.brokers.runtime_info(address)
    except ClientError as error:
        return BrokerRow(cluster_name, name, broker_id, address, {}, str(error))
    return BrokerRow(cluster_name, name, broker_id, address, info, None)


async def overview(request: Request) -> Response:
    """Serve the page."""
    cluster = cluster_of(request)
    rows = await broker_rows(cluster)
    now_s = time.monotonic()
    cluster.rates.add(now_s, {row.address: row.counters for row in rows if row.counters is not None})
    rates = cluster.rates.rates
    ages = [now_s - rate.at_s for rate in rates]
    charts = [
        ("Messages stored per second", line_chart("chart-stored", "Stored", ages, [r.stored for r in rates])),
        (
            "Messages delivered per second",
            line_chart("chart-delivered", "Delivered", ages, [r.delivered for r in rates]),
        ),
    ]
    return respond(request, "overview.html", brokers=rows, charts=charts)


ROUTES = [Route("/", overview)]
