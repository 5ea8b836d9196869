"""Half-open HTTP connections are closed, and never keep out a probe."""

import asyncio
from contextlib import suppress

import pytest

from skylarkmq.broker.ops.pages.health import HealthServer
from skylarkmq.http_connections import MAX_CONNECTIONS
from tests.harness.limits import WAIT_LIMIT_S


async def probe(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(WAIT_LIMIT_S):
        data = await reader.read()
    writer.close()
    return data.split(b"\r\n")[0]


WHOLE = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("said", [b"", WHOLE[:20], WHOLE + WHOLE[:5]])
async def test_half_open_requests_are_closed_after_seconds(said: bytes) -> None:
    """No request, half a request, or half of a second one."""
    server = HealthServer("127.0.0.1", 0, {}, request_s=0.05)
    port = await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    async with asyncio.timeout(WAIT_LIMIT_S):
        with suppress(ConnectionResetError):
            while await reader.read(4096):
                pass
    writer.close()
    assert await probe(port) == b"HTTP/1.1 200 OK"
    await server.stop()


async def test_a_probe_is_served_despite_many_half_open_connections() -> None:
    """Beyond MAX_CONNECTIONS the oldest connection is closed, so the number of descriptors is limited."""
    server = HealthServer("127.0.0.1", 0, {}, request_s=600)
    port = await server.start()
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3 * MAX_CONNECTIONS)]
    for _, writer in streams:
        writer.write(b"GET /healthz HTTP/1.1\r\n")
    assert await probe(port) == b"HTTP/1.1 200 OK"
    assert server._server._server is not None
    assert len(server._server._server.server_state.connections) <= MAX_CONNECTIONS + 1
    for _, writer in streams:
        writer.close()
    await server.stop()
