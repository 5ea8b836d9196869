"""Runs of requests behind a guard: which requests are served, and how often the guard decides."""

from collections.abc import AsyncIterator, Sequence

import pytest

from skylarkmq.broker.remoting.admission import Pool
from skylarkmq.broker.remoting.dispatch import UNCHECKED, Dispatcher, Run
from skylarkmq.broker.remoting.request_source import RequestSource
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.echo_server import ECHO, FAIL, EchoServer
from tests.harness.peer import Peer
from tests.harness.raw import frame
from tests.harness.raw_peer import RawPeer

BAD = b"bad"
MOST_AT_ONCE = 4


class CountingGuard:
    """Refuses requests with the body `bad`; admits at most four requests of a run at once."""

    checks_data = True

    def __init__(self) -> None:
        self.admitted: list[int] = []
        self.refused: list[int] = []
        self.responded_to: list[int] = []

    def responded(self, command: RemotingCommand, response: RemotingCommand) -> None:
        assert response.opaque == command.opaque
        self.responded_to.append(command.opaque)

    def admit(self, _source: RequestSource, command: RemotingCommand) -> RemotingCommand | None:
        if bytes(command.body) == BAD:
            self.refused.append(command.opaque)
            return RemotingCommand.response(ResponseCode.NO_PERMISSION, "refused")
        self.admitted.append(command.opaque)
        return None

    def admit_run(self, source: RequestSource, commands: Sequence[RemotingCommand], at: int) -> Run:
        end = at
        while end < len(commands) and end - at < MOST_AT_ONCE and commands[end].code == commands[at].code:
            refusal = self.admit(source, commands[end])
            if refusal is not None:
                return Run(end, refusal)
            end += 1
        return Run(end)


class Runs:
    """A run processor that serves every request except those with the body `leave`, and records what it is offered."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.most = most
        self.offered: list[list[int]] = []
        self.served: list[int] = []

    def serve(self, source: RequestSource, commands: Sequence[RemotingCommand], at: int) -> int:
        self.offered.append([command.opaque for command in commands[at:]])
        count = 0
        for command in commands[at : at + self.most]:
            if bytes(command.body) == b"leave":
                break
            self.served.append(command.opaque)
            source.respond(command, RemotingCommand.response(remark="run"))
            count += 1
        return count


@pytest.fixture
async def server() -> AsyncIterator[EchoServer]:
    async with EchoServer() as server:
        yield server


async def remarks(server: EchoServer, bodies: Sequence[bytes], code: int = ECHO) -> dict[int, str | None]:
    """Send requests with these bodies in one write; return the remark of each response by opaque."""
    async with await RawPeer.connect(server.port) as peer:
        peer.send(b"".join(frame({"code": code, "opaque": opaque}, body) for opaque, body in enumerate(bodies)))
        received = [await peer.receive() for _ in bodies]
    return {response.header["opaque"]: response.remark for response in received}


async def test_a_refused_request_ends_a_run_and_those_after_it_start_another(server: EchoServer) -> None:
    """The run processor is never offered a request that was not admitted."""
    guard, runs = CountingGuard(), Runs()
    server.dispatcher.guard = guard
    server.dispatcher.register_run([ECHO], runs.serve, server.pool)
    found = await remarks(server, [b"1", b"2", BAD, b"3"])
    assert found == {0: "run", 1: "run", 2: "refused", 3: "run"}
    assert (runs.offered, guard.refused, server.handled) == ([[0, 1], [3]], [2], 0)


async def test_each_request_is_admitted_once(server: EchoServer) -> None:
    """Also if the run processor leaves requests, or serves few at a time: signatures are not checked again."""
    guard, runs = CountingGuard(), Runs(most=1)
    server.dispatcher.guard = guard
    server.dispatcher.register_run([ECHO], runs.serve, server.pool)
    bodies = [b"leave" if number % 3 == 0 else b"x" for number in range(20)]
    found = await remarks(server, bodies)
    assert found == {number: None if number % 3 == 0 else "run" for number in range(20)}
    assert guard.admitted == list(range(20))
    assert server.handled == 7


async def test_other_requests_are_admitted_one_by_one(server: EchoServer) -> None:
    """A code without a run processor asks the guard for each request."""
    guard = CountingGuard()
    server.dispatcher.guard = guard
    assert await remarks(server, [b"1", BAD, b"2"]) == {0: None, 1: "refused", 2: None}
    assert (guard.admitted, guard.refused, server.handled) == ([0, 2], [1], 2)


async def test_requests_of_the_next_read_are_admitted_again(server: EchoServer) -> None:
    """What was admitted in one read says nothing about the next."""
    guard, runs = CountingGuard(), Runs()
    server.dispatcher.guard = guard
    server.dispatcher.register_run([ECHO], runs.serve, server.pool)
    for _ in range(3):
        assert await remarks(server, [b"1", BAD]) == {0: "run", 1: "refused"}
    assert (guard.admitted, guard.refused) == ([0, 0, 0], [1, 1, 1])


async def test_a_read_keeps_its_run_while_another_one_is_served() -> None:
    """Requests of two reads that are served alternately are checked once, too."""
    guard, runs, dispatcher = CountingGuard(), Runs(most=1), Dispatcher()
    dispatcher.guard = guard
    dispatcher.register_run([ECHO], runs.serve, Pool("test", 10))
    connection = Peer(dispatcher).connection
    reads = [[RemotingCommand.request(ECHO, body=body) for body in (b"1", b"2", BAD)] for _ in range(2)]
    found = [UNCHECKED, UNCHECKED]
    for at in range(2):
        for number, commands in enumerate(reads):
            end, found[number] = dispatcher.dispatch_from(connection, commands, at, found[number])
            assert end == at + 1
    assert (len(guard.admitted), len(guard.refused), len(runs.served)) == (4, 2, 4)
    assert [(run.admitted_end, run.refusal is not None) for run in found] == [(2, True)] * 2


async def test_a_guard_that_fails_is_a_response(server: EchoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """SYSTEM_ERROR, as for a processor that fails; nothing is served."""
    guard = CountingGuard()
    server.dispatcher.guard = guard
    monkeypatch.setattr(guard, "admit", lambda *_: 1 / 0)
    assert await remarks(server, [b"1"], FAIL) == {0: "ZeroDivisionError: division by zero"}
    assert server.handled == 0
