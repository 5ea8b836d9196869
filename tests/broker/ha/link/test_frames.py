"""Frames of the replication link: round trips, and bytes that no peer of ours sends."""

from random import Random
from zlib import crc32

import pytest

from skylarkmq.broker.config.keys import FRAME_LIMIT
from skylarkmq.broker.ha.core.epochs import Epoch, EpochHistory, founded
from skylarkmq.broker.ha.core.messages import Ack, Beat, Data, Hello, Refused, Welcome
from skylarkmq.broker.ha.link.frames import (
    DATA_HEAD_BYTES,
    MAX_CONTROL_BYTES,
    MAX_DATA_BYTES,
    PREFACE,
    VIEWED_BYTES,
    Challenge,
    Frame,
    FrameReader,
    LinkError,
    Proof,
    data_head,
    encode,
    last_ack,
    lone_data,
    unchecked_data_head,
)

FOUNDED = founded("a")

HISTORY = EpochHistory((Epoch(1, 0), Epoch(7, 1 << 40)))
MESSAGES: list[Frame] = [
    Hello("broker-a", "n2", "größer", 7, HISTORY, 0, 1 << 41, 1),
    Welcome(8, 1 << 40, 12, EpochHistory((FOUNDED, *HISTORY.entries))),
    Data(8, 1 << 40, 12, b"records"),
    Data(8, 0, 0, b""),
    Beat(8, 13),
    Ack(8, 1 << 62, 0),
    Refused(9, "epoch 8 is over", lost=True),
    Challenge(bytes(range(32))),
    Proof(bytes(range(32, 64))),
]


def read(data: bytes, size: int | None = None) -> list[Frame]:
    """Return the messages of these bytes, fed in pieces of this size."""
    reader, messages = FrameReader(), list[Frame]()
    for at in range(0, len(data), size or len(data)):
        messages += reader.feed(data[at : at + (size or len(data))])
    return messages


def control(kind: int, body: bytes) -> bytes:
    content = bytes((kind, 0, 0, 0)) + body
    return (4 + len(content)).to_bytes(4, "big") + crc32(content).to_bytes(4, "big") + content


def test_the_last_of_several_acks_replaces_the_others() -> None:
    """Other bytes are left to the reader of frames: none, half an ACK, another message, a wrong checksum."""
    acks = [encode(Ack(8, 90, end)) for end in (70, 80, 90)]
    assert last_ack(memoryview(b"".join(acks))) == Ack(8, 90, 90)
    assert last_ack(acks[0]) == Ack(8, 90, 70)
    damaged = acks[1][:-1] + b"\0"
    others = (b"", acks[0][:-1], b"".join(acks)[1:], acks[0] + encode(Beat(8, 13)), acks[0] + damaged + acks[2])
    assert [last_ack(data) for data in others] == [None] * len(others)


def test_a_lone_frame_of_data_is_decoded_at_once() -> None:
    """Other bytes are left to the reader: a part of a frame, more than one, another message, bytes of sendfile, a wrong
    checksum."""
    data = Data(8, 1 << 40, 12, b"records")
    frame = encode(data)
    assert lone_data(memoryview(frame)) == data
    assert lone_data(memoryview(encode(Data(8, 0, 0, b"")))) == Data(8, 0, 0, b"")
    parts = (b"", frame[:35], frame[:-1], frame[1:])
    damaged = [frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :] for at in range(len(frame))]
    others = (*parts, frame + frame, encode(Beat(8, 13)), unchecked_data_head(8, 1, 12, 7) + b"records", *damaged)
    assert [lone_data(memoryview(other)) for other in others] == [None] * len(others)


@pytest.mark.parametrize("size", [None, 1, 7])
def test_messages_are_read_back(size: int | None) -> None:
    """Whole, byte by byte, and in pieces across the borders of frames."""
    assert read(PREFACE + b"".join(map(encode, MESSAGES)), size) == MESSAGES


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_the_rest_of_a_large_frame_is_read_in_its_place(size: int) -> None:
    """In reads of any size, none of which goes beyond the frame. What follows comes by `feed`."""
    payload = Random(2).randbytes(5_000)
    frame = unchecked_data_head(3, 5, 4, len(payload)) + payload
    reader = FrameReader()
    assert list(reader.feed(PREFACE)) == []
    for _ in range(2):
        assert list(reader.feed(frame[:100])) == []
        at, messages = 100, list[Frame]()
        while (rest := reader.rest(1_000)) is not None:
            taken = min(size, len(rest))
            rest[:taken] = frame[at : at + taken]
            messages += reader.filled(taken)
            at += taken
        if at < len(frame):
            assert len(frame) - at < 1_000
            messages += reader.feed(frame[at:] + encode(Beat(8, 13))[:5])
            messages += reader.feed(encode(Beat(8, 13))[5:])
            assert messages.pop() == Beat(8, 13)
        assert messages == [Data(3, 5, 4, payload)]


def test_log_bytes_of_a_large_frame_are_a_view() -> None:
    """It is valid until the next bytes come. Those of a smaller frame are a copy."""
    reader, payload = FrameReader(), bytes(VIEWED_BYTES)
    assert list(reader.feed(PREFACE)) == []
    for size, kind in ((len(payload), memoryview), (100, bytes), (len(payload), memoryview)):
        frame = encode(Data(3, 5, 4, payload[:size]))
        assert list(reader.feed(frame[:50])) == []
        (message,) = reader.feed(frame[50:])
        assert isinstance(message, Data)
        assert isinstance(message.payload, kind)
        assert message.payload == payload[:size]


