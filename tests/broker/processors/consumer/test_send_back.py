"""CONSUMER_SEND_MSG_BACK (36): where messages are stored, their content, and every reason to refuse one."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.processors.send.checks import SendConfig
from skylarkmq.broker.store.log.append import Append, PutStatus
from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode, ResponseCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.decimals import INT32_MAX
from skylarkmq.protocol.headers.send_back import SendBackHeader
from skylarkmq.protocol.message import MessageExt, encode_properties
from skylarkmq.protocol.record import decode
from tests.harness.broker_parts import GROUP, TOPIC
from tests.harness.copies import TestCopies
from tests.harness.golden import responses, transcripts
from tests.harness.sending_parts import SendingParts
from tests.harness.stores import message

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


class SendBacks(SendingParts):
    """Parts of a broker with requests that send messages back."""

    async def send_back(self, original: Append | int, level: int = 0, **fields: Any) -> RemotingCommand:
        offset = original if isinstance(original, int) else original.physical_offset
        version = fields.pop("version", 479)
        header = msgspec.structs.replace(SendBackHeader(offset, GROUP, level), **fields)
        command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        command.version = version
        return await self.peer().call_and_wait(command)

    def original(self, tried: int = 0, properties: dict[str, str] | None = None, **fields: Any) -> Append:
        """Store a message."""
        encoded = encode_properties({"KEYS": "k", "TAGS": "a"} if properties is None else properties).encode()
        append = message(b"body", TOPIC, 1, properties=encoded, reconsume_times=tried, **fields)
        self.store.put(append)
        self.store.commit()
        return append

    def stored(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        end = self.store.max_offset(topic, queue_id) or 0
        units = list[tuple[int, int, int]]()
        while len(units) < end:  # a call returns those of one segment
            units += self.store.units(topic, queue_id, len(units), end - len(units))
        records = [self.store.record_at(offset) for offset, _, _ in units]
        return [found for record in records if record is not None for found in decode(record)]


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[SendBacks]:
    it = SendBacks(tmp_path)
    yield it
    it.store.close()


async def test_a_message_is_retried_after_a_delay(parts: SendBacks) -> None:
    """It is stored in the queue of level 3, for its group's retry topic, and has its origin as properties."""
    original = parts.original(flag=7)
    response = await parts.send_back(original)
    assert (response.code, response.remark, response.ext_fields(), bytes(response.body)) == (0, None, {}, b"")
    assert parts.topics.find("%RETRY%G") == TopicConfig("%RETRY%G", 1, 1, perm=6)
    [first] = decode(parts.store.record_at(original.physical_offset) or b"")
    [retry] = parts.stored(SCHEDULE, 2)
    assert (retry.body, retry.flag, retry.reconsume_times) == (b"body", 7, 1)
    assert (retry.born_timestamp, retry.born_host) == (first.born_timestamp, first.born_host)
    assert retry.properties == {
        "KEYS": "k",
        "TAGS": "a",
        "RETRY_TOPIC": TOPIC,
        "ORIGIN_MESSAGE_ID": first.offset_msg_id,
        "WAIT": "false",
        "DELAY": "3",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
    }


@pytest.mark.parametrize(("tried", "level", "queue_id"), [(1, 0, 3), (15, 0, 17), (0, 1, 0), (5, 30, 17)])
async def test_the_delay_grows_unless_the_consumer_sets_it(
    parts: SendBacks, tried: int, level: int, queue_id: int
) -> None:
    """Level 3 plus one per attempt, or the requested level; at most the last level."""
    assert (await parts.send_back(parts.original(tried), level)).code == 0
    assert [m.reconsume_times for m in parts.stored(SCHEDULE, queue_id)] == [tried + 1]


async def test_a_message_keeps_its_first_origin(parts: SendBacks) -> None:
    """Topic and first record are those of the first attempt; its previous destination is removed."""
    known = {"RETRY_TOPIC": "First", "ORIGIN_MESSAGE_ID": "ID", "REAL_TOPIC": "%RETRY%X", "REAL_QID": "9", "DELAY": "3"}
    await parts.send_back(parts.original(1, known))
    [retry] = parts.stored(SCHEDULE, 3)
    expected = known | {"WAIT": "false", "DELAY": "4", "REAL_TOPIC": "%RETRY%G", "REAL_QID": "0"}
    assert retry.properties == expected
    assert parts.derived.send_backs.sent_back.table()["First"][GROUP].messages == 1


