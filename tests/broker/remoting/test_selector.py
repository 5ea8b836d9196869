"""The selector: who is connected, idle or held; figures."""

import asyncio

import msgspec
import pytest

from protocol.command import RemotingCommand
from tests.harness.echo_server import DEFER, ECHO, EchoServer
from tests.harness.peer import Peer
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

MIB = 1024 * 1024


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
    await asyncio.sleep(0)
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
