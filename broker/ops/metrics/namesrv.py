"""The metrics of a stand-alone name server: the subset of the broker's metrics that it has, under the same names."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector

from skylarkmq.broker.access.audit import AuditLog
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.quotas import Quotas
from skylarkmq.broker.config.sections import OpsConfig
from skylarkmq.broker.ops.collectors.broker import CheckCollector, ExposureCollector, RouteCollector
from skylarkmq.broker.ops.collectors.process import ProcessCollector
from skylarkmq.broker.ops.collectors.requests import RequestCollector
from skylarkmq.broker.ops.collectors.usage import AuditCollector, QuotaCollector
from skylarkmq.broker.ops.metrics.broker import Identity, constants_of, extra_labels
from skylarkmq.broker.ops.pages.health import Check
from skylarkmq.broker.ops.scrape import Scrape
from skylarkmq.broker.remoting.admission import PoolStatistics
from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.store.files.cold_reads import ColdRead

NODE_TYPE: Final = "name_server"


class NamesrvObserved(msgspec.Struct, frozen=True, kw_only=True):
    """The parts whose statistics are exported."""

    server: RemotingServer
    pools: Callable[[], Iterable[PoolStatistics]]
    checks: Mapping[str, Check]
    open_listeners: Mapping[str, bool]
    exposed_files: Callable[[], int]
    refused_registrations: Callable[[], Mapping[str, int]]  # by reason
    refusals: Refusals
    quotas: Quotas
    audit: AuditLog | None


def namesrv_scrape_of(config: OpsConfig, node: str, parts: NamesrvObserved) -> Scrape:
    """Return the scrape of a name server. `node`: its host name and port."""
    registry = CollectorRegistry()
    GCCollector(registry)
    return Scrape(
        [
            CheckCollector(parts.checks),
            RouteCollector(parts.refused_registrations),
            ExposureCollector(parts.open_listeners, parts.exposed_files),
            ProcessCollector(),
            RequestCollector(parts.server, parts.pools),
            QuotaCollector([parts.quotas], parts.refusals),
            AuditCollector(parts.audit),
        ],
        constants_of(Identity(cluster="", name=node, address=node, boot_ms=0)) | {"node_type": NODE_TYPE},
        extra_labels(config),
        limit=config.metrics_otel_cardinality_limit,
        library=(PlatformCollector(registry=None), registry),
        fetch=_no_fetch,
    )


async def _no_fetch(_cold: ColdRead) -> None:
    raise AssertionError("a name server has no store")
