"""Sends as columns: what is cut out of many headers at once is what the general decoder reads in each."""

import random
from typing import Any

import msgspec
import pytest

from skylarkmq.protocol import stream
from skylarkmq.protocol.codes import Flag
from skylarkmq.protocol.command import MSGPACK, ROCKETMQ, RemotingCommand
from skylarkmq.protocol.disk import index_keys
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.headers.pull import PullMessageHeader
from skylarkmq.protocol.headers.send import SendMessageHeader, SendMessageV2Header
from skylarkmq.protocol.message import PropertyName, property_value, tags_code
from skylarkmq.protocol.send_columns import FEWEST, ColumnReader, SendColumns, apart
from skylarkmq.protocol.send_layout import find_layout
from skylarkmq.protocol.serialize import encode_command

LIMIT = 1 << 24
HEADERS = {310: SendMessageV2Header, 10: SendMessageHeader}


def send(number: int, body: bytes = b"body", code: int = 310, flag: int = 0, **fields: Any) -> bytes:
    """A send as a Java client writes it."""
    properties = f"KEYS\x01k{number:04}\x02UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01A\x02"
    known = {"reconsume_times": 0, "unit_mode": "false", "batch": "false", "properties": properties}
    header = HEADERS[code]("group", "T", "TBW102", 4, number % 4, 0, 1_700_000_000_000 + number, 0, **known)
    command = RemotingCommand.request(code, msgspec.structs.replace(header, **fields), body)
    command.opaque, command.language, command.flag = number, "JAVA", flag
    return encode_command(command)


def by_columns() -> stream.DecodeFrames:
    """The pass of a reader that was never disappointed."""
    return ColumnReader(stream.python_decode_frames).decode


def decoded(data: bytes, decode: stream.DecodeFrames | None = None) -> tuple[list[RemotingCommand], int]:
    commands: list[RemotingCommand] = []
    end = (decode or by_columns())(memoryview(bytearray(data)), 0, LIMIT, commands)
    return commands, end


def seen(command: RemotingCommand) -> tuple[Any, ...]:
    sent = command.send_header
    return command.code, command.flag, command.opaque, command.dialect, bytes(command.body), sent and sent.to_ext()


def hold_to_decoder(columns: SendColumns) -> None:
    """Each row says what the general decoder finds in that frame."""
    sent, sample = columns.columns, columns.sample
    ones = columns.apart()
    assert len(ones) == len(columns) == len(columns.bodies)
    for at, one in enumerate(ones):
        header = one.send_header
        text = header.properties if header.properties.endswith("\x02") else header.properties + "\x02"
        assert (one.code, one.flag, b"%d" % one.opaque) == (columns.code, 0, sent.opaques[at])
        assert (header.topic, header.queue_id, header.born_timestamp) == (
            sent.topics[at],
            sent.queue_ids[at],
            sent.born_timestamps[at],
        )
        assert (header.flag, header.sys_flag, header.reconsume_times) == (
            sample.flag,
            sample.sys_flag,
            sample.reconsume_times,
        )
        assert text.encode() == sent.properties[at]
        assert bytes(one.body) == bytes(columns.bodies[at])
        assert sent.tags_codes[at] == tags_code(property_value(text, PropertyName.TAGS))
        keys = [sent.unique_keys[at], sent.keys[at]] if sent.keys else [sent.unique_keys[at]]
        assert keys == index_keys(sent.properties[at])


@pytest.mark.parametrize("code", HEADERS)
def test_sends_that_differ_in_values_are_one_command(code: int) -> None:
    """Opaque, born time, queue, keys and bodies differ; and the rest of the read is decoded as ever."""
    frames = [send(1_000 + n, b"x" * (n % 7 * 50), code) for n in range(3 * FEWEST)]
    rest = [send(5, flag=Flag.ONEWAY), send(6)[:40]]
    commands, end = decoded(b"".join(frames + rest))
    assert [type(command) is SendColumns for command in commands] == [True, False]
    assert isinstance(commands[0], SendColumns)
    hold_to_decoder(commands[0])
    assert end == len(b"".join(frames + rest[:1]))
    assert commands[1].is_oneway


