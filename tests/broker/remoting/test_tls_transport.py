"""TLS on a connection: all bytes in both directions, and every way in which a handshake or a stream can end."""

import asyncio
import os
import random
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.remoting.config import RemotingConfig, TlsConfig
from skylarkmq.broker.remoting.tls import ServerTls
from skylarkmq.broker.remoting.tls_transport import TlsTransport
from skylarkmq.protocol.frame import TLS_HANDSHAKE
from tests.harness.certificates import unverified_context
from tests.harness.echo_server import DEFER, ECHO, LARGE, EchoServer, requests
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

MIB = 1024 * 1024


@pytest.fixture
def tls() -> ServerTls:
    return ServerTls(TlsConfig())


@pytest.fixture
async def server(tls: ServerTls, config: RemotingConfig) -> AsyncIterator[EchoServer]:
    async with EchoServer(config, tls=tls) as server:
        yield server


@pytest.fixture
async def peer(server: EchoServer) -> AsyncIterator[RawPeer]:
    async with await RawPeer.connect(server.port, tls=unverified_context()) as peer:
        yield peer


class Region:
    """A region of a file, as in the response to a pull."""

    def __init__(self, file: Path, position: int, size: int, *, is_hot: bool) -> None:
        self.fd = os.open(file, os.O_RDONLY)
        self.position, self.size, self.is_hot = position, size, is_hot
        self.held = 0

    def parts_after(self, head: bytes) -> tuple[bytes, memoryview]:
        assert self.is_hot
        return head, memoryview(os.pread(self.fd, self.size, self.position))

    def hold(self, _holder: object) -> None:
        self.held += 1

    def release(self, _holder: object) -> None:
        self.held -= 1


class Client:
    """A TLS client whose two ends the test controls: the bytes on the socket, and their timing."""

    def __init__(self, raw: RawPeer, context: ssl.SSLContext | None = None) -> None:
        self.raw = raw
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = (context or unverified_context()).wrap_bio(
            self.incoming, self.outgoing, server_hostname="localhost"
        )

    def step(self) -> bytes:
        """Return the bytes of the next handshake step."""
        try:
            self.engine.do_handshake()
        except ssl.SSLWantReadError:
            pass  # the server continues
        else:
            self.done = True
        return self.outgoing.read()

    async def take(self) -> None:
        """Read the bytes that the server sent."""
        self.incoming.write(await self.raw.some())

    async def to_the_last_step(self) -> bytes:
        """Run the handshake except for its last step, which is returned."""
        self.raw.send(self.step())
        while True:
            await self.take()
            last = self.step()
            if self.done:
                return last
            self.raw.send(last)


# ------------------------------------------------------------------------------------------------------ both directions


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_bytes_arrive_as_they_were_sent(server: EchoServer, version: ssl.TLSVersion) -> None:
    """Bodies of 0 bytes to some MiB, over many records and reads, are returned unchanged."""
    context = unverified_context()
    context.minimum_version = context.maximum_version = version
    rng = random.Random(version)
    async with await RawPeer.connect(server.port, tls=context) as peer:
        for size in (0, 1, 16_383, 16_384, 16_385, 256 * 1024, 3 * MIB):
            body = rng.randbytes(size)
            assert (await peer.call(ECHO, body=body)).body == body


async def test_many_requests_of_one_read_get_responses_in_order(server: EchoServer, peer: RawPeer) -> None:
    """Frames do not depend on the borders of records."""
    peer.send(requests(2_000, size=700))
    for n in range(2_000):
        received = await peer.receive()
        assert (received.header["opaque"], received.body) == (n, bytes([n % 256]) * 700)


async def test_requests_with_the_end_of_the_handshake_are_served(server: EchoServer) -> None:
    """A client may send requests together with its last handshake message."""
    async with await RawPeer.connect(server.port) as raw:
        client = Client(raw)
        last = await client.to_the_last_step()
        client.engine.write(requests(3))
        raw.send(last + client.outgoing.read())
        await until(lambda: server.has_handled(3))


async def test_a_hello_may_come_byte_by_byte(server: EchoServer, tls: ServerTls) -> None:
    """The first byte decides; the rest may arrive later."""
    async with await RawPeer.connect(server.port) as raw:
        hello = Client(raw).step()
        for sent in range(len(hello)):
            raw.send(hello[sent : sent + 1])
            await asyncio.sleep(0)
        assert (await raw.some())[0] == TLS_HANDSHAKE
    await until(lambda: tls.failed)  # the client closed during the handshake


