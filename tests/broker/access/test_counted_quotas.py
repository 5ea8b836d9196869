"""Quotas on connections and parked pulls: at the limit one is permitted, one more is refused."""

from pathlib import Path

import pytest

from skylarkmq.broker.access.caller import ANONYMOUS, Caller, Proof
from skylarkmq.broker.access.config import QuotaConfig
from skylarkmq.broker.access.counted_quotas import CountedQuotas
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.requests.table import requirement_of
from skylarkmq.broker.remoting.config import RemotingConfig
from skylarkmq.broker.remoting.connection import Connection
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.remoting.selector import Selector
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import RequestError
from tests.harness.broker_parts import broker_parts, pull
from tests.harness.peer import Peer

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while, "


async def test_an_address_may_have_its_number_of_connections() -> None:
    """One more is closed at once; after one is closed, another is permitted; other addresses are not affected."""
    refusals = Refusals()
    counted = CountedQuotas(QuotaConfig(quota_client_connections=2), refusals)
    dispatcher = Dispatcher()
    selector = Selector(dispatcher, RemotingConfig(), counted.may_open)
    selector.registry.on_close(counted.closed)
    first = Peer(dispatcher, selector)
    Peer(dispatcher, selector)
    third = Peer(dispatcher, selector)
    assert third.transport.closing
    third.connection.connection_lost(None)
    assert not Peer(dispatcher, selector, ("10.0.0.1", 1)).transport.closing
    assert refusals.by_kind == {("client", "connections"): 1}
    assert selector.statistics().refused == 1
    first.connection.connection_lost(None)
    assert not Peer(dispatcher, selector).transport.closing
    assert Peer(dispatcher, selector).transport.closing


def check(counted: CountedQuotas, connection: Connection, account: str) -> None:
    command = RemotingCommand.request(RequestCode.HEART_BEAT)
    caller = Caller(account, Proof.SIGNATURE) if account else ANONYMOUS
    counted.check(connection, command, requirement_of(command.code), caller)


async def test_an_account_may_have_its_number_of_connections() -> None:
    """Requests on one more are refused until another is closed; a connection counts for its last account."""
    counted = CountedQuotas(QuotaConfig(quota_account_connections=1), Refusals())
    first, second = (Peer(Dispatcher()).connection for _ in range(2))
    assert counted.may_open(first)
    assert counted.may_open(second)
    check(counted, first, "alice")
    check(counted, first, "alice")
    check(counted, second, "")
    with pytest.raises(RequestError) as refused:
        check(counted, second, "alice")
    assert refused.value.code is ResponseCode.SYSTEM_BUSY
    assert refused.value.remark == OVERLOAD + "quotaAccountConnections=1 of account alice"
    check(counted, first, "bob")
    check(counted, second, "alice")
    counted.closed(second)
    check(counted, first, "alice")


async def test_an_address_may_park_its_number_of_pulls(tmp_path: Path) -> None:
    """One more is refused; one that was answered or dropped no longer counts; pulls that were parked before a quota
    count."""
    with broker_parts(tmp_path) as parts:
        counted = CountedQuotas(QuotaConfig(quota_client_parked_pulls=2), Refusals())
        peer, other = parts.peer(), parts.peer(4322)
        peer.send(pull(suspend_ms=10_000))
        parts.arrivals.limit(counted)
        other.send(pull(suspend_ms=10_000, queue_id=1))
        refused = peer.call(pull(suspend_ms=10_000, queue_id=2))
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert refused.remark == OVERLOAD + "quotaClientParkedPulls=2 of client 127.0.0.9"
        assert parts.arrivals.statistics().parked == 2
        parts.put(b"x", queue_id=1)
        assert other.received[-1].code == ResponseCode.SUCCESS if other.take() else True
        peer.send(pull(suspend_ms=10_000, queue_id=2))
        assert parts.arrivals.statistics().parked == 2
        parts.arrivals.forget(peer.connection)
        for queue_id in (2, 3):
            other.send(pull(suspend_ms=10_000, queue_id=queue_id))
        assert parts.arrivals.statistics().parked == 2
        parts.arrivals.close()
