"""The registry of connections: open, idle and paused connections, and their limits."""

import asyncio
import resource

import pytest

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection_registry import UNREAD_CHECK_S, allowed_connections
from skylarkmq.broker.remoting.read_scheduling import RECEIVE_BUFFER_BYTES, SMALLEST_READ
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.echo_server import DEFER, ECHO, EchoServer
from tests.harness.peer import Peer
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

MIB = 1024 * 1024


# ------------------------------------------------------------------------------------------------------- idle, too many


@pytest.mark.parametrize("config", [{"max_idle_s": 120.0}], indirect=True)
async def test_an_idle_connection_is_closed(server: EchoServer, peer: RawPeer) -> None:
    """After 120 s without a byte in either direction, and not earlier."""
    await peer.call(ECHO)
    now_s = server.connection.active_s
    server.selector.registry.close_idle(now_s + 119.9)
    assert (await peer.call(ECHO)).code == 0
    server.connection.active_s = now_s
    server.selector.registry.close_idle(now_s + 120.1)
    assert await peer.rest() == b""
    assert server.selector.statistics().closed_idle == 1


async def test_sent_bytes_count_as_activity(server: EchoServer, peer: RawPeer) -> None:
    """A peer that only receives is not idle while it gets responses."""
    peer.send_request(DEFER)
    await until(lambda: server.deferred)
    server.connection.active_s = 0.0
    ((connection, command),) = server.deferred
    connection.respond(command, RemotingCommand.response())
    await peer.receive()
    assert connection.active_s > 0.0


