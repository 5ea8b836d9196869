"""Signed requests."""

import hmac
from base64 import b64encode

from skylarkmq.clients.sdk.base.settings import ClientSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.client import Client
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.frame import FrameDecoder
from skylarkmq.protocol.serialize import decode_command, encode_command
from tests.clients.peer import peers

CREDENTIALS = Credentials("access", "secret", "token")


def signature(text: bytes) -> str:
    return b64encode(hmac.new(b"secret", text, "sha1").digest()).decode()


def test_values_are_signed_in_the_order_of_their_names() -> None:
    """Including those of key and token; upper case first; the body last."""
    signed = CREDENTIALS.signed({"b": "2", "a": "1", "Z": "0", "Signature": "of before"}, b"body")
    assert signed == {
        "a": "1",
        "b": "2",
        "Z": "0",
        "AccessKey": "access",
        "SecurityToken": "token",
        "Signature": signature(b"accesstoken012body"),
    }


def test_a_frame_of_each_dialect_is_signed() -> None:
    """Its other fields are unchanged. The frame of a response is not signed."""
    for dialect in (JSON, ROCKETMQ):
        request = RemotingCommand.request(RequestCode.SEND_MESSAGE, body=b"b")
        request.ext, request.dialect, request.opaque = {"a": "1"}, dialect, 7
        (frame,) = FrameDecoder().feed(memoryview(CREDENTIALS.signed_frame(encode_command(request))))
        found = decode_command(frame)
        assert found is not None
        assert (found.code, found.opaque, found.dialect, bytes(found.body)) == (10, 7, dialect, b"b")
        assert found.ext_fields() == CREDENTIALS.signed({"a": "1"}, b"b")
    answer = encode_command(RemotingCommand.response())
    assert CREDENTIALS.signed_frame(answer) == answer


async def test_all_requests_of_a_client_are_signed() -> None:
    """Also the heartbeat."""
    async with peers(1) as (peer,):
        peer.on(RequestCode.GET_MAX_OFFSET, {"offset": "1"})
        client = Client(peer.address, ClientSettings(credentials=CREDENTIALS))
        await client.request(peer.address, RequestCode.GET_MAX_OFFSET)
        await client.close()
        assert [request.ext_fields()["AccessKey"] for request in peer.requests] == ["access", "access"]


def test_keys_are_not_shown() -> None:
    """By no repr()."""
    assert "secret" not in repr(CREDENTIALS)
    assert "access" not in repr(ClientSettings(credentials=CREDENTIALS))
