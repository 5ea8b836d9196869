"""Pulls whose header is decoded together with the outer fields."""

import pytest

from skylarkmq.protocol import stream
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.pull_command import PullCommand, decoded_pull
from skylarkmq.protocol.serialize import encode_command
from tests.harness.broker_parts import pull

LIMIT = 1 << 20


def decoded(frame: bytes) -> RemotingCommand:
    """Return the command, decoded by the pure-Python version."""
    commands: list[RemotingCommand] = []
    stream.python_decode_frames(memoryview(frame), 0, LIMIT, commands)
    (command,) = commands
    return command


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_a_pull_is_decoded_in_one_step(code: int) -> None:
    """The header is the same object each time; the ext fields are also available as text."""
    request = pull(code=code, queue_offset=77)
    command = decoded(encode_command(request))
    assert isinstance(command, PullCommand)
    header = command.header(PullMessageHeader)
    assert header is command.header(PullMessageHeader)
    assert header.queue_offset == 77
    assert command.send_header is None
    assert command.detached().ext_fields() == request.ext


@pytest.mark.parametrize("decode", [stream.python_decode_frames, stream.decode_whole_frames])
def test_the_header_of_a_pull_is_available_without_decoding_it_again(decode: stream.DecodeFrames) -> None:
    """Also if the compiled module has decoded it; other commands have none."""
    commands: list[RemotingCommand] = []
    incomplete = pull()
    del incomplete.ext_fields()["queueId"]
    frames = encode_command(pull(queue_offset=77)) + encode_command(incomplete)
    decode(memoryview(frames), 0, LIMIT, commands)
    header, none = map(decoded_pull, commands)
    assert header is not None
    assert (header.topic, header.queue_offset) == ("T", 77)
    assert none is None


def test_a_pull_that_lacks_something_is_left_to_the_general_decoder() -> None:
    """It is still a command; `header` raises the error when it is called."""
    request = pull()
    del request.ext_fields()["queueId"]
    assert type(decoded(encode_command(request))) is RemotingCommand
