"""The first byte: TLS and plain clients, and which of them each mode serves."""

import asyncio
import ssl
from functools import partial
from pathlib import Path

import pytest

from skylarkmq.broker.remoting.config import RemotingConfig, TlsConfig, TlsMode
from skylarkmq.broker.remoting.connection_registry import SILENT_S
from skylarkmq.broker.remoting.tls import ServerTls, self_signed
from tests.harness.certificates import Certificates, unverified_context
from tests.harness.echo_server import ECHO, EchoServer, requests
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until

HELLO = b"\x16"


def has_received(server: EchoServer, size: int) -> bool:
    return server.selector.statistics().received_bytes == size


async def is_served(server: EchoServer, tls: ssl.SSLContext | None) -> bool:
    """Return whether a client of this kind gets a response."""
    try:
        async with await RawPeer.connect(server.port, tls=tls) as peer:
            return (await peer.call(ECHO, body=b"hello")).body == b"hello"
    except (OSError, asyncio.IncompleteReadError):
        return False


@pytest.mark.parametrize(
    ("mode", "serves_plain", "serves_tls"),
    [(TlsMode.DISABLED, True, False), (TlsMode.PERMISSIVE, True, True), (TlsMode.ENFORCING, False, True)],
)
async def test_the_mode_decides_which_clients_are_served(
    mode: TlsMode, serves_plain: bool, serves_tls: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """disabled: plain only; permissive: both; enforcing: TLS only. Other connections are closed, with a log line."""
    caplog.set_level("INFO", "skylarkmq.broker.remoting.tls_detection")
    tls = ServerTls(TlsConfig(mode=mode))
    async with EchoServer(tls=tls) as server:
        assert await is_served(server, None) is serves_plain
        assert await is_served(server, unverified_context()) is serves_tls
        await until(lambda: not server.selector.registry.connections)
    assert tls.statistics().refused == caplog.text.count("closing connection peer=127.0.0.1:")
    assert tls.refused == (not serves_plain) + (not serves_tls)


async def test_the_first_read_of_a_plain_peer_is_not_lost() -> None:
    """Several frames in the first read are all handled."""
    async with EchoServer(tls=ServerTls(TlsConfig())) as server, await RawPeer.connect(server.port) as peer:
        peer.send(requests(5))
        assert [(await peer.receive()).header["opaque"] for _ in range(5)] == list(range(5))


async def test_a_frame_may_come_byte_by_byte() -> None:
    """One byte is enough for the decision, and stays with the bytes after it."""
    async with EchoServer(tls=ServerTls(TlsConfig())) as server, await RawPeer.connect(server.port) as peer:
        whole = frame({"code": ECHO, "opaque": 7}, b"slow")
        for sent in range(len(whole)):
            peer.send(whole[sent : sent + 1])
            await until(partial(has_received, server, sent + 1))
        assert (await peer.receive()).body == b"slow"


async def test_a_silent_peer_is_counted_and_closed_when_idle() -> None:
    """Before its first byte it is neither plain nor TLS: an ordinary connection, closed only after the idle timeout."""
    config = RemotingConfig(max_connections=1, max_idle_s=120)
    async with EchoServer(config, tls=ServerTls(TlsConfig())) as server, await RawPeer.connect(server.port) as peer:
        await until(lambda: server.selector.registry.connections)
        async with await RawPeer.connect(server.port) as second:
            assert await second.rest() == b""
        server.selector.registry.close_idle(server.connection.active_s + 119)
        assert (await peer.call(ECHO)).code == 0
        server.selector.registry.close_idle(asyncio.get_running_loop().time() + 121)
        assert await peer.rest() == b""


async def test_at_the_limit_the_longest_silent_peer_is_closed() -> None:
    """After 5 s without a byte at the earliest; connections that have sent data stay."""
    config = RemotingConfig(max_connections=3)
    async with (
        EchoServer(config, tls=ServerTls(TlsConfig())) as server,
        await RawPeer.connect(server.port) as speaker,
        await RawPeer.connect(server.port) as first,
        await RawPeer.connect(server.port) as second,
    ):
        await speaker.call(ECHO)
        await until(lambda: len(server.selector.registry.connections) == 3)
        for connection in server.selector.registry.connections:
            connection.active_s -= SILENT_S - 1
        async with await RawPeer.connect(server.port) as early:
            assert await early.rest() == b""
        for connection in server.selector.registry.connections:
            connection.active_s -= 1
        async with await RawPeer.connect(server.port) as third:
            assert (await third.call(ECHO)).code == 0
            assert await first.rest() == b""
            assert (await second.call(ECHO)).code == 0
            async with await RawPeer.connect(server.port) as fourth:
                assert await fourth.rest() == b""
            assert (await speaker.call(ECHO)).code == 0
        figures = server.selector.statistics()
    assert (figures.closed_idle, figures.refused) == (1, 2)


async def test_a_silent_peer_that_disconnects_is_removed() -> None:
    """A port scan leaves no connection behind."""
    async with EchoServer(tls=ServerTls(TlsConfig())) as server:
        async with await RawPeer.connect(server.port):
            await until(lambda: server.selector.registry.connections)
        await until(lambda: not server.selector.registry.connections)


async def test_without_a_certificate_tls_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the test certificate cannot be made, plain clients are served and others are closed."""
    monkeypatch.setattr("skylarkmq.broker.remoting.tls.TEST_CERTIFICATE", (str(tmp_path / "no-such-command"),))
    self_signed.cache_clear()
    async with EchoServer(tls=ServerTls(TlsConfig())) as server:
        assert await is_served(server, None)
        assert not await is_served(server, unverified_context())


async def test_a_stop_closes_every_kind_of_connection(tmp_path: Path) -> None:
    """Silent, in a handshake, under TLS: none is left."""
    made = Certificates(tmp_path)
    own = made.issue("server")
    tls = ServerTls(TlsConfig(cert_path=own.cert, key_path=own.key))
    async with EchoServer(tls=tls) as server:
        silent = await RawPeer.connect(server.port)
        shaking = await RawPeer.connect(server.port)
        shaking.send(HELLO)
        secure = await RawPeer.connect(server.port, tls=made.client_context())
        await secure.call(ECHO)
        await until(lambda: len(server.selector.registry.connections) == 3)
        await server.remoting.stop(lambda: 0)
        assert not server.selector.registry.connections
        for peer in (silent, shaking, secure):
            assert await peer.rest() == b""
            await peer.close()