def test_small_frames_have_no_place() -> None:
    """Reads into the shared buffer take several of them at once."""
    reader = FrameReader()
    assert list(reader.feed(PREFACE)) == []
    assert reader.rest(1) is None
    frame = encode(Data(3, 5, 4, bytes(999)))
    assert list(reader.feed(frame[:36])) == []
    assert reader.rest(1_000) is None
    assert reader.rest(999) is not None


def test_the_head_of_data_has_36_bytes() -> None:
    """The payload follows the head, so that a batch is sent without a copy."""
    payload = b"x" * 100
    head = data_head(3, 5, 4, payload)
    assert len(head) == DATA_HEAD_BYTES == 36
    assert read(PREFACE + head + payload) == [Data(3, 5, 4, payload)]


def test_a_checksum_covers_the_payload() -> None:
    """A flipped bit in the bytes of the log is found before they are written."""
    frame = bytearray(encode(Data(3, 5, 4, b"records")))
    frame[-1] ^= 1
    with pytest.raises(LinkError, match="checksum"):
        read(PREFACE + frame)


def test_bytes_of_sendfile_have_a_checksum_of_the_head_only() -> None:
    """The payload of an unchecked frame may be anything; its head may not."""
    head = unchecked_data_head(3, 5, 4, 7)
    assert read(PREFACE + head + b"records") == [Data(3, 5, 4, b"records")]
    changed = bytearray(head)
    changed[-1] ^= 1
    with pytest.raises(LinkError, match="checksum"):
        read(PREFACE + changed + b"records")


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (b"\0\0\0\0\0\0\x10\0", "does not begin with"),  # a classic slave that reports 4,096
        (b"GET / HTTP/1.1", "does not begin with"),
        (PREFACE[:-1] + b"\x02", "does not begin with"),
        (PREFACE + control(9, b""), "unknown type 9"),
        (PREFACE + control(1, b"\xc1"), "not readable"),
        (PREFACE + control(5, b"short"), "not readable"),
        (PREFACE + control(4, b"short"), "not readable"),
        (PREFACE + control(6, bytes(25)), "not readable"),
        (PREFACE + b"\0\0\0\7" + bytes(8), "with 7 bytes"),
        (PREFACE + (MAX_CONTROL_BYTES + 1).to_bytes(4, "big") + bytes(4) + b"\1\0\0\0", "with 1048577 bytes"),
        (
            PREFACE + (MAX_DATA_BYTES + 1).to_bytes(4, "big") + bytes(4) + b"\4\0\0\0",
            f"with {MAX_DATA_BYTES + 1} bytes",
        ),
        (PREFACE + encode(Welcome(-1, 0, 0, HISTORY)), "not readable"),
        (PREFACE + encode(Refused(1, "x" * 1001)), "not readable"),
        (PREFACE + encode(Welcome(1, 0, 0, EpochHistory((Epoch(2, 0), Epoch(1, 5))))), "do not increase"),
        (
            PREFACE + encode(Hello("g", "n", "s", 0, EpochHistory((Epoch(1, 5), Epoch(2, 5))), 0, 0, 1)),
            "do not increase",
        ),
    ],
)
def test_other_bytes_are_refused(start: bytes, problem: str) -> None:
    """At the first byte that shows it, with the reason."""
    with pytest.raises(LinkError, match=problem):
        read(start)


def test_the_largest_frames_are_read() -> None:
    """The limits are inclusive."""
    payload = bytes(MAX_DATA_BYTES - DATA_HEAD_BYTES + 4)
    assert read(PREFACE + encode(Data(1, 2, 3, payload)), 1 << 20) == [Data(1, 2, 3, payload)]


def test_the_largest_record_fits_into_one_frame() -> None:
    """`maxMessageSize` may exceed the limit of a request frame, which therefore limits a message: 16 MiB, with 64 KiB
    for the other fields of its record."""
    record = bytes(FRAME_LIMIT.parse("16777216") + (64 << 10))
    assert read(PREFACE + unchecked_data_head(1, 2, 3, len(record)) + record, 1 << 20) == [Data(1, 2, 3, record)]
    with pytest.raises(ValueError, match="16777217"):
        FRAME_LIMIT.parse("16777217")


def test_a_promise_that_no_group_reaches_is_refused() -> None:
    """Terms above it have to be readable for the followers."""
    with pytest.raises(LinkError, match="not readable"):
        read(PREFACE + encode(Hello("g", "n", "s", (1 << 61) + 1, EpochHistory(), 0, 0, 1)))


def test_damaged_bytes_give_an_error_or_no_message() -> None:
    """Random changes never give another message, because each frame has a checksum; and never another exception."""
    rng = Random(1)
    whole = PREFACE + b"".join(map(encode, MESSAGES))
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(PREFACE), len(data))] ^= 1 << rng.randrange(8)
        reader, messages = FrameReader(), list[Frame]()
        try:
            for message in reader.feed(data):
                messages.append(message)
        except LinkError:
            pass
        assert messages == MESSAGES[: len(messages)]
        assert len(messages) < len(MESSAGES)
