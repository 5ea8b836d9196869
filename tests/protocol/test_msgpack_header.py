"""The MSGPACK header dialect: encoded headers are read back, invalid headers raise ProtocolError."""

import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from skylarkmq.protocol.command import MSGPACK, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.frame import FrameDecoder, encode_frame
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.pull import PullMessageHeader, PullMessageResponseHeader
from skylarkmq.protocol.headers.send import SendMessageResponseHeader, SendMessageV2Header
from skylarkmq.protocol.msgpack_header import LAYOUTS, decode_general, encode_positional
from skylarkmq.protocol.serialize import decode_command, encode_command
from skylarkmq.protocol.stream import CommandDecoder

PULL = PullMessageHeader("g", "T", 3, 7, 32, 2, -1, 15_000, 1_700_000_000_000_000_000)
SEND = SendMessageV2Header("g", "T", "TBW102", 4, 0, 0, 1, 0, "KEYS\x01ü\x02UNIQ_KEY\x0100AA\x02", batch="false")
SAMPLES: dict[int, Header] = {
    1: SEND,
    2: PULL,
    3: SendMessageResponseHeader("0A", 3, 2**62, "K1", None, "R", "true"),
    4: PullMessageResponseHeader(0, 2**62, 0, 2**63 - 1, 0, 0),
}
GOOD: list[Any] = [11, 0, 3, 5, None, 479, {"topic": "T"}]


def decoded(header: bytes) -> RemotingCommand:
    command = decode_command((MSGPACK, memoryview(header), memoryview(b"")))
    assert command is not None
    return command


def packed(*members: object) -> bytes:
    data: bytes = msgpack.packb(members)
    return data


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]))),
    st.dictionaries(*(st.text(st.characters(exclude_categories=["Cs"])),) * 2),
    st.binary(max_size=50),
)
def test_headers_round_trip(opaque: int, flag: int, remark: str | None, ext: dict[str, str], body: bytes) -> None:
    """All members, any text and the body round-trip."""
    command = RemotingCommand.response(ResponseCode.SYSTEM_BUSY, remark, ext, body)
    command.opaque, command.flag, command.dialect = opaque, flag, MSGPACK
    (frame,) = FrameDecoder().feed(memoryview(encode_command(command)))
    again = decode_command(frame)
    assert again is not None
    assert (again.code, again.opaque, again.flag, again.version) == (command.code, opaque, flag, command.version)
    assert (again.remark, again.ext_fields(), bytes(again.body)) == (remark, ext, body)
    assert (again.language_code, again.dialect) == (LanguageCode.PYTHON, MSGPACK)


@pytest.mark.parametrize(("code", "header"), [(RequestCode.PULL_MESSAGE, PULL), (RequestCode.SEND_MESSAGE_V2, SEND)])
def test_typed_headers_round_trip(code: RequestCode, header: PullMessageHeader | SendMessageV2Header) -> None:
    """A typed header round-trips, in the stream and on its own; that of a send is already decoded."""
    request = RemotingCommand.request(code, header, b"body")
    request.dialect = MSGPACK
    (command,) = CommandDecoder().feed_commands(memoryview(encode_command(request)))
    assert command.header(type(header)) == header
    assert (command.send_header == header) is (code is RequestCode.SEND_MESSAGE_V2)
    assert command.detached().header(type(header)) == header


@pytest.mark.parametrize("number", LAYOUTS)
def test_positional_fields_equal_named_fields(number: int) -> None:
    """Typed, as text, as another header, and detached: both forms give the same values."""
    header = SAMPLES[number]
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header)
    positional = decoded(encode_positional(command, header))
    named = decoded(encode_command(packed_command(command))[8:])
    assert positional.header(type(header)).to_ext() == named.header(type(header)).to_ext() == header.to_ext()
    assert (
        positional.ext_fields()
        == named.ext_fields()
        == decode_general(memoryview(encode_positional(command, header))).ext
    )
    assert positional.ext_bytes == named.ext_bytes > 0
    for other in map(type, SAMPLES.values()):
        assert result_or_error(positional, other) == result_or_error(named, other)
    kept = decoded(encode_positional(command, header)).detached()
    assert kept.header(type(header)).to_ext() == header.to_ext()
    kept.drop_payload()
    assert (kept.ext_fields(), kept.send_header, kept.opaque) == ({}, None, command.opaque)


def packed_command(command: RemotingCommand) -> RemotingCommand:
    command.dialect = MSGPACK
    return command


