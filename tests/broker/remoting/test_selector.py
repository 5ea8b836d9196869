"""The selector: open, idle and paused connections; statistics."""

import asyncio
import resource

import msgspec
import pytest

from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.read_scheduling import RECEIVE_BUFFER_BYTES, SMALLEST_READ
from skylarkmq.broker.remoting.selector import BATCH_BYTES, UNREAD_CHECK_S, Selector, allowed_connections
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.echo_server import DEFER, ECHO, GATHER, EchoServer
from tests.harness.peer import Peer
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

MIB = 1024 * 1024


# --------------------------------------------------------------------------------------------------------- read batches


@pytest.fixture
def clock_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that stands still."""
    now_ms = [1]
    monkeypatch.setattr("skylarkmq.broker.remoting.selector.time_ns", lambda: now_ms[0] * 1_000_000)
    return now_ms


def peers_of_one_poll(count: int) -> tuple[EchoServer, list[Peer]]:
    server = EchoServer()
    return server, [Peer(server.dispatcher, server.selector) for _ in range(count)]


def bodies(peer: Peer) -> list[bytes]:
    return [bytes(response.body) for response in peer.take()]


@pytest.mark.usefixtures("clock_ms")
async def test_small_reads_of_a_poll_are_one_batch() -> None:
    """The received bytes stay unchanged until the batch ends, after the poll's reads."""
    server, peers = peers_of_one_poll(3)
    for number, peer in enumerate(peers):
        peer.deliver(frame({"code": GATHER, "opaque": number}, b"%d" % number * 1000))
    assert server.gathered_sizes == []
    await asyncio.sleep(0)
    assert server.gathered_sizes == [3]
    assert [bodies(peer) for peer in peers] == [[b"%d" % number * 1000] for number in range(3)]


@pytest.mark.usefixtures("clock_ms")
async def test_consecutive_reads_of_one_peer_are_separate_batches() -> None:
    """A second read of the same peer, without a read of another one in between, is its own batch."""
    server, (peer, other) = peers_of_one_poll(2)
    for number in range(3):
        peer.deliver(frame({"code": GATHER, "opaque": number}))
    assert server.gathered_sizes == [2, 1]
    for one in (other, peer):
        one.deliver(frame({"code": GATHER, "opaque": 4}))
    assert server.gathered_sizes == [2, 1]
    await asyncio.sleep(0)
    assert server.gathered_sizes == [2, 1, 2]


async def test_a_batch_ends_with_the_millisecond(clock_ms: list[int]) -> None:
    """Earlier reads are finished first, and the received bytes stay where they are."""
    server, peers = peers_of_one_poll(3)
    for number, peer in enumerate(peers):
        clock_ms[0] += number == 1
        peer.deliver(frame({"code": GATHER, "opaque": number}, b"%d" % number * 1000))
    assert server.gathered_sizes == [1]
    await asyncio.sleep(0)
    assert server.gathered_sizes == [1, 2]
    assert [bodies(peer) for peer in peers] == [[b"%d" % number * 1000] for number in range(3)]


