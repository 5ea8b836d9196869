"""Commands from a stream, however it is cut."""

import random
from typing import Any

import pytest

from skylarkmq.protocol import stream
from skylarkmq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.serialize import encode_command
from skylarkmq.protocol.stream import CommandDecoder

VERSIONS = {"interpreted": stream.python_decode_frames, "as-installed": stream.decode_whole_frames}


@pytest.fixture(params=VERSIONS)
def decode_frames(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> stream.DecodeFrames:
    """Each of the two versions of the pass."""
    monkeypatch.setattr(stream, "decode_whole_frames", VERSIONS[request.param])
    return VERSIONS[request.param]


def frames() -> list[bytes]:
    """Return sends in both forms and all dialects, another request, an ignored header, and bodies of all sizes."""
    fields: dict[str, Any] = {"properties": "UNIQ_KEY\x01A\x02", "batch": False}
    commands = [
        RemotingCommand.request(code, header_type("g", "T", "TBW102", 4, 0, 0, 1, 0, **fields), bytes(size))
        for code, header_type in ((310, SendMessageV2Header), (10, SendMessageHeader))
        for size in (0, 3, 5_000)
    ]
    commands.append(RemotingCommand.request(11, PullMessageHeader("g", "T", 0, 0, 32, 0, 0, 0, 0)))
    for opaque, command in enumerate(commands):
        command.opaque, command.dialect = opaque, ROCKETMQ if opaque % 4 == 3 else JSON
    return [*map(encode_command, commands), encode_frame(0, b"[]"), encode_frame(0, b'{"code":34}')]


def attributes_of(commands: list[RemotingCommand]) -> list[tuple[Any, ...]]:
    return [(c.code, c.opaque, c.dialect, bytes(c.body), c.ext_fields()) for c in commands]


def decode_in_pieces(data: bytes, ends: list[int]) -> list[tuple[Any, ...]]:
    """Return the commands from a stream that arrives in these pieces, each in memory that is reused."""
    decoder, came = CommandDecoder(), []
    for begin, end in zip([0, *ends], [*ends, len(data)], strict=True):
        buffer = bytearray(data[begin:end])
        came += attributes_of(decoder.feed_commands(memoryview(buffer)))
        buffer[:] = bytes(len(buffer))
    assert decoder.pending_bytes == 0
    assert decoder.failure is None
    return came


def test_a_stream_may_be_cut_anywhere(decode_frames: stream.DecodeFrames) -> None:
    """Whole, byte by byte and cut at random positions, the stream gives the same commands."""
    data = b"".join(frames())
    whole = decode_in_pieces(data, [])
    assert [row[1] for row in whole[:7]] == list(range(7))
    assert len(whole) == 8
    assert decode_in_pieces(data, list(range(1, len(data)))) == whole
    choice = random.Random(3)
    for _ in range(200):
        assert decode_in_pieces(data, sorted(choice.sample(range(len(data)), choice.randint(1, 9)))) == whole


@pytest.mark.parametrize(
    "garbage", [encode_frame(0, b"{"), encode_frame(7, b"{}"), b"\x00\x00\x00\x01\x00\x00\x00\x09"]
)
def test_commands_before_garbage_are_returned(decode_frames: stream.DecodeFrames, garbage: bytes) -> None:
    """Nothing after the garbage is returned, in this read or a later one, even if it arrives in two pieces."""
    good = frames()[0]
    for cut in range(len(garbage)):
        decoder = CommandDecoder()
        first = decoder.feed_commands(memoryview(good + garbage[:cut]))
        first += decoder.feed_commands(memoryview(garbage[cut:] + good))
        assert len(first) == 1
        assert decoder.failure is not None
        assert decoder.feed_commands(memoryview(good)) == []


def test_a_send_may_be_kept_beyond_its_read(decode_frames: stream.DecodeFrames) -> None:
    """A detached send has its own memory for everything that may still be used."""
    buffer = bytearray(frames()[0])
    (command,) = CommandDecoder().feed_commands(memoryview(buffer))
    expected = attributes_of([command])
    (command,) = CommandDecoder().feed_commands(memoryview(buffer))
    command.detached()
    buffer[:] = bytes(len(buffer))
    assert attributes_of([command]) == expected
    assert command.header(SendMessageV2Header).topic == "T"
    assert command.language == "PYTHON"


def test_drop_payload_releases_the_receive_buffer(decode_frames: stream.DecodeFrames) -> None:
    """Afterward nothing refers to the memory of the read, and a response can still be addressed."""
    buffer = bytearray(b"".join(frames()[:7]))
    commands = CommandDecoder().feed_commands(memoryview(buffer))
    for command in commands:
        command.drop_payload()
    buffer.clear()  # raises BufferError while a view exists
    assert [command.opaque for command in commands] == list(range(7))


ODD = (ValueError("x" * 1_000), TypeError("t"), KeyError("k"), OverflowError(), RecursionError())


@pytest.mark.parametrize("odd", ODD)
def test_an_unforeseen_exception_ends_only_the_stream(monkeypatch: pytest.MonkeyPatch, odd: Exception) -> None:
    """An unforeseen exception in a decoder is a protocol error of that connection, with a short reason."""

    def reader(data: memoryview, start: int, limit: int, commands: list[RemotingCommand]) -> int:
        raise odd

    monkeypatch.setattr(stream, "decode_whole_frames", reader)
    decoder = CommandDecoder()
    assert decoder.feed_commands(memoryview(frames()[0])) == []
    assert decoder.failure is not None
    assert type(odd).__name__ in str(decoder.failure)
    assert len(str(decoder.failure)) <= 200
    assert decoder.feed_commands(memoryview(frames()[0])) == []
