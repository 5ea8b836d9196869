"""The read batch: which reads are served together, and requests that waited for their read."""

import asyncio

import pytest

from skylarkmq.broker.remoting.read_batch import BATCH_BYTES
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.protocol.command import RemotingCommand
from tests.broker.remoting.test_connection_registry import SHARED, leave_unread
from tests.harness.echo_server import ECHO, GATHER, EchoServer
from tests.harness.peer import Peer
from tests.harness.raw import frame
from tests.harness.waiting import until


@pytest.fixture
def clock_ms(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that stands still."""
    now_ms = [1]
    monkeypatch.setattr("skylarkmq.broker.remoting.read_batch.time_ns", lambda: now_ms[0] * 1_000_000)
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
