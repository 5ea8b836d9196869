"""Random and damaged frames decode or raise the documented error, and nothing else."""

import random

import pytest

from skylarkmq.protocol.command import RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.frame import FrameDecoder, encode_frame
from skylarkmq.protocol.headers.namesrv import RegisterBrokerHeader
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.serialize import decode_command, encode_command

pytestmark = pytest.mark.fuzz

HEADER_TYPES = (SendMessageHeader, SendMessageV2Header, PullMessageHeader, RegisterBrokerHeader)
JSON_BITS = b"""{"code": 310 , "extFields": { } "a": null 'x' [ ] 1e999 " \\u true - {}""".split()


def seeds() -> list[bytes]:
    """Return frames as clients send them, in all dialects."""
    header = SendMessageV2Header("g", "T", "TBW102", 4, 0, 0, 1, 0, "KEYS\x01k\x02", batch=False)
    frames = []
    for dialect in (0, 1, 0x4D):
        command = RemotingCommand.request(310, header, b"body")
        command.dialect = dialect
        frames.append(encode_command(command))
    return frames


def mutated(choice: random.Random, frame: bytes) -> bytes:
    """Return a frame with a few bytes changed, cut out, doubled, or replaced by pieces of JSON."""
    data = bytearray(frame)
    for _ in range(choice.randint(1, 4)):
        at = choice.randrange(len(data) + 1)
        kind = choice.randrange(5)
        if kind == 0 and at < len(data):
            data[at] = choice.randrange(256)
        elif kind == 1:
            del data[at : at + choice.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = choice.randbytes(choice.randrange(1, 9))
        elif kind == 3:
            data[at:at] = choice.choice(JSON_BITS)
        else:
            data[at:at] = data[choice.randrange(len(data) + 1) :][: choice.randrange(1, 40)]
    return bytes(data)


def reframed(choice: random.Random, frame: bytes) -> bytes:
    """Return the same damage inside a frame with correct lengths, so that it reaches the header decoders."""
    dialect, header = frame[4], frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
    return encode_frame(dialect if choice.random() < 0.98 else choice.randrange(256), mutated(choice, header), b"body")


def decode(stream: bytes) -> None:
    """Decode a stream as a connection does."""
    decoder = FrameDecoder()
    for frame in decoder.feed(memoryview(stream)):
        command = decode_command(frame)
        if command is None:
            continue
        for header_type in HEADER_TYPES:
            try:
                command.header(header_type)
            except RequestError:
                continue
        encode_command(command)
        command.detached()


def test_frames_decode_or_raise_protocol_error(fuzz_rounds: int) -> None:
    """No input raises anything but ProtocolError."""
    choice = random.Random(20_261_121)
    frames = seeds()
    decoded = 0
    for round_number in range(fuzz_rounds):
        make = mutated if round_number % 4 == 0 else reframed
        stream = make(choice, choice.choice(frames))
        try:
            decode(stream)
            decoded += 1
        except ProtocolError:
            continue
        except Exception as error:
            raise AssertionError(f"round {round_number}: {stream!r}") from error
    assert 0 < decoded < fuzz_rounds
