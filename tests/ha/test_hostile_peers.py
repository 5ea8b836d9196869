"""A real leader and what a peer of its replication port may send: the peer is refused with a line, nothing is appended,
the other follower is not disturbed, and the leader's memory stays bounded."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from skylarkmq.broker.ha.core.messages import Ack, Beat, Data, Refused
from skylarkmq.broker.ha.link.connection import MAX_BACKLOG_BYTES
from skylarkmq.broker.ha.link.frames import PREFACE, encode, unchecked_data_head
from skylarkmq.broker.ha.link.handshake import HandshakeError
from tests.ha.group_daemons import wait
from tests.ha.hostile_peer import HostilePeer, hello
from tests.ha.linked_group import LinkedGroup, Sent
from tests.harness.ports import LOOPBACK

FOUNDED = founded("a")

pytestmark = pytest.mark.daemon

BODY: Final = b"undisturbed"
CONNECTIONS: Final = int(os.environ.get("SKYLARK_CONNECTIONS", "1000"))
AT_A_TIME: Final = 500


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedGroup]:
    """A leader n1 that has committed messages with n2; n3 is not started."""
    with LinkedGroup(tmp_path_factory.mktemp("group")) as group:
        group.start("n1", "n2")
        group.wait_writable()
        yield group


@pytest.fixture
def undisturbed(group: LinkedGroup) -> Iterator[Sent]:
    """Yield the last message. Check that the test appends nothing to the log: the next message follows it."""
    first, second = group.send(BODY), group.send(BODY)
    yield second
    third = group.send(BODY)
    assert [first.code, second.code, third.code] == [0, 0, 0]
    assert third.offset - second.offset == second.offset - first.offset
    group.wait_equal("n2")
    assert group.ready()[0] == 200


def port_of(group: LinkedGroup) -> int:
    return group.ha_ports["n1"]


def anonymous_bytes(group: LinkedGroup) -> int:
    """Return the leader's memory without files."""
    status = Path(f"/proc/{group.daemons['n1'].process.pid}/status").read_text()
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
    return int(kilobytes) << 10


def descriptors(group: LinkedGroup) -> int:
    return len(os.listdir(f"/proc/{group.daemons['n1'].process.pid}/fd"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"group": "broker-b"}, "this is group broker-a, not broker-b"),
        ({"node": "n9"}, "haPeers of n1 does not name n9"),
        ({"node": "n1"}, "names and stores must differ"),
        ({"segment_bytes": 1 << 30}, "mappedFileSizeCommitLog is 1048576 in this group"),
        ({"format": 0}, "format 1 is in use"),
        ({"promised": 1 << 40}, "far above epoch 1 of this group: start with an empty directory"),
        ({"end": 100}, "no epoch in common with the leader's: start with an empty directory"),
        ({"end": 100, "epochs": EpochHistory((FOUNDED, Epoch(1, 0)))}, "if the leader lost its disk, let a node"),
        ({"end": 100, "epochs": EpochHistory((Epoch(1, 3),))}, "no epoch in common"),
        ({"end": 1 << 62, "epochs": EpochHistory((Epoch(1, 3),))}, "no epoch in common"),
    ],
)
@pytest.mark.usefixtures("undisturbed")
def test_another_node_is_refused(group: LinkedGroup, fields: dict[str, object], reason: str) -> None:
    """Another group, name, segment size or format; a damaged promise; a log of another broker, or of a group with the
    same name."""
    with HostilePeer(port_of(group)) as peer:
        peer.prove()
        peer.send(hello(**fields))
        assert reason in peer.refusal()


@pytest.mark.parametrize(("start", "end"), [(0, 1 << 40), (3, 1 << 40)])
def test_a_log_that_diverged_goes_back(group: LinkedGroup, undisturbed: Sent, start: int, end: int) -> None:
    """To the end of the common part, which is not beyond the leader's end."""
    with HostilePeer(port_of(group)) as peer:
        peer.prove()
        founding = founded(group.state("n1")["storeId"])
        peer.send(hello(end=end, epochs=EpochHistory((founding, Epoch(1, start)))))
        welcome = peer.welcome().start
    assert welcome == 0 if start else undisturbed.offset < welcome < undisturbed.offset + 1_000


@pytest.mark.parametrize("end", [1 << 20, 1 << 62])
@pytest.mark.usefixtures("undisturbed")
def test_an_empty_log_beyond_the_end_begins_at_the_start(group: LinkedGroup, end: int) -> None:
    """The leader has no byte there."""
    with HostilePeer(port_of(group)) as peer:
        peer.prove()
        peer.send(hello(start=end, end=end))
        assert peer.welcome().start == 0


@pytest.mark.usefixtures("undisturbed")
def test_a_copied_store_is_refused(group: LinkedGroup) -> None:
    """The store of n2 under the name n3."""
    store_id = group.state("n2")["storeId"]
    with HostilePeer(port_of(group)) as peer:
        peer.prove()
        peer.send(hello(store_id=store_id))
        assert f"store {store_id} belongs to n2" in peer.refusal()


