"""Pulls: every check in order, with RocketMQ's codes and remarks; delivery; parking and resuming."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.processors.pull.checks import requested_subscription
from skylarkmq.broker.processors.pull.response import pull_response_head
from skylarkmq.broker.store.read.queue_reads import GetResult, GetStatus
from skylarkmq.protocol.bodies.enums import MessageModel
from skylarkmq.protocol.bodies.heartbeat import SubscriptionData
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import Permission, PullSysFlag, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.filters.tag import subscribe
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.record import Record, iterate
from skylarkmq.protocol.serialize import decode_command
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts, consumer, heartbeat, pull
from tests.harness.stores import message

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
COMMIT = PullSysFlag.COMMIT_OFFSET | PullSysFlag.SUBSCRIPTION


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as it:
        yield it


def bodies(response: RemotingCommand) -> list[bytes]:
    return [bytes(record.body) for record in iterate(memoryview(response.body)) if isinstance(record, Record)]


def offsets(response: RemotingCommand) -> tuple[int, int, int]:
    """Return (next, min, max); a pull response has them whatever its code."""
    ext = response.ext_fields()
    assert ext["suggestWhichBrokerId"] == "0"
    return int(ext["nextBeginOffset"]), int(ext["minOffset"]), int(ext["maxOffset"])


# ------------------------------------------------------------------------------------------------------------- checks

REFUSED: list[tuple[dict[str, Any], dict[str, Any], int, str, str | None]] = [
    # settings, fields of the pull, code, remark, forbiddenType; each row also violates later checks where possible
    (
        {"broker_permission": Permission.WRITE},
        {"consumer_group": "#", "topic": "none"},
        16,
        "the broker[10.0.0.1] pulling message is forbidden",
        "1",
    ),
    (
        {"lite_pull_message_enable": False},
        {"code": RequestCode.LITE_PULL_MESSAGE, "consumer_group": "#", "topic": "none"},
        16,
        "the broker[10.0.0.1] for lite pull consumer is forbidden",
        None,
    ),
    ({}, {"consumer_group": "#", "topic": "none"}, 26, f"subscription group [#] does not exist, {FAQ}", None),
    (
        {"auto_create_subscription_group": False},
        {"topic": "none"},
        26,
        f"subscription group [{GROUP}] does not exist, {FAQ}",
        None,
    ),
    ({}, {"consumer_group": "off", "topic": "none"}, 16, "subscription group no permission, off", "2"),
    ({}, {"topic": "none", "queue_id": 99}, 17, f"topic[none] not exist, apply first please! {FAQ}", None),
    ({}, {"topic": "unread", "queue_id": 99}, 16, "the topic[unread] pulling message is forbidden", "3"),
    (
        {},
        {"queue_id": 4, "subscription": "||"},
        29,
        "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.9:4321]",
        None,
    ),
    (
        {},
        {"queue_id": -1, "subscription": "||"},
        29,
        "queueId[-1] is illegal, topic:[T] topicConfig.readQueueNums:[4] consumer:[/127.0.0.9:4321]",
        None,
    ),
    ({}, {"subscription": "||"}, 23, "parse the consumer's subscription failed", None),
    ({}, {"subscription": "", "expression_type": "SQL92"}, 23, "parse the consumer's subscription failed", None),
    ({}, {"sys_flag": 0}, 24, f"the consumer's group info not exist{FAQ}", None),
    (
        {},
        {"subscription": "a > 1", "expression_type": "SQL92"},
        1,
        "The broker does not support consumer to filter message by SQL92",
        None,
    ),
]


@pytest.mark.parametrize(("settings", "fields", "code", "remark", "forbidden"), REFUSED)
async def test_a_pull_is_refused_by_the_first_failed_check(
    tmp_path: Path, settings: dict[str, Any], fields: dict[str, Any], code: int, remark: str, forbidden: str | None
) -> None:
    """Each check responds with RocketMQ's code, remark and forbiddenType, before any later check."""
    with broker_parts(tmp_path, **settings) as parts:
        parts.groups.load(groups(SubscriptionGroupConfig("off", consume_enable=False)))
        parts.topics.update(TopicConfig("unread", 4, 4, perm=Permission.WRITE))
        response = parts.peer().call(pull(**fields))
        assert (response.code, response.remark) == (code, remark)
        assert response.ext_fields().get("forbiddenType") == forbidden


