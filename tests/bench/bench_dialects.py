"""Cost of the three header dialects: bytes on the wire, and the time to write and to read headers and many sends.

    python -m tests.bench.bench_dialects                      # as installed
    SKYLARK_COMPILED=0 python -m tests.bench.bench_dialects   # without the compiled modules

`bytes`: size of a frame without a body. `write`: from a typed header to its frame. `read`: from a frame to the typed
header. `pass`: sends as a broker reads them, 100 frames at a time, per frame; compiled modules read fast-path sends
without Python objects. In MessagePack, fields are positional except in the last row. Figures are microseconds, the
minimum of many short rounds.

There is no budget: the table supports the choice of a dialect.
"""

import argparse
from collections.abc import Callable
from timeit import repeat
from typing import Final

from skylarkmq.protocol.codes import VERSION, RequestCode, ResponseCode
from skylarkmq.protocol.command import JSON, LANGUAGE, MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.compiled import variant
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.consumer import UpdateConsumerOffsetHeader
from skylarkmq.protocol.headers.fields import Header
from skylarkmq.protocol.headers.pull import PullMessageHeader, PullMessageResponseHeader
from skylarkmq.protocol.headers.send import SendMessageResponseHeader, SendMessageV2Header
from skylarkmq.protocol.msgpack_header import LAYOUTS, encode_positional
from skylarkmq.protocol.serialize import decode_command, encode_command
from skylarkmq.protocol.stream import CommandDecoder

DIALECTS: Final = {"JSON": JSON, "ROCKETMQ": ROCKETMQ, "MSGPACK": MSGPACK}
PROPERTIES: Final = "KEYS\x01order-1\x02UNIQ_KEY\x01C0A8010A0001000000000001\x02TAGS\x01TagA\x02"
HEADERS: Final[dict[str, tuple[int, Header]]] = {
    "send": (
        RequestCode.SEND_MESSAGE_V2,
        SendMessageV2Header(
            "group", "Topic", "TBW102", 4, 3, 0, 1_700_000_000_000, 0, PROPERTIES, unit_mode="false", batch="false"
        ),
    ),
    "sent": (ResponseCode.SUCCESS, SendMessageResponseHeader("7F00000100002A9F" + "0" * 16, 3, 123_456, "C0A8" * 6)),
    "pull": (
        RequestCode.PULL_MESSAGE,
        PullMessageHeader("group", "Topic", 3, 123_456, 32, 3, 123_400, 15_000, 1_700_000_000_000, "*", "TAG"),
    ),
    "pulled": (ResponseCode.SUCCESS, PullMessageResponseHeader(0, 123_488, 0, 200_000, 0, 0)),
    "commit": (RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("group", "Topic", 3, 123_456)),
}
SENDS_AT_ONCE: Final = 100
ROUND_CALLS: Final = 500


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    rounds = parser.parse_args().rounds
    print(f"modules: {variant()}")
    print(f"{'':8}" + "".join(f"{name:>12}{'':20}" for name in DIALECTS))
    print(f"{'':8}" + f"{'bytes':>10}{'write':>10}{'read':>10}  " * len(DIALECTS))
    for name, (code, header) in HEADERS.items():
        cells = [figures(code, header, dialect, rounds) for dialect in DIALECTS.values()]
        print(f"{name:8}" + "".join(f"{size:10}{write:10.2f}{read:10.2f}  " for size, write, read in cells))
    passes = [pass_over(dialect, rounds) for dialect in DIALECTS.values()]
    print(f"{'pass':8}" + "".join(f"{'':20}{us:10.2f}  " for us in passes))


def figures(code: int, header: Header, dialect: int, rounds: int) -> tuple[int, float, float]:
    """Return the bytes of the frame, and the microseconds to write it and to read it."""
    header_type = type(header)
    frame = frame_of(code, header, dialect)
    parts = (dialect, memoryview(frame)[8 : 8 + int.from_bytes(frame[5:8], "big")], memoryview(b""))

    def read() -> None:
        command = decode_command(parts)
        assert command is not None
        command.header(header_type)

    return len(frame), least(lambda: frame_of(code, header, dialect), rounds), least(read, rounds)


def frame_of(code: int, header: Header, dialect: int, body: bytes = b"") -> bytes:
    """Return the frame of a request; a response does not differ in size or cost."""
    if dialect != MSGPACK or type(header) not in LAYOUTS.values():
        command = command_of(code, header, dialect)
        command.body = body
        return encode_command(command)
    command = RemotingCommand(code=code, language=LANGUAGE, version=VERSION, opaque=123_456)
    return encode_frame(dialect, encode_positional(command, header), body)


def command_of(code: int, header: Header, dialect: int) -> RemotingCommand:
    """Return the same request, with its fields by name."""
    command = RemotingCommand.request(code, header)
    command.dialect = dialect
    command.opaque = 123_456
    return command


def pass_over(dialect: int, rounds: int) -> float:
    """Return the microseconds per send, for a read that contains many."""
    code, header = HEADERS["send"]
    data = memoryview(frame_of(code, header, dialect, b"x" * 100) * SENDS_AT_ONCE)
    commands = CommandDecoder().feed_commands(data)
    assert len(commands) == SENDS_AT_ONCE
    assert all(command.send_header is not None for command in commands)
    calls = max(1, ROUND_CALLS // SENDS_AT_ONCE)
    return least(lambda: CommandDecoder().feed_commands(data), rounds, calls) / SENDS_AT_ONCE


def least(call: Callable[[], object], rounds: int, calls: int = ROUND_CALLS) -> float:
    """Return the minimum time of a call, in microseconds."""
    return min(repeat(call, number=calls, repeat=rounds)) / calls * 1e6


if __name__ == "__main__":
    main()