def test_layouts_of_a_read_keep_the_order_of_its_sends() -> None:
    """Queue ids of one and of two digits, two tags as long as each other, bodies of any length."""
    choice = random.Random(1)
    frames = []
    for n in range(1_000, 1_400):
        properties = f"UNIQ_KEY\x01{n:032X}\x02KEYS\x01{choice.randrange(10, 99)}\x02TAGS\x01{choice.choice('AB')}"
        frames.append(send(n, bytes(choice.randrange(90)), queue_id=choice.randrange(16), properties=properties))
    commands, _ = decoded(b"".join(frames))
    (columns,) = commands
    assert isinstance(columns, SendColumns)
    hold_to_decoder(columns)
    assert [int(opaque) for opaque in columns.columns.opaques] == list(range(1_000, 1_400))


@pytest.mark.parametrize("code", HEADERS)
def test_topics_are_values(code: int) -> None:
    """Those as long as each other are of one layout; one that is no plain text ends the columns."""
    choice = random.Random(1)
    topics = [choice.choice(("T0", "T1", "%R%A|b_-", "Topic")) for _ in range(6 * FEWEST)]
    frames = [send(1_000 + n, code=code, topic=topic) for n, topic in enumerate(topics)]
    odd = [send(2_000 + n, code=code, topic=topic) for n, topic in enumerate(('T"', "T\\", "T\u00fc", "T "))]
    commands, _ = decoded(b"".join(frames + odd))
    assert isinstance(commands[0], SendColumns)
    hold_to_decoder(commands[0])
    assert commands[0].columns.topics == topics
    assert [command.send_header.topic for command in commands[1:]] == ['T"', "T\\", "T\u00fc", "T "]


def test_few_sends_are_decoded_one_by_one() -> None:
    """And many with as many layouts."""
    few = [send(1_000 + n) for n in range(FEWEST - 1)]
    odd = [send(1_000 + n, properties=f"UNIQ_KEY\x01{'A' * (n % 30 + 1)}\x02") for n in range(4 * FEWEST)]
    for frames in (few, odd):
        commands, _ = decoded(b"".join(frames))
        assert [command.opaque for command in commands] == list(range(1_000, 1_000 + len(frames)))


def test_reads_are_left_alone_after_many_in_vain() -> None:
    """Two, then six, then fourteen; a read in which something is found ends that."""
    odd = b"".join(send(1_000 + n, sys_flag=n % 5) for n in range(2 * FEWEST))
    alike = b"".join(send(1_000 + n) for n in range(FEWEST))
    reader = ColumnReader(stream.python_decode_frames)

    def is_taken(data: bytes) -> bool:
        return isinstance(decoded(data, reader.decode)[0][0], SendColumns)

    assert is_taken(alike)
    for left_alone in (2, 6, 14):
        assert not is_taken(odd)
        assert [is_taken(alike) for _ in range(left_alone)] == [False] * left_alone
    assert [is_taken(data) for data in (alike, odd, alike, alike, alike)] == [True, False, False, False, True]


UNUSUAL: list[dict[str, Any]] = [
    {"batch": "true"}, {"flag": Flag.ONEWAY}, {"flag": Flag.RESPONSE}, {"queue_id": -1}, {"properties": ""},
    {"properties": "UNIQ_KEY\x01\u00fc\x02"}, {"properties": 'UNIQ_KEY\x01A\x02a\x01"\x02'},
    {"properties": "KEYS\x01a\x02"}, {"properties": "UNIQ_KEY\x01A\x02KEYS\x01a b\x02"},
    {"properties": "UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02"},
    {"properties": "UNIQ_KEY\x01A\x02x\x02"}, {"properties": "UNIQ_KEY\x01A\x02x\x01\x02"},
]  # fmt: skip


@pytest.mark.parametrize("unusual", UNUSUAL)
def test_what_is_unusual_has_no_layout(unusual: dict[str, Any]) -> None:
    """However many of them there are, they are decoded one by one."""
    frames = [send(1_000 + n, **unusual) for n in range(2 * FEWEST)]
    commands, _ = decoded(b"".join(frames))
    assert not any(isinstance(command, SendColumns) for command in commands)
    assert list(map(seen, commands)) == list(map(seen, decoded(b"".join(frames), stream.python_decode_frames)[0]))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"opaque":1020', b'"opaque":0020'), (b'"opaque":1020', b'"opaque":10e0'), (b'"e":"0"', b'"e":"-"'),
        (b'"g":"1700', b'"g":"0700'), (b"k1020", b'k"020'), (b"k1020", b"k\\u00"), (b"k1020", b"k1\xc3\xbc0"),
        (b"0003FC", b"00 3FC"), (b"k1020", b"k1 20"), (b"WAIT", b"wait"), (b'"T"', b'"U"'),
        (b'"flag":0', b'"flag":2'), (b"KEYS", b"KEY_"), (b"\\u0002", b"\\u0001"),
    ],
)  # fmt: skip
def test_one_that_only_looks_alike_is_not_taken(old: bytes, new: bytes) -> None:
    """Something else in the place of a value, or other fixed bytes: each command is what the decoder makes of it."""
    frames = [send(1_000 + n) for n in range(2 * FEWEST)]
    assert frames[20].count(old) >= 1
    frames[20] = frames[20].replace(old, new, 1)
    data = b"".join(frames)
    try:
        expected = list(map(seen, decoded(data, stream.python_decode_frames)[0]))
    except ProtocolError as error:
        with pytest.raises(ProtocolError, match=str(error)):
            decoded(data)
        return
    commands, _ = decoded(data)
    assert list(map(seen, apart(commands))) == expected
    for command in commands:
        if isinstance(command, SendColumns):
            hold_to_decoder(command)


