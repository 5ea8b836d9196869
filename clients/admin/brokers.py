"""Requests to one broker, by its address: its state, settings, statistics and files.

    info = await admin.brokers.runtime_info("10.0.0.1:10911")

Source: docs/formats.md, "Statistics of topics and groups".
"""

from skylarkmq.clients.admin.requests import AdminRequests
from skylarkmq.protocol.bodies.cluster import KVTable
from skylarkmq.protocol.codes import RequestCode


class Brokers:
    """The section `Admin.brokers`. Addresses are `host:port`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<Brokers {self._requests.client}>"

    async def runtime_info(self, address: str, *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the broker's counters and sizes by RocketMQ's names, such as `putTps` and `brokerVersionDesc`."""
        async with self._requests.within(timeout_s, "runtime_info"):
            return (await self._requests.read(KVTable, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table