@pytest.mark.parametrize("config", [{"max_connections": 2}], indirect=True)
async def test_a_connection_above_the_limit_is_refused(
    server: EchoServer, peer: RawPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """Open connections stay; when one is closed, another one is accepted."""
    await peer.call(ECHO)
    async with await RawPeer.connect(server.port) as second:
        await second.call(ECHO)
        async with await RawPeer.connect(server.port) as third:
            assert await third.rest() == b""
        assert "connection refused" in caplog.text
        assert (await peer.call(ECHO)).code == 0
    await until(lambda: len(server.selector.registry.connections) == 1)
    async with await RawPeer.connect(server.port) as fourth:
        assert (await fourth.call(ECHO)).code == 0
    figures = server.selector.statistics()
    assert (figures.accepted, figures.refused) == (3, 1)


async def test_every_listener_is_called_for_a_lost_connection(server: EchoServer, peer: RawPeer) -> None:
    """Sessions, parked pulls and routes depend on it."""
    await peer.call(ECHO)
    connection = server.connection
    lost: list[object] = []
    server.selector.registry.on_close(lost.append)
    server.selector.registry.on_close(lost.append)
    await peer.close()
    await until(lambda: lost)
    assert lost == [connection, connection]
    assert repr(connection).endswith("closed backlog=0>")


def test_connections_leave_descriptors_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured maximum, or fewer if the process has fewer descriptors: 1,536 or half are not for clients."""
    for descriptors, allowed in ((1_000_000, 16_384), (10_000, 8_464), (3_072, 1_536), (90, 45), (-1, 16_384)):
        monkeypatch.setattr(resource, "getrlimit", lambda _which, most=descriptors: (most, most))
        assert allowed_connections(RemotingConfig()) == allowed


# --------------------------------------------------------------------------------------------------------- paused reads


async def test_a_paused_connection_is_not_read_from() -> None:
    """Only `resume_paused_reads` resumes its reads; its responses are still written."""
    server = EchoServer()
    peer, other = Peer(server.dispatcher), Peer(server.dispatcher)
    selector = peer.selector
    peer.connection.pause_reads()
    assert (peer.transport.reading, other.transport.reading) == (False, True)
    peer.transport.stuck = True
    peer.connection.write(b"x" * (5 * MIB))
    peer.selector.pending_writes.flush()  # also paused because it does not read
    assert peer.connection.paused
    peer.transport.backlog.clear()
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert (peer.connection.paused, peer.transport.reading) == (False, False)
    selector.registry.resume_paused_reads()
    assert peer.transport.reading


async def test_a_pause_ends_with_its_connection() -> None:
    """A closing connection cannot be paused."""
    peer = Peer(EchoServer().dispatcher)
    peer.connection.pause_reads()
    peer.connection.connection_lost(None)
    assert not peer.selector.registry.is_read_paused(peer.connection)
    peer.connection.pause_reads()
    peer.selector.registry.resume_paused_reads()
    assert not peer.transport.reading


# --------------------------------------------------------------------------------------------------------------- memory

SHARED = RemotingConfig(peer_backlog_bytes=1_000, total_backlog_bytes=2_000)


def deaf_peers(count: int, config: RemotingConfig = SHARED) -> list[Peer]:
    """Return peers of one selector that read nothing."""
    server = EchoServer()
    selector = Selector(server.dispatcher, config)
    peers = [Peer(server.dispatcher, selector, ("127.0.0.9", 4000 + number)) for number in range(count)]
    for peer in peers:
        peer.transport.stuck = True
    return peers


def leave_unread(peer: Peer, size: int) -> None:
    peer.connection.write(b"x" * size)
    peer.selector.pending_writes.flush()


async def test_a_peer_is_paused_above_its_own_limit() -> None:
    """At the limit it is still read from."""
    (one,) = deaf_peers(1)
    leave_unread(one, 1_000)
    assert not one.connection.paused
    leave_unread(one, 1)
    assert (one.connection.paused, one.transport.reading) == (True, False)


async def test_peers_are_paused_above_the_total_limit() -> None:
    """Every peer with unread bytes from then on; a peer that reads everything is not affected."""
    one, two, three, normal = deaf_peers(4)
    normal.transport.stuck = False
    for peer in (one, two):
        leave_unread(peer, 1_000)
    assert [peer.connection.paused for peer in (one, two)] == [False, False]
    leave_unread(three, 1)
    leave_unread(normal, 900)
    assert [peer.connection.paused for peer in (one, two, three, normal)] == [False, False, True, False]


async def test_above_the_total_limit_requests_are_served_one_at_a_time() -> None:
    """Further requests of the read are deferred and counted, and served when the peer has read; nothing overtakes."""
    one, two, three, late = deaf_peers(4)
    for peer in (one, two):
        leave_unread(peer, 1_000)
    leave_unread(three, 1)
    late.transport.stuck = False
    selector = late.selector
    late.send(*(RemotingCommand.request(ECHO, body=b"%d" % number) for number in range(3)))
    assert [response.body for response in late.received] == [b"0"]
    assert selector.registry.deferred_bytes > 0
    for _ in range(4):
        await asyncio.sleep(0)
        late.take()
    assert [response.body for response in late.received] == [b"0", b"1", b"2"]
    assert (selector.registry.deferred_bytes, late.connection.paused) == (0, False)


async def test_deferred_requests_are_dropped_with_their_connection() -> None:
    """All counters return to 0."""
    (one,) = deaf_peers(1)
    leave_unread(one, 1_001)
    one.send(RemotingCommand.request(ECHO))
    one.disconnect()
    assert (one.selector.registry.deferred_bytes, one.selector.pending_writes.backlog_bytes) == (0, 0)


async def test_reads_are_small_above_half_of_the_unread_limit() -> None:
    """Also above half of the limit of partial frames; so few requests are read that cannot be served."""
    one, two = deaf_peers(2)
    scheduler = one.selector.read_scheduler
    leave_unread(one, 1_000)
    scheduler.record_read(RECEIVE_BUFFER_BYTES, 1.0)
    await asyncio.sleep(0)
    assert len(scheduler.window) == RECEIVE_BUFFER_BYTES
    leave_unread(two, 1)
    scheduler.record_read(RECEIVE_BUFFER_BYTES, 1.0)
    await asyncio.sleep(0)
    assert len(scheduler.window) == SMALLEST_READ


async def test_at_twice_the_total_limit_the_worst_connection_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    """Many peers may each have one unread response; the one with the most unread bytes is closed, one at a time."""
    peers = deaf_peers(5)
    for peer in peers[:4]:
        leave_unread(peer, 900)
    leave_unread(peers[0], 100)
    leave_unread(peers[4], 300)
    selector = peers[0].selector
    assert (selector.pending_writes.backlog_bytes, [peer.transport.closing for peer in peers]) == (4_000, [False] * 5)
    leave_unread(peers[4], 1)
    assert [peer.transport.closing for peer in peers] == [True, False, False, False, False]
    assert selector.statistics().closed_unread == 1
    assert f"closing connection peer={peers[0].connection.peer} unread_bytes=1000" in caplog.text
    peers[0].disconnect()
    leave_unread(peers[4], 1_000)
    assert selector.statistics().closed_unread == 1  # checked ten times a second
    selector.registry.enforce_unread_limit(asyncio.get_running_loop().time() + UNREAD_CHECK_S)
    assert [peer.transport.closing for peer in peers] == [True, False, False, False, True]
