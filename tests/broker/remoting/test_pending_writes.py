"""Output of connections to slow peers, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest

from skylarkmq.broker.remoting.read_scheduling import RECEIVE_BUFFER_BYTES
from tests.harness.echo_server import ECHO, LARGE, EchoServer, requests
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

MIB = 1024 * 1024


# ----------------------------------------------------------------------------------------------------------- slow peers

SLOW = {"peer_backlog_bytes": 64 * 1024}
ANSWER_BYTES = 512 * 1024


@asynccontextmanager
async def slow_peer(server: EchoServer, count: int, more: bytes = b"") -> AsyncIterator[RawPeer]:
    """Yield a peer that has requested more than its backlog limit, and reads nothing."""
    asked = b"".join(frame({"code": LARGE, "opaque": n, "extFields": {"n": str(ANSWER_BYTES)}}) for n in range(count))
    async with await RawPeer.connect_without_reading(server.port) as peer:
        peer.send(asked + more)
        await until(lambda: any(c.paused and c.backlog_bytes for c in server.selector.registry.connections))
        yield peer


@pytest.mark.parametrize("config", [SLOW], indirect=True)
async def test_a_peer_that_does_not_read_is_paused_without_effect_on_others(server: EchoServer, peer: RawPeer) -> None:
    """Its backlog is at most the limit and the response that exceeded it; further requests wait."""
    async with slow_peer(server, 100) as slow:
        handled = server.handled
        assert handled < 100
        slow.send(requests(1000))
        for _ in range(20):
            assert (await peer.call(ECHO)).code == 0
        assert server.handled == handled + 20
        figures = server.selector.statistics()
        assert figures.paused == 1
        assert SLOW["peer_backlog_bytes"] < figures.backlog_bytes <= SLOW["peer_backlog_bytes"] + ANSWER_BYTES + 1000


@pytest.mark.parametrize("config", [SLOW], indirect=True)
async def test_deferred_requests_are_served_when_it_reads_again(server: EchoServer, peer: RawPeer) -> None:
    """All of them and in order, whatever other peers sent meanwhile; then the peer is no longer paused."""
    async with slow_peer(server, 100) as slow:
        handled = server.handled
        await peer.call(ECHO, body=b"z" * (RECEIVE_BUFFER_BYTES - 1000))
        slow.resume_reading()
        responses = [await slow.receive() for _ in range(100)]
        assert handled < 100
        assert server.handled == 101
        assert [(response.header["opaque"], len(response.body)) for response in responses] == [
            (n, ANSWER_BYTES) for n in range(100)
        ]
        assert (await slow.call(ECHO)).code == 0
        figures = server.selector.statistics()
        assert (figures.paused, figures.backlog_bytes) == (0, 0)
        assert figures.sent_bytes > 100 * ANSWER_BYTES


@pytest.mark.parametrize("config", [SLOW], indirect=True)
async def test_invalid_bytes_after_deferred_requests_close_the_connection_later(server: EchoServer) -> None:
    """The requests before them get their responses first."""
    async with slow_peer(server, 30, b"\xff" * 20) as slow:
        slow.resume_reading()
        assert [(await slow.receive()).header["opaque"] for _ in range(30)] == list(range(30))
        assert await slow.rest() == b""
        assert server.selector.statistics().protocol_errors == 1


@pytest.mark.parametrize("config", [{"peer_backlog_bytes": 1000}], indirect=True)
async def test_a_peer_that_reads_everything_continues(peer: RawPeer) -> None:
    """Output of one batch above the limit defers the rest of the read, and has no other effect."""
    peer.send(requests(200, 100))
    assert [(await peer.receive()).header["opaque"] for _ in range(200)] == list(range(200))


async def burden(server: EchoServer, deaf: RawPeer) -> None:
    """Let the backlog of a peer reach a megabyte, or pause the peer."""
    await until(lambda: deaf.address in {c.peer for c in server.selector.registry.connections})
    connection = next(c for c in server.selector.registry.connections if c.peer == deaf.address)
    while not connection.paused and connection.backlog_bytes < MIB:
        asked = deaf.send_request(LARGE, {"n": ANSWER_BYTES})
        await until(partial(server.has_handled, server.handled + 1))
        await asyncio.sleep(0)  # until the read batch has ended
        assert asked < 100


@pytest.mark.parametrize("config", [{"total_backlog_bytes": 3 * MIB, "peer_backlog_bytes": 2 * MIB}], indirect=True)
async def test_all_slow_peers_together_have_a_limit(server: EchoServer, peer: RawPeer) -> None:
    """Each stays below its own limit; the one that exceeds the total limit is paused, a peer that reads never is."""
    async with AsyncExitStack() as slow:
        while not any(connection.paused for connection in server.selector.registry.connections):
            await burden(server, await slow.enter_async_context(await RawPeer.connect_without_reading(server.port)))
        assert len(server.selector.registry.connections) > 3
        assert server.selector.pending_writes.backlog_bytes > 3 * MIB
        assert max(c.backlog_bytes for c in server.selector.registry.connections) < 2 * MIB
        assert (await peer.call(ECHO)).code == 0
    await until(lambda: len(server.selector.registry.connections) == 1)
    assert server.selector.pending_writes.backlog_bytes == 0


@pytest.mark.parametrize("config", [SLOW], indirect=True)
async def test_a_peer_that_never_reads_is_closed_when_idle(server: EchoServer) -> None:
    """Its backlog is dropped; otherwise the peer could keep the memory for ever."""
    async with slow_peer(server, 100):
        server.selector.registry.close_idle(asyncio.get_running_loop().time() + 1_000)
        await until(lambda: not server.selector.registry.connections)
        assert server.selector.pending_writes.backlog_bytes == 0


async def test_a_peer_that_reads_slowly_is_not_idle(server: EchoServer) -> None:
    """Taking a part of a long response is also activity."""
    async with await RawPeer.connect_without_reading(server.port) as slow:
        slow.send_request(LARGE, {"n": 15 * MIB})
        await until(lambda: server.selector.pending_writes.backlog_bytes)
        connection = server.connection
        before = connection.backlog_bytes
        connection.active_s = 0.0
        slow.resume_reading()
        await slow.read(8 * MIB)
        connection.note_progress()
        assert connection.active_s > 0.0
        assert 0 < connection.backlog_bytes < before