@pytest.mark.parametrize(
    ("tried", "level", "fields", "is_dead"),
    [
        (15, 0, {}, False),
        (16, 0, {}, True),
        (0, -1, {}, True),
        (2, 0, {"max_reconsume_times": 2}, True),
        (2, 0, {"max_reconsume_times": 3}, False),
        (16, 0, {"max_reconsume_times": 30}, False),
        (16, 0, {"max_reconsume_times": 30, "version": 120}, True),
        (3, 5, {"max_reconsume_times": 3}, True),
        (INT32_MAX, 0, {}, True),
    ],
)
async def test_a_message_at_the_retry_limit_is_a_dead_letter(
    parts: SendBacks, tried: int, level: int, fields: dict[str, Any], *, is_dead: bool
) -> None:
    """By the client's limit if its version has one, else by the group's; or if the consumer requests it."""
    assert (await parts.send_back(parts.original(tried), level, **fields)).code == 0
    dead = parts.stored("%DLQ%G")
    owed = [(min(tried + 1, INT32_MAX), "0")] if is_dead else []
    assert [(m.reconsume_times, m.properties["DELAY"]) for m in dead] == owed
    assert parts.derived.send_backs.statistics().dead_letters == is_dead
    assert (parts.topics.find("%DLQ%G") == TopicConfig("%DLQ%G", 1, 1, perm=6)) is is_dead


async def test_a_group_has_its_own_retry_limit(parts: SendBacks) -> None:
    """retryMaxTimes; 0 means no retry."""
    group = parts.groups.find_or_create(GROUP)
    assert group is not None
    group.retry_max_times = 0
    await parts.send_back(parts.original())
    assert len(parts.stored("%DLQ%G")) == 1


async def test_a_dead_letter_is_not_deferred(parts: SendBacks) -> None:
    """Whatever delays and timers the message had."""
    properties = {"DELAY": "5", "TIMER_DELIVER_MS": "1", "TRAN_MSG": "true"}
    await parts.send_back(parts.original(0, properties), -1)
    assert len(parts.stored("%DLQ%G")) == 1


async def test_a_group_without_retries_gets_success(parts: SendBacks) -> None:
    """Without retry queues nothing is stored."""
    group = parts.groups.find_or_create(GROUP)
    assert group is not None
    group.retry_queue_nums = 0
    original = parts.original()
    end = parts.store.max_physical_offset
    assert (await parts.send_back(original)).code == 0
    assert parts.store.max_physical_offset == end
    assert parts.topics.find("%RETRY%G") is None


async def test_retries_are_spread_over_the_retry_queues(parts: SendBacks) -> None:
    """Over all queues of the retry topic."""
    parts.topics.create_for_group("%RETRY%G", 3)
    for _ in range(60):
        assert (await parts.send_back(parts.original(), 1)).code == 0
    assert len(parts.stored(SCHEDULE, 0)) == 60
    assert {m.properties["REAL_QID"] for m in parts.stored(SCHEDULE, 0)} == {"0", "1", "2"}


async def test_the_retry_topic_in_unit_mode_is_marked(parts: SendBacks) -> None:
    """As by heartbeats."""
    await parts.send_back(parts.original(), unit_mode="true")
    topic = parts.topics.find("%RETRY%G")
    assert topic is not None
    assert topic.topic_sys_flag == 2


async def test_an_unknown_group_is_refused_without_automatic_creation(tmp_path: Path) -> None:
    """SUBSCRIPTION_GROUP_NOT_EXIST (26)."""
    parts = SendBacks(tmp_path, auto_create_subscription_group=False)
    response = await parts.send_back(parts.original())
    assert (response.code, response.remark) == (26, f"subscription group not exist, G {FAQ}")
    parts.store.close()


async def test_a_read_only_broker_refuses(tmp_path: Path) -> None:
    """NO_PERMISSION (16), as for sends, until the setting changes."""
    parts = SendBacks(tmp_path, broker_permission=4)
    original = parts.original()
    response = await parts.send_back(original)
    assert (response.code, response.remark) == (16, "the broker[10.0.0.1] sending message is forbidden")
    parts.derived.send_backs.configure(SendConfig(broker_ip="10.0.0.1"))
    assert (await parts.send_back(original)).code == 0
    parts.store.close()


async def test_a_read_only_retry_topic_refuses(parts: SendBacks) -> None:
    """NO_PERMISSION (16) with the topic's name."""
    parts.topics.update(TopicConfig("%RETRY%G", 1, 1, perm=4))
    response = await parts.send_back(parts.original())
    assert (response.code, response.remark) == (16, "the topic[%RETRY%G] sending message is forbidden")


@pytest.mark.parametrize("offset", [-1, 1, 1 << 40])
async def test_an_offset_without_a_message_is_refused(parts: SendBacks, offset: int) -> None:
    """SYSTEM_ERROR (1) with the offset."""
    parts.original()
    response = await parts.send_back(offset)
    assert (response.code, response.remark) == (1, f"look message by offset failed, {offset}")


