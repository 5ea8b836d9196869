"""Sends from a template, compared with the general encoder."""

import pytest

from skylarkmq.clients.sdk.base.settings import ProducerSettings
from skylarkmq.clients.sdk.messages.outgoing_message import Outgoing
from skylarkmq.clients.sdk.producing.send_requests import SendTemplate
from skylarkmq.protocol.codes import RequestCode, SysFlag
from skylarkmq.protocol.command import JSON, MSGPACK
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.msgpack_header import decode_general
from skylarkmq.protocol.serialize import decode_command, encode_command

NOW_MS = 1_795_283_796_296
SETTINGS = ProducerSettings()


@pytest.mark.parametrize("topic", ["Orders", "%RETRY%g-1", "%DLQ%100%d", "987654001"])
@pytest.mark.parametrize("broker", ["broker-a", 'quoted "name" %s', "köln"])
def test_a_templates_frame_equals_the_encoded_header(topic: str, broker: str) -> None:
    """Byte for byte."""
    template = SendTemplate("group%d", topic, broker, SETTINGS)
    outgoing = Outgoing(topic, b"body", 'KEYS\x01ü"\\%d\x02TAGS\x01a\x02', "id", NOW_MS, SysFlag.COMPRESSED, -3)
    assert template.frame(outgoing, 5, 77) == encode_command(template.command(outgoing, 5, 77))


@pytest.mark.parametrize("topic", ["Orders", "%RETRY%g-1"])
@pytest.mark.parametrize("oneway", [False, True])
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_messagepack_frame_has_the_fields_of_the_header(topic: str, oneway: bool, is_batch: bool) -> None:
    """The general decoder finds every member and field of the JSON request, and the body."""
    template = SendTemplate("group%d", topic, "köln", SETTINGS)
    for properties in ("", "KEYS\x01ü\x02", "KEYS\x01" + "k" * 300 + "\x02", "x" * 30_000):
        outgoing = Outgoing(topic, b"body", properties, "id", NOW_MS, SysFlag.COMPRESSED, -3, is_batch)
        for opaque in (1, 2**31 - 1):
            asked = template.command(outgoing, 5, opaque, oneway=oneway)
            (frame,) = FrameDecoder().feed(memoryview(template.frame(outgoing, 5, opaque, MSGPACK, oneway=oneway)))
            assert frame[0] == MSGPACK
            found = decode_general(frame[1])
            assert (found.code, found.flag, found.opaque, found.version) == (
                asked.code,
                asked.flag,
                opaque,
                asked.version,
            )
            assert (found.language_code, found.remark, bytes(frame[2])) == (asked.language_code, None, b"body")
            assert found.ext_fields() == asked.ext_fields()


def test_a_frame_decodes_to_the_fields_of_the_send() -> None:
    """As the broker reads them."""
    outgoing = Outgoing("T", b"body", "KEYS\x01k\x02", "id", NOW_MS, 1, 2)
    (frame,) = FrameDecoder().feed(memoryview(SendTemplate("g", "T", "b", SETTINGS).frame(outgoing, 3, 9)))
    command = decode_command(frame)
    assert command is not None
    header = command.header(SendMessageV2Header)
    assert (command.code, command.opaque, bytes(command.body)) == (RequestCode.SEND_MESSAGE_V2, 9, b"body")
    assert (header.producer_group, header.topic, header.queue_id, header.properties) == ("g", "T", 3, "KEYS\x01k\x02")
    assert (header.sys_flag, header.born_timestamp, header.flag, header.batch) == (1, NOW_MS, 2, "false")


def test_a_batch_has_the_code_and_the_flag_of_batches() -> None:
    """SEND_BATCH_MESSAGE (320), and batch=true."""
    template = SendTemplate("g", "T", "b", SETTINGS)
    outgoing = Outgoing("T", b"records", "", "id", NOW_MS, is_batch=True)
    for dialect in (JSON, MSGPACK):
        (frame,) = FrameDecoder().feed(memoryview(template.frame(outgoing, 0, 1, dialect)))
        command = decode_command(frame)
        assert command is not None
        assert (command.code, command.ext_fields()["m"]) == (RequestCode.SEND_BATCH_MESSAGE, "true")
