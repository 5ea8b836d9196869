"""Pieces: where large writes are cut."""

import asyncio
from collections.abc import Iterable

import pytest

from broker.remoting.pieces import LONG_BYTES, PIECE_BYTES, pieces_of, write_all

LONG = b"x" * (2 * LONG_BYTES)


def test_much_leaves_in_pieces() -> None:
    """A transport keeps what it was given until all of it is taken, so nothing large is given at once; no byte is lost
    or moved, and a part is never cut."""
    parts: list[bytes | memoryview] = [bytes([number]) * (PIECE_BYTES // 3) for number in range(7)]
    parts += [memoryview(b"x" * (2 * PIECE_BYTES)), b"y", b"z" * (PIECE_BYTES - 1), b"!"]
    pieces = list(pieces_of(parts))
    assert b"".join(pieces) == b"".join(parts)
    assert [len(piece) // (PIECE_BYTES // 3) for piece in pieces] == [3, 3, 1, 6, 3, 0]
    assert [len(piece) for piece in pieces[3:]] == [2 * PIECE_BYTES, PIECE_BYTES, 1]


def test_what_fits_into_one_piece_is_one() -> None:
    """To the byte."""
    assert list(pieces_of([b"a" * (PIECE_BYTES - 1), b"b"])) == [b"a" * (PIECE_BYTES - 1) + b"b"]
    assert list(pieces_of([b"a" * PIECE_BYTES, b"b"])) == [b"a" * PIECE_BYTES, b"b"]


class Recording(asyncio.WriteTransport):
    """Remembers what it was given, call by call."""

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
    """Short parts become one, long ones stay as they are; a view is copied, since it may not be kept."""
    transport = Recording()
    write_all(transport, parts, sum(map(len, parts)))
    assert transport.calls == calls
