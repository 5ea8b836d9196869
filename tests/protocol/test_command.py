"""RemotingCommand: no member of a received header fills an internal field."""

import pytest

from skylarkmq.protocol import stream
from skylarkmq.protocol.command import JSON, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.send import SendMessageV2Header
from skylarkmq.protocol.serialize import encode_command

OWN = ("(sent)", "(ext)", "(body)", "(dialect)", "(raw)", "(header)")
VALUES = ("5", "0", "77", '"5"', "{}", '{"a":"b"}', "[1]", "true", "null", '"x"')
STARTS = ('{"code":310,', '{"code":10,', '{"code":11,', '{"code":34,')
EXT = (
    '"a":"g","b":"T","c":"TBW102","d":"4","e":"0","f":"0","g":"1","h":"0","i":"","j":"0",'
    '"k":"false","l":"0","m":"false"'
)
VERSIONS = {"interpreted": stream.python_decode_frames, "as-installed": stream.decode_whole_frames}


def decoded(decode_frames: stream.DecodeFrames, header: str) -> RemotingCommand:
    commands: list[RemotingCommand] = []
    decode_frames(memoryview(encode_frame(JSON, header.encode(), b"body")), 0, 1 << 20, commands)
    (command,) = commands
    return command


@pytest.mark.parametrize("decode_frames", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", OWN)
def test_a_header_cannot_set_internal_fields(decode_frames: stream.DecodeFrames, start: str, name: str) -> None:
    """A member with the name of an internal field is ignored like every unknown member, whatever its value."""
    for value in VALUES:
        command = decoded(decode_frames, f'{start}"{name}":{value},"extFields":{{{EXT}}},"flag":0,"opaque":7}}')
        assert (command.opaque, command.dialect, bytes(command.body)) == (7, JSON, b"body")
        assert command.ext_fields()["b"] == "T"
        assert command.send_header is None or command.code in (10, 310)
        if command.code == 310:
            assert command.header(SendMessageV2Header).topic == "T"
        answer = RemotingCommand.response(0, "fine", command.ext_fields()).in_response_to(command)
        assert encode_command(answer)[4] == JSON


ODD = (
    "9" * 5_000,
    '"' + "9" * 5_000 + '"',
    "[" * 100_000,
    '{"a":' * 3_000 + "1" + "}" * 3_000,
    "1e400",
    "NaN",
    '"\\ud800"',
    "{{}:1}",
    '{"$ref":"$"}',
    '"\\x"',
    "{1:2,1:3}",
)


@pytest.mark.parametrize("decode_frames", VERSIONS.values(), ids=VERSIONS)
@pytest.mark.parametrize("name", ["code", "flag", "opaque", "language", "remark", "version", "extFields", "other"])
def test_hostile_values_are_read_or_end_the_stream(decode_frames: stream.DecodeFrames, name: str) -> None:
    """Hostile values in any member give a command that can be answered, or a ProtocolError."""
    for start in STARTS:
        for value in ODD:
            try:
                command = decoded(decode_frames, f'{start}"{name}":{value},"opaque":7}}')
                response = RemotingCommand.response(0, command.remark, command.ext_fields())
            except ProtocolError:
                continue
            assert len(encode_command(response.in_response_to(command))) > 8