@pytest.mark.parametrize(
    "frame",
    [
        Ack(1, 1 << 40, 1 << 40),
        Ack(1, 0, 1),
        Ack(0, 0, 0),
        Ack(2, 0, 0),
        Beat(1, 1 << 40),
        Data(1, 0, 1 << 40, b"bytes of another log"),
        Refused(1 << 62, "the epoch is over"),
        Refused(0, "no"),
        hello(),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("undisturbed")
def test_a_follower_that_breaks_the_protocol_is_disconnected(group: LinkedGroup, frame: Ack) -> None:
    """Acknowledgements beyond the end or of other epochs, log bytes for a leader, a second HELLO: nothing counts."""
    with HostilePeer(port_of(group)) as peer:
        peer.prove()
        peer.send(hello())
        assert peer.welcome().epoch == 1
        peer.send(frame)
        peer.until_closed()
    assert group.state("n1")["promised"] == 1


@pytest.mark.parametrize("secret", ["the secret of another group", None])
@pytest.mark.usefixtures("undisturbed")
def test_a_peer_without_the_secret_is_refused(group: LinkedGroup, secret: str | None) -> None:
    """The line names the setting. Nothing of its HELLO counts."""
    with HostilePeer(port_of(group)) as peer:
        if secret is None:
            peer.socket.sendall(PREFACE + encode(hello()))
            assert "set haClusterSecret on the node that connects" in peer.refusal()
        else:
            with pytest.raises(HandshakeError, match="set the same haClusterSecret on all nodes"):
                peer.prove(secret)


def random_bytes() -> bytes:
    return os.urandom(4_000)


def framed_random_bytes() -> bytes:
    return b"".join(
        len(content).to_bytes(4, "big") + content for content in (os.urandom(8 + size) for size in range(100))
    )


def large_frames() -> bytes:
    return unchecked_data_head(1, 0, 0, 16 << 20) + bytes(1 << 20)


@pytest.mark.parametrize("is_proved", [True, False])
@pytest.mark.parametrize("sent", [random_bytes, framed_random_bytes, large_frames])
@pytest.mark.usefixtures("undisturbed")
def test_random_bytes_end_their_connection(group: LinkedGroup, sent: Callable[[], bytes], *, is_proved: bool) -> None:
    """With and without the secret, after the preface."""
    for _ in range(5):
        with HostilePeer(port_of(group)) as peer:
            if is_proved:
                peer.prove()
            else:
                peer.socket.sendall(PREFACE)
            try:
                peer.socket.sendall(sent())
            except (BrokenPipeError, ConnectionResetError):
                continue  # the leader closed the connection before it had all
            peer.until_closed()


def test_many_connections_leave_no_trace(group: LinkedGroup) -> None:
    """Silent ones, and ones that have sent a byte, the preface or a half HELLO. The leader keeps at most
    haMaxConnections and 64 of them, and a node of the group links meanwhile. By command: SKYLARK_CONNECTIONS=10000."""
    before, opened = anonymous_bytes(group), descriptors(group)
    firsts = (b"", PREFACE[:1], PREFACE, PREFACE + encode(hello())[:-1], b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n")
    for start in range(0, CONNECTIONS, AT_A_TIME):
        with ExitStack() as stack:
            for number in range(start, start + AT_A_TIME):
                one = stack.enter_context(socket.create_connection((LOOPBACK, port_of(group)), 60))
                try:
                    one.sendall(firsts[number % len(firsts)])
                except (BrokenPipeError, ConnectionResetError):
                    pass  # closed at the limit
            assert descriptors(group) - opened < 64 + 16 + AT_A_TIME
            if start == 0:
                assert group.send(BODY).code == 0
                group.kill("n2")
                group.start("n2")
                group.wait_writable()
    wait(lambda: descriptors(group) - opened <= 64 + 16)
    assert anonymous_bytes(group) - before < MAX_BACKLOG_BYTES
    assert group.send(BODY).code == 0
    group.wait_equal("n2")


def test_peers_that_never_read_or_never_greet_are_cut(group: LinkedGroup) -> None:
    """After 10 s. Meanwhile messages are taken, and less than 32 MiB of 40 wait for the peer that does not read."""
    with HostilePeer(port_of(group), receive_buffer_bytes=4096) as deaf, HostilePeer(port_of(group)) as half:
        half.prove()
        half.socket.sendall(encode(hello(store_id="another"))[:-1])
        deaf.prove()
        deaf.send(hello(), Ack(1, 0, 0))
        before = largest = anonymous_bytes(group)
        for _ in range(80):
            assert group.send(bytes(1 << 19)).code == 0
            largest = max(largest, anonymous_bytes(group))
        assert largest - before < MAX_BACKLOG_BYTES // 2
        wait(lambda: "the peer took no byte for 10 s" in group.daemons["n1"].output)
        wait(lambda: "no HELLO within 10 s" in group.daemons["n1"].output)
    group.wait_equal("n2")
