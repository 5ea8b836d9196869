"""Pull requests and their responses, byte by byte where it matters."""

import socket
from collections.abc import Iterator

import pytest

from skylarkmq.clients.mqbench.clusters import Bounds, Broker, Security
from skylarkmq.clients.mqbench.pull_load import Ending, PullConnection, PullRequests, shares
from skylarkmq.clients.mqbench.recorder import Recorder
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.protocol.codes import PullSysFlag, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.headers.pull import PullMessageHeader, PullMessageResponseHeader
from skylarkmq.protocol.serialize import decode_command, encode_command
from skylarkmq.protocol.signature import SigningKey, signed_parts
from tests.harness.limits import WAIT_LIMIT_S

BROKER = Broker("broker-a", "127.0.0.1:10911")
FIRST_OPAQUE = 1_000_000_000


def bounds(queue_id: int, first: int = 0, end: int = 100, broker: Broker = BROKER) -> Bounds:
    return Bounds(broker, "bench", queue_id, first, end)


def commands(data: bytes) -> list[RemotingCommand]:
    decoded = [decode_command(frame) for frame in FrameDecoder().feed(memoryview(data))]
    return [command for command in decoded if command is not None]


def response(opaque: int, following: int, body: bytes = b"", code: int = 0) -> bytes:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=following, min_offset=0, max_offset=100
    )
    command = RemotingCommand.response(code, None, header, body)
    command.opaque = opaque
    return encode_command(command)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(WAIT_LIMIT_S)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("follows", [False, True])
def test_a_pull_equals_its_typed_header(follows: bool) -> None:
    """It has its own subscription, and long polling only with FOLLOW."""
    (command,) = commands(PullRequests(bounds(3), 32, follows).frame(17, 42))
    header = command.header(PullMessageHeader)
    assert (command.opaque, header.queue_offset, header.queue_id, header.max_msg_nums) == (42, 17, 3, 32)
    assert header.subscription == "*"
    assert header.sys_flag == PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if follows else 0)


def test_pulls_are_signed_with_the_credentials_of_their_broker() -> None:
    """Each with its own offset; the opaque is not signed."""
    broker = Broker("a%d", "h:1", Security(credentials=Credentials("loader", "a-secret-key")))
    pulls = PullRequests(bounds(3, broker=broker), 32, False)
    for offset, opaque in ((0, 1), (1_234_567_890_123, 2)):
        (command,) = commands(pulls.frame(offset, opaque))
        assert (command.header(PullMessageHeader).queue_offset, command.opaque) == (offset, opaque)
        signed = signed_parts(command)
        assert signed is not None
        assert SigningKey("a-secret-key").has_signed(signed, b"")


def test_queues_are_distributed_by_broker() -> None:
    """Every connection has queues, and only queues of its broker."""
    other = Broker("broker-b", "127.0.0.1:20911")
    queues = [bounds(0), bounds(1), bounds(2), bounds(0, broker=other)]
    dealt = shares(queues, 2)
    assert [(broker.name, [queue.queue_id for queue in share]) for broker, share in dealt] == [
        ("broker-a", [0, 2]),
        ("broker-a", [1]),
        ("broker-b", [0]),
    ]


def test_partial_responses_are_counted_once(sockets: tuple[socket.socket, socket.socket]) -> None:
    """However the reads split them; the next pull begins at the offset in the response."""
    ours, theirs = sockets
    recorder = Recorder()
    recorder.begin(0)
    connection = PullConnection(ours, [bounds(0), bounds(1)], 32, Ending.STOP, recorder)
    connection.pump(1)
    assert [command.opaque for command in commands(theirs.recv(65536))] == [FIRST_OPAQUE, FIRST_OPAQUE + 1]
    stream = response(FIRST_OPAQUE + 1, 32, b"x" * 5000) + response(FIRST_OPAQUE, 31, b"y" * 100)
    for at in range(0, len(stream), 777):
        theirs.sendall(stream[at : at + 777])
        connection.readable()
    assert (recorder.messages, recorder.requests, connection.body_bytes, connection.outstanding) == (63, 2, 5100, 0)
    connection.pump(2)
    offsets = [command.header(PullMessageHeader).queue_offset for command in commands(theirs.recv(65536))]
    assert offsets == [31, 32]


@pytest.mark.parametrize(("ending", "offset"), [(Ending.STOP, None), (Ending.AGAIN, 10)])
def test_a_queue_at_its_end_stops_or_begins_again(
    sockets: tuple[socket.socket, socket.socket], ending: Ending, offset: int | None
) -> None:
    """Reading restarts at the first message, which need not be offset 0."""
    ours, theirs = sockets
    connection = PullConnection(ours, [bounds(0, first=10, end=20)], 32, ending, Recorder())
    connection.pump(1)
    theirs.recv(65536)
    theirs.sendall(response(FIRST_OPAQUE, 20, b"x"))
    connection.readable()
    connection.pump(2)
    if offset is None:
        assert connection.outstanding == 0
        assert connection.due_ns is None
    else:
        assert commands(theirs.recv(65536))[0].header(PullMessageHeader).queue_offset == offset


def test_the_buffer_grows_for_a_large_response(sockets: tuple[socket.socket, socket.socket]) -> None:
    """A response may be larger than the buffer."""
    ours, theirs = sockets
    recorder = Recorder()
    recorder.begin(0)
    connection = PullConnection(ours, [bounds(0, end=5)], 32, Ending.STOP, recorder)
    connection.pump(1)
    stream = response(FIRST_OPAQUE, 5, b"z" * 3_000_000)
    for at in range(0, len(stream), 60_000):
        theirs.sendall(stream[at : at + 60_000])
        connection.readable()
    assert (recorder.messages, connection.body_bytes) == (5, 3_000_000)


def test_a_rejected_pull_is_counted_and_retried(sockets: tuple[socket.socket, socket.socket]) -> None:
    """The retry waits, to limit the requests to a broker that rejects them."""
    ours, theirs = sockets
    connection = PullConnection(ours, [bounds(0)], 32, Ending.STOP, Recorder())
    connection.pump(1)
    theirs.sendall(response(FIRST_OPAQUE, 0, code=ResponseCode.NO_PERMISSION))
    connection.readable()
    assert connection.refused == {ResponseCode.NO_PERMISSION: 1}
    assert connection.due_ns is not None
    connection.pump(connection.due_ns - 1)
    assert connection.outstanding == 0
    connection.pump(connection.due_ns)
    assert connection.outstanding == 1


def test_a_closed_connection_ends_the_run(sockets: tuple[socket.socket, socket.socket]) -> None:
    """The run does not wait forever."""
    ours, theirs = sockets
    connection = PullConnection(ours, [bounds(0)], 32, Ending.STOP, Recorder())
    theirs.close()
    with pytest.raises(ConnectionError, match="closed"):
        connection.readable()
