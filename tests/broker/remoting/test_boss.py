"""The boss: it listens, closes idle connections, and stops in order."""

import asyncio

import pytest

from skylarkmq.broker.remoting.boss import RemotingServer
from skylarkmq.broker.remoting.config import RemotingConfig
from tests.harness.echo_server import ECHO, LARGE, WAIT, EchoServer
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until


async def test_port_0_listens_on_a_free_port() -> None:
    """The kernel chooses the port, and `start` returns it."""
    async with EchoServer() as server, await RawPeer.connect(server.port) as peer:
        assert server.port > 0
        assert (await peer.call(ECHO)).code == 0


async def test_a_port_in_use_is_an_error() -> None:
    """Two brokers cannot listen on one port."""
    async with EchoServer() as server:
        with pytest.raises(OSError, match="in use"):
            await RemotingServer(RemotingConfig()).start("127.0.0.1", server.port)


async def test_ipv6_peers_have_a_bracketed_address() -> None:
    """The address is in brackets, and has 20 bytes in records."""
    server = EchoServer()
    try:
        server.port = await server.remoting.start("::1", 0)
    except OSError:
        pytest.skip("this machine has no IPv6")
    async with await RawPeer.connect(server.port, "::1") as peer:
        await peer.call(ECHO)
        assert server.connection.peer.startswith("[::1]:")
        assert len(server.connection.peer_host) == 20
        await server.remoting.stop(lambda: 0)


async def test_a_stop_waits_for_admitted_requests() -> None:
    """A request that waits for a disk gets its response; then all connections are closed."""
    async with EchoServer() as server, await RawPeer.connect(server.port) as peer:
        opaque = peer.send_request(WAIT, body=b"patience")
        await peer.call(ECHO)
        lost: list[object] = []
        server.selector.registry.on_close(lost.append)
        stopping = asyncio.ensure_future(server.remoting.stop(lambda: server.dispatcher.waiting, grace_s=10))
        await asyncio.sleep(0)
        assert not stopping.done()
        server.go_on.set()
        assert (await peer.receive()).header["opaque"] == opaque
        assert await peer.rest() == b""
        await stopping
        assert len(lost) == 1
        assert not server.selector.registry.connections


async def test_a_stop_waits_only_for_the_grace_period() -> None:
    """Requests that are not finished within the grace period get no response."""
    async with EchoServer() as server, await RawPeer.connect(server.port) as peer:
        peer.send_request(WAIT)
        await peer.call(ECHO)
        await server.remoting.stop(lambda: server.dispatcher.waiting, grace_s=0.01)
        assert await peer.rest() == b""
        assert server.dispatcher.waiting == 1


async def test_a_stop_aborts_peers_that_do_not_read() -> None:
    """Unread responses cannot delay a stop."""
    async with EchoServer() as server, await RawPeer.connect_without_reading(server.port) as peer:
        for _ in range(10):
            peer.send_request(LARGE, {"n": 4 * 1024 * 1024})
        await until(lambda: server.selector.pending_writes.backlog_bytes)
        await server.remoting.stop(lambda: 0, grace_s=0.01)
        assert not server.selector.registry.connections
        assert server.selector.pending_writes.backlog_bytes == 0


async def test_a_stopped_server_accepts_no_connections() -> None:
    """Connecting to a server that has stopped fails."""
    async with EchoServer() as server:
        await server.remoting.stop(lambda: 0)
        with pytest.raises(ConnectionRefusedError):
            await RawPeer.connect(server.port)


async def test_idle_connections_are_scanned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan runs periodically."""
    monkeypatch.setattr("skylarkmq.broker.remoting.boss.IDLE_SCAN_S", 0)
    async with EchoServer(RemotingConfig(max_idle_s=0)) as server, await RawPeer.connect(server.port) as peer:
        assert await peer.rest() == b""
