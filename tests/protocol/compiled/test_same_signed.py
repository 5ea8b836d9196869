"""The compiled reader of signed parts returns the same as the pure-Python version."""

import json
from random import Random
from typing import Any

import pytest

from skylarkmq.protocol import compiled
from skylarkmq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.frame import encode_frame
from skylarkmq.protocol.serialize import binary_entry, encode_command
from skylarkmq.protocol.signature import Signed, SigningKey, python_signed_parts, signed_parts
from skylarkmq.protocol.stream import CommandDecoder
from tests.harness.golden import transcripts
from tests.protocol.compiled import test_same, test_same_pulls

module = compiled.load("signed")
pytestmark = pytest.mark.skipif(module is None, reason="no compiled modules here")

KEY = SigningKey("12345678")
UNKNOWN_SIGNATURE = "JdrAq4KSHwGCKtzCDmDpMcKAKV4="

SIGNED_FIELDS: tuple[tuple[str, Any], ...] = (
    ("AccessKey", "key"),
    ("AccessKey", "another key"),
    ("AccessKey", ""),
    ("AccessKey", 'k"'),
    ("AccessKey", None),
    ("AccessKey", "x" * 300),
    ("Signature", UNKNOWN_SIGNATURE),
    ("Signature", "c2lnbmVk"),
    ("Signature", "a\\b"),
    ("Signature", ""),
    ("Signature", 5),
    ("SecurityToken", "token"),
    ("OnsChannel", "ALIYUN"),
    ("_UNIQUE_KEY_QUERY", "true"),
    ("_UNIQUE_KEY_QUERY", ""),
    ("z", "1"),
    ("Z", 7),
    ("", "x"),
    ("\u8ba2", "x"),
    *((f"name{number}", str(number)) for number in range(50)),
)


class SignedInputs(test_same.Inputs):
    """Random frames of sends, with the fields of a signature."""

    def fields(self, code: Any) -> list[tuple[str, Any]]:
        return with_signature(self.choice, super().fields(code))


class SignedPulls(test_same_pulls.PullInputs):
    """Random frames of pulls, with the fields of a signature."""

    def fields(self, code: Any) -> list[tuple[str, Any]]:
        return with_signature(self.choice, super().fields(code))


