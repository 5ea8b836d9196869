"""Queries of queues and records."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.queue import QueryMessageHeader, QueueHeader, SearchOffsetHeader, ViewMessageHeader
from skylarkmq.protocol.record import decode
from tests.harness.broker_parts import TOPIC, BrokerParts, broker_parts
from tests.harness.stores import message
from tests.harness.waiting import until


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as it:
        for _ in range(3):
            it.clock.now_ms += 10
            it.put(b"early", b"late")
        yield it


def call(parts: BrokerParts, code: RequestCode, header: Header) -> dict[str, str]:
    response = parts.peer().call(RemotingCommand.request(code, header))
    assert response.code == 0
    return response.ext_fields()


@pytest.mark.parametrize(("topic", "queue_id", "low", "high"), [(TOPIC, 0, 0, 6), (TOPIC, 3, 0, 0), ("none", 0, 0, 0)])
async def test_a_queue_has_bounds(parts: BrokerParts, topic: str, queue_id: int, low: int, high: int) -> None:
    """GET_MAX_OFFSET (30): the next offset to write; GET_MIN_OFFSET (31): the first valid one; 0 for unknown queues."""
    header = QueueHeader(topic, queue_id)
    assert call(parts, RequestCode.GET_MAX_OFFSET, header) == {"offset": str(high)}
    assert call(parts, RequestCode.GET_MIN_OFFSET, header) == {"offset": str(low)}


async def test_the_earliest_store_time_is_returned(parts: BrokerParts) -> None:
    """GET_EARLIEST_MSG_STORETIME (32): the store time at the min offset, -1 for an empty queue."""
    first = str(parts.clock.now_ms - 20)
    assert call(parts, RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader(TOPIC, 0)) == {"timestamp": first}
    assert call(parts, RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader(TOPIC, 1)) == {"timestamp": "-1"}


@pytest.mark.parametrize(
    ("after_first_ms", "boundary", "offset"),
    [
        (0, None, 0),
        (1, None, 2),
        (10, "lower", 2),
        (10, "UPPER", 3),
        (15, "upper", 3),
        (99, "lower", 6),
        (99, "upper", 5),
        (-9, "other", 0),
    ],
)
async def test_an_offset_is_found_by_time(
    parts: BrokerParts, after_first_ms: int, boundary: str | None, offset: int
) -> None:
    """Lower: the first at or after the time; upper: the last at or before it; any other word means lower."""
    time = parts.clock.now_ms - 20 + after_first_ms
    header = SearchOffsetHeader(TOPIC, 0, time, boundary)
    assert call(parts, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header) == {"offset": str(offset)}
    elsewhere = SearchOffsetHeader("none", 0, time, boundary)
    assert call(parts, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, elsewhere) == {"offset": "0"}


async def test_a_record_is_returned_by_its_offset(parts: BrokerParts) -> None:
    """VIEW_MESSAGE_BY_ID (33) returns the record as it is stored."""
    [append] = parts.put(b"shown")
    header = ViewMessageHeader(append.physical_offset)
    response = parts.peer().call(RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, header))
    [message] = decode(bytes(response.body))
    assert (response.code, response.remark, message.body, message.queue_offset) == (0, None, b"shown", 6)


@pytest.mark.parametrize("offset", [-1, 1, 123, 1 << 40])
async def test_an_offset_without_a_record_is_an_error(parts: BrokerParts, offset: int) -> None:
    """Inside a record, before the log, after it: SYSTEM_ERROR (1) with RocketMQ's remark."""
    response = parts.peer().call(RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset)))
    assert (response.code, response.remark) == (1, f"can not find message by the offset, {offset}")


def put_keyed(parts: BrokerParts, count: int) -> None:
    for number in range(count):
        properties = f"UNIQ_KEY\x01U{number}\x02KEYS\x01all k{number}\x02".encode()
        parts.store.put(message(b"%d" % number, TOPIC, properties=properties))
    parts.store.commit()


async def query(
    parts: BrokerParts, key: str, most: int, unique: str | None = None, end: int = 2**63 - 1
) -> RemotingCommand:
    peer = parts.peer()
    header = QueryMessageHeader(TOPIC, key, most, 0, end, unique)
    peer.send(RemotingCommand.request(RequestCode.QUERY_MESSAGE, header))
    await until(lambda: peer.received or peer.take())
    [response] = peer.received
    return response


@pytest.mark.parametrize(
    ("key", "most", "unique", "numbers"),
    [
        ("k3", 32, None, range(3, 4)),
        ("U70", 1, "true", range(70, 71)),
        ("all", 5, "false", range(95, 100)),
        ("all", 100, None, range(36, 100)),
        ("all", 5, "true", range(68, 100)),
        ("all", 5, "1", range(95, 100)),
    ],
)
async def test_messages_are_found_by_key(
    parts: BrokerParts, key: str, most: int, unique: str | None, numbers: range
) -> None:
    """QUERY_MESSAGE (12) returns the newest, in log order: up to the requested number, at most 64; 32 by unique key."""
    put_keyed(parts, 100)
    response = await query(parts, key, most, unique)
    assert response.code == 0
    messages = decode(bytes(response.body))
    assert [int(it.body) for it in messages] == list(numbers)
    newest = parts.store.record_at(int(response.ext_fields()["indexLastUpdatePhyoffset"]))
    assert newest is not None
    assert decode(newest)[0].body == b"99"
    assert response.ext_fields()["indexLastUpdateTimestamp"] == str(parts.clock.now_ms)


async def test_an_unknown_key_is_not_found(parts: BrokerParts) -> None:
    """QUERY_NOT_FOUND (22), RocketMQ's remark, and zeros for the newest message of the index."""
    put_keyed(parts, 1)
    for key, most, end in (("none", 32, 2**63 - 1), ("k0", 0, 2**63 - 1), ("k0", 32, 1_000)):
        response = await query(parts, key, most, end=end)
        assert (response.code, response.remark) == (22, "can not find message, maybe time range not correct")
        assert response.ext_fields() == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        assert not response.body


async def test_a_response_fits_into_one_frame(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are more messages than a client accepts, the newest are returned."""
    monkeypatch.setattr("skylarkmq.broker.store.index.key_query.MAX_RESPONSE_BYTES", 45_000)
    properties = b"KEYS\x01large\x02"
    for number in range(6):
        parts.store.put(message(bytes([number]) * 10_000, TOPIC, properties=properties))
    parts.store.commit()
    response = await query(parts, "large", 32)
    assert [it.body[0] for it in decode(bytes(response.body))] == [2, 3, 4, 5]