SQL = SubscriptionData(TOPIC, "a > 1", sub_version=1, expression_type="SQL92")
REFUSED_BY_REGISTRATION: list[tuple[SubscriptionData, MessageModel, int, int, str, str | None]] = [
    (
        subscribe("other", "*", 1),
        MessageModel.BROADCASTING,
        1,
        16,
        "the consumer group[quiet] can not consume by broadcast way",
        "4",
    ),
    (
        subscribe("other", "*", 1),
        MessageModel.CLUSTERING,
        1,
        16,
        "the consumer group[quiet] is forbidden for topic[T]",
        "5",
    ),
    (subscribe(TOPIC, "*", 5), MessageModel.CLUSTERING, 6, 25, "the consumer's subscription not latest", None),
    (SQL, MessageModel.CLUSTERING, 1, 1, "The broker does not support consumer to filter message by SQL92", None),
    (subscribe("other", "*", 1), MessageModel.CLUSTERING, 1, 24, f"the consumer's subscription not exist{FAQ}", None),
]


@pytest.mark.parametrize(("subscription", "model", "version", "code", "remark", "forbidden"), REFUSED_BY_REGISTRATION)
async def test_a_pull_without_a_subscription_is_checked_against_the_heartbeat(
    parts: BrokerParts,
    subscription: SubscriptionData,
    model: MessageModel,
    version: int,
    code: int,
    remark: str,
    forbidden: str | None,
) -> None:
    """In RocketMQ's order: broadcast, forbidden topic, missing, too old, filter."""
    quiet = SubscriptionGroupConfig("quiet", consume_broadcast_enable=False)
    forbidden_table = {"quiet": {TOPIC: 4}} if forbidden else {}
    parts.groups.load(groups(quiet, forbidden_table))
    peer = parts.peer()
    peer.call(heartbeat(consumer(subscription, group="quiet", model=model)))
    response = peer.call(pull(consumer_group="quiet", sys_flag=0, sub_version=version))
    assert (response.code, response.remark) == (code, remark)
    assert response.ext_fields().get("forbiddenType") == forbidden


def groups(group: SubscriptionGroupConfig, forbidden: dict[str, dict[str, int]] | None = None) -> bytes:
    wrapper = SubscriptionGroupWrapper(
        forbidden_table=forbidden or {}, subscription_group_table={group.group_name: group}
    )
    return wrapper.encode()


def test_an_expression_of_separators_is_invalid() -> None:
    """`||` cannot be parsed; absent, empty and `*` mean everything; additional separators are ignored."""
    with pytest.raises(RequestError) as raised:
        requested_subscription("||||", "TAG")
    assert raised.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    for everything in (None, "", "*"):
        assert requested_subscription(everything, None).matches is None
    assert requested_subscription("||a|| b", "TAG").data.tags_set == ["a", "b"]


# ----------------------------------------------------------------------------------------------------------- delivery


