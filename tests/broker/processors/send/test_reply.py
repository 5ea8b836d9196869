"""Request-reply: a reply is pushed to the requester and stored; the response reports the result of the push."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skylarkmq.broker.delivery.calls import request_reply as delivery_replies
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.client_calls import PushReplyHeader
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.message import decode_properties
from skylarkmq.protocol.message_id import decode_offset_id
from skylarkmq.protocol.record import Record, parse
from tests.harness.broker_parts import heartbeat
from tests.harness.peer import Peer
from tests.harness.sending_parts import SendingParts

REPLY_TOPIC = "C_REPLY_TOPIC"
PROPERTIES = "CORRELATION_ID\x01c-1\x02REPLY_TO_CLIENT\x01asker\x02TTL\x013000\x02MSG_TYPE\x01reply\x02"


class Replying(SendingParts):
    """Parts of a broker with clients that request and reply."""

    def asker(self) -> Peer:
        """Return a producer that waits for replies."""
        peer = self.peer(1)
        peer.send(heartbeat(client_id="asker", producers=("PG",)))
        return peer

    async def answer_to(self, replier: Peer) -> RemotingCommand:
        while self.dispatcher.waiting:
            await next(iter(self.dispatcher._tasks))
        [response] = replier.take()
        return response

    def stored(self) -> list[Record]:
        result = self.store.get(REPLY_TOPIC, 0, 0, 32)
        found = [self.store.record_at(unit[0]) for unit in self.store.units(REPLY_TOPIC, 0, 0, result.message_count)]
        records = [parse(memoryview(record), 0) for record in found if record is not None]
        return [record for record in records if isinstance(record, Record)]


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Replying]:
    it = Replying(tmp_path)
    yield it
    it.store.close()


def reply(code: int = RequestCode.SEND_REPLY_MESSAGE_V2, body: bytes = b"pong", **fields: Any) -> RemotingCommand:
    kind = SendMessageV2Header if code == RequestCode.SEND_REPLY_MESSAGE_V2 else SendMessageHeader
    values: dict[str, Any] = {
        "producer_group": "RG", "topic": REPLY_TOPIC, "default_topic": "TBW102", "default_topic_queue_nums": 4,
        "queue_id": 0, "sys_flag": 0, "born_timestamp": 77, "flag": 5, "properties": PROPERTIES,
    }  # fmt: skip
    return RemotingCommand.request(code, kind(**(values | fields)), body)


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_is_pushed_to_the_requester(parts: Replying, code: int) -> None:
    """In both header forms: pushed with the sender's properties and the time; then stored, then confirmed."""
    asker, replier = parts.asker(), parts.peer(2)
    replier.send(reply(code))
    pushed = await asker.next_request()
    header = pushed.header(PushReplyHeader)
    assert (pushed.code, pushed.body, header.topic, header.producer_group) == (326, b"pong", REPLY_TOPIC, "RG")
    assert (header.born_host, header.store_host) == ("127.0.0.9:2", "10.0.0.1:10911")
    assert (header.born_timestamp, header.store_timestamp, header.flag) == (77, parts.clock.now_ms, 5)
    expected = decode_properties(PROPERTIES) | {"PUSH_REPLY_TIME": str(parts.clock.now_ms)}
    assert decode_properties(header.properties or "") == expected
    assert replier.take() == []
    asker.respond(pushed, RemotingCommand.response())
    response = await parts.answer_to(replier)
    [record] = parts.stored()
    assert (response.code, response.remark) == (0, None)
    ext = response.ext_fields()
    assert decode_offset_id(ext.pop("msgId")) == ("10.0.0.1", 10911, record.physical_offset)
    assert ext == {"queueId": "0", "queueOffset": "0", "MSG_REGION": "R", "TRACE_ON": "true"}
    assert bytes(record.body) == b"pong"
    assert decode_properties(bytes(record.properties).decode()) == expected | {"UNIQ_KEY": "MADE", "CLUSTER": "C"}
    assert parts.derived.replies.statistics() == (type(parts.derived.replies.statistics())(1, 0))


async def test_replies_that_are_not_stored_have_no_id(tmp_path: Path) -> None:
    """storeReplyMessageEnable=false: message id 0, offset 0, and a queue; the setting can be changed at run time."""
    parts = Replying(tmp_path, are_replies_stored=False)
    asker, replier = parts.asker(), parts.peer(2)
    replier.send(reply(queue_id=-1))
    asker.respond(await asker.next_request(), RemotingCommand.response())
    response = await parts.answer_to(replier)
    assert response.ext_fields() == {
        "msgId": "0", "queueId": "0", "queueOffset": "0", "MSG_REGION": "R", "TRACE_ON": "true",
    }  # fmt: skip
    assert (response.code, parts.stored()) == (0, [])
    parts.derived.reply_sends.configure(are_stored=True)
    replier.send(reply())
    asker.respond(await asker.next_request(), RemotingCommand.response())
    await parts.answer_to(replier)
    assert len(parts.stored()) == 1
    parts.store.close()


async def test_a_reply_without_a_requester_fails_and_is_stored(parts: Replying) -> None:
    """Without the property, or without a producer of that client id: SYSTEM_ERROR (1), and no push time."""
    parts.asker().disconnect()
    replier = parts.peer(2)
    gone = await replier.call_and_wait(reply())
    assert (gone.code, gone.remark) == (1, "push reply message fail, channel of <asker> not found.")
    bare = await replier.call_and_wait(reply(properties="CORRELATION_ID\x01c\x02"))
    assert (bare.code, bare.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
    assert bare.ext_fields()["msgId"] != "0"
    assert ["PUSH_REPLY_TIME" in bytes(record.properties).decode() for record in parts.stored()] == [False, False]


async def test_a_requester_that_does_not_accept_the_reply(parts: Replying, monkeypatch: pytest.MonkeyPatch) -> None:
    """It responds with an error, disconnects, or is silent: SYSTEM_ERROR (1), and no call stays pending."""
    remark = "push reply message to askerfail."
    asker, replier = parts.asker(), parts.peer(2)
    replier.send(reply())
    asker.respond(await asker.next_request(), RemotingCommand.response(1, "no such request"))
    refused = await parts.answer_to(replier)
    replier.send(reply())
    await asker.next_request()
    asker.disconnect()
    gone = await parts.answer_to(replier)
    monkeypatch.setattr(delivery_replies, "PUSH_TIMEOUT_S", 0)
    asker = parts.asker()
    silent = await replier.call_and_wait(reply())
    assert {(response.code, response.remark) for response in (refused, gone, silent)} == {(1, remark)}
    assert (asker.connection.calls, parts.pool.pending, len(parts.stored())) == (0, 0, 3)


async def test_a_reply_is_checked_like_a_send(parts: Replying) -> None:
    """Refusals have region and trace switch as for sends; nothing is pushed."""
    asker = parts.asker()
    response = parts.peer(2).call(reply(queue_id=9))
    assert (response.code, response.ext_fields()) == (29, {"MSG_REGION": "R", "TRACE_ON": "true"})
    assert parts.peer(3).call(reply(topic="a b")).code == 29
    assert asker.connection.calls == 0


async def test_a_reply_that_the_store_refuses_is_pushed(parts: Replying) -> None:
    """A reply with an unsupported delay, or while the store refuses messages."""
    asker, replier = parts.asker(), parts.peer(2)
    replier.send(reply(properties=PROPERTIES + "DELAY\x01soon\x02"))
    asker.respond(await asker.next_request(), RemotingCommand.response())
    response = await parts.answer_to(replier)
    assert (response.code, response.ext_fields()["msgId"], parts.stored()) == (0, "0", [])
