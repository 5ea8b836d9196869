"""Headers in both dialects: captured frames round-trip, unusual ones are read, invalid ones close the connection."""

import pytest

from skylarkmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.frame import FrameDecoder, encode_frame
from skylarkmq.protocol.headers.consumer import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from skylarkmq.protocol.headers.fields import Header, is_true
from skylarkmq.protocol.headers.pull import PullMessageHeader, PullMessageResponseHeader
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageResponseHeader, SendMessageV2Header
from skylarkmq.protocol.serialize import decode_command, encode_command
from skylarkmq.protocol.stream import CommandDecoder, python_decode_frames
from tests.harness.golden import GoldenFrame, transcripts

TYPED: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2Header,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageV2Header,
    RequestCode.PULL_MESSAGE: PullMessageHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetHeader,
}

SCENARIOS = sorted({golden.scenario for golden in transcripts()})


def frames_of(scenario: str) -> list[GoldenFrame]:
    return [golden for golden in transcripts() if golden.scenario == scenario]


def decode(raw: bytes) -> RemotingCommand:
    (frame,) = FrameDecoder().feed(memoryview(raw))
    command = decode_command(frame)
    assert command is not None
    return command


def json_command(header: bytes) -> RemotingCommand | None:
    return decode_command((JSON, memoryview(header), memoryview(b"")))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_captured_frames_round_trip(scenario: str) -> None:
    """A captured RocketMQ frame decodes to the values of the transcript, and encodes to the same bytes."""
    for golden in frames_of(scenario):
        command = decode(golden.raw)
        assert (command.code, command.flag, command.opaque, command.version, command.remark) == tuple(
            golden.header.get(name) for name in ("code", "flag", "opaque", "version", "remark")
        ), golden.id
        assert command.language_code is LanguageCode[golden.header["language"]], golden.id
        assert command.ext_fields() == (golden.header.get("extFields") or {}), golden.id
        if not golden.header.get("extFields") and command.dialect == JSON:
            command.ext = None  # an absent and an empty map decode to the same value, but are encoded differently
        assert encode_command(command) == golden.raw, golden.id


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_captured_frames_arrive_byte_by_byte(scenario: str) -> None:
    """A frame that arrives byte by byte decodes to the same frame."""
    for golden in frames_of(scenario):
        decoder = FrameDecoder()
        frames = [frame for byte in golden.raw for frame in decoder.feed(memoryview(bytes((byte,))))]
        ((dialect, header, body),) = frames
        assert encode_frame(dialect, bytes(header), body) == golden.raw, golden.id


@pytest.mark.parametrize(
    "golden",
    [g for g in transcripts() if g.header["code"] in TYPED and not g.header["flag"] & 1],
    ids=lambda golden: golden.id,
)
def test_typed_headers_agree_with_the_ext_fields(golden: GoldenFrame) -> None:
    """Typed decoding and encoding agree with the text of every field that the struct has."""
    header_type = TYPED[golden.header["code"]]
    ext = decode(golden.raw).header(header_type).to_ext()
    known = {name: value for name, value in golden.header["extFields"].items() if name in ext}
    assert ext == known
    assert len(known) >= len(golden.header["extFields"]) - 1


PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": 3, "maxMsgNums": 32, "sysFlag": 2, "queueOffset": 7,
    "commitOffset": -1, "suspendTimeoutMillis": 15000, "subVersion": 1700000000000000000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("header", "ext"),
    [
        (
            b'{"code":11,"extFields":{"a":5,"b":true,"c":null,"d":{"x":1},"e":1.5}}',
            {"a": "5", "b": "true", "d": '{"x":1}', "e": "1.5"},
        ),
        (b'{"code":11,"extFields":""}', {}),
        (b'{"code":11,"extFields":null}', {}),
        (b'{"code":11}', {}),
        (b"{code:11,extFields:{'a':'b'},remark:null,opaque:'3'}", {"a": "b"}),
        (b'{"code":"11","version":"409","extFields":{"a":"b"},"strange":[1,{}]}', {"a": "b"}),
    ],
)
def test_forms_that_clients_send_are_read(header: bytes, ext: dict[str, str]) -> None:
    """docs/reference/wire.md, "Reading ext fields": everything that RocketMQ's reader tolerates is read."""
    command = json_command(header)
    assert command is not None
    assert command.code == 11
    assert command.ext_fields() == ext


