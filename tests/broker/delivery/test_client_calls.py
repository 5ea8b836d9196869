"""Calls to clients: whatever becomes of one, nothing of it is left."""

import asyncio

import pytest

from skylarkmq.broker.delivery.client_calls import CallFailed, CallTimeout, ClientCalls
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.peer import Peer

LONG_S = 60.0


def question() -> RemotingCommand:
    return RemotingCommand.request(307)


def begun(calls: ClientCalls, peer: Peer, count: int = 1, timeout_s: float = LONG_S) -> list[asyncio.Task[object]]:
    """So many calls under way."""
    return [asyncio.ensure_future(calls.call(peer.connection, question(), timeout_s)) for _ in range(count)]


@pytest.fixture
async def peer() -> Peer:
    return Peer(Dispatcher())


async def test_an_answer_finds_its_call_in_any_order(peer: Peer) -> None:
    """Two calls of one client, answered the other way round."""
    calls = ClientCalls()
    tasks = begun(calls, peer, 2)
    asked = [await peer.asked(), await peer.asked()]
    assert (calls.statistics().waiting, peer.connection.calls) == (2, 2)
    for n, request in reversed(list(enumerate(asked))):
        peer.answer(request, RemotingCommand.response(n, body=b"%d" % n))
    answers = await asyncio.gather(*tasks)
    assert [(answer.code, answer.body) for answer in answers] == [(0, b"0"), (1, b"1")]  # type: ignore[attr-defined]
    assert (calls.statistics().answered, calls.statistics().waiting, peer.connection.calls) == (2, 0, 0)


async def test_who_does_not_answer_costs_nothing_afterwards(peer: Peer) -> None:
    """The timeout ends the call; an answer that comes later is dropped."""
    calls = ClientCalls()
    [call] = begun(calls, peer, timeout_s=0)
    with pytest.raises(CallTimeout, match=r"no response from 127\.0\.0\.9:4321 within 0 ms"):
        await call
    request = await peer.asked()
    assert (peer.connection.calls, calls.statistics().waiting, calls.statistics().timed_out) == (0, 0, 1)
    peer.answer(request, RemotingCommand.response())
    assert not peer.transport.closing


async def test_a_connection_that_ends_ends_its_calls(peer: Peer) -> None:
    """All of them at once; and nobody is asked who is gone."""
    calls = ClientCalls()
    tasks = begun(calls, peer, 100)
    await peer.asked()
    peer.lose()
    results = await asyncio.gather(*tasks, *begun(calls, peer), return_exceptions=True)
    assert {type(result) for result in results} == {CallFailed}
    statistics = calls.statistics()
    assert (statistics.failed, statistics.waiting, peer.connection.calls) == (101, 0, 0)


async def test_a_call_that_nobody_waits_for_is_forgotten(peer: Peer) -> None:
    """Being cancelled, it leaves nothing."""
    calls = ClientCalls()
    [call] = begun(calls, peer)
    await peer.asked()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (peer.connection.calls, calls.statistics().waiting) == (0, 0)


async def test_thousands_of_calls_are_bounded_by_client_and_in_all(peer: Peer) -> None:
    """Beyond the bounds nothing is sent, and that is told at once; other clients are still asked."""
    calls = ClientCalls(most=15, most_for_one=10)
    other = Peer(Dispatcher())
    tasks = [*begun(calls, peer, 3_000), *begun(calls, other, 3_000)]
    await peer.asked()
    await other.asked()
    assert (peer.connection.calls, other.connection.calls, calls.statistics().refused) == (10, 5, 5_985)
    peer.lose()
    other.lose()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert repr(calls) == "<ClientCalls waiting=0 answered=0>"


async def test_a_client_that_does_not_read_is_asked_nothing(peer: Peer) -> None:
    """What it has been sent already waits for it; more would only cost memory."""
    peer.transport.stuck = True
    peer.connection.write(b"x" * (5 << 20))
    peer.selector.flush()
    peer.connection.pause_for_backlog()
    with pytest.raises(CallFailed, match="does not read"):
        await ClientCalls().call(peer.connection, question(), LONG_S)
    assert peer.connection.calls == 0
