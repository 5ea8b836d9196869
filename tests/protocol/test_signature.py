"""Signatures of requests: the content rule, and keys."""

import hashlib
import hmac
import json
import struct
from base64 import b64encode
from typing import Any

import msgpack
import pytest

from skylarkmq.protocol import signature
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.msgpack_header import encode_positional
from skylarkmq.protocol.serialize import binary_entry
from skylarkmq.protocol.signature import Signed, SigningKey, content_of, python_signed_parts, signed_parts
from skylarkmq.protocol.stream import CommandDecoder, python_decode_frames

READERS = (signed_parts, python_signed_parts)

SEND = {
    "a": "group", "b": "Topic", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "0",
    "i": "UNIQ_KEY\x01A1\x02TAGS\x01T", "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
SEND_VALUES = "groupTopicTBW10243017000000000000UNIQ_KEY\x01A1\x02TAGS\x01T0falsefalsebroker-a"


def decoded(header: bytes, dialect: int = JSON, body: bytes = b"body") -> list[RemotingCommand]:
    """Return the command in a header, as the selected decoder and the pure-Python one decode it."""
    frame = memoryview(encode_frame(dialect, header, body))
    commands: list[RemotingCommand] = []
    python_decode_frames(frame, 0, 1 << 24, commands)
    return CommandDecoder().feed_commands(frame) + commands


def contents(header: bytes, dialect: int = JSON, **options: bool) -> set[bytes | None]:
    """Return the content in every way of reading it: one, unless they differ."""
    found = [read(command, **options) for command in decoded(header, dialect) for read in READERS]
    assert len(found) == 4
    return {None if signed is None else signed.content for signed in found}


def json_header(ext: str, code: int = 310) -> bytes:
    return f'{{"code":{code},"extFields":{ext},"flag":0,"language":"JAVA","opaque":7,"version":409}}'.encode()


def binary_header(entries: list[tuple[str, str]], code: int = 310) -> bytes:
    ext = b"".join(binary_entry(*entry) for entry in entries)
    return struct.pack(">hBhiiii", code, 0, 409, 7, 0, 0, len(ext)) + ext


@pytest.mark.parametrize(
    ("ext", "content"),
    [
        ('{"AccessKey":"key","a":"1","b":"2"}', "key12"),
        ('{"b":"2","a":"1","AccessKey":"key"}', "key12"),
        ('{"AccessKey":"key","Signature":"s","SecurityToken":"token","OnsChannel":"ALIYUN"}', "keyALIYUNtoken"),
        ('{"AccessKey":"","OnsChannel":"ALIYUN","Signature":"s"}', "ALIYUN"),
        ('{"AccessKey":"key","_UNIQUE_KEY_QUERY":"true","key":"k"}', "keyk"),
        ('{"AccessKey":"key","signature":"counts","ReqT":"170"}', "key170counts"),
        ('{"AccessKey":"key","a":1.0,"b":1e3,"c":-5,"d":1.50}', "key1.01e3-51.50"),
        ('{"AccessKey":"key","a":99999999999999999999}', "key99999999999999999999"),
        ('{"AccessKey":"key","a":5L,"b":+7,"c":.5}', "key5+7.5"),
        ('{"AccessKey":"key","a":true,"b":false,"c":null,"d":""}', "keytruefalse"),
        ('{"AccessKey":"key","a":"x\\u0001\\n\\"\\\\\\/\\u8ba2\\ud83d\\ude00"}', 'keyx\x01\n"\\/\u8ba2\U0001f600'),
        ('{"AccessKey":"key","a":"first","a":"last"}', "keylast"),
        ("{AccessKey:'key',a:'1'}", "key1"),
        ('{"AccessKey":"key","\\uffee":"2","\\ud83d\\ude00":"1","z":"0"}', "key012"),
        ('{"AccessKey":"key","a":{"x":[1,1.50]}}', 'key{"x":[1,1.50]}'),
    ],
)  # fmt: skip
def test_the_content_is_the_values_as_received_in_the_order_of_their_names(ext: str, content: str) -> None:
    """Names in the order of UTF-16 units; without Signature and `_UNIQUE_KEY_QUERY`; the literals of numbers."""
    assert contents(json_header(ext, code=12)) == {content.encode()}
    assert contents(json_header(ext, code=310)) == {content.encode()}


def test_invalid_text_signs_as_the_tolerant_reader_reads_it() -> None:
    """Bytes that are not UTF-8 are U+FFFD, as in Java."""
    header = json_header('{"AccessKey":"key","a":"x?y"}').replace(b"?", b"\xff")
    assert contents(header) == {"keyx\ufffdy".encode()}


@pytest.mark.parametrize("code", [310, 320, 12])
def test_the_content_of_each_dialect_is_the_same(code: int) -> None:
    """JSON, the binary dialect, and MSGPACK with fields by name."""
    fields = SEND | {"AccessKey": "key", "Signature": "s", "SecurityToken": "t"}
    expected = {f"keyt{SEND_VALUES}".encode()}
    assert contents(json_header(json.dumps(fields, separators=(",", ":")), code)) == expected
    assert contents(binary_header(list(fields.items()), code), ROCKETMQ) == expected
    assert contents(msgpack.packb([code, 0, 3, 7, None, 409, fields]), MSGPACK) == expected


def test_fields_that_the_binary_dialect_repeats_count_once() -> None:
    """Java clients write the fields of a signed send twice: from the header, then from the map of ext fields."""
    entries = [*SEND.items(), *SEND.items(), ("AccessKey", "key"), ("Signature", "s")]
    assert contents(binary_header(entries), ROCKETMQ) == {f"key{SEND_VALUES}".encode()}


def test_the_field_of_a_unique_key_query_is_signed_by_later_clients() -> None:
    """RocketMQ 5.3 includes `_UNIQUE_KEY_QUERY` for requests of versions above 399."""
    header = json_header('{"AccessKey":"key","_UNIQUE_KEY_QUERY":"true","key":"k"}', 12)
    assert contents(header, is_unique_key_query_signed=True) == {b"keytruek"}
    fast = json_header(json.dumps(SEND | {"AccessKey": "key", "_UNIQUE_KEY_QUERY": "x"}, separators=(",", ":")))
    assert contents(fast) == {f"key{SEND_VALUES}".encode()}
    assert contents(fast, is_unique_key_query_signed=True) == {f"keyx{SEND_VALUES}".encode()}


def test_a_request_without_access_key_is_not_signed() -> None:
    """Also one with positional fields, or without ext fields."""
    assert contents(json_header(json.dumps(SEND, separators=(",", ":")))) == {None}
    assert contents(json_header('{"Signature":"s"}', 12)) == {None}
    assert contents(b'{"code":34}') == {None}
    header = SendMessageV2Header("g", "T", "TBW102", 4, 3, 0, 1, 0, SEND["i"], unit_mode="false", batch="false")
    positional = encode_positional(RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, language="PYTHON"), header)
    assert contents(positional, MSGPACK) == {None}


