"""The compiled decoder returns the same for any read as the pure-Python version."""

import json
import random
import struct
from functools import cache
from typing import Any

import msgpack
import pytest

from skylarkmq.protocol import compiled, msgpack_header, stream
from skylarkmq.protocol.codes import RequestCode
from skylarkmq.protocol.command import MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError, RequestError
from skylarkmq.protocol.frame import encode_frame, illegal_frame
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.send_command import decode_general
from skylarkmq.protocol.serialize import encode_command
from tests.harness.golden import transcripts

LIMIT = 1 << 24
ESCAPED, UNESCAPED = json.JSONEncoder().encode, json.JSONEncoder(ensure_ascii=False).encode

module = compiled.load("decode")
pytestmark = pytest.mark.skipif(module is None, reason="no compiled modules here")

PROPERTIES = (
    "KEYS\x01k1\x02UNIQ_KEY\x017F0000010001AB\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "a\x01b\x02UNIQ_KEY\x01A1\x02KEYS\x01 x  y \x02TAGS\x01b\x01c\x02",
    "TAGS\x01a\x02TAGS\x01b\x02UNIQ_KEY\x01A1\x02",
    'q\x01"\\/\b\n\r\t\f\x02UNIQ_KEY\x01A1\x02',
    "n\x01\u8ba2\x02UNIQ_KEY\x01A1\x02",
    "UNIQ_KEY\x01A1\x02UNIQ_KEY\x01B2\x02",
    "UNIQ_KEY\x01" + "A" * 64 + "\x02",
    "UNIQ_KEY\x01" + "A" * 65 + "\x02",
    "UNIQ_KEY\x01A1",
    *(f"UNIQ_KEY\x01{key}\x02" for key in ("A1", "", "a-b")),
    *(
        f"UNIQ_KEY\x01A1\x02{name}\x013\x02"
        for name in ("DELAY", "TIMER_DELAY_MS", "TRAN_MSG", "CLUSTER", "POP_CK", "__SHARDINGKEY")
    ),
    *(f"UNIQ_KEY\x01A1\x02WAIT\x01{value}\x02" for value in ("false", "", "x")),
    *(f"n\x01{value}\x02UNIQ_KEY\x01A1\x02" for value in ("\x7f", "\x00", "\x1f")),
    "", "\x01\x02", "\x02", "x",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, 1, "0", "1", "-1", -1, "2147483647", 2147483647, "2147483648", "-2147483648", "-2147483649", "01", "-0", -0.0,
    "+1", " 1", "1 ", "", "1.0", 1.5, 1e3, "9223372036854775807", "9223372036854775808", 999999999999999999, "x",
    None, True, [], {},
)  # fmt: skip
TEXTS: tuple[Any, ...] = (
    "T",
    "",
    "TBW102",
    "a b",
    "\u8ba2",
    'q"',
    "b\\",
    "\x07",
    "\x7f",
    "%RETRY%g",
    5,
    None,
    False,
    "x" * 300,
)
FLAGS: tuple[Any, ...] = ("false", "true", False, True, "1", "0", "TRUE", "", None, 1)
KINDS = {"a": TEXTS, "b": TEXTS, "c": TEXTS, "i": PROPERTIES, "k": FLAGS, "m": FLAGS, "n": TEXTS}
USUAL = {
    "a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0", "i": PROPERTIES[0],
    "j": "0", "k": "false", "m": "false", "n": "broker-a",
}  # fmt: skip
LONG = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
    "l": "maxReconsumeTimes", "m": "batch", "n": "bname",
}  # fmt: skip
OUTER: dict[str, tuple[Any, ...]] = {
    "flag": (0, 0, 0, 2, 1, 3, "0", 4294967296, None),
    "language": ("JAVA", "GO", "nobody", 3, None, 'J"'),
    "opaque": (0, 7, -1, 2147483647, 2147483648, "5", 1.0, -0, None),
    "version": (479, 317, 0, "479", -1, None),
    "remark": ("", "why", None, 5),
    "serializeTypeCurrentRPC": ("JSON", 0),
    "x": ("y", 1, {}, [1], None),
    "(ext)": ("z",),
}


