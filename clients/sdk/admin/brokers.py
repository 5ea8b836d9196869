"""The brokers of a cluster, and requests to one broker, by its address: its state, settings, statistics and files.

    for address in (await admin.brokers.masters("DefaultCluster")).values():
        info = await admin.brokers.runtime_info(address)

RocketMQ 4.9 serves all of them except `ha_status` and `reset_master_flush_offset`.
Source: docs/reference/wire.md, "Statistics of topics and groups".
"""

from collections.abc import Mapping
from typing import Final

from skylarkmq.clients.sdk.admin.properties import decode_properties, encode_properties
from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.arguments import check_offset, check_type
from skylarkmq.clients.sdk.base.errors import invalid_response
from skylarkmq.protocol.bodies.cluster import ClusterInfo, KVTable
from skylarkmq.protocol.bodies.connections import ProducerTable
from skylarkmq.protocol.bodies.ha import HARuntimeInfo
from skylarkmq.protocol.bodies.stats import BrokerStatsData, ConsumeStatsList
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers.ha import MasterFlushOffsetHeader
from skylarkmq.protocol.headers.stats import BrokerConsumeStatsHeader, BrokerStatsHeader

CONSUME_STATS_TIMEOUT_S: Final = 50.0
"""As RocketMQ's tool: a broker reads the times of the last consumed messages of all groups."""


class Brokers:
    """The section `Admin.brokers`. Addresses are `host:port`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<Brokers {self._requests.client}>"

    # ------------------------------------------------------------------------------------------------------ addresses

    async def cluster(self, *, timeout_s: float | None = None) -> ClusterInfo:
        """Return all registered brokers."""
        async with self._requests.within(timeout_s, "cluster"):
            return await self._requests.cluster()

    async def masters(self, cluster: str | None = None, *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the address of each broker's master, by broker name. NoRoute if there is no such cluster."""
        if cluster is not None:
            check_type("cluster", cluster, str)
        async with self._requests.within(timeout_s, "masters"):
            return await self._requests.masters(cluster)

    async def addresses(
        self, cluster: str | None = None, *, timeout_s: float | None = None
    ) -> dict[str, dict[int, str]]:
        """Return all addresses by broker id, 0 for the master, by broker name. NoRoute if there is no such cluster."""
        if cluster is not None:
            check_type("cluster", cluster, str)
        async with self._requests.within(timeout_s, "addresses"):
            return await self._requests.broker_addresses(cluster)

    # ------------------------------------------------------------------------------------------- state and settings

    async def runtime_info(self, address: str, *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the broker's counters and sizes by RocketMQ's names, such as `putTps` and `brokerVersionDesc`."""
        async with self._requests.within(timeout_s, "runtime_info"):
            return (await self._requests.read(KVTable, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table

    async def config(self, address: str, *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the broker's settings by RocketMQ's names."""
        code = RequestCode.GET_BROKER_CONFIG
        async with self._requests.within(timeout_s, "config"):
            response = await self._requests.send(address, code)
        try:
            return decode_properties(bytes(response.body))
        except ValueError as error:
            raise invalid_response(code, f"broker {address}", str(error)) from error

    async def update_config(self, address: str, settings: Mapping[str, str], *, timeout_s: float | None = None) -> None:
        """Change settings of the running broker. RocketMQ ignores unknown keys and values that it cannot read."""
        body = encode_properties(settings)
        async with self._requests.within(timeout_s, "update_config"):
            await self._requests.send(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def ha_status(self, address: str, *, timeout_s: float | None = None) -> HARuntimeInfo:
        """Return the slaves of a master, or the connection of a slave. RocketMQ 5 only."""
        async with self._requests.within(timeout_s, "ha_status"):
            return await self._requests.read(HARuntimeInfo, address, RequestCode.GET_BROKER_HA_STATUS)

    async def reset_master_flush_offset(self, address: str, offset: int, *, timeout_s: float | None = None) -> None:
        """Set the offset up to which a slave assumes its master's log to be flushed. RocketMQ 5 only."""
        check_offset(offset)
        header = MasterFlushOffsetHeader(master_flush_offset=offset)
        async with self._requests.within(timeout_s, "reset_master_flush_offset"):
            await self._requests.send(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    # --------------------------------------------------------------------------------------------------- statistics

    async def consume_stats(
        self, address: str, *, ordered: bool = False, timeout_s: float | None = None
    ) -> ConsumeStatsList:
        """Return the offsets of all groups in all topics; `ordered`: only in topics with fixed queue numbers."""
        header = BrokerConsumeStatsHeader(is_order=str(ordered).lower())
        limit_s = timeout_s or CONSUME_STATS_TIMEOUT_S
        async with self._requests.within(limit_s, "consume_stats"):
            return await self._requests.read(
                ConsumeStatsList, address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_s=limit_s
            )

    async def stats(self, address: str, name: str, key: str, *, timeout_s: float | None = None) -> BrokerStatsData:
        """Return a counter by the minute, hour and day: `stats(address, "TOPIC_PUT_NUMS", "Orders")`.

        BrokerError SYSTEM_ERROR (1) if the broker has not counted anything of this name and key.
        """
        header = BrokerStatsHeader(stats_name=name, stats_key=key)
        async with self._requests.within(timeout_s, "stats"):
            return await self._requests.read(BrokerStatsData, address, RequestCode.VIEW_BROKER_STATS_DATA, header)

    async def producers(self, address: str, *, timeout_s: float | None = None) -> ProducerTable:
        """Return all connected producers, by group."""
        async with self._requests.within(timeout_s, "producers"):
            return await self._requests.read(ProducerTable, address, RequestCode.GET_ALL_PRODUCER_INFO)

    # -------------------------------------------------------------------------------------------------------- files

    async def clean_expired_queues(self, address: str, *, timeout_s: float | None = None) -> None:
        """Delete the files of consume queues whose messages the log no longer has."""
        await self._clean(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, timeout_s)

    async def clean_unused_topics(self, address: str, *, timeout_s: float | None = None) -> None:
        """Delete the consume queues of topics that do not exist."""
        await self._clean(address, RequestCode.CLEAN_UNUSED_TOPIC, timeout_s)

    async def delete_expired_log(self, address: str, *, timeout_s: float | None = None) -> None:
        """Delete the files of the commit log that are older than the broker keeps them."""
        await self._clean(address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_s)

    async def _clean(self, address: str, code: RequestCode, timeout_s: float | None) -> None:
        async with self._requests.within(timeout_s, code.name.lower()):
            await self._requests.send(address, code)
