"""Operators' requests that the broker forwards to clients, and the response if a client does not respond."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skylarkmq.broker.access.requests.resources import Action
from skylarkmq.broker.processors.admin import client_relays
from skylarkmq.protocol import javajson
from skylarkmq.protocol.bodies.client_state import ConsumerStatus
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.bodies.topic import TopicConfig
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import (
    ConsumeDirectlyHeader,
    ConsumerRunningInfoHeader,
    ConsumerStatusHeader,
)
from skylarkmq.protocol.message_id import encode_host, encode_offset_id
from tests.harness.broker_parts import GROUP, TOPIC, BrokerParts, consumer, heartbeat
from tests.harness.cold_files import ColdFiles
from tests.harness.peer import Peer
from tests.harness.some_rights import SomeRights

INFO = b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{}}}'
QUEUE = MessageQueue(TOPIC, "b", 0)


class Relaying(BrokerParts):
    """Parts with members of a group."""

    def member(self, client_id: str = "c1", version: int = 479) -> Peer:
        """Return a consuming client."""
        peer = self.peer(1000 + len(self.selector.registry.connections))
        beat = heartbeat(consumer(), client_id=client_id)
        beat.version = version
        peer.send(beat)
        peer.received.clear()
        return peer


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Relaying]:
    it = Relaying(tmp_path)
    yield it
    it.store.close()


def running_info(client_id: str = "c1", group: str = GROUP) -> RemotingCommand:
    header = ConsumerRunningInfoHeader(group, client_id, jstack_enable="true")
    return RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)


def consume_directly(msg_id: str | None, topic: str | None = TOPIC) -> RemotingCommand:
    header = ConsumeDirectlyHeader(GROUP, "c1", msg_id, topic=topic)
    return RemotingCommand.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)


def status(client: str | None = None, group: str = GROUP) -> RemotingCommand:
    header = ConsumerStatusHeader(TOPIC, group, client)
    return RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)


async def code_and_remark(peer: Peer, request: RemotingCommand) -> tuple[int, str | None]:
    response = await peer.call_and_wait(request)
    return response.code, response.remark


async def relayed(operator: Peer, request: RemotingCommand, member: Peer, response: RemotingCommand) -> RemotingCommand:
    """Return the request that the member received, after it has responded."""
    operator.send(request)
    asked = await member.next_request()
    member.respond(asked, response)
    return asked


async def response_of(parts: Relaying, operator: Peer) -> RemotingCommand:
    await _finished(parts)
    [response] = operator.take()
    return response


async def _finished(parts: Relaying) -> None:
    while parts.dispatcher.waiting:
        await next(iter(parts.dispatcher._tasks))


async def test_running_info_is_forwarded_and_the_response_returned(parts: Relaying) -> None:
    """GET_CONSUMER_RUNNING_INFO (307) keeps its ext fields; code, remark and body are the client's, whatever the body
    is."""
    member, operator = parts.member(), parts.peer()
    response = RemotingCommand.response(0, "not set any response code", body=INFO)
    asked = await relayed(operator, running_info(), member, response)
    assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
    assert asked.ext_fields() == {"consumerGroup": GROUP, "clientId": "c1", "jstackEnable": "true"}
    result = await response_of(parts, operator)
    assert (result.code, result.remark, result.body) == (0, "not set any response code", INFO)


async def test_an_error_of_the_client_is_returned(parts: Relaying) -> None:
    """The client responds that it does not have the group."""
    member, operator = parts.member(), parts.peer()
    await relayed(operator, running_info(), member, RemotingCommand.response(1, "The Consumer Group <G> not exist"))
    response = await response_of(parts, operator)
    assert (response.code, response.remark) == (1, "The Consumer Group <G> not exist")


async def test_consume_directly_sends_the_message_to_the_client(parts: Relaying) -> None:
    """CONSUME_MESSAGE_DIRECTLY (309): the record at the offset id is the body; ext fields have broker, topic and group
    flags."""
    parts.topics.update(TopicConfig(TOPIC, 4, 4, topic_sys_flag=2))
    [append] = parts.put(b"now")
    member, operator = parts.member(), parts.peer()
    place = encode_offset_id(encode_host("127.0.0.1", 10911), append.physical_offset)
    asked = await relayed(operator, consume_directly(place), member, RemotingCommand.response(body=b"{}"))
    assert asked.body == parts.store.record_at(append.physical_offset)
    assert asked.ext_fields() == {
        "consumerGroup": GROUP, "clientId": "c1", "msgId": place, "topic": TOPIC,
        "brokerName": "b", "topicSysFlag": "2", "groupSysFlag": "0",
    }  # fmt: skip
    assert (await response_of(parts, operator)).body == b"{}"


async def test_consume_directly_waits_for_a_cold_message(parts: Relaying, tmp_path: Path) -> None:
    """The client receives it after the read."""
    [append] = parts.put(b"cold")
    parts.store.reader._log_reads._hot_tail_bytes = 0
    parts.store.reader.start(asyncio.get_running_loop())
    member, operator = parts.member(), parts.peer()
    place = encode_offset_id(encode_host("127.0.0.1", 10911), append.physical_offset)
    with ColdFiles() as cold:
        cold.freeze(*(path for path in tmp_path.glob("commitlog/*") if path.is_file()))
        asked = await relayed(operator, consume_directly(place), member, RemotingCommand.response(body=b"{}"))
        assert {in_loop for _, in_loop in cold.waits} == {False}
    assert b"cold" in bytes(asked.body)
    assert (await response_of(parts, operator)).code == 0


@pytest.mark.parametrize(
    ("topic", "action", "is_permitted"),
    [(TOPIC, Action.SUB, True), (TOPIC, Action.PUB, False), ("Other", Action.SUB, False)],
)
async def test_consume_directly_needs_the_right_to_the_topic_of_the_message(
    tmp_path: Path, topic: str, action: Action, is_permitted: bool
) -> None:
    """SUB on the topic that the message is stored in, whatever topic the request names. Without it the message is
    absent for the caller."""
    parts = Relaying(tmp_path, rights=SomeRights((topic, action)))
    [append] = parts.put(b"now")
    member, operator = parts.member(), parts.peer()
    place = encode_offset_id(encode_host("127.0.0.1", 10911), append.physical_offset)
    request = consume_directly(place, topic="Other")
    if is_permitted:
        asked = await relayed(operator, request, member, RemotingCommand.response(body=b"{}"))
        assert b"now" in bytes(asked.body)
    else:
        assert await code_and_remark(operator, request) == (1, f"can not find message by the id, {place}")
        assert member.received == []
    parts.store.close()


@pytest.mark.parametrize("place", [None, "nothing", "7F00000100002A9F00000000000FFFFF"])
async def test_consume_directly_fails_without_a_message(parts: Relaying, place: str | None) -> None:
    """No id, no valid offset id, or no record at that offset: SYSTEM_ERROR (1), and the client receives nothing."""
    parts.member()
    code, _ = await code_and_remark(parts.peer(), consume_directly(place))
    assert (code, parts.calls.statistics().answered) == (1, 0)


async def test_a_missing_or_old_client_is_an_error(parts: Relaying) -> None:
    """No client with that id, or one with a version before these requests: SYSTEM_ERROR (1) with the client's id."""
    parts.member("old", version=61)
    operator = parts.peer()
    assert await code_and_remark(operator, running_info("c9")) == (1, f"The Consumer <{GROUP}> <c9> not online")
    assert await code_and_remark(operator, running_info(group="g9")) == (1, "The Consumer <g9> <c1> not online")
    too_low = "The Consumer <old> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT"
    assert await code_and_remark(operator, running_info("old")) == (1, too_low)


