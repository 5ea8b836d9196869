"""Write buffers: how large writes are split."""

import asyncio
import random
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import pytest

from skylarkmq.broker.remoting.write_buffers import (
    LONG_PART_BYTES,
    MAX_PARTS,
    PIECE_BYTES,
    pieces_of,
    python_write,
    write_all,
    write_rest,
    write_to_socket,
)
from skylarkmq.protocol.disk import UNIT
from skylarkmq.protocol.unit_runs import UnitRun

LONG = b"x" * (2 * LONG_PART_BYTES)


def test_large_output_is_split_into_pieces() -> None:
    """A transport keeps its data until all of it is taken, so it gets no large data at once; no byte is lost or moved,
    and a part is never split."""
    parts: list[bytes | memoryview] = [bytes([number]) * (PIECE_BYTES // 3) for number in range(7)]
    parts += [memoryview(b"x" * (2 * PIECE_BYTES)), b"y", b"z" * (PIECE_BYTES - 1), b"!"]
    pieces = list(pieces_of(parts))
    assert b"".join(pieces) == b"".join(parts)
    assert [len(piece) // (PIECE_BYTES // 3) for piece in pieces] == [3, 3, 1, 6, 3, 0]
    assert [len(piece) for piece in pieces[3:]] == [2 * PIECE_BYTES, PIECE_BYTES, 1]


def test_output_up_to_the_piece_size_is_one_piece() -> None:
    """Exactly up to PIECE_BYTES."""
    assert list(pieces_of([b"a" * (PIECE_BYTES - 1), b"b"])) == [b"a" * (PIECE_BYTES - 1) + b"b"]
    assert list(pieces_of([b"a" * PIECE_BYTES, b"b"])) == [b"a" * PIECE_BYTES, b"b"]


class Recording(asyncio.WriteTransport):
    """Records the data of each call."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def write(self, data: object) -> None:
        self.calls.append(data)

    def writelines(self, list_of_data: Iterable[object]) -> None:
        self.calls.append(list(list_of_data))


@pytest.mark.parametrize(
    ("parts", "calls"),
    [
        ([b"short"], [b"short"]),
        ([b"a", b"b"], [b"ab"]),
        ([b"head", LONG, b"head", LONG], [[b"head", LONG, b"head", LONG]]),
        ([b"head", memoryview(LONG)], [b"head" + LONG]),
        ([b"x" * PIECE_BYTES, b"y"], [b"x" * PIECE_BYTES, b"y"]),
    ],
    ids=["one", "short ones", "long ones", "a view", "too much"],
)
def test_how_parts_are_written(parts: list[bytes | memoryview], calls: list[object]) -> None:
    """Short parts are joined, long ones stay separate; a view is copied, since it must not be kept."""
    transport = Recording()
    write_all(transport, parts, sum(map(len, parts)))
    assert transport.calls == calls


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a nonblocking socket to write to, and its peer."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


Write = Callable[[int, Sequence[bytes | memoryview]], int]
both_ways = pytest.mark.parametrize("write", [python_write, write_to_socket], ids=["plain", "used"])


class Segment(msgspec.Struct):
    """A log segment."""

    view: memoryview
    start: int = 0
    is_deleted: bool = False


def parts_of(rng: random.Random, segment: memoryview, responses: int) -> list[bytes | memoryview]:
    """Return heads, views, and records of a segment."""
    parts: list[bytes | memoryview] = []
    for number in range(responses):
        parts += [rng.randbytes(rng.randrange(40)), segment[number : 2 * number]]
        ranges = [(78 * at, rng.randrange(1, 78)) for at in range(rng.randint(1, 64))]
        units = b"".join(UNIT.pack(at, size, 0) for at, size in ranges)
        records = UnitRun(0, units, Segment(segment), 5000, 5000, 90).take(0, len(ranges), 5000)
        assert records is not None
        parts += records.parts_after(rng.randbytes(30))
    return parts


@both_ways
@pytest.mark.parametrize("responses", [1, 5, 40])
def test_parts_are_written_without_copy(
    write: Write, responses: int, line: tuple[socket.socket, socket.socket]
) -> None:
    """Also more parts than one call takes: the peer gets every byte, in order."""
    ours, theirs = line
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    rng = random.Random(responses)
    parts = parts_of(rng, memoryview(rng.randbytes(5000)), responses)
    whole = b"".join(parts)
    assert write(ours.fileno(), parts * 2) == 2 * len(whole)
    assert theirs.recv(3 * len(whole), socket.MSG_WAITALL | socket.MSG_DONTWAIT) == 2 * whole


@both_ways
def test_write_returns_the_bytes_that_the_socket_took(write: Write, line: tuple[socket.socket, socket.socket]) -> None:
    """The peer gets exactly the returned number of bytes; a full socket, and one without a peer, take none."""
    ours, theirs = line
    parts: list[bytes | memoryview] = [b"ab" * 500, memoryview(b"xyz" * 400)] * (2 * MAX_PARTS)
    taken = write(ours.fileno(), parts)
    assert 0 < taken < 1100 * 4 * MAX_PARTS
    assert write(ours.fileno(), parts) == 0
    theirs.setblocking(False)
    received = bytearray()
    while len(received) < taken:
        received += theirs.recv(1 << 20)
    assert received == b"".join(parts)[:taken]
    theirs.close()
    assert write(ours.fileno(), parts) == 0


def test_unsent_bytes_are_copied_in_pieces() -> None:
    """Bytes that a socket did not take go to the transport, and nothing of the segment is kept."""
    parts: list[bytes | memoryview] = [b"a" * 100, memoryview(bytes(range(256)) * 3000)]
    recording = Recording()
    write_rest(recording, parts, 101)
    assert b"".join(recording.calls) == b"".join(parts)[101:]  # type: ignore[arg-type]
    assert {type(call) for call in recording.calls} == {bytes}
    assert [len(call) for call in recording.calls[:-1]] == [PIECE_BYTES] * 2  # type: ignore[arg-type]
