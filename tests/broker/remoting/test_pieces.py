"""Pieces: where large writes are cut."""

from broker.remoting.pieces import PIECE_BYTES, pieces_of


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
