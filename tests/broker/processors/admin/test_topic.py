"""Topics: checks, what the responses to changes wait for, and deletion."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skylarkmq.broker.processors.admin.topic import changed_attributes
from skylarkmq.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import NO_RESPONSE_REMARK, RemotingCommand
from skylarkmq.protocol.errors import RequestError
from skylarkmq.protocol.headers.topic import CreateTopicHeader, TopicHeader
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, broker_parts
from tests.harness.peer import Peer


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[BrokerParts]:
    with broker_parts(tmp_path) as it:
        yield it


def update(**fields: Any) -> RemotingCommand:
    header = CreateTopicHeader("N", "TBW102", 3, 2, 6, "SINGLE_TAG", 0, "false")
    return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, msgspec.structs.replace(header, **fields))


def delete(topic: str) -> RemotingCommand:
    return RemotingCommand.request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic))


async def call_and_wait(admin: BrokerParts, peer: Peer, request: RemotingCommand) -> RemotingCommand:
    """Return the response to a request that has to wait."""
    peer.send(request)
    return await finished(admin, peer)


async def finished(admin: BrokerParts, peer: Peer) -> RemotingCommand:
    """Return the response to the only pending request."""
    await asyncio.gather(*admin.dispatcher._tasks)
    [response] = peer.take()
    return response


async def test_a_topic_is_saved_and_announced_before_the_response(admin: BrokerParts) -> None:
    """The response waits for the disk, then for the name servers."""
    admin.disk.clear()
    peer = admin.peer()
    peer.send(update(order="true", attributes="+message.type=FIFO", topic_sys_flag=None))
    await asyncio.sleep(0)
    assert (peer.take(), admin.waits) == ([], [])
    expected = TopicConfig("N", 3, 2, 6, order=True, attributes={"message.type": "FIFO"})
    assert admin.topics.find("N") == expected
    admin.disk.set()
    response = await finished(admin, peer)
    assert (response.code, response.remark, admin.waits) == (0, NO_RESPONSE_REMARK, ["topics", "announced"])


async def test_a_request_that_changes_nothing_is_served_at_once(admin: BrokerParts) -> None:
    """An identical configuration waits for nothing and does not change the version."""
    peer = admin.peer()
    await call_and_wait(admin, peer, update())
    version = admin.topics.version
    admin.waits.clear()
    assert peer.call(update()).code == 0
    assert (admin.topics.version, admin.waits) == (version, [])


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic_filter_type": None, "topic": "#"}, 1, "topicFilterType = [null] value invalid"),
        ({"topic_filter_type": "ANY", "topic": "#"}, 1, "topicFilterType = [ANY] value invalid"),
        ({"topic": " "}, 29, "The specified topic is blank."),
        (
            {"topic": "a b"},
            29,
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ({"topic": "x" * 128}, 29, "The specified topic is longer than topic max length."),
        ({"topic": "%RETRY%"}, 29, "The specified group is blank."),
        ({"topic": "%DLQ%"}, 29, "The specified group is blank."),
        ({"topic": "rmq_sys_x"}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"topic": "TBW102"}, 29, "The topic[TBW102] is conflict with system topic."),
        ({"topic": "C"}, 29, "The topic[C] is conflict with system topic."),
        ({"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ({"attributes": "+queue.type=BatchCQ"}, 1, "unsupported key: queue.type"),
        ({"attributes": "+retention.bytes=0"}, 1, f"value of retention.bytes is not in range(1, {2**63 - 1})"),
        ({"attributes": f"+retention.bytes={2**63}"}, 1, f"value of retention.bytes is not in range(1, {2**63 - 1})"),
        ({"attributes": "+retention.bytes=1k"}, 1, f"value of retention.bytes is not in range(1, {2**63 - 1})"),
    ],
)
async def test_an_invalid_topic_is_refused(admin: BrokerParts, fields: dict[str, Any], code: int, remark: str) -> None:
    """In RocketMQ's order, with its codes and remarks; nothing changes."""
    before = admin.topics.version
    response = admin.peer().call(update(**fields))
    assert (response.code, response.remark) == (code, remark)
    assert admin.topics.version == before


def test_attributes_change_one_by_one() -> None:
    """`+` sets, `-` removes, other attributes stay; other signs and names are refused."""
    assert changed_attributes({}, None) == changed_attributes({}, "") == {}
    assert changed_attributes({"message.type": "FIFO"}, None) == {"message.type": "FIFO"}
    assert changed_attributes({}, "+message.type=DELAY, +message.type=FIFO") == {"message.type": "FIFO"}
    assert changed_attributes({}, f"+retention.bytes={2**63 - 1}") == {"retention.bytes": str(2**63 - 1)}
    assert changed_attributes({"retention.bytes": "7"}, "+message.type=FIFO,-retention.bytes") == {
        "message.type": "FIFO"
    }
    assert changed_attributes({"message.type": "FIFO"}, "-message.type") == {}
    for wrong in ("message.type=FIFO", "+message.type=ANY", "+message.type"):
        with pytest.raises(RequestError):
            changed_attributes({}, wrong)