class Inputs:
    """Random frames."""

    def __init__(self, seed: int) -> None:
        self.choice = random.Random(seed)

    def frame(self) -> bytes:
        """Return one frame, mostly of a send that is nearly on the fast path."""
        choice = self.choice
        dialect = choice.choice((0, 0, 0, ROCKETMQ, MSGPACK, MSGPACK))
        header = {0: self.header, ROCKETMQ: self.binary_header, MSGPACK: self.packed_header}[dialect]()
        if choice.random() < 0.2:
            header = self.damaged(header)
        body = choice.randbytes(choice.choice((0, 1, 5, 40, 5000) if choice.random() < 0.05 else (0, 5)))
        frame = encode_frame(dialect if choice.random() < 0.98 else choice.randrange(3), header, body)
        return self.damaged(frame) if choice.random() < 0.02 else frame

    def header(self) -> bytes:
        """Return a JSON header."""
        choice = self.choice
        codes: tuple[Any, ...] = (310, 10) if choice.random() < 0.9 else (11, 320, "310", 310.0, None)
        code = choice.choice(codes)
        outer: list[tuple[str, Any]] = [("flag", 0), ("language", "JAVA"), ("opaque", choice.randrange(-5, 9))]
        outer.append(("version", 479))
        if choice.random() < 0.2:
            name = choice.choice(list(OUTER))
            outer.append((name, choice.choice(OUTER[name])))
        ext = (
            self.object_text(self.fields(code)) if choice.random() < 0.98 else choice.choice(('""', "null", "{}", "[]"))
        )
        members = [f'"code":{json.dumps(code)}', f'"extFields":{ext}', *map(self.member_text, outer)]
        if choice.random() < 0.1:
            members[1:] = choice.sample(members[1:], len(members) - 1)
        if choice.random() < 0.03:
            choice.shuffle(members)
        comma = "," if choice.random() < 0.97 else ", "
        return ("{" + comma.join(members) + "}").encode("utf-8", "replace")

    def binary_header(self) -> bytes:
        """Return a header in the binary dialect."""
        choice = self.choice
        code = choice.choice((310, 10)) if choice.random() < 0.95 else choice.randrange(-5, 400)
        named = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in self.fields(code)]
        entries = [(name.encode(), value.encode()) for name, value in named]
        ext = b"".join(struct.pack(f">h{len(name)}si", len(name), name, len(value)) + value for name, value in entries)
        flag = choice.choice((0, 0, 0, 0, 2, 1))
        remark = b"" if choice.random() < 0.95 else b"why"
        fixed = struct.pack(
            ">hBhii", code, choice.randrange(15), choice.randrange(-1, 500), choice.randrange(-9, 9), flag
        )
        return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(ext)) + ext

    def packed_header(self) -> bytes:
        """Return a header in MessagePack, mostly with positional fields, its numbers in any encoding."""
        choice = self.choice
        code = 310 if choice.random() < 0.95 else choice.choice((10, 11, 320, "310", -310))
        fields: dict[str, Any] = {letter: int(value) if value.isdigit() else value for letter, value in USUAL.items()}
        fields |= {"k": False, "l": None, "m": False}
        for letter in choice.sample("abcdefghijklmn", choice.choice((0, 0, 1, 2))):
            fields[letter] = choice.choice(KINDS.get(letter, NUMBERS))
        if choice.random() < 0.3:
            fields["i"] = choice.choice(PROPERTIES)
        placed: Any = [choice.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 0, "1", True)), *(fields[n] for n in sorted(fields))]
        if choice.random() < 0.1:
            placed = placed[: choice.randrange(len(placed))] if choice.random() < 0.7 else [*placed, 5]
        if choice.random() < 0.1:
            placed = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
        outer = [code, 0, 3, choice.randrange(-5, 9), None, 479, placed]
        if choice.random() < 0.2:
            outer[choice.randrange(1, 6)] = choice.choice((0, 1, 2, None, "why", 3, 2147483648, -2147483648, 1.5))
        if choice.random() < 0.05:
            outer = outer[: choice.randrange(7)] if choice.random() < 0.5 else [*outer, {"a": "b"}]
        return self.packed(outer)

    def packed(self, value: Any) -> bytes:
        """Return the encoded value; encoders differ in the width of numbers and lengths, so this method does too."""
        choice = self.choice
        if type(value) is list:
            head: bytes = msgpack.Packer().pack_array_header(len(value))
            return head + b"".join(map(self.packed, value))
        if choice.random() < 0.1:
            if type(value) is int and -(2**63) <= value < 2**63:
                return b"\xd3" + value.to_bytes(8, "big", signed=True)
            if type(value) is int and 0 <= value < 2**32:
                return b"\xce" + value.to_bytes(4, "big")
            if type(value) is int and -128 <= value < 128:
                return b"\xd0" + value.to_bytes(1, "big", signed=True)
            if type(value) is str:
                text = value.encode("utf-8", "replace")
                return choice.choice((b"\xda", b"\xdb\x00\x00")) + len(text).to_bytes(2, "big") + text
        packed: bytes = msgpack.packb(value)
        return packed

    def fields(self, code: Any) -> list[tuple[str, Any]]:
        """Return ext fields, by their names on the wire."""
        choice = self.choice
        fields: dict[str, Any] = dict(USUAL)
        for letter in choice.sample("abcdefghijklmn", choice.choice((0, 0, 1, 2))):
            fields[letter] = choice.choice(KINDS.get(letter, NUMBERS))
        if choice.random() < 0.3:
            fields["i"] = choice.choice(PROPERTIES)
        if choice.random() < 0.05:
            del fields[choice.choice(list(fields))]
        if choice.random() < 0.1:
            fields[choice.choice(("z", "", "ns", "\u00e9"))] = choice.choice(("v", 1, None))
        named = list(fields.items())
        if choice.random() < 0.2:
            choice.shuffle(named)
        if (code == 10) != (choice.random() < 0.03):
            named = [(LONG.get(letter, letter), value) for letter, value in named]
        return [*named, choice.choice(named)] if choice.random() < 0.05 else named

    def object_text(self, members: list[tuple[str, Any]]) -> str:
        return "{" + ",".join(map(self.member_text, members)) + "}"

    def member_text(self, member: tuple[str, Any]) -> str:
        """Return a member; encoders differ in what they escape, so this method does too."""
        name, value = member
        text = (ESCAPED if self.choice.random() < 0.5 else UNESCAPED)(value)
        if self.choice.random() < 0.1:
            text = text.replace("\\u00", "\\u0" + self.choice.choice("01f"), 1)
        return f"{json.dumps(name)}:{text}"

    def damaged(self, data: bytes) -> bytes:
        """Return the data with a few bytes changed, cut out, doubled or added."""
        choice, bad = self.choice, bytearray(data)
        for _ in range(choice.randint(1, 3)):
            at = choice.randrange(len(bad) + 1)
            kind = choice.randrange(4)
            if kind == 0 and at < len(bad):
                bad[at] = (
                    choice.choice(b'"\\{}:,-0 \x00\x1f\x7f\x80\xff') if choice.random() < 0.7 else choice.randrange(256)
                )
            elif kind == 1:
                del bad[at : at + choice.randrange(1, 9)]
            elif kind == 2:
                bad[at:at] = choice.choice((b'"', b"\\", b"\\u0001", b'\\"', b",", b"}", b" ", b"null", b"1", b"'"))
            else:
                bad[at:at] = bad[choice.randrange(len(bad) + 1) :][: choice.randrange(1, 30)]
        return bytes(bad)


