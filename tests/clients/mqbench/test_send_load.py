"""One connection's sends, over a pair of sockets."""

import socket
from collections.abc import Iterator

import pytest

from skylarkmq.clients.mqbench.clusters import Broker
from skylarkmq.clients.mqbench.prepared_frames import Block, Target
from skylarkmq.clients.mqbench.recorder import Recorder
from skylarkmq.clients.mqbench.schedule import Schedule
from skylarkmq.clients.mqbench.send_load import SendLane, targets_of
from skylarkmq.clients.mqbench.workloads import Workload
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command

MS = 1_000_000


class Line:
    """A lane and the peer's end."""

    def __init__(self, ours: socket.socket, theirs: socket.socket, in_flight: int, frames: int) -> None:
        self.recorder = Recorder()
        self.recorder.begin(0)
        block = Block(1, [Target("bench", 0, "broker-a")], frames, size=50)
        self.lane = SendLane(ours, block, in_flight, self.recorder)
        self._theirs = theirs

    def due_ns(self) -> int | None:
        """When the lane wants to send next."""
        return self.lane.due_ns

    def sent(self) -> list[int]:
        """The opaques of what the lane has sent since."""
        found = []
        for frame in FrameDecoder().feed(memoryview(self._theirs.recv(1 << 20))):
            command = decode_command(frame)
            assert command is not None
            found.append(command.opaque)
        return found

    def answer(self, *opaques: int, code: int = 0) -> None:
        """Answer, and let the lane read."""
        for opaque in opaques:
            command = RemotingCommand.response(code)
            command.opaque = opaque
            self._theirs.sendall(encode_command(command))
        self.lane.readable()


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(5)
    with ours, theirs:
        yield ours, theirs


def test_as_many_are_in_flight_as_may_be(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Each answer lets one more leave."""
    line = Line(*sockets, in_flight=3, frames=12)
    line.lane.pump(1)
    first = line.sent()
    assert len(first) == line.lane.outstanding == 3
    line.answer(first[1], first[0])
    line.lane.pump(2)
    assert len(line.sent()) == 2
    assert (line.recorder.messages, line.lane.strays) == (2, 0)


def test_every_opaque_of_a_long_run_is_new(sockets: tuple[socket.socket, socket.socket]) -> None:
    """Round after round of the block."""
    line = Line(*sockets, in_flight=4, frames=6)
    seen: list[int] = []
    for turn in range(20):
        line.lane.pump(turn)
        opaques = line.sent()
        seen += opaques
        line.answer(*opaques)
    assert len(set(seen)) == len(seen) == line.recorder.messages == 80


def test_a_frame_without_an_answer_is_not_sent_again(sockets: tuple[socket.socket, socket.socket]) -> None:
    """The lane waits for it instead."""
    line = Line(*sockets, in_flight=4, frames=5)
    line.lane.pump(1)
    first, *others = line.sent()
    line.answer(*others)
    line.lane.pump(2)
    line.answer(*line.sent())
    line.lane.pump(3)
    assert line.lane.outstanding == 1
    line.answer(first)
    line.lane.pump(4)
    assert len(line.sent()) == 4


def test_at_a_rate_latency_counts_from_the_time_due(sockets: tuple[socket.socket, socket.socket]) -> None:
    """What could not leave on time has waited since."""
    line = Line(*sockets, in_flight=2, frames=10)
    line.lane.schedule = Schedule(1000.0, start_ns=0)
    line.lane.pump(0)
    (first,) = line.sent()
    assert line.due_ns() == MS
    line.lane.pump(50 * MS)
    (second,) = line.sent()  # of 50 that are due: two may be in flight
    assert line.due_ns() is None
    line.answer(first, second)
    line.lane.pump(100 * MS)
    assert len(line.sent()) == 2
    assert line.due_ns() is None


def test_refused_sends_are_no_messages(sockets: tuple[socket.socket, socket.socket]) -> None:
    """They are answered, and counted by their code."""
    line = Line(*sockets, in_flight=3, frames=12)
    line.lane.pump(1)
    one, two, three = line.sent()
    line.answer(one)
    line.answer(two, three, code=2)
    assert (line.recorder.messages, line.recorder.requests) == (1, 3)
    assert line.lane.answers.refused == {2: 2}


def test_answers_to_nothing_are_strays(sockets: tuple[socket.socket, socket.socket]) -> None:
    """And free no place."""
    line = Line(*sockets, in_flight=3, frames=12)
    line.lane.pump(1)
    (one, *_) = line.sent()
    line.answer(one)
    line.answer(one)
    assert (line.lane.strays, line.lane.outstanding, line.recorder.messages) == (1, 2, 1)


def test_connections_begin_with_different_queues() -> None:
    """All of them have all queues, unless there are very many."""
    workload = Workload(topics=2, queues=2, connections=2)
    first, second = (targets_of(workload, Broker("b", "h:1"), number) for number in (0, 1))
    assert first[0] != second[0]
    assert sorted(map(str, first)) == sorted(map(str, second))
    many = Workload(topics=1000, queues=10, connections=4)
    parts = [targets_of(many, Broker("b", "h:1"), number) for number in range(4)]
    assert len({(target.topic, target.queue_id) for part in parts for target in part}) == 10_000