async def test_a_pull_returns_the_stored_records(parts: BrokerParts) -> None:
    """The body is the records as stored; the response has all offsets and flags that clients need."""
    appends = parts.put(b"one", b"two", b"three")
    response = parts.peer().call(pull(queue_offset=1))
    assert (response.code, response.remark, offsets(response)) == (0, "FOUND", (3, 0, 3))
    assert bodies(response) == [b"two", b"three"]
    assert bytes(response.body) == b"".join(parts.store.record_at(a.physical_offset) or b"" for a in appends[1:])
    assert response.ext_fields()["topicSysFlag"] == response.ext_fields()["groupSysFlag"] == "0"
    assert parts.offsets.pulled(GROUP, TOPIC, 0) == 3
    assert msgspec.structs.asdict(parts.pulls.statistics()) | {"longest_get_ms": 0} == {
        "found": 1, "missed": 0, "messages": 2, "bytes": len(response.body), "longest_get_ms": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "offset", "code", "status", "expected"),
    [
        (0, 0, 19, "NO_MESSAGE_IN_QUEUE", (0, 0, 0)),
        (0, 7, 21, "NO_MESSAGE_IN_QUEUE", (0, 0, 0)),
        (3, 3, 19, "OFFSET_OVERFLOW_ONE", (3, 0, 3)),
        (3, 4, 21, "OFFSET_OVERFLOW_BADLY", (3, 0, 3)),
        (3, -5, 21, "OFFSET_TOO_SMALL", (0, 0, 3)),
    ],
)
async def test_a_pull_without_messages_has_status_and_offsets(
    parts: BrokerParts, stored: int, offset: int, code: int, status: str, expected: tuple[int, int, int]
) -> None:
    """Each status of the store has its code, its name as remark, and all offsets; the body is empty."""
    parts.put(*[b"x"] * stored)
    response = parts.peer().call(pull(queue_offset=offset))
    assert (response.code, response.remark, offsets(response)) == (code, status, expected)
    assert not response.body


async def test_a_pull_without_a_matching_tag_returns_an_advanced_offset(parts: BrokerParts) -> None:
    """PULL_RETRY_IMMEDIATELY (20) is never parked, and never returns the requested offset."""
    parts.put(b"x", b"y", tag="A")
    response = parts.peer().call(pull(subscription="B", suspend_ms=15_000))
    assert (response.code, response.remark, offsets(response)) == (20, "NO_MATCHED_MESSAGE", (2, 0, 2))


async def test_tags_come_from_the_request_or_the_heartbeat(parts: BrokerParts) -> None:
    """A flagged subscription in the request is used; without the flag, that of the group."""
    parts.put(b"a", tag="A")
    parts.put(b"b", tag="B")
    peer = parts.peer()
    peer.call(heartbeat(consumer(subscribe(TOPIC, "A", 1))))
    assert bodies(peer.call(pull(sys_flag=0, subscription=None))) == [b"a"]
    assert bodies(peer.call(pull(sys_flag=0, subscription="B"))) == [b"a"]
    assert bodies(peer.call(pull(subscription="B"))) == [b"b"]
    assert bodies(peer.call(pull(subscription="A || B"))) == [b"a", b"b"]


async def test_a_pull_of_zero_messages_returns_one(parts: BrokerParts) -> None:
    """Go's pull consumer requests 0 by default, and gets one message."""
    parts.put(b"one", b"two")
    assert bodies(parts.peer().call(pull(max_msg_nums=0))) == [b"one"]


async def test_the_offset_of_a_flagged_pull_is_committed(parts: BrokerParts) -> None:
    """COMMIT_OFFSET commits whatever the pull finds; -1 is no offset; without the flag nothing is committed."""
    peer = parts.peer()
    peer.call(pull(commit_offset=9))
    assert parts.offsets.committed(GROUP, TOPIC, 0) is None
    peer.call(pull(commit_offset=5, sys_flag=COMMIT))
    peer.call(pull(commit_offset=-1, sys_flag=COMMIT))
    assert parts.offsets.committed(GROUP, TOPIC, 0) == 5


async def test_a_lite_pull_is_served_like_a_pull(parts: BrokerParts) -> None:
    """LITE_PULL_MESSAGE (361) gives the result of PULL_MESSAGE (11)."""
    parts.put(b"one")
    assert bodies(parts.peer().call(pull(code=RequestCode.LITE_PULL_MESSAGE))) == [b"one"]


async def test_a_pull_sees_a_put_of_the_same_iteration(parts: BrokerParts) -> None:
    """Every read writes the open batch first."""
    parts.store.put(message(b"one"))
    assert bodies(parts.peer().call(pull())) == [b"one"]


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ, MSGPACK])
async def test_the_response_has_the_dialect_of_the_request(parts: BrokerParts, dialect: int) -> None:
    """A pull with a binary header gets a binary response."""
    parts.put(b"one")
    request = pull()
    request.dialect = dialect
    response = parts.peer().call(request)
    assert (response.dialect, bodies(response), offsets(response)) == (dialect, [b"one"], (1, 0, 1))


