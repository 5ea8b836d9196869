"""The selector: what peers may do to themselves and not to others, over real sockets; splits of frames in memory."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import msgspec
import pytest

from broker.remoting.selector import RECEIVE_BUFFER_BYTES, RemotingConfig
from protocol.command import RemotingCommand
from tests.harness.echo_server import DEFER, ECHO, GATHER, LARGE, WAIT, EchoServer
from tests.harness.peer import Peer
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

MIB = 1024 * 1024
GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    b"\xff" * 64,
    b"\0" * 64,
    struct.pack(">iI", 16 * MIB, 10),  # a byte too long
    struct.pack(">iI", -5, 0),
    struct.pack(">iI", 10, 7),  # a header longer than its frame
    struct.pack(">iI", 8, 4) + b"nope",  # no JSON
    struct.pack(">iI", 8, 4) + b"{1:}",
    struct.pack(">iI", 6, 2) + b"17",  # JSON, and no object
    struct.pack(">iI", 6, 9 << 24 | 2) + b"{}",  # an unknown dialect
    struct.pack(">iI", 8, 1 << 24 | 4) + b"{}{}",  # no binary header
    struct.pack(">iI", 6, 2) + b"\xff\xfe",
]


@pytest.fixture
def config(request: pytest.FixtureRequest) -> RemotingConfig:
    return RemotingConfig(**getattr(request, "param", {}))


@pytest.fixture
async def server(config: RemotingConfig) -> AsyncIterator[EchoServer]:
    async with EchoServer(config) as server:
        yield server


@pytest.fixture
async def peer(server: EchoServer) -> AsyncIterator[RawPeer]:
    async with await RawPeer.connect(server.port) as peer:
        yield peer


# ---------------------------------------------------------------------------------------------------------------- reads


def requests(count: int, size: int = 10) -> bytes:
    return b"".join(frame({"code": ECHO, "opaque": n}, bytes([n % 256]) * size) for n in range(count))


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 64, 100, 1000])
async def test_frames_may_be_split_in_any_way(step: int) -> None:
    """Every request is answered once and in order, however the reads fall."""
    server = EchoServer()
    peer = Peer(server.dispatcher)
    data = requests(7)
    for start in range(0, len(data), step):
        peer.send_bytes(data[start : start + step])
    assert [(answer.opaque, bytes(answer.body)) for answer in peer.received] == [(n, bytes([n]) * 10) for n in range(7)]


async def test_frames_may_be_split_at_random() -> None:
    """Large frames among small ones, cut anywhere."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    server = EchoServer()
    peer = Peer(server.dispatcher)
    sizes = [chance.choice([0, 1, 100, 5000, 100_000]) for _ in range(50)]
    data = b"".join(frame({"code": ECHO, "opaque": n}, b"x" * size) for n, size in enumerate(sizes))
    while data:
        cut = chance.choice([1, 5, 1000, 70_000, RECEIVE_BUFFER_BYTES])
        peer.send_bytes(data[:cut])
        data = data[cut:]
    assert [(answer.opaque, len(answer.body)) for answer in peer.received] == list(enumerate(sizes)), f"seed {seed}"


async def test_one_byte_at_a_time_over_a_socket(server: EchoServer, peer: RawPeer) -> None:
    """A dribbling peer gets its answers, and another one does not notice."""
    async with await RawPeer.connect(server.port) as other:
        for number, byte in enumerate(frame({"code": ECHO, "opaque": 5}, b"slow")):
            peer.send(bytes([byte]))
            if number % 10 == 0:
                assert (await other.call(ECHO)).code == 0
        assert (await peer.receive()).body == b"slow"