@pytest.mark.usefixtures("clock_ms")
async def test_a_batch_ends_at_its_size_limit() -> None:
    """Before the next read of the poll, which begins another batch."""
    server, peers = peers_of_one_poll(3)
    for number, peer in enumerate(peers):
        peer.deliver(frame({"code": GATHER, "opaque": number}, bytes(BATCH_BYTES // 2)))
    assert server.gathered_sizes == [2]
    assert server.selector.read_scheduler.excluded_bytes > BATCH_BYTES // 2
    await asyncio.sleep(0)
    assert server.gathered_sizes == [2, 1]
    assert server.selector.read_scheduler.excluded_bytes == 0


@pytest.mark.parametrize("ending", [None, b"\0\0\0\3bad"])
async def test_a_request_right_before_the_end_of_a_stream_gets_a_response(ending: bytes | None) -> None:
    """Whether the peer closes its side, or sends invalid bytes."""
    _, (peer,) = peers_of_one_poll(1)
    peer.deliver(frame({"code": ECHO, "opaque": 1}, b"last") + (ending or b""))
    if ending is None:
        peer.connection.eof_received()
    assert bodies(peer) == [b"last"]


# ------------------------------------------------------------------------------------------------------- idle, too many


@pytest.mark.parametrize("config", [{"max_idle_s": 120.0}], indirect=True)
async def test_an_idle_connection_is_closed(server: EchoServer, peer: RawPeer) -> None:
    """After 120 s without a byte in either direction, and not earlier."""
    await peer.call(ECHO)
    now_s = server.connection.active_s
    server.selector.close_idle(now_s + 119.9)
    assert (await peer.call(ECHO)).code == 0
    server.connection.active_s = now_s
    server.selector.close_idle(now_s + 120.1)
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
    await until(lambda: len(server.selector.connections) == 1)
    async with await RawPeer.connect(server.port) as fourth:
        assert (await fourth.call(ECHO)).code == 0
    figures = server.selector.statistics()
    assert (figures.accepted, figures.refused) == (3, 1)


async def test_every_listener_is_called_for_a_lost_connection(server: EchoServer, peer: RawPeer) -> None:
    """Sessions, parked pulls and routes depend on it."""
    await peer.call(ECHO)
    connection = server.connection
    lost: list[object] = []
    server.selector.on_close(lost.append)
    server.selector.on_close(lost.append)
    await peer.close()
    await until(lambda: lost)
    assert lost == [connection, connection]
    assert repr(connection).endswith("closed backlog=0>")


async def test_statistics_add_up(server: EchoServer, peer: RawPeer) -> None:
    """Bytes are counted as they pass."""
    peer.send(request := frame({"code": ECHO, "opaque": 1}))
    response = await peer.receive_raw()
    figures = server.selector.statistics()
    assert (figures.received_bytes, figures.sent_bytes) == (len(request), len(response))
    assert msgspec.structs.asdict(figures) | {"received_bytes": 0, "sent_bytes": 0} == {
        "connections": 1, "accepted": 1, "refused": 0, "closed_idle": 0, "closed_unread": 0, "protocol_errors": 0,
        "paused": 0, "held": 0, "backlog_bytes": 0, "received_bytes": 0, "sent_bytes": 0,
    }  # fmt: skip
    assert repr(server.selector) == "<Selector 1 connections>"


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
    peer.selector.flush()  # also paused because it does not read
    assert peer.connection.paused
    peer.transport.backlog.clear()
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert (peer.connection.paused, peer.transport.reading) == (False, False)
    selector.resume_paused_reads()
    assert peer.transport.reading


async def test_a_pause_ends_with_its_connection() -> None:
    """A closing connection cannot be paused."""
    peer = Peer(EchoServer().dispatcher)
    peer.connection.pause_reads()
    peer.connection.connection_lost(None)
    assert not peer.selector.is_read_paused(peer.connection)
    peer.connection.pause_reads()
    peer.selector.resume_paused_reads()
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
    peer.selector.flush()


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
    assert selector.deferred_bytes > 0
    for _ in range(4):
        await asyncio.sleep(0)
        late.take()
    assert [response.body for response in late.received] == [b"0", b"1", b"2"]
    assert (selector.deferred_bytes, late.connection.paused) == (0, False)


async def test_deferred_requests_are_dropped_with_their_connection() -> None:
    """All counters return to 0."""
    (one,) = deaf_peers(1)
    leave_unread(one, 1_001)
    one.send(RemotingCommand.request(ECHO))
    one.disconnect()
    assert (one.selector.deferred_bytes, one.selector.backlog_bytes) == (0, 0)


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
    assert (selector.backlog_bytes, [peer.transport.closing for peer in peers]) == (4_000, [False] * 5)
    leave_unread(peers[4], 1)
    assert [peer.transport.closing for peer in peers] == [True, False, False, False, False]
    assert selector.statistics().closed_unread == 1
    assert f"closing connection peer={peers[0].connection.peer} unread_bytes=1000" in caplog.text
    peers[0].disconnect()
    leave_unread(peers[4], 1_000)
    assert selector.statistics().closed_unread == 1  # checked ten times a second
    selector.enforce_unread_limit(asyncio.get_running_loop().time() + UNREAD_CHECK_S)
    assert [peer.transport.closing for peer in peers] == [True, False, False, False, True]


# -------------------------------------------------------------------------------------------------------- waiting times


async def test_a_late_read_is_refused() -> None:
    """A read that waited for the shortest wait limit of all pools is refused by that pool, the next one is served."""
    server = EchoServer(wait_ms=200)
    peer = Peer(server.dispatcher)
    began_s = asyncio.get_running_loop().time()
    scheduler = peer.selector.read_scheduler
    scheduler.record_stall(began_s - 0.25)
    refused = peer.call(RemotingCommand.request(ECHO))
    assert refused.code == 2
    assert str(refused.remark).startswith("[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period")
    assert server.handled == 0
    await asyncio.sleep(0)
    assert peer.call(RemotingCommand.request(ECHO)).code == 0


async def test_a_read_in_time_is_served() -> None:
    """A shorter wait is not a reason to refuse it."""
    server = EchoServer(wait_ms=100_000)
    peer = Peer(server.dispatcher)
    peer.selector.read_scheduler.record_stall(asyncio.get_running_loop().time() - 1)
    assert peer.call(RemotingCommand.request(ECHO)).code == 0


async def test_requests_delayed_by_their_own_peer_are_served() -> None:
    """Requests after responses that their peer did not read are late because of the peer."""
    server = EchoServer(wait_ms=1)
    peer = Peer(server.dispatcher, Selector(server.dispatcher, SHARED))
    peer.transport.stuck = True
    leave_unread(peer, 1_001)
    peer.connection.handle([RemotingCommand.request(ECHO)])
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await until(lambda: loop.time() > began_s + 0.002)
    peer.transport.stuck = False
    peer.transport.backlog.clear()
    peer.connection.resume_writing()
    await asyncio.sleep(0)
    assert [response.code for response in peer.take()] == [0]


def test_connections_leave_descriptors_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configured maximum, or fewer if the process has fewer descriptors: 1,536 or half are not for clients."""
    for descriptors, allowed in ((1_000_000, 16_384), (10_000, 8_464), (3_072, 1_536), (90, 45), (-1, 16_384)):
        monkeypatch.setattr(resource, "getrlimit", lambda _which, most=descriptors: (most, most))
        assert allowed_connections(RemotingConfig()) == allowed
