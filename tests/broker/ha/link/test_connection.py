"""Connections of a link: peers that are refused before their first message, and peers that never respond."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from skylarkmq.broker.ha.core.epochs import EpochHistory
from skylarkmq.broker.ha.core.events import Event, Heard, Linked, LinkFailed, Received, Unlinked
from skylarkmq.broker.ha.core.messages import Ack, Beat, Hello
from skylarkmq.broker.ha.link import catch_up, feed, links
from skylarkmq.broker.ha.link.connection import GREETING_S
from skylarkmq.broker.ha.link.frames import (
    MAX_CONTROL_BYTES,
    MAX_HANDSHAKE_BYTES,
    PREFACE,
    Challenge,
    data_head,
    encode,
    unchecked_data_head,
)
from skylarkmq.broker.ha.link.links import Links, LinkSettings
from skylarkmq.broker.ha.peers import Peer
from tests.broker.ha.link.group import SEGMENT, FileLog, FirstBytes, TestGroup, is_catching_up
from tests.broker.ha.link.test_links import leads, shown
from tests.harness.waiting import until

SECRET = b"the secret of this group"
HELLO = PREFACE + encode(Hello("broker-a", "n2", "another", 5, EpochHistory(), 0, 0, 1, SEGMENT))


class Node:
    """The links of node n1, their port, and the events that they post."""

    def __init__(self, links: Links) -> None:
        self.links = links
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self.events: list[Event] = []
        links.post = self.events.append

    def step_after(self, seconds: float) -> None:
        """Run the step of the links as if this time had passed."""
        self.links.step(asyncio.get_running_loop().time() + seconds)

    async def connect(self, first: bytes) -> asyncio.StreamReader:
        """Return a connection to the node that has sent these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(first)
        self.writers.append(writer)
        return reader


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
        for writer in node.writers:
            writer.close()
        node.links.stop()
        log.close()


@asynccontextmanager
async def connected(
    directory: Path, *, secret: bytes | None = None
) -> AsyncIterator[tuple[Node, list[asyncio.StreamWriter]]]:
    """Yield a node that has connected to its leader n2, and the leader's end: a server that sends nothing itself."""
    taken: list[asyncio.StreamWriter] = []
    leader = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    async with listening(
        directory, secret=secret, leader=Peer("n2", "127.0.0.1", leader.sockets[0].getsockname()[1])
    ) as node:
        node.links.connect("n2")
        await until(lambda: taken)
        yield node, taken
    leader.close()
    for writer in taken:
        writer.close()


async def test_a_peer_without_a_certificate_reaches_no_core(tmp_path: Path) -> None:
    """HELLO in the same packet as the preface is not handled: it would replace the real node's link."""
    async with listening(tmp_path, needs_certificate=True) as node:
        reader = await node.connect(HELLO)
        assert b"tls.client.certPath" in await reader.read()
        assert node.events == []
        assert node.links.refused == {"tls": 1}


async def test_a_leader_that_never_proves_the_secret_is_left(tmp_path: Path) -> None:
    """Its machine lost power after the connection was accepted: the follower connects again."""
    async with connected(tmp_path, secret=SECRET) as (node, _):
        node.step_after(GREETING_S / 2)
        assert node.events == []
        node.step_after(GREETING_S + 5)
        assert node.events == [LinkFailed("n2", refused=False)]
        assert "no handshake within" in node.links.problems["n2"]


async def test_a_link_whose_handshake_is_complete_stays(tmp_path: Path) -> None:
    """Without a secret there is no handshake; the core limits the time until WELCOME."""
    async with connected(tmp_path) as (node, _):
        await until(lambda: node.events)
        node.step_after(GREETING_S + 5)
        assert node.events == [Linked(1, "n2")]


@pytest.mark.parametrize(
    ("secret", "first"),
    [(None, HELLO[:-1]), (None, PREFACE[:3]), (SECRET, PREFACE), (SECRET, PREFACE + encode(Challenge(bytes(32))))],
    ids=["half a HELLO", "half a preface", "no handshake", "half a handshake"],
)
async def test_a_peer_that_never_completes_its_first_message_is_cut(
    tmp_path: Path, secret: bytes | None, first: bytes
) -> None:
    """Within 10 s. The core learns of no HELLO."""
    async with listening(tmp_path, secret=secret) as node:
        reader = await node.connect(first)
        await reader.readexactly(len(PREFACE))
        node.step_after(GREETING_S / 2)
        assert not node.links.refused
        node.step_after(GREETING_S + 5)
        await reader.read()
        assert node.links.refused == {"silent": 1}
        assert [event for event in node.events if isinstance(event, Received)] == []