@pytest.mark.parametrize(
    ("slave_read_enable", "ratio", "suggested"), [(False, 40, "0"), (False, 0, "0"), (True, 40, "3"), (True, 0, "2")]
)
@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ, MSGPACK])
async def test_a_consumer_that_reads_from_disk_is_sent_to_another_broker(
    tmp_path: Path, dialect: int, slave_read_enable: bool, ratio: int, suggested: str
) -> None:
    """With slaveReadEnable: brokerId, or whichBrokerWhenConsumeSlowly if the group reads from disk."""
    settings = {"slave_read_enable": slave_read_enable, "access_message_in_memory_max_ratio": ratio}
    with broker_parts(tmp_path, **settings) as parts:
        group = SubscriptionGroupConfig(GROUP, broker_id=3, which_broker_when_consume_slowly=2)
        parts.groups.load(SubscriptionGroupWrapper(subscription_group_table={GROUP: group}).encode())
        parts.put(b"one", b"two")
        request = pull(max_msg_nums=1)
        request.dialect = dialect
        assert parts.peer().call(request).ext_fields()["suggestWhichBrokerId"] == suggested


@pytest.mark.parametrize(("disk_fall_recorded", "expected"), [(True, [None, 2 * 93, 93, 93]), (False, [None] * 4)])
async def test_the_distance_to_the_end_of_the_log_is_recorded(
    tmp_path: Path, disk_fall_recorded: bool, expected: list[int | None]
) -> None:
    """Each pull that reads messages records the bytes after them, for its group and queue."""
    with broker_parts(tmp_path, disk_fall_recorded=disk_fall_recorded) as parts:
        parts.put(b"a", b"b")
        figures = [parts.pulls.fall_behind.of(GROUP, TOPIC, 0)]
        for offset in (0, 1, 2):
            parts.peer().call(pull(queue_offset=offset, max_msg_nums=1))
            figures.append(parts.pulls.fall_behind.of(GROUP, TOPIC, 0))
        assert figures == expected


def test_the_template_equals_the_general_encoder() -> None:
    """JSON heads from the template and heads of the other dialects decode to the same response."""
    result = GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 2**62, 1, 2**62)
    topic, group = TopicConfig("t", topic_sys_flag=3), SubscriptionGroupConfig("g", group_sys_flag=4)
    responses = []
    for dialect in (JSON, ROCKETMQ, MSGPACK):
        request = RemotingCommand(11, opaque=-7, dialect=dialect)
        head = pull_response_head(request, ResponseCode.PULL_NOT_FOUND, result, topic, group, suggested_broker=5)
        [frame] = FrameDecoder().feed(memoryview(head))
        response = decode_command(frame)
        assert response is not None
        responses.append(
            (
                response.code,
                response.flag,
                response.opaque,
                response.remark,
                response.version,
                response.language_code,
                response.ext_fields(),
            )
        )
    assert responses[0] == responses[1] == responses[2]


async def test_a_oneway_pull_gets_no_response(parts: BrokerParts) -> None:
    """The flag suppresses responses with messages, without, and refusals."""
    parts.put(b"one")
    peer = parts.peer()
    for request in (pull(), pull(queue_offset=1), pull(topic="none")):
        request.flag = 2
        peer.send(request)
    assert peer.received == []


# -------------------------------------------------------------------------------------------------------- long polling


async def test_a_parked_pull_is_resumed_in_the_iteration_of_the_append(parts: BrokerParts) -> None:
    """The iteration that stores the message also writes the response."""
    peer = parts.peer()
    peer.send(pull(suspend_ms=15_000))
    assert (peer.received, parts.pool.pending) == ([], 1)
    parts.put(b"one")
    [response] = peer.take()
    assert (response.code, bodies(response), offsets(response)) == (0, [b"one"], (1, 0, 1))
    assert (parts.pool.pending, parts.arrivals.statistics().parked) == (0, 0)


