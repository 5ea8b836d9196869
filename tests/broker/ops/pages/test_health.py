"""The health pages, over a real socket."""

import asyncio
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from skylarkmq.broker.base.errors import StartError
from skylarkmq.broker.ops.pages.health import Check, HealthServer
from tests.harness.ports import free_ports


async def get(port: int, path: str) -> tuple[int, Any]:
    """Return status and decoded body of a page."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status = int(head.split()[1])
    return status, json.loads(body) if b"application/json" in head else body


@asynccontextmanager
async def pages(**checks: Check) -> AsyncIterator[int]:
    server = HealthServer("127.0.0.1", 0, checks)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop()


async def test_a_running_process_is_alive_whatever_its_checks_return() -> None:
    """/healthz is 200 as long as the event loop responds."""
    async with pages(store=lambda: "disk full") as port:
        assert await get(port, "/healthz") == (200, {"alive": True})


async def test_ready_means_that_every_check_passes() -> None:
    """/readyz is 200 and lists each check."""
    async with pages(store=lambda: None, registered=lambda: None) as port:
        assert await get(port, "/readyz") == (200, {"ready": True, "checks": {"store": "ok", "registered": "ok"}})


async def test_a_failed_check_is_503_with_the_reason() -> None:
    """/readyz lists the failed check with its reason, and the passed ones; checks run at each request."""
    reasons: list[str | None] = ["an fsync failed", None]
    async with pages(store=lambda: reasons.pop(0), recovered=lambda: None) as port:
        status, body = await get(port, "/readyz")
        assert (status, body) == (503, {"ready": False, "checks": {"store": "an fsync failed", "recovered": "ok"}})
        assert (await get(port, "/readyz"))[0] == 200


async def test_any_other_page_is_404() -> None:
    """There are only these pages."""
    async with pages() as port:
        assert (await get(port, "/"))[0] == 404


async def test_a_port_in_use_stops_the_start_and_names_the_setting() -> None:
    """One line with address and setting."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = HealthServer("127.0.0.1", port, {})
        with pytest.raises(StartError) as caught:
            await server.start()
    assert str(caught.value) == f"health pages: port {port} on 127.0.0.1 is in use (metricsPromExporterPort)"


async def test_with_other_ports_the_next_free_one_is_used(caplog: pytest.LogCaptureFixture) -> None:
    """For the second broker of a host: the log shows the port that is in use, and the address of the pages."""
    caplog.set_level(logging.INFO)
    port = free_ports(1, beside=[1, 2])[0]
    with socket.socket() as first, socket.socket() as second:
        for taken, number in ((first, port), (second, port + 1)):
            taken.bind(("127.0.0.1", number))
            taken.listen()
        server = HealthServer("127.0.0.1", port, {}, other_ports=2)
        try:
            assert await server.start() == port + 2
            assert (await get(port + 2, "/readyz"))[0] == 200
        finally:
            await server.stop()
        with pytest.raises(StartError, match=f"port {port + 1} on 127.0.0.1 is in use"):
            await HealthServer("127.0.0.1", port, {}, other_ports=1).start()
    assert f"port {port + 1} on 127.0.0.1 is in use (metricsPromExporterPort); port {port + 2} is tried" in caplog.text
    assert f"health pages url=http://127.0.0.1:{port + 2}/readyz" in caplog.text


async def test_pages_on_all_addresses_are_logged_with_the_loopback_address(caplog: pytest.LogCaptureFixture) -> None:
    """A wildcard is no address to connect to."""
    caplog.set_level(logging.INFO)
    server = HealthServer("0.0.0.0", 0, {})
    port = await server.start()
    await server.stop()
    assert f"health pages url=http://127.0.0.1:{port}/readyz" in caplog.text


async def test_an_address_that_cannot_be_bound_stops_the_start() -> None:
    """With the reason of the system."""
    with pytest.raises(StartError, match=r"port 0 on 192\.0\.2\.1 cannot be bound: Cannot assign"):
        await HealthServer("192.0.2.1", 0, {}).start()


async def test_the_pages_leave_signals_to_the_daemon() -> None:
    """Serving pages changes no signal handler."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    async with pages() as port:
        await get(port, "/healthz")
        assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_after_stop_the_port_is_closed_and_the_figures_remain() -> None:
    """stop() closes the port; statistics() counts the requests."""
    server = HealthServer("127.0.0.1", 0, {})
    port = await server.start()
    await get(port, "/healthz")
    assert server.statistics().requests == 1
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert "stopped" in repr(server)
    await server.stop()