async def test_no_request_waits_for_a_copy(parts: SendBacks) -> None:
    """The stored message has WAIT=false, as in RocketMQ."""
    original, copies = parts.original(), TestCopies()
    parts.store.flush.replicate(copies)
    for copies.refusal in (None, PutStatus.SLAVE_NOT_AVAILABLE):
        assert (await parts.send_back(original)).code == ResponseCode.SUCCESS


async def test_a_failed_put_is_an_error(tmp_path: Path) -> None:
    """SYSTEM_ERROR (1) with the status: the consumer then sends the message itself."""
    parts = SendBacks(tmp_path, levels=())
    response = await parts.send_back(parts.original())
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, PutStatus.MESSAGE_ILLEGAL.name)
    assert parts.derived.send_backs.statistics().retries == 0
    parts.store.close()


async def test_messages_sent_back_are_counted(parts: SendBacks) -> None:
    """By original topic and group; retries also count as delayed messages."""
    for level in (0, 1, -1):
        await parts.send_back(parts.original(), level)
    assert parts.derived.send_backs.sent_back.table()[TOPIC][GROUP].messages == 3
    assert repr(parts.derived.send_backs) == "<SendBackProcessor retries=2 dead_letters=1>"
    assert parts.store.traffic()[SCHEDULE].by_message_type()["delay"].count == 2


async def test_a_message_of_javas_client_equals_that_of_a_real_broker(parts: SendBacks) -> None:
    """The captured request and response, and the properties of the delivered retry."""
    frames = [frame for frame in transcripts() if "dead letters" in frame.scenario]
    pulled = [found for frame in frames if "PULL_MESSAGE response" in frame.name for found in decode(frame.body)]
    first = next(found for found in pulled if found.topic == "WireTopic")
    expected = next(found for found in pulled if found.topic.startswith("%RETRY%"))
    asked = next(frame for frame in frames if frame.header["code"] == 36 and not frame.header["flag"] & 1)
    parts.groups.find_or_create("wire-retry")
    append = message(b"poison", "WireTopic", properties=encode_properties(first.properties).encode())
    parts.store.put(append)
    parts.store.commit()
    command = RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK)
    command.ext = asked.header["extFields"] | {"offset": str(append.physical_offset)}
    response = await parts.peer().call_and_wait(command)
    golden = msgspec.json.decode(responses()["send back"]["rawHeader"])
    assert (response.code, response.remark) == (golden["code"], golden.get("remark"))
    [retry] = parts.stored(SCHEDULE, 2)
    unlike = {"ORIGIN_MESSAGE_ID"}
    assert retry.properties.keys() == expected.properties.keys()
    assert {name: retry.properties[name] for name in retry.properties.keys() - unlike} == {
        name: expected.properties[name] for name in expected.properties.keys() - unlike
    }


@pytest.mark.parametrize(
    ("topic", "queue_id", "sys_flag"),
    [
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0),
        (SCHEDULE, 3, 0),
        ("rmq_sys_wheel_timer", 0, 0),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 0),
        ("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0),
        (TOPIC, 1, 4),
        (TOPIC, 1, 12),
    ],
)
async def test_a_message_that_no_consumer_received_is_refused(
    parts: SendBacks, topic: str, queue_id: int, sys_flag: int
) -> None:
    """A half message would be delivered uncommitted, and a deferred one too early: the response says that there is
    none."""
    properties = encode_properties({"REAL_TOPIC": TOPIC, "REAL_QID": "1", "TRAN_MSG": "true", "PGROUP": "PG"}).encode()
    half = message(b"half", topic, queue_id, properties=properties, sys_flag=sys_flag)
    parts.store.put(half)
    parts.store.commit()
    assert half.status is PutStatus.PUT_OK
    for level in (0, -1):
        response = await parts.send_back(half, level)
        remark = f"look message by offset failed, {half.physical_offset}"
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    ours = {SCHEDULE: [3]} if topic == SCHEDULE else {}
    assert {name: parts.store.queues.ids_of(name) for name in (SCHEDULE, "%RETRY%G", "%DLQ%G")} == {
        SCHEDULE: ours.get(SCHEDULE, []),
        "%RETRY%G": [],
        "%DLQ%G": [],
    }


@pytest.mark.parametrize("group", ["g/../..", "a\nb", "g" * 250])
async def test_a_group_with_an_invalid_retry_topic_is_refused(parts: SendBacks, group: str) -> None:
    """A group that an older version, or RocketMQ, created by UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200)."""
    parts.groups.update(SubscriptionGroupConfig(group))
    response = await parts.send_back(parts.original(), group=group)
    assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, f"topic[%RETRY%{group}] not exist")
    assert parts.topics.find(f"%RETRY%{group}") is None
