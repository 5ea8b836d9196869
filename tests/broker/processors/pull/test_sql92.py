"""Pulls with SQL92 expressions: which expression applies, which messages match, which pulls are resumed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.store.read import property_filters
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.message import encode_properties
from skylarkmq.protocol.record import decode
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, consumer, heartbeat, pull
from tests.harness.stores import message

RETRY_TOPIC = f"%RETRY%{GROUP}"
WANTED = "expected a property, a text, a number or a parenthesis"
NOT_LOADED = "The broker's consumer filter data is not exist!Your expression may be wrong!"


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path, enable_property_filter=True) as it:
        yield it


def put(parts: BrokerParts, *numbers: int, topic: str = TOPIC, **properties: str) -> None:
    """Store messages with a property `n` in one iteration."""
    for number in numbers:
        append = message(b"%d" % number, topic, 0)
        append.properties = encode_properties({"n": str(number), **properties}).encode()
        parts.store.put(append)
    parts.store.commit()


def sql(expression: str, version: int = 1, topic: str = TOPIC) -> SubscriptionData:
    return SubscriptionData(topic, expression, sub_version=version, expression_type="SQL92")


def by(expression: str, **fields: Any) -> RemotingCommand:
    """Return a pull with its own expression."""
    return pull(subscription=expression, expression_type="SQL92", **fields)


def bodies(response: RemotingCommand) -> list[int]:
    assert response.code == 0, response.remark
    return [int(found.body) for found in decode(bytes(response.body))]


def next_offset(response: RemotingCommand) -> int:
    return int(response.ext_fields()["nextBeginOffset"])


# ------------------------------------------------------------------------------------------ the expression that applies


async def test_a_pulls_own_expression_filters(parts: BrokerParts) -> None:
    """With the flag SUBSCRIPTION, the expression of the request filters the queue's messages."""
    put(parts, *range(10))
    response = parts.peer().call(by("n > 6 OR n = 2"))
    assert bodies(response) == [2, 7, 8, 9]
    assert next_offset(response) == 10


async def test_a_heartbeats_expression_filters(parts: BrokerParts) -> None:
    """Without the flag, that of the group's latest heartbeat does."""
    put(parts, *range(10))
    peer = parts.peer()
    peer.call(heartbeat(consumer(sql("n < 3"))))
    assert bodies(peer.call(pull(sys_flag=0, sub_version=1))) == [0, 1, 2]
    peer.call(heartbeat(consumer(sql("n = 9", version=2))))
    assert bodies(peer.call(pull(sys_flag=0, sub_version=1))) == [9]
    assert peer.call(pull(sys_flag=0, sub_version=3)).code == 25


async def test_a_pull_without_a_match_is_served_at_once(parts: BrokerParts) -> None:
    """The client pulls again, from after the tested messages."""
    put(parts, *range(10))
    response = parts.peer().call(by("n > 100", suspend_ms=1000))
    assert (response.code, response.remark, next_offset(response)) == (20, "NO_MATCHED_MESSAGE", 10)


@pytest.mark.parametrize(
    ("settings", "expression", "code", "remark"),
    [
        (
            {"enable_property_filter": False},
            "n >",
            27,
            f"{NOT_LOADED} line 1, column 4: {WANTED}, found the end",
        ),
        (
            {"enable_property_filter": True},
            "#",
            27,
            f"{NOT_LOADED} line 1, column 1: unexpected character '#'",
        ),
        (
            {"enable_property_filter": False},
            "n > 1",
            1,
            "The broker does not support consumer to filter message by SQL92",
        ),
    ],
)
async def test_a_registered_expression_that_is_invalid_is_refused(
    tmp_path: Path, settings: dict[str, Any], expression: str, code: int, remark: str
) -> None:
    """The heartbeat succeeds in any case; the pull gets the error: invalid, or SQL92 is off."""
    with broker_parts(tmp_path, **settings) as parts:
        peer = parts.peer()
        assert peer.call(heartbeat(consumer(sql(expression)))).code == 0
        response = peer.call(pull(sys_flag=0, sub_version=1))
        assert (response.code, response.remark) == (code, remark)


@pytest.mark.parametrize(
    ("is_enabled", "expression", "kind", "code", "remark"),
    [
        (False, "n >", "SQL92", 1, "The broker does not support consumer to filter message by SQL92"),
        (
            True,
            "#",
            "SQL92",
            23,
            "parse the consumer's subscription failed: line 1, column 1: unexpected character '#'",
        ),
        (True, "x", "CLASS", 23, "parse the consumer's subscription failed: there are no expressions of type 'CLASS'"),
        (True, "", "SQL92", 23, "parse the consumer's subscription failed"),
    ],
)
async def test_a_requested_expression_that_is_invalid_is_refused(
    tmp_path: Path, is_enabled: bool, expression: str, kind: str, code: int, remark: str
) -> None:
    """With the reason; RocketMQ would deliver every message."""
    with broker_parts(tmp_path, enable_property_filter=is_enabled) as parts:
        response = parts.peer().call(pull(subscription=expression, expression_type=kind))
        assert (response.code, response.remark) == (code, remark)


