"""Pulls on a slave: refused, or served without corrections, and sent back to the master while there is one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from tests.harness.broker_parts import GROUP, BrokerParts, broker_parts, pull

WAIT_MS = 10_000


def parts_of(root: Path, **settings: object) -> Iterator[BrokerParts]:
    with broker_parts(root, is_slave=True, **settings) as parts:
        group = SubscriptionGroupConfig(GROUP, broker_id=3, which_broker_when_consume_slowly=2)
        parts.groups.load(SubscriptionGroupWrapper(subscription_group_table={GROUP: group}).encode())
        parts.put(b"one", b"two")
        yield parts


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    for parts in parts_of(tmp_path, slave_read_enable=True):
        yield parts


def answer(response: RemotingCommand) -> tuple[int, str, str]:
    """Return code, suggestWhichBrokerId and nextBeginOffset."""
    ext = response.ext_fields()
    return response.code, ext["suggestWhichBrokerId"], ext["nextBeginOffset"]


async def test_every_pull_is_refused_without_slave_read_enable(tmp_path: Path) -> None:
    """Also in a run of pulls; RocketMQ's clients repeat it later."""
    for parts in parts_of(tmp_path):
        peer = parts.peer()
        peer.send(*(pull() for _ in range(40)))
        assert {(response.code, response.remark) for response in peer.received} == {
            (ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
        }


async def test_new_messages_are_served_and_the_next_pull_goes_to_the_master(parts: BrokerParts) -> None:
    """Without a master the consumer stays at the broker of its group."""
    parts.has_master = True
    assert answer(parts.peer().call(pull())) == (0, "0", "2")
    parts.has_master = False
    assert answer(parts.peer().call(pull())) == (0, "3", "2")


async def test_old_messages_are_read_from_here(tmp_path: Path) -> None:
    """A group that reads from disk stays at whichBrokerWhenConsumeSlowly."""
    for parts in parts_of(tmp_path, slave_read_enable=True, access_message_in_memory_max_ratio=0):
        parts.has_master = True
        assert answer(parts.peer().call(pull(max_msg_nums=1)))[1] == "2"


async def test_a_pull_at_the_end_goes_to_the_master_or_is_parked(parts: BrokerParts) -> None:
    """The master parks it; without one, this broker does."""
    parts.has_master = True
    request = pull(queue_offset=2, suspend_ms=WAIT_MS)
    assert answer(parts.peer().call(request)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "0", "2")
    parts.has_master = False
    peer = parts.peer()
    peer.send(pull(queue_offset=2, suspend_ms=WAIT_MS))
    assert peer.received == []
    parts.put(b"three")
    parts.timers.advance_ms(1)
    assert [response.code for response in peer.take()] == [ResponseCode.SUCCESS]


@pytest.mark.parametrize("has_master", [True, False])
async def test_offsets_are_not_corrected(parts: BrokerParts, has_master: bool) -> None:
    """This copy may lack messages that the master has: the client keeps its offset and asks again."""
    parts.has_master = has_master
    for fields in ({"queue_offset": 100}, {"queue_id": 1, "queue_offset": 7}):
        expected = str(fields["queue_offset"])
        assert answer(parts.peer().call(pull(**fields)))[::2] == (ResponseCode.PULL_RETRY_IMMEDIATELY, expected)