async def test_a_parked_pull_is_resumed_at_its_deadline(parts: BrokerParts) -> None:
    """Never before suspendTimeoutMillis, and at most a 256th of it late."""
    peer = parts.peer()
    peer.send(pull(suspend_ms=1500))
    parts.timers.advance_ms(1499)
    assert peer.take() == []
    parts.timers.advance_ms(1 + 1500 // 256 + 1)
    [response] = peer.take()
    assert (response.code, response.remark) == (19, "NO_MESSAGE_IN_QUEUE")


async def test_a_message_with_another_tag_resumes_no_pull(parts: BrokerParts) -> None:
    """The pull stays parked, and returns the advanced offset at its deadline."""
    peer = parts.peer()
    peer.send(pull(subscription="B", suspend_ms=1000))
    parts.put(b"x", tag="A")
    assert peer.take() == []
    parts.timers.advance_ms(1000)
    [response] = peer.take()
    assert (response.code, offsets(response)) == (20, (1, 0, 1))


async def test_one_matching_message_of_several_resumes_a_pull(parts: BrokerParts) -> None:
    """An iteration that stores A, then B, resumes a pull for B."""
    peer = parts.peer()
    peer.send(pull(subscription="B", suspend_ms=1000))
    for tag in "AB":
        parts.store.put(message(tag.encode(), TOPIC, 0, tag))
    parts.store.commit()
    [response] = peer.take()
    assert bodies(response) == [b"B"]


async def test_short_polling_waits_for_the_broker_s_time(tmp_path: Path) -> None:
    """With longPollingEnable=false the client's time is ignored."""
    with broker_parts(tmp_path, long_polling_enable=False, short_polling_time_mills=200) as parts:
        peer = parts.peer()
        peer.send(pull(suspend_ms=15_000))
        parts.timers.advance_ms(200)
        assert [response.code for response in peer.take()] == [19]


async def test_a_resumed_pull_is_checked_again(parts: BrokerParts) -> None:
    """A topic that was deleted meanwhile is TOPIC_NOT_EXIST (17), and the offset is not committed again."""
    peer = parts.peer()
    peer.send(pull(suspend_ms=1000, commit_offset=3, sys_flag=COMMIT))
    parts.offsets.commit(GROUP, TOPIC, 0, 8)
    parts.topics.delete(TOPIC)
    parts.timers.advance_ms(1000)
    assert [response.code for response in peer.take()] == [17]
    assert parts.offsets.committed(GROUP, TOPIC, 0) == 8


async def test_a_failure_of_a_resumed_pull_is_an_error_response(
    parts: BrokerParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception becomes the pull's SYSTEM_ERROR, and does not affect the append."""
    peer = parts.peer()
    peer.send(pull(suspend_ms=1000))

    def fail(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(parts.store, "get", fail)
    parts.put(b"one")
    assert [(response.code, response.remark) for response in peer.take()] == [(1, "RuntimeError: broken")]


async def test_a_closed_connection_removes_its_parked_pulls(parts: BrokerParts) -> None:
    """No messages are read for it, and its slots in the pool are free."""
    peer = parts.peer()
    peer.send(pull(suspend_ms=1000), pull(suspend_ms=1000, queue_id=1))
    assert parts.pool.pending == 2
    peer.disconnect()
    assert (parts.pool.pending, parts.arrivals.statistics().dropped) == (0, 2)
    parts.put(b"one")
    assert parts.pulls.statistics().found == 0


async def test_no_pull_is_parked_once_the_broker_stops(parts: BrokerParts) -> None:
    """Closing resumes parked pulls, and later ones are served at once."""
    peer = parts.peer()
    peer.send(pull(suspend_ms=1000))
    parts.arrivals.close()
    assert [response.code for response in peer.take()] == [19]
    assert peer.call(pull(suspend_ms=1000)).code == 19


async def test_a_missing_required_field_is_an_error(parts: BrokerParts) -> None:
    """A pull without its offset is SYSTEM_ERROR (1), as in RocketMQ."""
    request = pull()
    del request.ext_fields()["queueOffset"]
    assert parts.peer().call(request).code == ResponseCode.SYSTEM_ERROR