def test_key_and_signature_are_those_of_the_request() -> None:
    """A missing signature is the empty text."""
    whole = json.dumps(SEND | {"AccessKey": "key", "Signature": "aGk="}, separators=(",", ":"))
    without = json.dumps(SEND | {"AccessKey": "key"}, separators=(",", ":"))
    for text, sign in ((whole, "aGk="), (without, "")):
        for command in decoded(json_header(text)):
            for read in READERS:
                found = read(command)
                assert found is not None
                assert (found.access_key, found.signature) == ("key", sign)


def test_ext_fields_that_are_no_map_raise_protocol_error() -> None:
    """As when they are decoded."""
    for command in decoded(json_header("[1]", 12))[:1]:
        for read in READERS:
            with pytest.raises(ProtocolError):
                read(command)


@pytest.mark.parametrize("secret", ["12345678", "s" * 64, "s" * 65, "\u8ba2\u5355" * 30])
@pytest.mark.parametrize("body", [b"", b"body", b"b" * 100_000])
def test_a_signature_is_the_hmac_of_content_and_body(secret: str, body: bytes) -> None:
    """In base64. The key may be longer than a block of SHA-1."""
    expected = b64encode(hmac.new(secret.encode(), b"content" + body, hashlib.sha1).digest()).decode()
    key = SigningKey(secret)
    assert key.sign(b"content", body) == key.sign(b"content", memoryview(body)) == expected
    assert key.has_signed(Signed("key", expected, b"content"), body)


@pytest.mark.parametrize("wrong", ["", "x", "\u8ba2", "\ud800", "=" * 28, "A" * 100_000])
def test_any_other_signature_is_refused(wrong: str) -> None:
    """Also one that cannot be encoded, and the same bytes in another form of base64."""
    key = SigningKey("12345678")
    right = key.sign(b"content", b"body")
    for other in (wrong, right[:-1], right + "=", " " + right, right.lower()):
        assert not key.has_signed(Signed("key", other, b"content"), b"body")
    assert not key.has_signed(Signed("key", right, b"content"), b"bodx")
    assert not SigningKey("12345679").has_signed(Signed("key", right, b"content"), b"body")


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hmac.compare_digest, whose time does not depend on the position of a difference."""
    compared: list[tuple[Any, Any]] = []

    def record(own: bytes, given: bytes) -> bool:
        compared.append((own, given))
        return False

    monkeypatch.setattr(signature, "compare_digest", record)
    assert not SigningKey("12345678").has_signed(Signed("key", "x", b"content"), b"body")
    ((own, given),) = compared
    assert (len(own), given) == (28, b"x")


def test_secrets_and_signatures_are_not_shown() -> None:
    """By no repr()."""
    assert repr(SigningKey("12345678")) == "<SigningKey>"
    assert repr(Signed("key", "signed", b"content")) == "<Signed 'key'>"


def test_a_single_surrogate_signs_as_a_question_mark() -> None:
    """As Java encodes it."""
    assert content_of({"b": "\ud800", "a": "1"}) == b"1?"