def outcome(decode: stream.DecodeFrames, data: bytes, start: int = 0) -> Any:
    """Return all visible results of decoding a read."""
    commands: list[RemotingCommand] = []
    try:
        end: Any = decode(memoryview(data), start, LIMIT, commands)
    except ProtocolError as error:
        end = str(error)
    return end, [attributes_of(command) for command in commands]


def attributes_of(command: RemotingCommand) -> tuple[Any, ...]:
    outer = command.code, command.flag, command.opaque, command.version, command.remark, command.dialect
    kinds = command.language, command.language_code, command.is_oneway, command.is_response
    own, other = SendMessageV2Header, SendMessageHeader
    if command.code == RequestCode.SEND_MESSAGE:
        own, other = other, own
    read = (
        result_or_error(lambda: command.header(own).to_ext()),
        result_or_error(lambda: command.header(other).to_ext()),
    )
    return *outer, *kinds, bytes(command.body), *read, result_or_error(command.ext_fields)


def result_or_error(read: Any) -> Any:
    try:
        return read()
    except (RequestError, ProtocolError) as error:
        return str(error)


def new_decoder() -> Any:
    return module.Decoder(decode_general, illegal_frame, PullMessageHeader)


@cache
def decoder() -> Any:
    """Return the decoder of all frames. The product has one, too: it is large, for it keeps texts of earlier frames."""
    return new_decoder()


def both(data: bytes) -> tuple[Any, Any]:
    return outcome(stream.python_decode_frames, data), outcome(decoder().decode, data)


def sends_in(data: bytes) -> int:
    commands: list[Any] = []
    try:
        decoder().decode(memoryview(data), 0, LIMIT, commands)
    except ProtocolError:
        pass
    return sum(type(command) is module.Send for command in commands)