async def test_silent_connections_make_room_for_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest one without a message is cut, and links of nodes stay."""
    monkeypatch.setattr(links, "MAX_ACCEPTED", 3)
    async with listening(tmp_path) as node:
        peers = [await node.connect(HELLO)]
        await until(lambda: len(node.events) == 1)
        for _ in range(2):
            peers.append(await node.connect(PREFACE))
            await peers[-1].readexactly(len(PREFACE))
        peers.append(await node.connect(HELLO))
        await until(lambda: sum(isinstance(event, Received) for event in node.events) == 2)
        assert await peers[1].read() == b""
        assert [event for event in node.events if isinstance(event, Unlinked)] == [Unlinked(2)]
        assert node.links.refused == {"limit": 1}


async def test_at_the_limit_of_nodes_a_connection_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that have sent a message are never cut for a new one."""
    monkeypatch.setattr(links, "MAX_ACCEPTED", 1)
    async with listening(tmp_path) as node:
        await node.connect(HELLO)
        await until(lambda: len(node.events) == 1)
        await node.connect(PREFACE)
        await until(lambda: node.links.refused == {"limit": 1})
        assert len(node.events) == 1


@pytest.mark.parametrize(
    ("secret", "frame"),
    [
        (None, unchecked_data_head(1, 0, 0, MAX_CONTROL_BYTES)),
        (SECRET, (MAX_HANDSHAKE_BYTES + 1).to_bytes(4, "big") + bytes(4) + b"\1\0\0\0"),
        (SECRET, unchecked_data_head(1, 0, 0, MAX_HANDSHAKE_BYTES)),
    ],
    ids=["log bytes", "HELLO before the handshake", "log bytes before the handshake"],
)
async def test_large_frames_are_refused_by_their_head(tmp_path: Path, secret: bytes | None, frame: bytes) -> None:
    """A leader buffers no log bytes, and little before the peer has proved the secret."""
    async with listening(tmp_path, secret=secret) as node:
        await node.connect(PREFACE + frame)
        await until(lambda: node.links.refused == {"frame": 1})


async def test_a_host_logs_one_line_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reasons contain the peer's bytes, so each connection has another one; all are counted."""
    async with listening(tmp_path) as node:
        for number in range(5):
            await node.connect(b"\xf3" + bytes([number]))
        await until(lambda: node.links.refused["frame"] == 5)
    lines = [record.getMessage() for record in caplog.records]
    assert sum("does not begin with" in line for line in lines) == 1


async def test_a_host_that_is_no_name_is_a_failed_link(tmp_path: Path) -> None:
    """The lookup raises UnicodeError. The core gets an event, so it tries again."""
    async with listening(tmp_path, leader=Peer("n2", "ä" * 64, 10912)) as node:
        node.links.connect("n2")
        await until(lambda: node.events)
        assert node.events == [LinkFailed("n2", refused=False)]
        assert "Unicode" in node.links.problems["n2"]


@asynccontextmanager
async def peer_that_reads_nothing(group: TestGroup) -> AsyncIterator[socket.socket]:
    """Connect to n1 as n3, and have the log sent: the leader's socket is full soon."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", group.peers["n1"].port))
        hello = Hello("broker-a", "n3", "another", 0, EpochHistory(), 0, 0, 1, SEGMENT)
        peer.sendall(PREFACE + encode(hello) + encode(Ack(1, 0, 0)))
        peer.setblocking(False)
        yield peer


async def leads_with_a_long_log(group: TestGroup) -> None:
    group.start("n1")
    await leads(group["n1"])
    for _ in range(2 * feed.FAR_BYTES >> 20):
        group["n1"].send(bytes(1 << 20))


async def test_the_end_of_a_link_ends_its_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket is closed with the link, though the frame on its way is not whole."""
    monkeypatch.setattr(catch_up, "STALLED_S", 1_000.0)
    waiting = waits_for_a_peer(monkeypatch)
    async with TestGroup(tmp_path, minimum=1) as group:
        await leads_with_a_long_log(group)
        async with peer_that_reads_nothing(group) as peer:
            await until(waiting.is_set)
            group["n1"].kill()
            with contextlib.suppress(ConnectionResetError):
                while await asyncio.get_running_loop().sock_recv(peer, 1 << 20):
                    pass