async def test_a_deleted_topic_loses_its_queues_and_offsets(admin: BrokerParts) -> None:
    """Created again, it starts at offset 0; other topics keep everything."""
    peer = admin.peer()
    admin.topics.update(TopicConfig("N", 4, 4))
    for topic in ("N", TOPIC):
        admin.put(b"one", b"two", topic=topic)
        admin.offsets.commit(GROUP, topic, 0, 2)
    response = await call_and_wait(admin, peer, delete("N"))
    assert (response.code, response.remark, admin.waits) == (0, None, ["topics"])
    assert admin.topics.find("N") is None
    assert admin.offsets.committed(GROUP, "N", 0) is None
    assert admin.offsets.committed(GROUP, TOPIC, 0) == 2
    [append] = admin.put(b"new", topic="N")
    assert append.queue_offset == 0
    assert admin.store.max_offset(TOPIC, 0) == 2


@pytest.mark.parametrize(
    ("topic", "remark"),
    [("", "The specified topic is blank."), ("TBW102", "The topic[TBW102] is conflict with system topic.")],
)
async def test_a_system_topic_cannot_be_deleted(admin: BrokerParts, topic: str, remark: str) -> None:
    """Blank names are refused, too."""
    response = admin.peer().call(delete(topic))
    assert (response.code, response.remark) == (29, remark)


async def test_deleting_an_unknown_topic_succeeds(admin: BrokerParts) -> None:
    """It leaves no trace."""
    response = await call_and_wait(admin, admin.peer(), delete("unknown"))
    assert (response.code, response.remark, admin.waits) == (0, None, [])
    assert admin.store.deleted.ends == {}


async def test_all_topics_are_listed(admin: BrokerParts) -> None:
    """GET_ALL_TOPIC_CONFIG (21) returns the table and its version."""
    response = admin.peer().call(RemotingCommand.request(RequestCode.GET_ALL_TOPIC_CONFIG))
    wrapper = TopicConfigSerializeWrapper.decode(response.body)
    assert wrapper.data_version == admin.topics.version
    assert wrapper.topic_config_table == {topic.topic_name: topic for topic in admin.topics}


def update_all(*topics: dict[str, Any]) -> RemotingCommand:
    body = msgspec.json.encode({"topicConfigList": topics})
    return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


async def test_a_list_of_topics_is_created_in_one_request(admin: BrokerParts) -> None:
    """Each as by a request of its own; all are saved and announced once."""
    first = {"topicName": "A", "readQueueNums": 2, "writeQueueNums": 3, "attributes": {"+message.type": "FIFO"}}
    second = {"topicName": "B", "perm": 4, "order": True, "attributes": {"message.type": "DELAY"}}
    response = await call_and_wait(admin, admin.peer(), update_all(first, second))
    assert (response.code, response.remark) == (0, NO_RESPONSE_REMARK)
    made = [admin.topics.find(name) for name in "AB"]
    assert made == [
        TopicConfig("A", 2, 3, attributes={"message.type": "FIFO"}),
        TopicConfig("B", perm=4, order=True, attributes={"message.type": "DELAY"}),
    ]
    assert admin.waits == ["topics", "announced"]
    assert admin.peer().call(update_all(second)).code == 0


async def test_a_list_with_an_invalid_topic_creates_none(admin: BrokerParts) -> None:
    """RocketMQ creates the topics before it."""
    response = admin.peer().call(update_all({"topicName": "A"}, {"topicName": "no name"}))
    assert response.code != 0
    assert admin.topics.find("A") is None


async def test_one_topic_is_returned(admin: BrokerParts) -> None:
    """GET_TOPIC_CONFIG (351): its configuration; TOPIC_NOT_EXIST (17) if there is none."""
    response = admin.peer().call(RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader(TOPIC)))
    assert TopicConfig.decode(response.body) == admin.topics.find(TOPIC)
    missing = admin.peer().call(RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader("none")))
    assert (missing.code, missing.remark) == (17, "No topic in this broker. topic: none")


async def test_system_topics_are_listed(admin: BrokerParts) -> None:
    """GET_SYSTEM_TOPIC_LIST_FROM_BROKER (305): all reserved names, and the broker's own topics; no others."""
    response = admin.peer().call(RemotingCommand.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))
    names = set(msgspec.json.decode(response.body)["topicList"])
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "C", "b", "C_REPLY_TOPIC"} <= names
    assert TOPIC not in names