def result_or_error(command: RemotingCommand, header_type: type[Header]) -> object:
    try:
        return command.header(header_type).to_ext()
    except RequestError as error:
        return str(error)


def test_additional_members_are_ignored() -> None:
    """Additional members, as a later version may send them, are ignored; nil instead of a map means no fields."""
    assert decoded(packed(*GOOD, "more", {"a": [2]})).ext_fields() == {"topic": "T"}
    assert decoded(packed(*GOOD[:6], None)).ext_fields() == {}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1",
        packed(),
        packed(*GOOD[:6]),
        packed(*GOOD)[:-1],
        packed(*GOOD) + b"\0",
        msgpack.packb({"code": 11}),
        msgpack.packb("text"),
        packed("11", *GOOD[1:]),
        packed(True, *GOOD[1:]),
        packed(11.0, *GOOD[1:]),
        packed(2**31, *GOOD[1:]),
        packed(*GOOD[:4], 5, 479, {}),
        packed(11, 0, "PYTHON", *GOOD[3:]),
        packed(*GOOD[:6], []),
        packed(*GOOD[:6], [0, "T"]),
        packed(*GOOD[:6], [5, "T"]),
        packed(*GOOD[:6], [True, "T"]),
        packed(*GOOD[:6], ["1", "T"]),
        packed(*GOOD[:6], [2, "g", ["T"]]),
        packed(*GOOD[:6], [2, "g", b"T"]),
        packed(*GOOD[:6], [2, "g", "T", 3.0]),
        packed(*GOOD[:6], {"topic": 5}),
        packed(*GOOD[:6], {"topic": None}),
        packed(*GOOD[:6], {b"topic": "T"}),
        msgpack.packb([*GOOD[:6], {5: "T"}], use_bin_type=True),
        packed(*GOOD[:6], {"topic": b"\xff"}),
        packed(*GOOD[:6], msgpack.ExtType(5, b"x")),
        packed(*GOOD[:6], msgpack.Timestamp(1, 1)),
        b"\x97" + b"\xdd\xff\xff\xff\xff" + b"\x00" * 20,
        b"\xdc\xff\xff" + b"\x91" * 10_000,
        b"\x91" * 100_000,
        b"\x81\xa1a" * 50_000,
        b"\x97\x0b\x00\x03\x00\xdb\xff\xff\xff\xff" + b"x" * 100,
        b"\x97\x0b\x00\x03\x00\xc0\x00\xdf\xff\xff\xff\xff" + b"\xa1a\xa1b" * 100,
        b"\x97\x0b\x00\x03\x00\xc0\x00\x81\xa1a\xa2\xff\xfe",
        b"\x97\x0b\x00\x03\x00\xc0\x00\x81\x91\x01\xa1a",
        b"\xc7\x0c\xff" + b"\xff" * 12,
    ],
    ids=lambda header: header[:12].hex(),
)
def test_hostile_headers_raise_protocol_error(header: bytes) -> None:
    """Wrong types, lengths beyond the header, deep nesting and invalid UTF-8 raise ProtocolError."""
    with pytest.raises(ProtocolError):
        decoded(header)


def test_an_invalid_header_ends_the_stream() -> None:
    """Commands before an invalid header are returned; then the stream fails."""
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, PULL)
    request.dialect = MSGPACK
    good, bad = encode_command(request), encode_frame(MSGPACK, b"\x91" * 1_000)
    decoder = CommandDecoder()
    assert len(decoder.feed_commands(memoryview(good + good + bad + good))) == 2
    assert isinstance(decoder.failure, ProtocolError)
    assert decoder.feed_commands(memoryview(good)) == []


@pytest.mark.fuzz
def test_random_headers_decode_or_raise_protocol_error(fuzz_rounds: int) -> None:
    """Random bytes, and valid headers with some bytes changed, decode or raise ProtocolError."""
    choice = random.Random(20_261_123)
    good = packed(*GOOD[:4], "remark", 479, {"topic": "T", "consumerGroup": "g", "ü": "ü" * 50})
    readable = 0
    for _ in range(fuzz_rounds):
        header = bytearray(good if choice.random() < 0.8 else choice.randbytes(choice.randrange(60)))
        for _ in range(choice.randrange(4)):
            at = choice.randrange(len(header) + 1)
            header[at : at + choice.randrange(3)] = choice.randbytes(choice.randrange(3))
        try:
            command = decoded(bytes(header))
        except ProtocolError:
            continue
        readable += 1
        assert decoded(encode_command(command)[8:]).ext_fields() == command.ext_fields()
    assert 0 < readable < fuzz_rounds
