"""The compiled decoder reads pulls in every form as the pure-Python version does."""

import json
from typing import Any

import msgpack
import msgspec
import pytest

from skylarkmq.protocol import compiled, stream
from skylarkmq.protocol.command import JSON, MSGPACK, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.headers.pull import PullMessageHeader
from tests.protocol.compiled import test_same
from tests.protocol.compiled.test_same import (
    LIMIT,
    NUMBERS,
    OUTER,
    TEXTS,
    Inputs,
    attributes_of,
    decoder,
    result_or_error,
)

module = compiled.load("decode")
pull_module = compiled.load("pull")
pytestmark = pytest.mark.skipif(module is None, reason="no compiled modules here")

USUAL = {
    "consumerGroup": "G", "topic": "T", "queueId": "3", "queueOffset": "123456789012", "maxMsgNums": "32",
    "sysFlag": "6", "commitOffset": "-1", "suspendTimeoutMillis": "15000", "subVersion": "1700000000000",
    "subscription": "a || b", "expressionType": "TAG", "maxMsgBytes": "262144", "requestSource": "0", "bname": "b-a",
}  # fmt: skip
TEXT_FIELDS = {"consumerGroup", "topic", "subscription", "expressionType", "bname"}
PLACES = [field.encode_name for field in msgspec.structs.fields(PullMessageHeader)]


class PullInputs(Inputs):
    """Random frames, mostly of pulls that are nearly on the fast path."""

    def fields(self, code: Any) -> list[tuple[str, Any]]:
        choice = self.choice
        fields = self.changed(dict(USUAL))
        for name in choice.sample(PLACES[9:], choice.choice((0, 0, 1, 5))):
            fields.pop(name)
        if choice.random() < 0.05:
            fields.pop(choice.choice(PLACES), None)
        if choice.random() < 0.1:
            fields[choice.choice(("z", "", "é", "Topic"))] = choice.choice(("v", 1, None))
        named = list(fields.items())
        if choice.random() < 0.2:
            choice.shuffle(named)
        return [*named, (choice.choice(PLACES), choice.choice(NUMBERS))] if choice.random() < 0.05 else named

    def changed(self, fields: dict[str, Any]) -> dict[str, Any]:
        for name in self.choice.sample(PLACES, self.choice.choice((0, 0, 1, 2))):
            fields[name] = self.choice.choice(TEXTS if name in TEXT_FIELDS else NUMBERS)
        return fields

    def header(self) -> bytes:
        choice = self.choice
        code = choice.choice((11, 11, 11, 11, 361, 361, 1, 110, 3610, "11"))
        outer: list[tuple[str, Any]] = [("flag", choice.choice((0, 0, 0, 0, 2, 3))), ("opaque", choice.randrange(9))]
        if choice.random() < 0.3:
            name = choice.choice(list(OUTER))
            outer.append((name, choice.choice(OUTER[name])))
        ext = self.object_text(self.fields(code)) if choice.random() < 0.97 else choice.choice(('""', "null", "{}"))
        members = [f'"code":{json.dumps(code)}', f'"extFields":{ext}', *map(self.member_text, outer)]
        if choice.random() < 0.05:
            members.append(f'"extFields":{ext}')
        return ("{" + ",".join(members) + "}").encode("utf-8", "replace")

    def packed_header(self) -> bytes:
        choice = self.choice
        usual = {name: value if name in TEXT_FIELDS else int(value) for name, value in USUAL.items()}
        fields = list(self.changed(usual).values())
        if choice.random() < 0.3:
            fields = [*fields[:9], *(choice.choice((None, value)) for value in fields[9:])]
        fields = fields[: choice.choice((14, 14, 14, 12, 11, 9, 8, 3))]
        placed = [choice.choice((2, 2, 2, 2, 2, 2, 1, 4, "2")), *fields, *choice.choice(([], [], [], [5]))]
        outer = [choice.choice((11, 11, 11, 361, 310)), choice.choice((0, 0, 0, 2, 1)), 3, choice.randrange(9)]
        return self.packed([*outer, choice.choice((None, None, None, "why")), 479, placed])


def outcome(decode: stream.DecodeFrames, data: bytes) -> Any:
    commands: list[RemotingCommand] = []
    try:
        end: Any = decode(memoryview(data), 0, LIMIT, commands)
    except ProtocolError as error:
        end = str(error)
    return end, [(*attributes_of(command), result_or_error(lambda it=command: fields_of(it))) for command in commands]


def fields_of(command: RemotingCommand) -> list[Any]:
    """Return the fields of a pull's header, also after the read's memory is reused."""
    header = command.header(PullMessageHeader)
    fields = [getattr(header, name) for name in PullMessageHeader.__struct_fields__]
    command.detached()
    assert command.header(PullMessageHeader).topic == header.topic
    return [fields, command.ext_fields()]


def pulls_in(data: bytes) -> int:
    commands: list[Any] = []
    try:
        decoder().decode(memoryview(data), 0, LIMIT, commands)
    except ProtocolError:
        pass
    return sum(type(command) is pull_module.Pull for command in commands)


@pytest.mark.fuzz
def test_random_pulls_are_read_alike(fuzz_rounds: int) -> None:
    """100,000 headers in every form: the same commands, the same fields, the same errors."""
    inputs = PullInputs(23)
    plain = 0
    for _ in range(fuzz_rounds):
        data = inputs.frame()
        assert outcome(decoder().decode, data) == outcome(stream.python_decode_frames, data), data
        plain += pulls_in(data)
    assert fuzz_rounds * 0.1 < plain < fuzz_rounds * 0.9


@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
def test_every_cut_of_a_pull_is_incomplete_or_read_alike(dialect: int) -> None:
    """At each byte: nothing is read beyond the end."""
    test_same.check_every_cut(dialect, encode_frame(dialect, common_header(dialect), b"body"))


@pytest.mark.parametrize("dialect", [JSON, MSGPACK])
def test_the_common_pull_is_on_the_fast_path(dialect: int) -> None:
    """The most common pull does not reach the general decoder; its texts are the same objects each time."""
    frame = encode_frame(dialect, common_header(dialect))
    assert pulls_in(frame) == 1
    commands: list[Any] = []
    decoder().decode(memoryview(frame * 2), 0, LIMIT, commands)
    one, other = commands
    assert one.topic is other.topic
    assert one.subscription is other.subscription
    assert one.send_header is None


def common_header(dialect: int) -> bytes:
    if dialect == JSON:
        ext = json.dumps(USUAL, separators=(",", ":"))
        return f'{{"code":11,"extFields":{ext},"flag":0,"language":"JAVA","opaque":5,"version":409}}'.encode()
    fields = [value if name in TEXT_FIELDS else int(value) for name, value in USUAL.items()]
    packed: bytes = msgpack.packb([11, 0, 3, 5, None, 479, [2, *fields]])
    return packed
