"""Frames from a stream in pieces of any size; bytes that are not a frame are reported after the frames before them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylarkmq.protocol.frame import Frame, FrameDecoder, encode_frame, encode_prefix
from skylarkmq.protocol.stream import CommandDecoder

LIMIT = 1024


def as_bytes(frames: list[Frame]) -> list[tuple[int, bytes, bytes]]:
    return [(dialect, bytes(header), bytes(body)) for dialect, header, body in frames]


def feed_in_pieces(decoder: FrameDecoder, stream: bytes, size: int) -> list[tuple[int, bytes, bytes]]:
    return [
        frame
        for start in range(0, len(stream), size)
        for frame in as_bytes(decoder.feed(memoryview(stream[start : start + size])))
    ]


@given(
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40), st.binary(max_size=80)), max_size=8),
    st.integers(1, 60),
)
def test_any_split_gives_the_same_frames(frames: list[tuple[int, bytes, bytes]], size: int) -> None:
    """However the stream is cut, the decoded frames are those that were sent."""
    stream = b"".join(encode_frame(*frame) for frame in frames)
    decoder = FrameDecoder(LIMIT)
    assert feed_in_pieces(decoder, stream, size) == frames
    assert decoder.failure is None
    assert decoder.pending_bytes == 0


def test_headers_and_bodies_of_a_whole_frame_are_views() -> None:
    """A frame that arrives whole is not copied."""
    buffer = bytearray(encode_frame(0, b"head", b"body"))
    ((_, _, body),) = FrameDecoder().feed(memoryview(buffer))
    buffer[-1:] = b"Y"
    assert bytes(body) == b"bodY"


def test_the_limit_counts_the_length_word() -> None:
    """A frame of exactly the limit is accepted; one byte more is not."""
    largest = encode_frame(0, b"", bytes(LIMIT - 8))
    assert len(FrameDecoder(LIMIT).feed(memoryview(largest))) == 1
    decoder = FrameDecoder(LIMIT)
    assert decoder.feed(memoryview(encode_frame(0, b"", bytes(LIMIT - 7)))) == []
    assert "limit 1024" in str(decoder.failure)


@pytest.mark.parametrize(
    "prefix",
    [
        (-1).to_bytes(4, "big", signed=True) + bytes(4),
        (3).to_bytes(4, "big") + bytes(4),
        (4).to_bytes(4, "big") + (1).to_bytes(4, "big"),
        (2**31 - 1).to_bytes(4, "big") + bytes(4),
        b"GET / HTTP/1.1\r\n",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 64])
def test_an_invalid_frame_is_reported_after_the_frames_before_it(prefix: bytes, size: int) -> None:
    """The valid frames are returned, then `failure` is set and nothing more is decoded."""
    good = encode_frame(1, b"h", b"b")
    decoder = FrameDecoder(LIMIT)
    assert feed_in_pieces(decoder, good + prefix + good, size) == [(1, b"h", b"b")]
    assert decoder.failure is not None
    assert decoder.feed(memoryview(good)) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 3, LIMIT - 3, 2**31 - 1])
@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize("feed", ["feed", "feed_commands"])
def test_a_length_that_no_frame_can_have_is_refused_at_once(length: int, size: int, feed: str) -> None:
    """The decoder needs the four bytes of the length only; the frames before them are returned."""
    good, decoder = encode_frame(0, b'{"code":34}'), CommandDecoder(LIMIT)
    stream = good + length.to_bytes(4, "big", signed=True)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert sum(len(getattr(decoder, feed)(memoryview(piece))) for piece in pieces) == 1
    assert str(decoder.failure).startswith(f"illegal frame: length {length},")


@pytest.mark.parametrize("length", [4, LIMIT - 4])
def test_the_smallest_and_the_largest_length_are_awaited(length: int) -> None:
    """The rest of these frames may follow."""
    decoder = CommandDecoder(LIMIT)
    assert decoder.feed_commands(memoryview(length.to_bytes(4, "big"))) == []
    assert decoder.failure is None
    assert decoder.pending_bytes == 4


def test_memory_is_bounded_by_the_bytes_received() -> None:
    """Memory grows with the bytes received, not with the announced length."""
    decoder = FrameDecoder()
    decoder.feed(memoryview(encode_prefix(0, 10, 16_000_000) + b"ten bytes!"))
    assert decoder.pending_bytes == 18
