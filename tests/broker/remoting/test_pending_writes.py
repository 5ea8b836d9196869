"""What leaves a connection: slow peers over real sockets."""

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
    """A peer that has asked for more than anybody holds for it, and reads nothing."""
    asked = b"".join(frame({"code": LARGE, "opaque": n, "extFields": {"n": str(ANSWER_BYTES)}}) for n in range(count))
    async with await RawPeer.connect_deaf(server.port) as peer:
        peer.send(asked + more)
        await until(lambda: any(c.paused and c.backlog_bytes for c in server.selector.connections))
        yield peer


@pytest.mark.parametrize("config", [SLOW], indirect=True)
async def test_a_peer_that_does_not_read_is_paused_and_others_do_not_notice(server: EchoServer, peer: RawPeer) -> None:
    """It costs what the limit says and the answer that went beyond it; what it asked further waits."""
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
    """All of them and in order, whatever others sent meanwhile, and the peer is not paused any longer."""
    async with slow_peer(server, 100) as slow:
        handled = server.handled
        await peer.call(ECHO, body=b"z" * (RECEIVE_BUFFER_BYTES - 1000))
        slow.listen()
        answers = [await slow.receive() for _ in range(100)]
        assert handled < 100
        assert server.handled == 101
        assert [(answer.header["opaque"], len(answer.body)) for answer in answers] == [
            (n, ANSWER_BYTES) for n in range(100)
        ]
        assert (await slow.call(ECHO)).code == 0
        figures = server.selector.statistics()
        assert (figures.paused, figures.backlog_bytes) == (0, 0)
        assert figures.sent_bytes > 100 * ANSWER_BYTES


@pytest.mark.parametrize("config", [SLOW], indirect=True)
async def test_garbage_behind_deferred_requests_waits_its_turn(server: EchoServer) -> None:
    """Those before it are answered even then."""
    async with slow_peer(server, 30, b"\xff" * 20) as slow:
        slow.listen()
        assert [(await slow.receive()).header["opaque"] for _ in range(30)] == list(range(30))
        assert await slow.rest() == b""
        assert server.selector.statistics().protocol_errors == 1


@pytest.mark.parametrize("config", [{"peer_backlog_bytes": 1000}], indirect=True)
async def test_a_peer_that_takes_all_at_once_goes_on(peer: RawPeer) -> None:
    """Output of one turn beyond the limit defers the rest of the read, and nothing else happens."""
    peer.send(requests(200, 100))
    assert [(await peer.receive()).header["opaque"] for _ in range(200)] == list(range(200))


async def burden(server: EchoServer, deaf: RawPeer) -> None:
    """Let the server owe a peer a megabyte, or as much as makes it pause."""
    await until(lambda: deaf.address in {c.peer for c in server.selector.connections})
    connection = next(c for c in server.selector.connections if c.peer == deaf.address)
    while not connection.paused and connection.backlog_bytes < MIB:
        asked = deaf.ask(LARGE, {"n": ANSWER_BYTES})
        await until(partial(server.has_handled, server.handled + 1))
        await asyncio.sleep(0)  # until the turn has ended
        assert asked < 100


@pytest.mark.parametrize("config", [{"total_backlog_bytes": 3 * MIB, "peer_backlog_bytes": 2 * MIB}], indirect=True)
async def test_all_slow_peers_together_have_a_limit(server: EchoServer, peer: RawPeer) -> None:
    """Each stays below its own; the one that brings the total over the limit is paused, a reader never."""
    async with AsyncExitStack() as slow:
        while not any(connection.paused for connection in server.selector.connections):
            await burden(server, await slow.enter_async_context(await RawPeer.connect_deaf(server.port)))
        assert len(server.selector.connections) > 3
        assert server.selector.backlog_bytes > 3 * MIB
        assert max(c.backlog_bytes for c in server.selector.connections) < 2 * MIB
        assert (await peer.call(ECHO)).code == 0
    await until(lambda: len(server.selector.connections) == 1)
    assert server.selector.backlog_bytes == 0


@pytest.mark.parametrize("config", [SLOW], indirect=True)
async def test_a_peer_that_never_reads_is_closed_when_idle(server: EchoServer) -> None:
    """What it did not take is dropped, else it could hold it for ever."""
    async with slow_peer(server, 100):
        server.connection.active_s = 0.0
        server.selector.close_idle(1000.0)
        await until(lambda: not server.selector.connections)
        assert server.selector.backlog_bytes == 0


async def test_a_peer_that_reads_slowly_is_not_idle(server: EchoServer) -> None:
    """Taking a part of a long answer is activity, too."""
    async with await RawPeer.connect_deaf(server.port) as slow:
        slow.ask(LARGE, {"n": 15 * MIB})
        await until(lambda: server.selector.backlog_bytes)
        connection = server.connection
        before = connection.backlog_bytes
        connection.active_s = 0.0
        slow.listen()
        await slow.read(8 * MIB)
        connection.note_progress()
        assert connection.active_s > 0.0
        assert 0 < connection.backlog_bytes < before