async def test_a_client_without_a_response_is_an_error(parts: Relaying, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout is CONSUME_MSG_TIMEOUT (207), a lost connection SYSTEM_ERROR (1); no call stays pending."""
    member, operator = parts.member(), parts.peer()
    operator.send(running_info())
    await member.next_request()
    member.disconnect()
    gone = await response_of(parts, operator)
    assert (gone.code, gone.remark) == (
        1, f"invoke consumer <{GROUP}> <c1> Exception: connection to {member.connection.peer} lost: closed",
    )  # fmt: skip
    member = parts.member()
    monkeypatch.setattr(client_relays, "RELAY_TIMEOUT_S", 0)
    silent = f"consumer <{GROUP}> <c1> Timeout: no response from {member.connection.peer} within 0 ms"
    assert await code_and_remark(operator, running_info()) == (207, silent)
    assert (parts.calls.statistics().waiting, parts.pool.pending) == (0, 0)


async def test_the_latest_client_with_an_id_receives_the_request(parts: Relaying) -> None:
    """The other one is a stale connection that was never closed."""
    before, now, operator = parts.member(), parts.member(), parts.peer()
    asked = await relayed(operator, running_info(), now, RemotingCommand.response())
    assert (asked.code, before.connection.calls) == (RequestCode.GET_CONSUMER_RUNNING_INFO, 0)


async def test_the_status_of_all_members_is_collected(parts: Relaying, monkeypatch: pytest.MonkeyPatch) -> None:
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223) sends 221 to all members at once; a failed member is left out, or is
    empty."""
    members = [parts.member(client_id) for client_id in ("c1", "c2", "c3")]
    operator = parts.peer()
    operator.send(status())
    said = (b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:7}}', None, b"nothing")
    for member, body in zip(members, said, strict=True):
        asked = await member.next_request()
        assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        assert asked.ext_fields() == {"topic": TOPIC, "group": GROUP}
        member.respond(asked, RemotingCommand.response(0 if body else 1, body=body or b""))
    response = await response_of(parts, operator)
    table = javajson.loads(response.body, object_key=MessageQueue.of)["consumerTable"]
    assert (response.code, table) == (0, {"c1": {QUEUE: 7}, "c3": {}})
    monkeypatch.setattr(client_relays, "STATUS_TIMEOUT_S", 0)
    response = await operator.call_and_wait(status())
    assert ConsumerStatus.decode(response.body).consumer_table == {}