@pytest.mark.parametrize(
    ("language", "code"), [(b'"GO"', LanguageCode.GO), (b"9", LanguageCode.GO), (b'"LISP"', None), (b"{}", None)]
)
def test_languages_by_name_and_by_ordinal(language: bytes, code: LanguageCode | None) -> None:
    """A request with an unknown language is valid, and can be answered."""
    command = json_command(b'{"code":1,"language":' + language + b"}")
    assert command is not None
    assert command.language_code is code
    assert b'"language":' in encode_command(command)


def test_an_array_is_ignored() -> None:
    """A header that is a JSON array gives neither a command nor an error."""
    assert json_command(b"[]") is None


@pytest.mark.parametrize(
    ("dialect", "header"),
    [
        (JSON, b"{"), (JSON, b"5"), (JSON, b""), (JSON, b'{"code":"x"}'), (JSON, b"\xff"), (JSON, b'{"code":1e99}'),
        (JSON, b'{"code":1,"opaque":4294967296}'),
        (ROCKETMQ, b""), (ROCKETMQ, bytes(16)), (ROCKETMQ, bytes(13) + b"\xff\xff\xff\xff" + bytes(4)),
        (ROCKETMQ, bytes(17) + b"\x00\x00\x00\x05" + b"\x00\x01a\x00\x00"), (77, b"{}"),
    ],
)  # fmt: skip
def test_an_invalid_header_raises_protocol_error(dialect: int, header: bytes) -> None:
    """Bytes that are not a header raise ProtocolError, and nothing else."""
    with pytest.raises(ProtocolError):
        decode_command((dialect, memoryview(header), memoryview(b"")))


@pytest.mark.parametrize("start", [b'{"x":', b'{"code":34,"extFields":{"x":'])
def test_deep_nesting_raises_protocol_error(start: bytes) -> None:
    """A header nested a hundred thousand deep raises ProtocolError, in known and in unknown members."""
    with pytest.raises(ProtocolError, match="header is not JSON"):
        json_command(start + b"[" * 100_000)


@pytest.mark.parametrize("ext", [b"5", b"[1]", b'"x"', b"{"])
def test_ext_fields_that_are_no_map_raise_protocol_error(ext: bytes) -> None:
    """Only an empty text counts as no fields."""

    def read() -> None:
        command = json_command(b'{"code":11,"extFields":' + ext + b"}")
        assert command is not None
        command.header(PullMessageHeader)

    with pytest.raises(ProtocolError):
        read()


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ])
def test_headers_round_trip_in_both_dialects(dialect: int) -> None:
    """A typed header is the same after encoding and decoding, unusual text included."""
    header = SendMessageV2Header("g\u8ba2", 'T"\\\n', "TBW102", 4, -1, 1, 2**40, -5, "K\x01v\x02", 3, batch=True)
    command = RemotingCommand.request(310, header, b"body")
    command.dialect, command.opaque, command.remark = dialect, -7, "r\u00e9"
    back = decode(encode_command(command))
    assert (back.opaque, back.remark, bytes(back.body), back.dialect) == (-7, "r\u00e9", b"body", dialect)
    decoded = back.header(SendMessageV2Header)
    assert decoded.to_ext() == header.to_ext()
    assert is_true(decoded.batch)


def test_both_forms_of_a_send_decode_to_one_struct() -> None:
    """Long names and single letters decode to one struct."""
    long = SendMessageHeader("g", "T", "TBW102", 4, 0, 0, 1, 0)
    assert isinstance(SendMessageV2Header("g", "T", "TBW102", 4, 0, 0, 1, 0), SendMessageHeader)
    assert set(long.to_ext()) >= {"producerGroup", "defaultTopicQueueNums", "sysFlag"}


