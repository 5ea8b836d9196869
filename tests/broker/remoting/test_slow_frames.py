"""Peers that send frames slowly, over real sockets: other peers are not affected, and the slow ones are closed."""

import asyncio
from contextlib import AsyncExitStack
from struct import pack

import pytest

from tests.harness.echo_server import ECHO, EchoServer
from tests.harness.limits import WAIT_LIMIT_S
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

ANNOUNCED = 16_000_000  # bytes of a frame that never ends
TOGETHER = 40 << 20
BODY = bytes(1_000_000)


async def slow_peers(server: EchoServer, count: int, stack: AsyncExitStack) -> list[RawPeer]:
    """Return `count` connections whose partial frames together exceed the limit."""
    peers = []
    for _ in range(count):
        peer = await stack.enter_async_context(await RawPeer.connect(server.port))
        peer.send(pack(">II", ANNOUNCED, 20) + bytes(TOGETHER // count))
        peers.append(peer)
    unfinished = server.selector.registry.partial_frames
    await until(lambda: unfinished.bytes > unfinished.limit_bytes and unfinished.statistics().waiting > 0)
    return peers


async def drip(peers: list[RawPeer], stop: asyncio.Event) -> None:
    """Send one byte of each peer, repeatedly."""
    while not stop.is_set():
        for peer in peers:
            peer.send(b"x")
            await asyncio.sleep(0)


@pytest.mark.parametrize("count", [18, pytest.param(200, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("config", [{"unfinished_frame_slow_s": 600.0}], indirect=True)
async def test_a_normal_send_does_not_wait_for_slow_peers(server: EchoServer, count: int) -> None:
    """1 MB among slow peers that have filled the memory: five responses, though the slow peers never end."""
    async with AsyncExitStack() as stack:
        peers = await slow_peers(server, count, stack)
        normal = await stack.enter_async_context(await RawPeer.connect(server.port))
        stop = asyncio.Event()
        dripping = asyncio.create_task(drip(peers, stop))
        for _ in range(5):
            response = await normal.call(ECHO, {}, BODY)
            assert len(response.body) == len(BODY)
        stop.set()
        await dripping


@pytest.mark.parametrize("config", [{"unfinished_frame_slow_s": 0.5}], indirect=True)
async def test_slow_peers_are_closed_while_another_one_sends(server: EchoServer) -> None:
    """After the configured time, as long as another peer needs the memory."""
    async with AsyncExitStack() as stack:
        await slow_peers(server, 18, stack)
        normal = await stack.enter_async_context(await RawPeer.connect(server.port))
        async with asyncio.timeout(WAIT_LIMIT_S):
            while server.selector.registry.partial_frames.bytes > server.selector.registry.partial_frames.limit_bytes:
                assert len((await normal.call(ECHO, {}, BODY)).body) == len(BODY)
        assert server.selector.registry.partial_frames.statistics().closed >= 4
        assert len((await normal.call(ECHO, {}, b"still here")).body) == 10


SMALL = {"unfinished_frames_bytes": 65_536, "unfinished_frame_slow_s": 0.05}


@pytest.mark.parametrize("config", [SMALL], indirect=True)
async def test_a_single_slow_peer_is_not_closed(server: EchoServer, peer: RawPeer) -> None:
    """Above the limit, and below the rate: no other peer waits for the memory."""
    other = await RawPeer.connect(server.port)
    peer.send(pack(">II", 300_000, 20) + bytes(200_000))
    for _ in range(50):
        assert (await other.call(ECHO, {}, b"small")).body == b"small"
    assert server.selector.registry.partial_frames.statistics().closed == 0
    await other.close()
