"""The port for replicas: which connections it accepts, and to which part it hands them over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import Any

import pytest

from skylarkmq.broker.ha.config import ReplicationConfig
from skylarkmq.broker.ha.link.frames import PREFACE
from skylarkmq.broker.ha.port.server import HaServer
from tests.harness.raw_peer import RawPeer
from tests.harness.waiting import until


class Taken:
    """A classic master, or a link, that keeps the connections that it gets."""

    def __init__(self) -> None:
        self.transports: list[asyncio.Transport] = []
        self.first: list[bytes] = []

    @property
    def connections(self) -> int:
        return len(self.transports)

    def accept(self, transport: asyncio.Transport, first: bytes) -> None:
        self.transports.append(transport)
        self.first.append(first)

    def step(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        for transport in self.transports:
            transport.abort()


class Port:
    def __init__(self, server: HaServer, classic: Taken, link: Taken, port: int) -> None:
        self.server, self.classic, self.link, self.port = server, classic, link, port


@asynccontextmanager
async def listening(*, has_classic: bool = True, has_link: bool = True, **settings: Any) -> AsyncIterator[Port]:
    networks: dict[str, Any] = {"ha_allowed_networks": (ip_network("127.0.0.0/8"),)}
    classic, link = Taken(), Taken()
    server = HaServer(
        ReplicationConfig(**networks | settings), classic if has_classic else None, link.accept if has_link else None
    )
    port = await server.start("127.0.0.1", 0)
    try:
        yield Port(server, classic, link, port)
    finally:
        await server.stop()
        link.close()


@pytest.mark.parametrize("first", [b"\0", b"\0" * 8, b"\x00\x00\x00\x01", b"\x3f"])
async def test_offsets_go_to_the_classic_master(first: bytes) -> None:
    """The first byte of a report is below 0x40, and 0x16 is none of an existing log."""
    async with listening() as it, await RawPeer.connect(it.port) as peer:
        peer.send(first)
        await until(lambda: it.classic.first)
        assert (it.classic.first, it.link.first) == ([first], [])


@pytest.mark.parametrize("first", [PREFACE, PREFACE[:1], b"\x16\x03\x01"])
async def test_prefaces_and_tls_handshakes_go_to_the_link(first: bytes) -> None:
    """The link gets the connection with the bytes that were read; it no longer counts here."""
    async with listening(ha_max_connections=2) as it:
        async with await RawPeer.connect(it.port) as one, await RawPeer.connect(it.port) as two:
            one.send(first)
            await until(lambda: it.link.first)
            two.send(first)
            await until(lambda: len(it.link.first) == 2 or it.server.refused.counts)
        assert (it.classic.first, it.link.first) == ([], [first, first])


@pytest.mark.parametrize(
    ("first", "settings", "kind"),
    [
        (b"GET / HTTP/1.1\r\n", {}, "frame"),
        (b"\xff", {}, "frame"),
        (PREFACE, {"has_link": False}, "link"),
        (b"\x16\x03\x01", {"has_link": False}, "link"),
        (b"\0", {"has_classic": False}, "classic"),
    ],
)
async def test_other_connections_are_closed_and_logged(
    first: bytes, settings: dict[str, Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes of no replica, and replicas of a kind that this broker does not have."""
    async with listening(**settings) as it, await RawPeer.connect(it.port) as peer:
        peer.send(first)
        assert await peer.rest() == b""
        assert it.server.refused.counts == {kind: 1}
    assert "replica refused host=127.0.0.1" in caplog.text


async def test_only_allowed_networks_may_connect(caplog: pytest.LogCaptureFixture) -> None:
    """Others are closed at once; the log names them once a minute, not for each connection."""
    async with listening(ha_allowed_networks=(ip_network("10.0.0.0/8"),)) as it:
        for _ in range(3):
            async with await RawPeer.connect(it.port) as peer:
                peer.send(b"\0")
                assert await peer.rest() == b""
        assert it.server.refused.counts == {"network": 3}
        assert it.classic.first == []
    assert caplog.text.count("not in haAllowedNetworks") == 1


async def test_a_silent_connection_is_closed() -> None:
    """After haHousekeepingInterval; not before, because a classic slave may be silent for 5 seconds."""
    async with listening(ha_housekeeping_interval=60_000) as it, await RawPeer.connect(it.port) as peer:
        await until(lambda: it.server._silent)
        it.server.step()
        arrival = next(iter(it.server._silent))
        assert not arrival.transport.is_closing()
        arrival.opened_s -= 61
        it.server.step()
        assert await peer.rest() == b""
        assert it.server.refused.counts == {"silent": 1}


async def test_connections_beyond_the_limit_are_closed() -> None:
    """A new one replaces the oldest one that has been silent for long; without such one it is closed itself."""
    async with listening(ha_max_connections=2) as it:
        old, new = await RawPeer.connect(it.port), await RawPeer.connect(it.port)
        await until(lambda: len(it.server._silent) == 2)
        async with await RawPeer.connect(it.port) as third:
            assert await third.rest() == b""
        next(iter(it.server._silent)).opened_s -= 6
        async with await RawPeer.connect(it.port) as fourth:
            fourth.send(b"\0")
            assert await old.rest() == b""
            await until(lambda: it.classic.first)
        new.send(b"\0")
        await until(lambda: it.classic.connections == 2)
        async with await RawPeer.connect(it.port) as fifth:
            assert await fifth.rest() == b""
        assert it.server.refused.counts == {"limit": 3}
        await old.close()
        await new.close()
