"""One connection's sends, over a pair of sockets."""

import socket
from collections.abc import Iterator

import pytest

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.mqbench.prepared_frames import Block, Target
from skylarkmq.clients.mqbench.recorder import Recorder
from skylarkmq.clients.mqbench.schedule import Schedule
from skylarkmq.clients.mqbench.send_load import SendConnection, targets_of
from skylarkmq.clients.mqbench.workloads import Workload
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command
from tests.harness.limits import WAIT_LIMIT_S

MS = 1_000_000


class Line:
    """A connection of the load and the peer's socket."""

    def __init__(self, ours: socket.socket, theirs: socket.socket, in_flight: int, frames: int) -> None:
        self.recorder = Recorder()
        self.recorder.begin(0)
        block = Block(1, [Target("bench", 0, "broker-a")], frames, size=50)
        self.connection = SendConnection(ours, block, in_flight, self.recorder)
        self._theirs = theirs

    def due_ns(self) -> int | None:
        """The time at which the next send of the connection is due."""
        return self.connection.due_ns

    def sent(self) -> list[int]:
        """Return the opaques sent since the last call."""
        found = []
        for frame in FrameDecoder().feed(memoryview(self._theirs.recv(1 << 20))):
            command = decode_command(frame)
            assert command is not None
            found.append(command.opaque)
        return found

    def response(self, *opaques: int, code: int = 0) -> None:
        """Respond, and let the connection read."""
        for opaque in opaques:
            command = RemotingCommand.response(code)
            command.opaque = opaque
            self._theirs.sendall(encode_command(command))
        self.connection.readable()


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(WAIT_LIMIT_S)
    with ours, theirs:
        yield ours, theirs


def test_requests_in_flight_are_limited(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Each response permits one more send."""
    line = Line(*sockets, in_flight=3, frames=12)
    line.connection.pump(1)
    first = line.sent()
    assert len(first) == line.connection.outstanding == 3
    line.response(first[1], first[0])
    line.connection.pump(2)
    assert len(line.sent()) == 2
    assert (line.recorder.messages, line.connection.unmatched) == (2, 0)


def test_every_opaque_of_a_long_run_is_new(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Through many rounds of the block."""
    line = Line(*sockets, in_flight=4, frames=6)
    seen: list[int] = []
    for now_ns in range(20):
        line.connection.pump(now_ns)
        opaques = line.sent()
        seen += opaques
        line.response(*opaques)
    assert len(set(seen)) == len(seen) == line.recorder.messages == 80


def test_a_frame_in_flight_is_not_sent_again(sockets: tuple[socket.socket, socket.socket]) -> None:
    """The connection waits for its response."""
    line = Line(*sockets, in_flight=4, frames=5)
    line.connection.pump(1)
    first, *others = line.sent()
    line.response(*others)
    line.connection.pump(2)
    line.response(*line.sent())
    line.connection.pump(3)
    assert line.connection.outstanding == 1
    line.response(first)
    line.connection.pump(4)
    assert len(line.sent()) == 4


def test_at_a_fixed_rate_latency_counts_from_the_due_time(sockets: tuple[socket.socket, socket.socket]) -> None:
    """It includes the time that a message waited before it could leave."""
    line = Line(*sockets, in_flight=2, frames=10)
    line.connection.schedule = Schedule(1000.0, start_ns=0)
    line.connection.pump(0)
    (first,) = line.sent()
    assert line.due_ns() == MS
    line.connection.pump(50 * MS)
    (second,) = line.sent()  # of 50 that are due: two may be in flight
    assert line.due_ns() is None
    line.response(first, second)
    line.connection.pump(100 * MS)
    assert len(line.sent()) == 2
    assert line.due_ns() is None


def test_rejected_sends_do_not_count_as_messages(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Their responses are counted by code."""
    line = Line(*sockets, in_flight=3, frames=12)
    line.connection.pump(1)
    one, two, three = line.sent()
    line.response(one)
    line.response(two, three, code=2)
    assert (line.recorder.messages, line.recorder.requests) == (1, 3)
    assert line.connection.responses.refused == {2: 2}


def test_unmatched_responses_are_counted(sockets: tuple[socket.socket, socket.socket]) -> None:
    """They do not reduce the number of requests in flight."""
    line = Line(*sockets, in_flight=3, frames=12)
    line.connection.pump(1)
    (one, *_) = line.sent()
    line.response(one)
    line.response(one)
    assert (line.connection.unmatched, line.connection.outstanding, line.recorder.messages) == (1, 2, 1)


def test_connections_begin_with_different_queues() -> None:
    """Each connection has all queues, unless there are very many."""
    workload = Workload(topics=2, queues=2, connections=2)
    first, second = (targets_of(workload, Broker("b", "h:1"), number) for number in (0, 1))
    assert first[0] != second[0]
    assert sorted(map(str, first)) == sorted(map(str, second))
    many = Workload(topics=1000, queues=10, connections=4)
    parts = [targets_of(many, Broker("b", "h:1"), number) for number in range(4)]
    assert len({(target.topic, target.queue_id) for part in parts for target in part}) == 10_000
