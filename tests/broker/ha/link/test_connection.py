"""Connections of a link: peers that are refused before their first message, and peers that never respond."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import Event, Linked, LinkFailed
from skylarkmq.broker.ha.core.messages import Hello
from skylarkmq.broker.ha.frames import PREFACE, encode
from skylarkmq.broker.ha.link.connection import GREETING_S
from skylarkmq.broker.ha.link.links import Links, LinkSettings
from skylarkmq.broker.ha.peers import Peer
from tests.broker.ha.link.group import SEGMENT, FileLog, FirstBytes
from tests.harness.waiting import until

SECRET = b"the secret of this group"
HELLO = PREFACE + encode(Hello("broker-a", "n2", "another", 5, EpochHistory(), 0, 0, 1, SEGMENT))


class Node:
    """The links of node n1, their port, and the events that they post."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.port = 0
        self.events: list[Event] = []
        links.post = self.events.append

    def step_after(self, seconds: float) -> None:
        """Run the step of the links as if this time had passed."""
        self.links.step(asyncio.get_running_loop().time() + seconds)

    async def connect(self, first: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection to the node that has sent these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(first)
        return reader, writer


@asynccontextmanager
async def listening(
    directory: Path, *, secret: bytes | None = None, needs_certificate: bool = False, leader: Peer | None = None
) -> AsyncIterator[Node]:
    peers = {name: Peer(name, "127.0.0.1", 1) for name in ("n1", "n2")}
    if leader is not None:
        peers[leader.name] = leader
    log = FileLog(directory / "log")
    node = Node(Links(LinkSettings("n1", peers, SEGMENT, secret, needs_certificate), log, lambda: 0))
    server = await asyncio.get_running_loop().create_server(lambda: FirstBytes(node), "127.0.0.1", 0)
    node.port = server.sockets[0].getsockname()[1]
    try:
        yield node
    finally:
        server.close()
        node.links.stop()
        log.close()


async def test_a_peer_without_a_certificate_reaches_no_core(tmp_path: Path) -> None:
    """HELLO in the same packet as the preface is not handled: it would replace the real node's link."""
    async with listening(tmp_path, needs_certificate=True) as node:
        reader, writer = await node.connect(HELLO)
        assert b"tls.client.certPath" in await reader.read()
        assert node.events == []
        assert node.links.refused == {"tls": 1}
        writer.close()


async def test_a_leader_that_never_proves_the_secret_is_left(tmp_path: Path) -> None:
    """Its machine lost power after the connection was accepted: the follower connects again."""
    taken: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    leader = Peer("n2", "127.0.0.1", silent.sockets[0].getsockname()[1])
    async with listening(tmp_path, secret=SECRET, leader=leader) as node:
        node.links.connect("n2")
        await until(lambda: taken)
        node.step_after(GREETING_S / 2)
        assert node.events == []
        node.step_after(GREETING_S + 5)
        assert node.events == [LinkFailed("n2", refused=False)]
        assert "no handshake within" in node.links.problems["n2"]
    silent.close()
    taken[0].close()


async def test_a_link_whose_handshake_is_complete_stays(tmp_path: Path) -> None:
    """Without a secret there is no handshake; the core limits the time until WELCOME."""
    taken: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    async with listening(tmp_path, leader=Peer("n2", "127.0.0.1", silent.sockets[0].getsockname()[1])) as node:
        node.links.connect("n2")
        await until(lambda: taken and node.events)
        node.step_after(GREETING_S + 5)
        assert node.events == [Linked(1, "n2")]
    silent.close()
    taken[0].close()
