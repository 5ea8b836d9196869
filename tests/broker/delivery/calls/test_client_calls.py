"""Calls to clients: however a call ends, nothing of it remains."""

import asyncio

import pytest

from skylarkmq.broker.delivery.calls.client_calls import CallFailed, CallTimeout, ClientCalls
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.peer import Peer

LONG_S = 60.0


def request() -> RemotingCommand:
    return RemotingCommand.request(307)


def start_calls(
    calls: ClientCalls, peer: Peer, count: int = 1, timeout_s: float = LONG_S
) -> list[asyncio.Task[object]]:
    """Start `count` calls."""
    return [asyncio.ensure_future(calls.call(peer.connection, request(), timeout_s)) for _ in range(count)]


@pytest.fixture
async def peer() -> Peer:
    return Peer(Dispatcher())


async def test_responses_may_arrive_in_any_order(peer: Peer) -> None:
    """Two calls of one client, with responses in the other order."""
    calls = ClientCalls()
    tasks = start_calls(calls, peer, 2)
    asked = [await peer.next_request(), await peer.next_request()]
    assert (calls.statistics().waiting, peer.connection.calls) == (2, 2)
    for n, request in reversed(list(enumerate(asked))):
        peer.respond(request, RemotingCommand.response(n, body=b"%d" % n))
    answers = await asyncio.gather(*tasks)
    assert [(answer.code, answer.body) for answer in answers] == [(0, b"0"), (1, b"1")]  # type: ignore[attr-defined]
    assert (calls.statistics().answered, calls.statistics().waiting, peer.connection.calls) == (2, 0, 0)


async def test_a_call_without_a_response_leaves_nothing(peer: Peer) -> None:
    """The timeout ends the call; a later response is dropped."""
    calls = ClientCalls()
    [call] = start_calls(calls, peer, timeout_s=0)
    with pytest.raises(CallTimeout, match=r"no response from 127\.0\.0\.9:4321 within 0 ms"):
        await call
    request = await peer.next_request()
    assert (peer.connection.calls, calls.statistics().waiting, calls.statistics().timed_out) == (0, 0, 1)
    peer.respond(request, RemotingCommand.response())
    assert not peer.transport.closing


async def test_calls_end_with_their_connection(peer: Peer) -> None:
    """All of them at once; a closed connection gets no further calls."""
    calls = ClientCalls()
    tasks = start_calls(calls, peer, 100)
    await peer.next_request()
    peer.disconnect()
    results = await asyncio.gather(*tasks, *start_calls(calls, peer), return_exceptions=True)
    assert {type(result) for result in results} == {CallFailed}
    statistics = calls.statistics()
    assert (statistics.failed, statistics.waiting, peer.connection.calls) == (101, 0, 0)


async def test_a_canceled_call_leaves_nothing(peer: Peer) -> None:
    """A canceled task removes its entry."""
    calls = ClientCalls()
    [call] = start_calls(calls, peer)
    await peer.next_request()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (peer.connection.calls, calls.statistics().waiting) == (0, 0)


async def test_calls_are_limited_per_client_and_in_total(peer: Peer) -> None:
    """Beyond the limits calls are not sent and fail at once; other clients still get calls."""
    calls = ClientCalls(most=15, most_for_one=10)
    other = Peer(Dispatcher())
    tasks = [*start_calls(calls, peer, 3_000), *start_calls(calls, other, 3_000)]
    await peer.next_request()
    await other.next_request()
    assert (peer.connection.calls, other.connection.calls, calls.statistics().refused) == (10, 5, 5_985)
    peer.disconnect()
    other.disconnect()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert repr(calls) == "<ClientCalls waiting=0 answered=0>"


async def test_a_client_that_does_not_read_gets_no_calls(peer: Peer) -> None:
    """The data already sent still waits for the client; more would only take memory."""
    peer.transport.stuck = True
    peer.connection.write(b"x" * (5 << 20))
    peer.selector.pending_writes.flush()
    peer.connection.pause_for_backlog()
    with pytest.raises(CallFailed, match="does not read"):
        await ClientCalls().call(peer.connection, request(), LONG_S)
    assert peer.connection.calls == 0
