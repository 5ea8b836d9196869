"""A connection: split frames in memory; invalid input and our own requests over real sockets."""

import asyncio
import random
import socket
import struct

import pytest

from skylarkmq.broker.remoting.read_scheduling import RECEIVE_BUFFER_BYTES
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.echo_server import DEFER, ECHO, GATHER, WAIT, EchoServer, requests
from tests.harness.peer import Peer
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

MIB = 1024 * 1024
GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    b"\xff" * 64,
    b"\0" * 64,
    struct.pack(">iI", 16 * MIB, 10),  # a byte above the limit
    struct.pack(">iI", -5, 0),
    struct.pack(">i", -5),  # refused without the next word
    struct.pack(">i", 3),
    struct.pack(">i", 16 * MIB),
    struct.pack(">iI", 10, 7),  # a header longer than its frame
    struct.pack(">iI", 8, 4) + b"nope",  # no JSON
    struct.pack(">iI", 8, 4) + b"{1:}",
    struct.pack(">iI", 6, 2) + b"17",  # JSON, but not an object
    struct.pack(">iI", 6, 9 << 24 | 2) + b"{}",  # an unknown dialect
    struct.pack(">iI", 8, 1 << 24 | 4) + b"{}{}",  # no binary header
    struct.pack(">iI", 6, 2) + b"\xff\xfe",
]


# ---------------------------------------------------------------------------------------------------------------- reads


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 64, 100, 1000])
async def test_frames_may_be_split_in_any_way(step: int) -> None:
    """Every request gets one response, in order, however the reads are split."""
    server = EchoServer()
    peer = Peer(server.dispatcher)
    data = requests(7)
    for start in range(0, len(data), step):
        peer.send_bytes(data[start : start + step])
    assert [(response.opaque, bytes(response.body)) for response in peer.received] == [
        (n, bytes([n]) * 10) for n in range(7)
    ]


async def test_frames_may_be_split_at_random() -> None:
    """Large frames among small ones, split anywhere."""
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
    assert [(response.opaque, len(response.body)) for response in peer.received] == list(enumerate(sizes)), (
        f"seed {seed}"
    )


async def test_one_byte_at_a_time_over_a_socket(server: EchoServer, peer: RawPeer) -> None:
    """A slow peer gets its responses, and another one is not affected."""
    async with await RawPeer.connect(server.port) as other:
        for number, byte in enumerate(frame({"code": ECHO, "opaque": 5}, b"slow")):
            peer.send(bytes([byte]))
            if number % 10 == 0:
                assert (await other.call(ECHO)).code == 0
        assert (await peer.receive()).body == b"slow"