@pytest.mark.parametrize("value", ["true", "TRUE", "True", True])
def test_true_in_any_case_is_true(value: str | bool) -> None:
    """RocketMQ's rule for booleans."""
    assert is_true(value)


@pytest.mark.parametrize("value", ["1", "yes", "", " true", None, False])
def test_everything_but_true_is_false(value: str | bool | None) -> None:
    """Everything else is false, also the 1 of the C++ client."""
    assert not is_true(value)


@pytest.mark.parametrize("bare", [b"1", b"0", b"-7", b"1.5", b"1e3"])
def test_a_bare_number_is_false(bare: bytes) -> None:
    """Every decoder of sends reads a number in a boolean field as its text, which is false; a bare true is true."""
    ext = b'"a":"g","b":"T","c":"d","d":4,"e":0,"f":0,"g":1,"h":0,"i":"UNIQ_KEY\\u0001A\\u0002","m":'
    for value, expected in ((bare, False), (b"true", True)):
        header = b'{"code":310,"extFields":{' + ext + value + b"}}"
        frame = memoryview(encode_frame(JSON, header, b""))
        found: list[RemotingCommand | None] = [json_command(header), *CommandDecoder().feed_commands(frame)]
        interpreted: list[RemotingCommand] = []
        python_decode_frames(frame, 0, 1 << 20, interpreted)
        sends = [command.header(SendMessageV2Header) for command in found + interpreted if command is not None]
        assert [is_true(send.batch) for send in sends] == [expected] * 3


@pytest.mark.parametrize("missing", list(PULL))
def test_a_missing_required_field_raises_request_error(missing: str) -> None:
    """The response is SYSTEM_ERROR; the connection stays open."""
    command = RemotingCommand(code=11, ext={name: str(value) for name, value in PULL.items() if name != missing})
    with pytest.raises(RequestError) as refusal:
        command.header(PullMessageHeader)
    assert refusal.value.code is ResponseCode.SYSTEM_ERROR
    assert missing in refusal.value.remark


@pytest.mark.parametrize("value", ["x", "", "5.5", str(2**31), "-99999999999999999999"])
def test_numbers_out_of_range_raise_request_error(value: str) -> None:
    """A number out of the range of its field is rejected."""
    command = RemotingCommand(code=11, ext={name: str(v) for name, v in PULL.items()} | {"queueId": value})
    with pytest.raises(RequestError):
        command.header(PullMessageHeader)


def test_responses_have_opaque_dialect_and_text_values() -> None:
    """Every ext value of a JSON response is a string; opaque and dialect are those of the request."""
    request = RemotingCommand(code=11, opaque=-3, dialect=ROCKETMQ)
    response = RemotingCommand.response(0, None, PullMessageResponseHeader(0, 5, 1, 9))
    back = decode(encode_command(response.in_response_to(request)))
    assert back.is_response
    assert (back.opaque, back.dialect) == (-3, ROCKETMQ)
    assert back.ext == {"suggestWhichBrokerId": "0", "nextBeginOffset": "5", "minOffset": "1", "maxOffset": "9"}
    text = encode_command(RemotingCommand.response(0, None, SendMessageResponseHeader("ID", 1, 2)))
    assert b'"extFields":{"msgId":"ID","queueId":"1","queueOffset":"2"}' in text


def test_a_detached_command_outlives_its_buffer() -> None:
    """A detached command does not refer to the receive buffer."""
    raw = bytearray(encode_command(RemotingCommand.request(11, QueryConsumerOffsetHeader("g", "T", 1), b"body")))
    command = decode_command(FrameDecoder().feed(memoryview(raw))[0])
    assert command is not None
    command.detached()
    raw[:] = bytes(len(raw))
    assert command.header(QueryConsumerOffsetHeader).topic == "T"
    assert command.body == b"body"
