"""Responses from the template equal those of the general encoder."""

import json

import pytest

from skylarkmq.broker.processors.send.response import SendResponses
from skylarkmq.broker.store.log.append import Append
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.headers.send import SendMessageResponseHeader
from skylarkmq.protocol.message_id import encode_host, encode_offset_id
from skylarkmq.protocol.serialize import decode_command

HOST = encode_host("10.0.0.1", 10911)


@pytest.mark.parametrize("region", ["DefaultRegion", 'odd "%d" \u8ba2'])
@pytest.mark.parametrize("offset", [0, 4096, 2**62])
def test_the_template_equals_the_general_encoder(region: str, offset: int) -> None:
    """Field by field, for any region name."""
    responses = SendResponses(region, trace_on=True, store_host=HOST)
    request = RemotingCommand(code=310, opaque=-5)
    templated = responses.stored(request, offset, 3, 77, "UNIQ0")
    header = SendMessageResponseHeader(encode_offset_id(HOST, offset), 3, 77, "UNIQ0")
    general = responses.stored_general(request, ResponseCode.SUCCESS, None, header)
    assert templated is not None
    (one,), (other,) = FrameDecoder().feed(memoryview(templated)), FrameDecoder().feed(memoryview(general))
    assert json.loads(bytes(one[1])) == json.loads(bytes(other[1]))
    assert one[0] == other[0] == JSON
    assert not one[2]


def test_the_response_has_the_offset_id_of_the_record() -> None:
    """msgId: the advertised address and the physical offset in upper-case hex."""
    responses = SendResponses("r", trace_on=False, store_host=HOST)
    frame = responses.stored(RemotingCommand(code=310), 4096, 0, 0, "U")
    assert frame is not None
    command = decode_command(FrameDecoder().feed(memoryview(frame))[0])
    assert command is not None
    assert command.ext_fields() == {
        "MSG_REGION": "r",
        "TRACE_ON": "false",
        "msgId": "0A00000100002A9F0000000000001000",
        "queueId": "0",
        "queueOffset": "0",
        "transactionId": "U",
    }


@pytest.mark.parametrize("unique_key", ["", 'a"b', "a\\b", "\u8ba2", "a\x07"])
def test_the_template_refuses_ids_that_need_escapes(unique_key: str) -> None:
    """The general encoder handles them."""
    responses = SendResponses("r", trace_on=True, store_host=HOST)
    assert responses.stored(RemotingCommand(code=310), 0, 0, 0, unique_key) is None


@pytest.mark.parametrize("unique_key", ["", "UNIQ0"])
@pytest.mark.parametrize("host", [HOST, encode_host("2001:db8::7", 10911)])
def test_the_template_of_a_batch_equals_the_general_encoder(unique_key: str, host: bytes) -> None:
    """All ids are included; a batch without a key has no transactionId."""
    responses = SendResponses('odd "%d"', trace_on=True, store_host=host)
    appends = [
        Append("T", 3, b"", b"", 0, 0, 0, 0, HOST, physical_offset=2**40 + 99 * n, queue_offset=70 + n)
        for n in range(100)
    ]
    request = RemotingCommand(code=320, opaque=9)
    templated = responses.stored_batch(request, appends, unique_key)
    header = SendMessageResponseHeader(responses.message_ids(appends), 3, 70, unique_key or None)
    general = responses.stored_general(request, ResponseCode.SUCCESS, None, header)
    assert templated is not None
    (one,), (other,) = FrameDecoder().feed(memoryview(templated)), FrameDecoder().feed(memoryview(general))
    assert json.loads(bytes(one[1])) == json.loads(bytes(other[1]))
    ids = [encode_offset_id(host, append.physical_offset) for append in appends]
    assert json.loads(bytes(one[1]))["extFields"]["msgId"] == ",".join(ids)
    assert responses.stored_batch(RemotingCommand(code=320, dialect=ROCKETMQ), appends, unique_key) is None
    assert responses.stored_batch(request, appends, 'a"b') is None


def test_the_template_is_for_json_only() -> None:
    """The general encoder handles binary requests."""
    responses = SendResponses("r", trace_on=True, store_host=HOST)
    assert responses.stored(RemotingCommand(code=310, dialect=ROCKETMQ), 0, 0, 0, "U") is None