async def test_a_large_group_is_queried_in_slices(parts: Relaying) -> None:
    """All members are queried, and other work runs in between; a member that does not read delays no other response."""
    members = [parts.member(f"c{number}") for number in range(50)]
    members[7].connection.paused = True
    operator = parts.peer()
    operator.send(status())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert 0 < parts.calls.statistics().waiting < len(members) - 1
    for member in members[:7] + members[8:]:
        member.respond(await member.next_request(), RemotingCommand.response(body=b"{}"))
    response = await response_of(parts, operator)
    assert len(ConsumerStatus.decode(response.body).consumer_table) == len(members) - 1


async def test_the_status_of_one_member(parts: Relaying) -> None:
    """The other members receive no request; an unknown client id is no error."""
    one, other, operator = parts.member("c1"), parts.member("c2"), parts.peer()
    asked = await relayed(operator, status("c2"), other, RemotingCommand.response(body=b'{"messageQueueTable":{}}'))
    assert asked.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    assert one.connection.calls == 0
    await response_of(parts, operator)
    assert (await operator.call_and_wait(status("c9"))).code == 0


async def test_the_status_of_no_member_is_an_error(parts: Relaying) -> None:
    """A group without members, and members with a version before the request: SYSTEM_ERROR (1)."""
    operator = parts.peer()
    assert await code_and_remark(operator, status()) == (1, f"No Any Consumer online in the consumer group: [{GROUP}]")
    parts.member("old", version=27)
    assert await code_and_remark(operator, status()) == (1, "the client does not support this feature. version=V3_0_6")