def with_signature(choice: Random, fields: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Add the fields of a signature, mostly those of a client, and now and then others."""
    fields += SIGNED_FIELDS[0], SIGNED_FIELDS[6]
    if choice.random() < 0.4:
        fields += choice.sample(SIGNED_FIELDS, choice.choice((1, 1, 2, 3, 60)))
    if choice.random() < 0.5:
        choice.shuffle(fields)
    return fields


def commands_in(data: bytes) -> list[RemotingCommand]:
    return CommandDecoder().feed_commands(memoryview(data))


def parts(read: Any, command: RemotingCommand, **options: bool) -> Any:
    try:
        found = read(command, **options)
    except ProtocolError as error:
        return str(error)
    return found and (found.access_key, found.signature, found.content, repr(found))


def check_alike(data: bytes) -> int:
    """Compare both readers for each command; return how many commands are signed."""
    signed = 0
    for command in commands_in(data):
        for options in ({}, {"is_unique_key_query_signed": True}):
            found = parts(signed_parts, command, **options)
            assert found == parts(python_signed_parts, command, **options), data
            signed += isinstance(found, tuple)
        check_sends_alike(command, data)
    return signed


def check_sends_alike(command: RemotingCommand, data: bytes) -> None:
    """Compare the verification of a send in one step with that of its parts, by a key that has signed it or not."""
    topic = getattr(command, "topic", "T")
    try:
        found = python_signed_parts(command)
    except ProtocolError:
        found = None
    name = "key" if found is None else found.access_key
    in_one_step = KEY.has_signed_send(command, command.code, topic, name)
    if in_one_step is not None:
        assert found is not None
        assert in_one_step == KEY.has_signed(found, command.body), data
    assert KEY.has_signed_send(command, command.code, topic, name + "x") is None
    assert KEY.has_signed_send(command, command.code + 1, topic, name) is None
    assert KEY.has_signed_send(command, command.code, topic + "x", name) is None


@pytest.mark.fuzz
def test_random_signed_requests_are_read_alike(fuzz_rounds: int) -> None:
    """100,000 sends and pulls in every form and dialect."""
    sends, pulls = SignedInputs(31), SignedPulls(32)
    signed = sum(check_alike(sends.frame()) + check_alike(pulls.frame()) for _ in range(fuzz_rounds // 2))
    assert signed > fuzz_rounds * 0.3


@pytest.mark.fuzz
def test_a_run_of_random_sends_is_counted_up_to_the_first_wrong_signature(fuzz_rounds: int) -> None:
    """Sends in every form and dialect with their right signature, and one in ten with a changed body. Each counted one
    is right for the pure-Python version, too, and has the topic, the code and the account."""
    sends, counted = SignedInputs(33), 0
    for _ in range(fuzz_rounds // 20):
        run = [command for _ in range(10) for command in rightly_signed(sends.frame(), sends.choice)]
        for at, first in enumerate(run):
            expected = (first.code, getattr(first, "topic", "T"), "key")
            count = KEY.count_signed_sends(run, at, len(run), *expected)
            for command in run[at : at + count]:
                found = python_signed_parts(command)
                assert found is not None
                assert KEY.has_signed(found, command.body)
                assert (command.code, command.topic, found.access_key) == expected  # type: ignore[attr-defined]
            assert at + count == len(run) or not KEY.has_signed_send(run[at + count], *expected)
            counted += count
    assert counted > fuzz_rounds * 0.05


def rightly_signed(data: bytes, choice: Random) -> list[RemotingCommand]:
    """Return the commands of a frame with their right signature; of some the body is changed afterward."""
    try:
        (command,) = commands_in(data)
        found = python_signed_parts(command)
    except (ProtocolError, ValueError):
        return []
    if found is not None:
        data = data.replace(UNKNOWN_SIGNATURE.encode(), KEY.sign(found.content, command.body).encode())
    if len(command.body) and choice.random() < 0.1:
        data = data[:-1] + bytes((data[-1] ^ 1,))
    return commands_in(data)


def test_captured_requests_are_read_alike_with_a_signature() -> None:
    """Every request of the captured transcripts: unsigned, and with the fields of a signature."""
    for frame in transcripts():
        check_alike(frame.raw)
    assert sum(check_alike(signed) for signed in map(signed_form, transcripts()) if signed) > 300


def signed_form(frame: Any) -> bytes:
    for command in commands_in(frame.raw):
        if not command.is_response:
            command.detached()
            request = RemotingCommand(
                code=command.code, language="JAVA", version=409, ext=dict(command.ext_fields()), dialect=command.dialect
            )
            assert request.ext is not None
            request.ext |= {"AccessKey": "key", "Signature": "c2lnbmVk"}
            return encode_command(request)
    return b""


@pytest.mark.parametrize("dialect", [JSON, ROCKETMQ])
def test_every_cut_of_a_header_is_read_alike(dialect: int) -> None:
    """At each byte: nothing is read beyond the end."""
    whole = encode_command(request_of(test_same.USUAL, 310, dialect))
    length = int.from_bytes(whole[5:8], "big")
    for end in range(length + 1):
        check_alike(encode_frame(dialect, whole[8 : 8 + end], b"body"))


def request_of(fields: dict[str, str], code: int, dialect: int = JSON) -> RemotingCommand:
    ext = fields | {"AccessKey": "key", "SecurityToken": "token", "Signature": "c2lnbmVk"}
    return RemotingCommand(code=code, language="JAVA", version=409, ext=ext, dialect=dialect, body=b"body")


def java_order(fields: dict[str, str]) -> dict[str, str]:
    """Return the fields in the order of a Java HashMap with 32 buckets."""

    def bucket(name: str) -> int:
        code = 0
        for letter in name:
            code = (31 * code + ord(letter)) & 0xFFFFFFFF
        return (code ^ code >> 16) & 31

    return {name: fields[name] for name in sorted(fields, key=bucket)}


def layouts() -> dict[str, bytes]:
    """Return the frames of signed sends and pulls as the clients write them."""
    keys = {"AccessKey": "RocketMQ", "Signature": UNKNOWN_SIGNATURE}
    long = {test_same.LONG[letter]: value for letter, value in test_same.USUAL.items()}
    outer = '"flag":0,"language":"JAVA","opaque":5,"serializeTypeCurrentRPC":"JSON","version":409'

    def java(code: int, fields: dict[str, str]) -> bytes:
        ext = json.dumps(java_order(fields | keys), separators=(",", ":"))
        return encode_frame(JSON, f'{{"code":{code},"extFields":{ext},{outer}}}'.encode(), b"body")

    def twice(fields: dict[str, str]) -> bytes:
        command = RemotingCommand(code=310, language="JAVA", version=409, ext=java_order(fields | keys), body=b"body")
        command.dialect = ROCKETMQ
        frame = encode_command(command)
        entries = b"".join(binary_entry(*field) for field in fields.items())
        header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
        ext = entries + header[21:]
        return encode_frame(ROCKETMQ, header[:17] + len(ext).to_bytes(4, "big") + ext, b"body")

    go_ext = json.dumps(dict(sorted((long | keys).items())), separators=(",", ":"))
    go = f'{{"code":10,"language":"GO","version":317,"opaque":5,"flag":0,"remark":"","extFields":{go_ext}}}'
    return {
        "Java 4.9 and 5.3, JSON": java(310, test_same.USUAL),
        "Java, reply topics": java(10, long),
        "Java, binary": twice(test_same.USUAL),
        "Go": encode_frame(JSON, go.encode(), b"body"),
        "Java, pull": java(11, test_same_pulls.USUAL),
    }


@pytest.mark.parametrize("name", layouts())
def test_signed_requests_of_clients_are_on_the_fast_path(name: str) -> None:
    """The decoder reads each of them in one pass, and the reader of signed parts does not need the general one."""

    def refused(command: RemotingCommand, **_: bool) -> Signed | None:
        raise AssertionError(f"general reader for {command!r}")

    (command,) = commands_in(layouts()[name])
    assert type(command) in (compiled.load("decode").Send, compiled.load("pull").Pull)
    found = module.Reader(refused).signed_parts(command)
    assert parts(lambda _: found, command) == parts(python_signed_parts, command)
    assert found.access_key == "RocketMQ"


@pytest.mark.parametrize("name", [name for name in layouts() if name != "Java, pull"])
@pytest.mark.parametrize("is_right", [True, False])
def test_a_send_is_verified_in_one_step(name: str, is_right: bool) -> None:
    """The result is that of the pure-Python version, for a right and for a wrong signature."""
    (command,) = commands_in(layouts()[name])
    signed = python_signed_parts(command)
    assert signed is not None
    right = KEY.sign(signed.content, command.body)
    wrong = layouts()[name].replace(signed.signature.encode(), (right if is_right else right[::-1]).encode())
    (command,) = commands_in(wrong)
    topic = command.send_header.topic
    assert KEY.has_signed_send(command, command.code, topic, "RocketMQ") is is_right
    check_alike(wrong)
    command.detached()
    assert KEY.has_signed_send(command, command.code, topic, "RocketMQ") is None
    check_sends_alike(command, wrong)


@pytest.mark.parametrize("name", [name for name in layouts() if name != "Java, pull"])
def test_the_signed_sends_of_a_run_are_counted_in_one_step(name: str) -> None:
    """Up to the first one that is not signed, or not such a send; the commands from `end` on do not count."""
    (command,) = commands_in(layouts()[name])
    signed = python_signed_parts(command)
    assert signed is not None
    right = layouts()[name].replace(signed.signature.encode(), KEY.sign(signed.content, command.body).encode())
    run = commands_in(right * 3 + layouts()[name] + right)
    expected = (command.code, command.send_header.topic, "RocketMQ")
    assert [KEY.count_signed_sends(run, at, 5, *expected) for at in range(6)] == [3, 2, 1, 0, 1, 0]
    assert [KEY.count_signed_sends(run, 0, end, *expected) for end in range(5)] == [0, 1, 2, 3, 3]
    assert KEY.count_signed_sends(run, 0, 5, command.code, command.send_header.topic, "another") == 0
    run[1].detached()
    assert KEY.count_signed_sends(run, 0, 5, *expected) == 1


def test_access_keys_are_the_same_objects() -> None:
    """So that a look-up of the account does not compute a hash."""
    data = layouts()["Go"]
    one, other = (signed_parts(command) for command in commands_in(data * 2))
    assert one is not None
    assert other is not None
    assert one.access_key is other.access_key


def test_a_detached_command_is_read_alike() -> None:
    """Its header is a copy."""
    for data in layouts().values():
        (command,) = commands_in(data)
        expected = parts(signed_parts, command)
        command.detached()
        assert parts(signed_parts, command) == parts(python_signed_parts, command) == expected
