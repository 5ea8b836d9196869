"""Requests to name servers: their settings, their table of keys and values, and the write permission of brokers.

    await admin.name_servers.put("ORDER_TOPIC_CONFIG", "Orders", "broker-a:4;broker-b:4")

Name servers do not share their state. So each change goes to all name servers of the Admin, one after the other; an
error is raised after all requests. Source: docs/reference/wire.md, "Name server".
"""

from collections.abc import Mapping
from typing import Final

from skylarkmq.clients.sdk.admin.properties import decode_properties, encode_properties
from skylarkmq.clients.sdk.admin.requests import AdminRequests
from skylarkmq.clients.sdk.base.errors import invalid_response, reading_response
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.headers.namesrv import KVConfigHeader, KVValueResponseHeader
from skylarkmq.protocol.headers.stats import AddedTopicsHeader, BrokerNameHeader, WipedTopicsHeader

ORDER_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace with the queue numbers of ordered topics: topic -> `broker-a:4;broker-b:4`."""


class NameServerAdmin:
    """The section `Admin.name_servers`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests
        self._servers = requests.client.routes.name_servers

    def __repr__(self) -> str:
        return f"<NameServerAdmin {self._servers}>"

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses, `host:port`."""
        return tuple(self._servers.addresses)

    async def config(self, address: str, *, timeout_s: float | None = None) -> dict[str, str]:
        """Return the settings of one name server."""
        code = RequestCode.GET_NAMESRV_CONFIG
        async with self._requests.within(timeout_s, "config"):
            response = await self._servers.request_to(address, code)
        try:
            return decode_properties(bytes(response.body))
        except ValueError as error:
            raise invalid_response(code, f"name server {address}", str(error)) from error

    async def update_config(self, settings: Mapping[str, str], *, timeout_s: float | None = None) -> None:
        """Change settings of all name servers."""
        body = encode_properties(settings)
        async with self._requests.within(timeout_s, "update_config"):
            await self._servers.request_each(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)

    async def get(self, namespace: str, key: str, *, timeout_s: float | None = None) -> str | None:
        """Return a value, from one name server. BrokerError QUERY_NOT_FOUND (22) if there is no such key."""
        code, header = RequestCode.GET_KV_CONFIG, KVConfigHeader(namespace=namespace, key=key)
        async with self._requests.within(timeout_s, "get"):
            response = await self._servers.request_any(code, header)
        with reading_response(code, "a name server"):
            return response.header(KVValueResponseHeader).value

    async def put(self, namespace: str, key: str, value: str, *, timeout_s: float | None = None) -> None:
        """Set a value on all name servers."""
        header = KVConfigHeader(namespace=namespace, key=key, value=value)
        async with self._requests.within(timeout_s, "put"):
            await self._servers.request_each(RequestCode.PUT_KV_CONFIG, header)

    async def delete(self, namespace: str, key: str, *, timeout_s: float | None = None) -> None:
        """Delete a value on all name servers; one that does not exist is no error."""
        header = KVConfigHeader(namespace=namespace, key=key)
        async with self._requests.within(timeout_s, "delete"):
            await self._servers.request_each(RequestCode.DELETE_KV_CONFIG, header)

    async def wipe_write_permission(self, address: str, broker: str, *, timeout_s: float | None = None) -> int:
        """Take the write permission of all topics of a broker, on one name server. Return the number of topics."""
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        async with self._requests.within(timeout_s, "wipe_write_permission"):
            response = await self._servers.request_to(address, code, BrokerNameHeader(broker_name=broker))
        with reading_response(code, f"name server {address}"):
            return response.header(WipedTopicsHeader).wipe_topic_count

    async def add_write_permission(self, address: str, broker: str, *, timeout_s: float | None = None) -> int:
        """Give the write permission of all topics of a broker back, on one name server. Return their number."""
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        async with self._requests.within(timeout_s, "add_write_permission"):
            response = await self._servers.request_to(address, code, BrokerNameHeader(broker_name=broker))
        with reading_response(code, f"name server {address}"):
            return response.header(AddedTopicsHeader).add_topic_count