def test_a_layout_is_not_trusted_for_how_it_looks() -> None:
    """Fields that stand twice, or inside others, are not where they are looked for first."""
    usual = send(1_000)
    header = usual[8 : 8 + int.from_bytes(usual[5:8], "big")]
    assert find_layout(header) is not None
    for old, new in (
        (b'"extFields"', b'"remark":null,"x":{"opaque":5},"extFields"'),
        (b'"e":"0"', b'"e":"7","e":"0"'),
        (b'"a":', b'"n":{"g":"1700000001000"},"a":'),
        (b'"opaque":1000', b'"opaque":1000,"opaque":7'),
        (b'"i":', b'"\\"i":"UNIQ_KEY\\u0001A","i":'),
    ):
        assert header.count(old) == 1
        assert find_layout(header.replace(old, new)) is None


def pieces(choice: random.Random) -> bytes:
    """Some frames of one producer, mostly alike."""
    tags, width, queues = choice.choice("AB"), choice.choice((1, 3, 8)), choice.choice((4, 16))
    name = choice.choice(("KEYS", "order", "DELAY"))
    code = choice.choice((310, 10))
    fields: dict[str, Any] = choice.choice(UNUSUAL) if choice.random() < 0.2 else {}
    first, ending = choice.choice((10, 10**9, 2**31 - 200)), choice.choice(("", "\x02"))
    frames = []
    for n in range(choice.choice((5, 60, 90))):
        value = "".join(choice.choices("abcXYZ019-_.$ \u00fc" if choice.random() < 0.01 else "abc019-", k=width))
        text = f"{name}\x01{value}\x02UNIQ_KEY\x01{choice.getrandbits(64):016X}\x02TAGS\x01{tags}"
        usual: dict[str, Any] = {"queue_id": choice.randrange(queues), "properties": text + ending}
        frames.append(send(first + n, bytes(choice.choice((0, 4, 100))), code, **usual | fields))
    return b"".join(frames)


def others(choice: random.Random) -> bytes:
    """Frames that are no sends in JSON."""
    command = RemotingCommand.request(11, PullMessageHeader("g", "T", 0, 0, 32, 0, 0, 0, 0))
    command.dialect = choice.choice((0, ROCKETMQ, MSGPACK))
    return encode_command(command)


def test_random_reads_are_read_as_without_columns(fuzz_rounds: int) -> None:
    """Producers of all kinds, cut and damaged: the same commands up to the same place, and the same errors."""
    choice = random.Random(5)
    taken = 0
    for _ in range(max(200, fuzz_rounds // 300)):
        makers = choice.choices((pieces, pieces, others), k=choice.randrange(1, 5))
        data = bytearray(b"".join(make(choice) for make in makers))
        for _ in range(choice.choice((0, 0, 1, 3))):
            data[choice.randrange(len(data))] = choice.choice(b'09aZ"\\ \x01\x02\xff')
        del data[len(data) - choice.choice((0, 0, 7)) :]
        outcomes = []
        for decode in (stream.python_decode_frames, by_columns()):
            commands: list[RemotingCommand] = []
            try:
                end: Any = decode(memoryview(data), 0, LIMIT, commands)
            except ProtocolError as error:
                end = str(error)
            outcomes.append((end, list(map(seen, apart(commands)))))
            for command in commands:
                if isinstance(command, SendColumns):
                    taken += len(command)
                    hold_to_decoder(command)
        assert outcomes[0] == outcomes[1]
    assert taken > 3_000
