"""Metrics of requests to clients."""

import pytest

from skylarkmq.broker.delivery.calls.client_calls import CallFailed, ClientCalls
from skylarkmq.broker.delivery.calls.request_reply import Replies
from skylarkmq.broker.metadata.client_sessions import ClientSessions
from skylarkmq.broker.ops.collectors.calls import CallCollector
from skylarkmq.broker.ops.steps import Value
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.peer import Peer


async def test_calls_and_replies_are_counted_by_outcome() -> None:
    """A call without a client, and a reply without a requester."""
    calls, peer = ClientCalls(), Peer(Dispatcher())
    peer.disconnect()
    with pytest.raises(CallFailed):
        await calls.call(peer.connection, RemotingCommand.request(307), 1.0)
    steps = CallCollector(calls, Replies(ClientSessions(), calls, "h:1", lambda: 0))()
    values = {(step.name, *step.labels): step.value for step in steps if isinstance(step, Value)}
    assert values == {
        ("skylark_client_calls_waiting",): 0,
        ("skylark_client_calls_total", "answered"): 0,
        ("skylark_client_calls_total", "timed_out"): 0,
        ("skylark_client_calls_total", "failed"): 1,
        ("skylark_client_calls_total", "refused"): 0,
        ("skylark_replies_total", "pushed"): 0,
        ("skylark_replies_total", "failed"): 0,
    }