@pytest.mark.fuzz
def test_random_frames_are_read_alike(fuzz_rounds: int) -> None:
    """100,000 headers in every form: the same commands, the same fields, the same errors."""
    inputs = Inputs(5)
    plain = 0
    for _ in range(fuzz_rounds):
        data = inputs.frame()
        expected, got = both(data)
        assert got == expected, data
        plain += sends_in(data)
    assert fuzz_rounds * 0.1 < plain < fuzz_rounds * 0.9


@pytest.mark.fuzz
def test_random_headers_in_messagepack_are_read_as_by_the_general_reader(fuzz_rounds: int) -> None:
    """100,000 headers: the one-step decoder and the compiled one return the same as the general reader."""
    inputs = Inputs(7)
    by_place = 0
    for _ in range(fuzz_rounds):
        header = inputs.packed_header()
        if inputs.choice.random() < 0.15:
            header = inputs.damaged(header)
        frame = encode_frame(MSGPACK, header)
        expected, got = both(frame)
        assert got == expected, header
        assert expected[1] == by_the_general_reader(header), header
        by_place += sends_in(frame)
    assert fuzz_rounds * 0.05 < by_place < fuzz_rounds * 0.9


def by_the_general_reader(header: bytes) -> list[Any]:
    """Return the visible results for a frame with this header if only the general reader reads it."""
    try:
        command = msgpack_header.decode_general(memoryview(header))
    except ProtocolError:
        return []
    command.dialect = MSGPACK
    return [attributes_of(command)]


@pytest.mark.fuzz
def test_random_reads_are_cut_alike() -> None:
    """Several frames at once, the last of them cut off anywhere."""
    inputs = Inputs(6)
    for _ in range(3_000):
        data = b"".join(inputs.frame() for _ in range(inputs.choice.randint(1, 5)))
        data = data[: inputs.choice.randrange(len(data) + 1)] if inputs.choice.random() < 0.7 else data
        expected, got = both(data)
        assert got == expected, data


def test_every_cut_of_a_frame_is_incomplete_or_read_alike() -> None:
    """At each byte: nothing is read beyond the end."""
    usual = [310, 0, 3, 5, None, 479, [1, *(common_packed_fields()[n] for n in "abcdefghijklmn")]]
    for dialect, header in ((0, Inputs(1).header()), (MSGPACK, msgpack.packb(usual))):
        check_every_cut(dialect, encode_frame(dialect, header, b"body"))


def common_packed_fields() -> dict[str, Any]:
    """Return the positional fields of a fast-path send."""
    numbers = {letter: int(value) for letter, value in USUAL.items() if value.isdigit()}
    return USUAL | {"k": False, "l": None, "m": None} | numbers


def check_every_cut(dialect: int, whole: bytes) -> None:
    for end in range(len(whole) + 1):
        data = bytes(bytearray(whole[:end]))
        expected, got = both(data)
        assert got == expected
        header = whole[8 : max(8, end - 4)]
        expected, got = both(encode_frame(dialect, header, b"body"))
        assert got == expected


def test_captured_frames_are_read_alike() -> None:
    """Every frame of the captured transcripts."""
    frames = [frame.raw for frame in transcripts()]
    for frame in frames:
        expected, got = both(frame)
        assert got == expected
    assert any(map(sends_in, frames))


def test_the_common_send_is_on_the_fast_path() -> None:
    """The most common send of official clients does not reach the general decoder."""
    inputs = Inputs(2)
    ext = inputs.object_text(list(USUAL.items()))
    rest = '"flag":0,"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON","version":409'
    java = f'{{"code":310,"extFields":{ext},{rest}}}'
    long = json.dumps({LONG[letter]: value for letter, value in USUAL.items()}, separators=(",", ":"))
    go = f'{{"code":10,"language":"GO","version":317,"opaque":5,"flag":0,"remark":"","extFields":{long}}}'
    for text in (java, go):
        assert sends_in(encode_frame(0, text.encode(), b"body")) == 1
    command = RemotingCommand.request(310, body=b"body")
    command.ext, command.dialect = USUAL, ROCKETMQ
    assert sends_in(encode_command(command)) == 1
    placed = [310, 0, 3, 5, None, 479, [1, *(common_packed_fields()[n] for n in "abcdefghijklmn")]]
    assert sends_in(encode_frame(MSGPACK, msgpack.packb(placed), b"body")) == 1
