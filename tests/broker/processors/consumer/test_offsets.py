"""Committed offsets over the wire: the response for a group without an offset, and refused commits."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.consumer import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as it:
        it.groups.find_or_create(GROUP)
        yield it


def query(queue_id: int = 0, **fields: Any) -> RemotingCommand:
    header = QueryConsumerOffsetHeader(GROUP, fields.pop("topic", TOPIC), queue_id, **fields)
    return RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)


def update(group: str = GROUP, topic: str = TOPIC, **fields: Any) -> RemotingCommand:
    return RemotingCommand.request(
        RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader(group, topic, **fields)
    )


def code_and_offset(response: RemotingCommand) -> tuple[int, str | None]:
    return response.code, response.ext_fields().get("offset")


async def test_a_committed_offset_is_returned(parts: BrokerParts) -> None:
    """The last committed offset, without a remark."""
    peer = parts.peer()
    assert peer.call(update(queue_id=0, commit_offset=7)).code == 0
    response = peer.call(query())
    assert (code_and_offset(response), response.remark) == ((0, "7"), None)


@pytest.mark.parametrize("queue_id", [4, -1, 2**31 - 1])
async def test_an_offset_of_an_unknown_queue_is_not_stored(parts: BrokerParts, queue_id: int) -> None:
    """The commit succeeds, as in RocketMQ, and adds no row; an existing row of a removed queue is updated."""
    peer = parts.peer()
    assert peer.call(update(queue_id=queue_id, commit_offset=7)).code == 0
    assert not parts.offsets.table()
    assert peer.call(update(queue_id=3, commit_offset=7)).code == 0
    parts.topics.update(TopicConfig("T", 1, 1))
    assert peer.call(update(queue_id=3, commit_offset=8)).code == 0
    assert list(parts.offsets.table().values()) == [{3: 8}]


async def test_a_new_offset_beyond_the_limit_is_refused(parts: BrokerParts) -> None:
    """SYSTEM_BUSY (2) names the setting; an existing offset can still be updated."""
    parts.limits.offsets.most = 1
    peer = parts.peer()
    assert peer.call(update(queue_id=0, commit_offset=7)).code == 0
    response = peer.call(update(queue_id=1, commit_offset=7))
    assert response.code == ResponseCode.SYSTEM_BUSY
    assert "maxConsumerOffsets=1" in str(response.remark)
    assert peer.call(update(queue_id=0, commit_offset=8)).code == 0


async def test_a_new_group_starts_at_0_if_the_queue_does(parts: BrokerParts) -> None:
    """With messages, without, and for an unknown topic: no message can be lost."""
    parts.put(b"one", b"two")
    peer = parts.peer()
    assert (
        code_and_offset(peer.call(query(0)))
        == code_and_offset(peer.call(query(1)))
        == code_and_offset(peer.call(query(0, topic="none")))
        == (0, "0")
    )


async def test_a_new_group_gets_not_found_if_the_queue_begins_later(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QUERY_NOT_FOUND (22) lets the consumer's own setting decide."""
    monkeypatch.setattr(parts.store, "min_offset", lambda *_: 3)
    response = parts.peer().call(query())
    assert code_and_offset(response) == (22, None)
    assert response.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"


async def test_a_new_group_gets_not_found_if_the_queue_begins_on_disk(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offset 0 exists, but its record is on disk only."""
    parts.put(b"one")
    monkeypatch.setattr(parts.store, "get", lambda *_: GetResult(GetStatus.FOUND, 1, 0, 1, behind_memory=True))
    assert code_and_offset(parts.peer().call(query())) == (22, None)


@pytest.mark.parametrize(("wish", "code"), [("false", 22), ("False", 22), ("1", 22), ("true", 0), (None, 0)])
async def test_a_client_can_refuse_to_start_at_0(parts: BrokerParts, wish: str | None, code: int) -> None:
    """setZeroIfNotFound present and not `true` is QUERY_NOT_FOUND (22) at once; absent means true."""
    response = parts.peer().call(query(set_zero_if_not_found=wish))
    assert response.code == code
    if code:
        assert response.remark == "Not found, do not set to zero, maybe this group boot first"


@pytest.mark.parametrize(
    ("request_", "code", "remark"),
    [
        (update("nobody", "none"), 26, "Group nobody not exist!"),
        (update(topic="none"), 17, "Topic none not exist!"),
        (update(), 29, "QueueId is null, topic is T"),
        (update(queue_id=0), 29, "Offset is null, topic is T"),
    ],
)
async def test_commits_are_refused_in_rocketmqs_order(
    parts: BrokerParts, request_: RemotingCommand, code: int, remark: str
) -> None:
    """Group, topic, queue, offset."""
    response = parts.peer().call(request_)
    assert (response.code, response.remark) == (code, remark)
    assert parts.groups.find("nobody") is None


async def test_minus_one_is_never_stored(parts: BrokerParts) -> None:
    """ali-ons commits -1 for an unread queue: it succeeds, and QUERY_CONSUMER_OFFSET (14) still follows its rules."""
    peer = parts.peer()
    assert peer.call(update(queue_id=0, commit_offset=-1)).code == 0
    assert parts.offsets.committed(GROUP, TOPIC, 0) is None
    assert code_and_offset(peer.call(query())) == (0, "0")


async def test_a_oneway_commit_gets_no_response(parts: BrokerParts) -> None:
    """As sent by Java."""
    request = update(queue_id=2, commit_offset=4)
    request.flag = 2
    peer = parts.peer()
    peer.send(request)
    assert (peer.received, parts.offsets.committed(GROUP, TOPIC, 2)) == ([], 4)


async def test_clients_cannot_commit_the_broker_s_own_offsets(parts: BrokerParts) -> None:
    """They determine where the loading of open half messages begins: too large an offset would hide some."""
    group, half = "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC"
    parts.offsets.commit_own(half, 0, 3)
    response = parts.peer().call(update(group, half, queue_id=0, commit_offset=9))
    assert (response.code, response.remark) == (16, f"the consumer group[{group}] is forbidden for topic[{half}]")
    parts.offsets.commit(group, half, 0, 9)  # like a pull with a commit
    assert parts.offsets.committed(group, half, 0) == 3