@pytest.mark.parametrize("config", [{"peer_backlog_bytes": MIB}], indirect=True)
async def test_a_peer_that_does_not_read_is_not_read_from(server: EchoServer) -> None:
    """Its backlog is counted in encrypted bytes, and all responses arrive when it reads again."""
    peer = await RawPeer.connect_without_reading(server.port, unverified_context())
    async with peer:
        for _ in range(8):
            peer.send_request(LARGE, {"n": 4 * MIB})
        await until(lambda: server.selector.registry.connections and server.connection.paused)
        await asyncio.sleep(0)  # until the read batch has ended
        assert server.handled < 8
        assert server.connection.backlog_bytes > MIB
        peer.resume_reading()
        for _ in range(8):
            assert len((await peer.receive()).body) == 4 * MIB
        await until(lambda: not server.connection.backlog_bytes)
        assert not server.connection.paused


async def test_two_peers_are_served_alternately(server: EchoServer, peer: RawPeer) -> None:
    """A peer that sends continuously does not block the other."""
    async with await RawPeer.connect(server.port, tls=unverified_context()) as other:
        peer.send(requests(20_000, size=1_000))
        assert (await other.call(ECHO, body=b"me too")).body == b"me too"
        for n in range(20_000):
            assert (await peer.receive()).header["opaque"] == n


async def test_a_later_response_is_encrypted_too(server: EchoServer, peer: RawPeer) -> None:
    """Output outside of a read takes the same path."""
    opaque = peer.send_request(DEFER, body=b"later")
    await until(lambda: server.deferred)
    connection, command = server.deferred.pop()
    connection.respond(command, type(command).response(body=command.body))
    assert (await peer.receive()).header["opaque"] == opaque


async def test_file_regions_are_copied(server: EchoServer, peer: RawPeer, tmp_path: Path) -> None:
    """Long, short, in memory or not, between bytes: they arrive in order and encrypted, without sendfile."""
    file = tmp_path / "segment"
    file.write_bytes(data := random.Random(1).randbytes(4 * MIB))
    slices = [(0, 2 * MIB, False), (7, 100, True), (MIB, MIB, True), (5, 3 * MIB, False), (99, 64 * 1024, True)]
    regions = [Region(file, position, size, is_hot=is_hot) for position, size, is_hot in slices]
    await peer.call(ECHO)
    connection = server.connection
    for region in regions:
        connection.write(b"head")
        connection.write_regions([region])
    connection.write(b"end")
    expected = b"".join(b"head" + data[position : position + size] for position, size, _ in slices) + b"end"
    assert await peer.take(len(expected)) == expected
    figures = server.selector.pending_writes.statistics()
    assert figures.sent_calls == figures.cold_sent_calls == 0
    assert [region.held for region in regions] == [0] * len(regions)
    for region in regions:
        os.close(region.fd)


async def test_the_transport_of_a_secure_connection_names_its_tls(server: EchoServer, peer: RawPeer) -> None:
    """So no plain file data is sent on it; the socket's address is unchanged."""
    await peer.call(ECHO)
    transport = server.connection._transport
    assert isinstance(transport, TlsTransport)
    assert isinstance(transport.get_extra_info("ssl_object"), ssl.SSLObject)
    assert isinstance(transport.get_extra_info("sslcontext"), ssl.SSLContext)
    assert server.connection.peer == peer.address
    assert "TLSv1.3" in repr(transport)
    server.connection.pause_reads()
    assert not transport.is_reading()
    server.selector.registry.resume_paused_reads()
    assert transport.is_reading()


# ----------------------------------------------------------------------------------------------------------------- ends


async def test_a_close_notify_closes_the_connection(server: EchoServer, peer: RawPeer) -> None:
    """The server responds with its own close_notify."""
    await peer.call(ECHO)
    await peer.close()
    await until(lambda: not server.selector.registry.connections)


async def test_a_peer_that_closes_without_close_notify_is_removed(server: EchoServer) -> None:
    """A closed socket without a TLS alert is an ordinary end."""
    async with await RawPeer.connect(server.port) as raw:
        client = Client(raw)
        raw.send(await client.to_the_last_step())
        client.engine.write(requests(1))
        raw.send(client.outgoing.read())
        await until(lambda: server.has_handled(1))
    await until(lambda: not server.selector.registry.connections)


