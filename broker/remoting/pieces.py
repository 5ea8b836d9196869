"""Pieces: what a turn gathered for one peer, for more than one write.

A transport keeps the whole of a write until its last byte is taken. A deaf peer that asked for megabytes would so keep
all of them, though most have left; in pieces it keeps what it has not taken, and at most one piece more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

PIECE_BYTES: Final = 256 * 1024


def write_all(write: Callable[[bytes | memoryview], None], gathered: Sequence[bytes | memoryview], size: int) -> None:
    """Write what was gathered, `size` bytes."""
    if size <= PIECE_BYTES:
        write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
    else:
        for piece in pieces_of(gathered):
            write(piece)


def pieces_of(gathered: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """What was gathered, in pieces of up to PIECE_BYTES; what came in one part stays in one."""
    piece: list[bytes | memoryview] = []
    left = PIECE_BYTES
    for part in gathered:
        if len(part) > left and piece:
            yield b"".join(piece)
            piece, left = [], PIECE_BYTES
        piece.append(part)
        left -= len(part)
    yield b"".join(piece)