async def test_more_than_the_receive_buffer_holds(server: EchoServer, peer: RawPeer) -> None:
    """A frame of many reads, and reads of many frames, come through."""
    large = bytes(range(256)) * (3 * RECEIVE_BUFFER_BYTES // 256)
    peer.send(frame({"code": ECHO, "opaque": 1}, large) + requests(200, 5000) + frame({"code": ECHO, "opaque": 999}))
    assert (await peer.receive()).body == large
    bodies = [await peer.receive() for _ in range(201)]
    assert [answer.header["opaque"] for answer in bodies] == [*range(200), 999]


async def test_a_read_is_answered_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """All answers of a turn leave together, gathered ones included."""
    server = EchoServer()
    peer = Peer(server.dispatcher)
    writes: list[bytes] = []
    monkeypatch.setattr(peer.transport, "write", writes.append)
    peer.send_bytes(requests(20) + frame({"code": GATHER, "opaque": 20}))
    assert len(writes) == 1


async def test_answers_given_outside_of_a_read_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parked requests that wake in one turn cost one write."""
    server = EchoServer()
    peer = Peer(server.dispatcher)
    writes: list[bytes] = []
    monkeypatch.setattr(peer.transport, "write", writes.append)
    peer.send_bytes(b"".join(frame({"code": DEFER, "opaque": n}) for n in range(10)))
    for connection, command in server.deferred:
        connection.answer(command, RemotingCommand.response())
    assert writes == []
    await asyncio.sleep(0)
    assert len(writes) == 1


# -------------------------------------------------------------------------------------------------------------- garbage


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_garbage_closes_its_own_connection_only(
    server: EchoServer, peer: RawPeer, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is answered to it, one line says why, and the other connection goes on."""
    async with await RawPeer.connect(server.port) as other:
        other.ask(WAIT)
        peer.send(garbage)
        assert await peer.rest() == b""
        server.go_on.set()
        assert (await other.receive()).code == 0
        assert (await other.call(ECHO)).code == 0
        assert server.selector.statistics().protocol_errors == 1
        assert caplog.text.count("closing connection") == 1
        assert "Traceback" not in caplog.text


@pytest.mark.parametrize("code", [ECHO, GATHER])
@pytest.mark.parametrize("garbage", GARBAGE)
async def test_requests_before_the_garbage_are_answered(peer: RawPeer, garbage: bytes, code: int) -> None:
    """Also those that are answered at the end of the read, in which the garbage came too."""
    peer.send(b"".join(frame({"code": code, "opaque": n}) for n in range(3)) + garbage + requests(2))
    assert [(await peer.receive()).header["opaque"] for _ in range(3)] == [0, 1, 2]
    assert await peer.rest() == b""


@pytest.mark.parametrize("config", [{"max_frame_bytes": 1000}], indirect=True)
async def test_the_largest_frame_is_a_setting(peer: RawPeer) -> None:
    """It counts the whole frame, its length word included."""
    empty = len(frame({"code": ECHO, "opaque": 1}))
    peer.send(frame({"code": ECHO, "opaque": 1}, b"x" * (1000 - empty)))
    assert (await peer.receive()).code == 0
    peer.send(frame({"code": ECHO, "opaque": 1}, b"x" * (1001 - empty)))
    assert await peer.rest() == b""


async def test_a_peer_that_resets_is_forgotten(server: EchoServer, peer: RawPeer) -> None:
    """Its requests die with it."""
    rude = socket.create_connection(("127.0.0.1", server.port))
    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    rude.sendall(frame({"code": DEFER, "opaque": 1}))
    await until(lambda: server.deferred)
    rude.close()
    await until(lambda: len(server.selector.connections) == 1)
    assert server.deferred[0][0].closed
    assert (await peer.call(ECHO)).code == 0


async def test_a_peer_that_resets_before_it_is_accepted_is_harmless(server: EchoServer, peer: RawPeer) -> None:
    """By then it may not even have an address."""
    for _ in range(20):
        rude = socket.create_connection(("127.0.0.1", server.port))
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.close()
    assert (await peer.call(ECHO)).code == 0
    await until(lambda: len(server.selector.connections) == 1)


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


# ---------------------------------------------------------------------------------------------------- idle, too many


@pytest.mark.parametrize("config", [{"max_idle_s": 120.0}], indirect=True)
async def test_an_idle_connection_is_closed(server: EchoServer, peer: RawPeer) -> None:
    """After 120 s without a byte in either direction, and not before."""
    await peer.call(ECHO)
    now_s = server.connection.active_s
    server.selector.close_idle(now_s + 120.0)
    assert (await peer.call(ECHO)).code == 0
    server.connection.active_s = now_s
    server.selector.close_idle(now_s + 120.1)
    assert await peer.rest() == b""
    assert server.selector.statistics().closed_idle == 1


async def test_what_is_sent_counts_as_activity(server: EchoServer, peer: RawPeer) -> None:
    """A peer that only listens is not idle while there is something to hear."""
    peer.ask(DEFER)
    await until(lambda: server.deferred)
    server.connection.active_s = 0.0
    ((connection, command),) = server.deferred
    connection.answer(command, RemotingCommand.response())
    await peer.receive()
    assert connection.active_s > 0.0


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


@pytest.mark.parametrize("config", [{"max_connections": 2}], indirect=True)
async def test_a_connection_too_many_is_refused(
    server: EchoServer, peer: RawPeer, caplog: pytest.LogCaptureFixture
) -> None:
    """Who is there stays; when one goes, there is room again."""
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


# --------------------------------------------------------------------------------------------------------- our requests


async def test_we_may_ask_and_the_answers_are_matched(server: EchoServer, peer: RawPeer) -> None:
    """Numbers of both sides are independent, and answers come in any order."""
    await peer.call(ECHO)
    connection = server.connection
    tasks = [asyncio.ensure_future(connection.invoke(RemotingCommand.request(40), 10)) for _ in range(3)]
    asked = [await peer.receive() for _ in range(3)]
    assert [each.header["flag"] for each in asked] == [0, 0, 0]
    for each in reversed(asked):
        opaque = each.header["opaque"]
        peer.send(frame({"code": 0, "opaque": opaque, "flag": 1}, b"%d" % opaque))
    answers = [await task for task in tasks]
    assert [answer.body for answer in answers] == [b"%d" % each.header["opaque"] for each in asked]


async def test_an_answer_that_nobody_waits_for_is_dropped(server: EchoServer, peer: RawPeer) -> None:
    """It is no request either, whatever its code; the oneway bit on it means nothing."""
    for flag in (1, 3):
        peer.send(frame({"code": ECHO, "opaque": 4711, "flag": flag}))
    assert (await peer.call(ECHO)).code == 0
    assert server.handled == 1


async def test_a_oneway_request_of_ours_expects_nothing(server: EchoServer, peer: RawPeer) -> None:
    """A notice goes out with the oneway bit and its own number."""
    await peer.call(ECHO)
    server.connection.push(RemotingCommand.request(40, oneway=True))
    notice = await peer.receive()
    assert (notice.code, notice.header["flag"]) == (40, 2)


async def test_a_lost_connection_fails_what_we_asked(server: EchoServer, peer: RawPeer) -> None:
    """Whoever waits for an answer learns that there will be none, and asking again fails at once."""
    await peer.call(ECHO)
    connection = server.connection
    task = asyncio.ensure_future(connection.invoke(RemotingCommand.request(40), 10))
    await peer.receive()
    await peer.close()
    with pytest.raises(ConnectionError, match=f"connection to {connection.peer} lost"):
        await task
    with pytest.raises(ConnectionError, match="is closed"):
        await connection.invoke(RemotingCommand.request(40), 10)


async def test_a_missing_answer_is_a_timeout(server: EchoServer, peer: RawPeer) -> None:
    """A late one finds nobody waiting."""
    await peer.call(ECHO)
    with pytest.raises(TimeoutError):
        await server.connection.invoke(RemotingCommand.request(40), 0.001)
    asked = await peer.receive()
    peer.send(frame({"code": 0, "opaque": asked.header["opaque"], "flag": 1}))
    assert (await peer.call(ECHO)).code == 0


async def test_everybody_hears_of_a_lost_connection(server: EchoServer, peer: RawPeer) -> None:
    """Sessions, parked pulls and routes hang on it."""
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
    answer = await peer.receive_raw()
    figures = server.selector.statistics()
    assert (figures.received_bytes, figures.sent_bytes) == (len(request), len(answer))
    assert msgspec.structs.asdict(figures) | {"received_bytes": 0, "sent_bytes": 0} == {
        "connections": 1, "accepted": 1, "refused": 0, "closed_idle": 0, "protocol_errors": 0, "paused": 0,
        "backlog_bytes": 0, "received_bytes": 0, "sent_bytes": 0,
    }  # fmt: skip
    assert repr(server.selector) == "<Selector 1 connections>"


# ---------------------------------------------------------------------------------------------------------------- holds


async def test_a_held_connection_is_not_read_from() -> None:
    """Nothing but the release lets a held connection be read from again; what it is owed is still written."""
    server = EchoServer()
    peer, other = Peer(server.dispatcher), Peer(server.dispatcher)
    selector = peer.selector
    peer.connection.hold_reading()
    assert (peer.transport.reading, other.transport.reading) == (False, True)
    peer.transport.stuck = True
    peer.connection.write(b"x" * (5 * MIB))
    peer.connection.flush()  # paused as well, for it does not read
    assert peer.connection.paused
    peer.transport.backlog.clear()
    peer.connection.resume_writing()
    assert (peer.connection.paused, peer.transport.reading) == (False, False)
    selector.release_held()
    assert peer.transport.reading


async def test_a_held_connection_may_go() -> None:
    """A hold ends with its connection, and one that is going is not held."""
    peer = Peer(EchoServer().dispatcher)
    peer.connection.hold_reading()
    peer.connection.connection_lost(None)
    assert not peer.selector.is_held(peer.connection)
    peer.connection.hold_reading()
    peer.selector.release_held()
    assert not peer.transport.reading