async def test_a_broken_stream_is_closed(server: EchoServer, tls: ServerTls, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that cannot be decrypted end the connection with a log line, without a traceback."""
    caplog.set_level("INFO")
    async with await RawPeer.connect(server.port) as raw:
        client = Client(raw)
        raw.send(await client.to_the_last_step())
        await until(lambda: tls.established)
        raw.send(b"\x17\x03\x03\x00\x40" + bytes(64))
        await raw.rest()
    await until(lambda: not server.selector.registry.connections)
    assert "TLS error peer=127.0.0.1" in caplog.text
    assert "Traceback" not in caplog.text
    assert tls.failed == 0


async def test_an_invalid_frame_closes_a_tls_connection(server: EchoServer, peer: RawPeer) -> None:
    """Requests before the invalid frame get their responses."""
    peer.send(requests(1) + b"\x7f" * 40)
    assert (await peer.receive()).header["opaque"] == 0
    assert await peer.rest() == b""
    assert server.selector.registry.protocol_errors == 1


# ---------------------------------------------------------------------------------------------------- failed handshakes


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16" * 100,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x16\x03\x00\x00\x2f\x01\x00\x00\x2b\x03\x00" + bytes(42),
    ],
    ids=["0x16", "no hello", "too long", "SSL 3"],
)
async def test_an_invalid_handshake_is_closed_and_counted(
    server: EchoServer, tls: ServerTls, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    """One line at level info with the peer, one failure, no traceback."""
    caplog.set_level("INFO")
    async with await RawPeer.connect(server.port) as raw:
        raw.send(garbage)
        await raw.rest()
        address = raw.address
    await until(lambda: not server.selector.registry.connections)
    assert (tls.established, tls.failed) == (0, 1)
    assert caplog.text.count(f"tls handshake failed peer={address}") == 1
    assert "Traceback" not in caplog.text
    assert not [record for record in caplog.records if record.levelname not in ("INFO", "DEBUG")]


@pytest.mark.parametrize("step", [0, 1])
async def test_a_peer_may_close_during_the_handshake(
    server: EchoServer, tls: ServerTls, caplog: pytest.LogCaptureFixture, step: int
) -> None:
    """After half of its hello, or after the server's response."""
    caplog.set_level("INFO")
    async with await RawPeer.connect(server.port) as raw:
        client = Client(raw)
        hello = client.step()
        raw.send(hello if step else hello[: len(hello) // 2])
        if step:
            await client.take()
        await until(
            lambda: server.selector.read_scheduler.received_bytes or tls.failed or server.selector.registry.connections
        )
        await until(lambda: isinstance(server.connection._transport, TlsTransport))
    await until(lambda: not server.selector.registry.connections)
    assert tls.failed == 1
    assert "reason=the peer closed the connection" in caplog.text


async def test_a_reset_during_the_handshake_is_not_an_error(
    server: EchoServer, tls: ServerTls, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection reset is counted like a close."""
    sock = socket.create_connection(("127.0.0.1", server.port))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    sock.send(b"\x16\x03\x01")
    await until(lambda: server.selector.registry.connections)
    await until(lambda: isinstance(server.connection._transport, TlsTransport))
    sock.close()
    await until(lambda: not server.selector.registry.connections)
    assert tls.failed == 1
    assert "Traceback" not in caplog.text


async def test_a_slow_handshake_is_aborted(
    server: EchoServer, tls: ServerTls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """HANDSHAKE_TIMEOUT_S applies to the whole handshake, however slowly the peer continues."""
    caplog.set_level("INFO")
    monkeypatch.setattr("skylarkmq.broker.remoting.tls_transport.HANDSHAKE_TIMEOUT_S", 0.01)
    async with await RawPeer.connect(server.port) as raw:
        raw.send(Client(raw).step()[:-1])
        assert await raw.rest() == b""
    assert (tls.established, tls.failed) == (0, 1)
    assert "reason=not completed within 0.01 s" in caplog.text


async def test_a_finished_handshake_has_no_deadline(
    server: EchoServer, tls: ServerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake timeout does not affect established connections."""
    async with await RawPeer.connect(server.port, tls=unverified_context()) as peer:
        await peer.call(ECHO)
        transport = server.connection._transport
        assert isinstance(transport, TlsTransport)
        assert transport._deadline is None
    assert tls.statistics().failed == 0


async def test_a_rejected_client_gets_an_alert(server: EchoServer, tls: ServerTls) -> None:
    """A client without a supported version gets the reason as an alert."""
    async with await RawPeer.connect(server.port) as raw:
        raw.send(b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x01" + bytes(32) + b"\x00\x00\x02\x00\x2f\x01\x00\x00\x00")
        alert = await raw.rest()
    assert alert[:1] == b"\x15"
    assert tls.failed == 1