async def test_a_peer_that_reads_nothing_holds_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another follower catches up meanwhile, in the only thread."""
    monkeypatch.setattr(catch_up, "STALLED_S", 1_000.0)
    monkeypatch.setattr(catch_up, "THREADS", 1)
    waiting = waits_for_a_peer(monkeypatch)
    async with TestGroup(tmp_path, minimum=1) as group:
        await leads_with_a_long_log(group)
        leader, follower = group["n1"], group["n2"]
        async with peer_that_reads_nothing(group):
            await until(waiting.is_set)
            follower.start()
            await until(lambda: leader.log is not None and shown(follower) == leader.log.end)
            assert leader.links is not None
            assert is_catching_up(leader)


def waits_for_a_peer(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set once a transfer waits for its socket."""
    waiting, writable = asyncio.Event(), catch_up._writable

    async def noted(to: socket.socket) -> None:
        waiting.set()
        await writable(to)

    monkeypatch.setattr(catch_up, "_writable", noted)
    return waiting


async def test_a_leader_of_which_bytes_arrive_is_heard(tmp_path: Path) -> None:
    """A frame may take longer than the time after which a leader counts as silent."""
    async with connected(tmp_path) as (node, (leader,)):
        await until(lambda: node.events)
        node.step_after(0)
        assert node.events == [Linked(1, "n2")]
        leader.write(PREFACE + unchecked_data_head(1, 0, 0, 1 << 20))
        await until(lambda: node.links.last_read_and_write_ms()[0])
        node.step_after(0)
        node.step_after(0)
        assert node.events == [Linked(1, "n2"), Heard(1)]


async def test_acks_that_arrive_at_once_are_one_event(tmp_path: Path) -> None:
    """The last one counts. An ACK in pieces, or with other frames, is read as any frame."""
    async with listening(tmp_path) as node:
        await node.connect(HELLO)
        await until(lambda: node.events)
        acks = [encode(Ack(1, 90, end)) for end in (70, 80, 90)]
        node.writers[0].write(b"".join(acks))
        await until(lambda: len(node.events) > 1)
        node.writers[0].write(acks[0][:7])
        await asyncio.sleep(0.01)
        node.writers[0].write(acks[0][7:] + encode(Beat(1, 5)))
        await until(lambda: len(node.events) > 3)
    received = [event.message for event in node.events if isinstance(event, Received)]
    assert received[1:] == [Ack(1, 90, 90), Ack(1, 90, 70), Beat(1, 5)]


async def test_frames_stay_in_order_when_the_socket_is_full(tmp_path: Path) -> None:
    """Some are written to the socket at once, some in part, and some by the transport once the peer reads."""
    async with listening(tmp_path) as node:
        reader = await node.connect(HELLO)
        await reader.readexactly(len(PREFACE))
        await until(lambda: node.events)
        (connection,) = node.links._connections.values()
        random, expected, held = Random(7), bytearray(), 0
        for number in range(100):
            payload = random.randbytes(random.randrange(400_000))
            head = data_head(3, number, 0, payload)
            connection.send_data(head, memoryview(payload))
            expected += head + payload
            held += bool(connection.backlog)
            if number % 30 == 29:
                expected += encode(Beat(3, number))
                connection.send(Beat(3, number))
                data = await reader.readexactly(len(expected) // 2)
                assert data == expected[: len(data)]
                del expected[: len(data)]
        assert await reader.readexactly(len(expected)) == expected
        assert 0 < held < 100
        assert not connection.backlog


async def test_a_follower_that_does_not_read_keeps_its_leader(tmp_path: Path) -> None:
    """It waits for its own disk, so the leader is not silent until it reads again."""
    async with connected(tmp_path) as (node, _):
        await until(lambda: node.events)
        node.links.pause_reading()
        node.step_after(0)
        node.step_after(0)
        node.links.resume_reading()
        node.step_after(0)
        assert node.events == [Linked(1, "n2"), Heard(1), Heard(1)]


def test_the_rate_of_catch_up_is_kept_by_a_loop_that_wakes_late() -> None:
    """It is an average: bytes that were not sent in the last 0.1 s may follow at once, older ones may not."""
    transfers = catch_up.CatchUp(1_000)
    try:
        now, sent, waits = 50.0, 0, list[float]()
        while now < 52:
            waits.append(transfers.delay_s(10, now))
            now += waits[-1] + (0.004 if waits[-1] else 0)  # wakes 4 ms late
            sent += 10
        assert 2_000 <= sent <= 2_000 + 1_000 * catch_up.SLACK_S + 20
        now += 60
        assert [transfers.delay_s(50, now) for _ in range(3)] == pytest.approx([0, 0, 0])
        assert transfers.delay_s(50, now) == pytest.approx(0.05)
    finally:
        transfers.close()
    assert catch_up.CatchUp(0).delay_s(1 << 40, now) == 0