async def test_more_than_the_receive_buffer_holds(server: EchoServer, peer: RawPeer) -> None:
    """A frame of many reads, and reads of many frames, are handled."""
    large = bytes(range(256)) * (3 * RECEIVE_BUFFER_BYTES // 256)
    peer.send(frame({"code": ECHO, "opaque": 1}, large) + requests(200, 5000) + frame({"code": ECHO, "opaque": 999}))
    assert (await peer.receive()).body == large
    bodies = [await peer.receive() for _ in range(201)]
    assert [response.header["opaque"] for response in bodies] == [*range(200), 999]


async def test_the_responses_of_a_read_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """All responses of a batch leave together, including those collected until its end."""
    server = EchoServer()
    peer = Peer(server.dispatcher)
    writes: list[bytes] = []
    monkeypatch.setattr(peer.transport, "write", writes.append)
    peer.send_bytes(requests(20) + frame({"code": GATHER, "opaque": 20}))
    assert len(writes) == 1


async def test_responses_outside_of_a_read_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parked requests that wake in one event-loop iteration cost one write."""
    server = EchoServer()
    peer = Peer(server.dispatcher)
    writes: list[bytes] = []
    monkeypatch.setattr(peer.transport, "write", writes.append)
    peer.send_bytes(b"".join(frame({"code": DEFER, "opaque": n}) for n in range(10)))
    for connection, command in server.deferred:
        connection.respond(command, RemotingCommand.response())
    assert writes == []
    await asyncio.sleep(0)
    assert len(writes) == 1


# -------------------------------------------------------------------------------------------------------------- garbage


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_invalid_bytes_close_only_their_own_connection(
    server: EchoServer, peer: RawPeer, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """They get no response, one line states the reason, and the other connection continues."""
    async with await RawPeer.connect(server.port) as other:
        other.send_request(WAIT)
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
async def test_requests_before_invalid_bytes_get_responses(peer: RawPeer, garbage: bytes, code: int) -> None:
    """Also requests whose responses are written at the end of the read that contains the invalid bytes."""
    peer.send(b"".join(frame({"code": code, "opaque": n}) for n in range(3)) + garbage + requests(2))
    assert [(await peer.receive()).header["opaque"] for _ in range(3)] == [0, 1, 2]
    assert await peer.rest() == b""


@pytest.mark.parametrize("config", [{"max_frame_bytes": 1000}], indirect=True)
async def test_the_largest_frame_is_a_setting(peer: RawPeer) -> None:
    """It applies to the whole frame, including its length word."""
    empty = len(frame({"code": ECHO, "opaque": 1}))
    peer.send(frame({"code": ECHO, "opaque": 1}, b"x" * (1000 - empty)))
    assert (await peer.receive()).code == 0
    peer.send(frame({"code": ECHO, "opaque": 1}, b"x" * (1001 - empty)))
    assert await peer.rest() == b""


async def test_a_connection_reset_removes_the_connection(server: EchoServer, peer: RawPeer) -> None:
    """Its requests are dropped."""
    rude = socket.create_connection(("127.0.0.1", server.port))
    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    rude.sendall(frame({"code": DEFER, "opaque": 1}))
    await until(lambda: server.deferred)
    rude.close()
    await until(lambda: len(server.selector.registry.connections) == 1)
    assert server.deferred[0][0].closed
    assert (await peer.call(ECHO)).code == 0


async def test_a_peer_that_resets_before_it_is_accepted_is_harmless(server: EchoServer, peer: RawPeer) -> None:
    """The connection may not even have an address then."""
    for _ in range(20):
        rude = socket.create_connection(("127.0.0.1", server.port))
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.close()
    assert (await peer.call(ECHO)).code == 0
    await until(lambda: len(server.selector.registry.connections) == 1)


# --------------------------------------------------------------------------------------------------------- our requests


async def test_responses_to_our_requests_are_matched_by_opaque(server: EchoServer, peer: RawPeer) -> None:
    """The opaques of both sides are independent, and responses arrive in any order."""
    await peer.call(ECHO)
    connection = server.connection
    tasks = [asyncio.ensure_future(connection.invoke(RemotingCommand.request(40), 10)) for _ in range(3)]
    asked = [await peer.receive() for _ in range(3)]
    assert [each.header["flag"] for each in asked] == [0, 0, 0]
    for each in reversed(asked):
        opaque = each.header["opaque"]
        peer.send(frame({"code": 0, "opaque": opaque, "flag": 1}, b"%d" % opaque))
    responses = [await task for task in tasks]
    assert [response.body for response in responses] == [b"%d" % each.header["opaque"] for each in asked]


async def test_an_unexpected_response_is_dropped(server: EchoServer, peer: RawPeer) -> None:
    """It is not handled as a request, whatever its code; the oneway bit has no effect."""
    for flag in (1, 3):
        peer.send(frame({"code": ECHO, "opaque": 4711, "flag": flag}))
    assert (await peer.call(ECHO)).code == 0
    assert server.handled == 1


async def test_our_oneway_request_expects_no_response(server: EchoServer, peer: RawPeer) -> None:
    """A notification has the oneway bit and its own opaque."""
    await peer.call(ECHO)
    server.connection.push(RemotingCommand.request(40, oneway=True))
    notice = await peer.receive()
    assert (notice.code, notice.header["flag"]) == (40, 2)


async def test_a_lost_connection_fails_our_requests(server: EchoServer, peer: RawPeer) -> None:
    """Waiting requests fail, and new ones fail at once."""
    await peer.call(ECHO)
    connection = server.connection
    task = asyncio.ensure_future(connection.invoke(RemotingCommand.request(40), 10))
    await peer.receive()
    await peer.close()
    with pytest.raises(ConnectionError, match=f"connection to {connection.peer} lost"):
        await task
    with pytest.raises(ConnectionError, match="is closed"):
        await connection.invoke(RemotingCommand.request(40), 10)


async def test_a_missing_response_is_a_timeout(server: EchoServer, peer: RawPeer) -> None:
    """A late response is dropped."""
    await peer.call(ECHO)
    with pytest.raises(TimeoutError):
        await server.connection.invoke(RemotingCommand.request(40), 0.001)
    asked = await peer.receive()
    peer.send(frame({"code": 0, "opaque": asked.header["opaque"], "flag": 1}))
    assert (await peer.call(ECHO)).code == 0