async def test_tags_still_filter(parts: BrokerParts) -> None:
    """A tag expression is tested by the queue unit, and an SQL92 expression may use the tag."""
    parts.put(b"1", tag="a")
    parts.put(b"2", tag="b")
    assert bodies(parts.peer().call(pull(subscription="b"))) == [2]


# --------------------------------------------------------------------------------------------------- resumed pulls


async def test_only_a_match_resumes_a_pull(parts: BrokerParts) -> None:
    """Other messages leave it parked; the iteration with a match resumes it."""
    peer = parts.peer()
    peer.send(by("n > 5", suspend_ms=1000))
    put(parts, 1, 2, 3)
    put(parts, 4)
    assert peer.take() == []
    assert parts.arrivals.statistics().parked == 1
    put(parts, 5, 6, 7)
    (response,) = peer.take()
    assert bodies(response) == [6, 7]
    assert next_offset(response) == 7


async def test_messages_are_not_tested_again(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its deadline a pull continues after the messages that did not match."""
    peer = parts.peer()
    peer.send(by("n > 5", suspend_ms=1000))
    put(parts, *range(5))
    monkeypatch.setattr(property_filters, "WORK_NS", 1)
    parts.timers.advance_ms(1000)
    (response,) = peer.take()
    assert (response.code, next_offset(response)) == (19, 5)


async def test_too_many_messages_resume_a_pull(parts: BrokerParts, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an arrival has more messages than may be tested in an iteration, the pull tests them itself."""
    peer = parts.peer()
    peer.send(by("n > 500", suspend_ms=1000))
    monkeypatch.setattr(property_filters, "WORK_NS", 20_000)
    put(parts, *range(100))
    (response,) = peer.take()
    assert response.code == 20
    assert 0 < next_offset(response) < 100


async def test_parked_pulls_with_tags_and_expressions(parts: BrokerParts) -> None:
    """Each is resumed by its own matches."""
    by_tag, by_property, by_nothing = (parts.peer(port) for port in (1, 2, 3))
    by_tag.send(pull(subscription="b", suspend_ms=1000))
    by_property.send(by("n = 7", suspend_ms=1000))
    put(parts, 1)
    assert by_tag.take() == by_property.take() == []
    put(parts, 7)
    assert [bodies(response) for response in by_property.take()] == [[7]]
    by_nothing.send(pull(queue_offset=2, suspend_ms=1000))
    parts.put(b"9", tag="b")
    assert [bodies(response) for response in by_nothing.take()] == [[9]]
    assert [bodies(response) for response in by_tag.take()] == [[9]]


# --------------------------------------------------------------------------------------------- redelivered messages


@pytest.mark.parametrize(("is_filtered", "found"), [(False, [1, 2, 3, 4]), (True, [2, 3, 4])])
async def test_the_filter_of_a_retry_topic(tmp_path: Path, is_filtered: bool, found: list[int]) -> None:
    """With filterSupportRetry the expression for the original topic applies, otherwise none."""
    with broker_parts(tmp_path, enable_property_filter=True, filter_support_retry=is_filtered) as parts:
        peer = parts.peer()
        peer.call(heartbeat(consumer(sql("n > 1"), subscribe("U", "*", 1), subscribe(RETRY_TOPIC, "*", 1))))
        parts.topics.update(TopicConfig(RETRY_TOPIC, 1, 1))
        put(parts, 1, 2, topic=RETRY_TOPIC, RETRY_TOPIC=TOPIC)
        put(parts, 3, topic=RETRY_TOPIC, RETRY_TOPIC="U")
        put(parts, 4, topic=RETRY_TOPIC)
        assert bodies(peer.call(pull(topic=RETRY_TOPIC, sys_flag=0))) == found


async def test_groups_without_expressions_receive_all_retries(tmp_path: Path) -> None:
    """filterSupportRetry changes nothing for them, nor for an unknown group."""
    with broker_parts(tmp_path, filter_support_retry=True) as parts:
        parts.topics.update(TopicConfig(RETRY_TOPIC, 1, 1))
        put(parts, 1, topic=RETRY_TOPIC, RETRY_TOPIC=TOPIC)
        assert bodies(parts.peer().call(pull(topic=RETRY_TOPIC))) == [1]
        parts.peer().call(heartbeat(consumer(subscribe(RETRY_TOPIC, "*", 1))))
        assert bodies(parts.peer().call(pull(topic=RETRY_TOPIC, sys_flag=0))) == [1]
