"""Pieces: what a turn gathered for one peer, for more than one write.

A transport keeps the whole of a write until its last byte is taken. A deaf peer that asked for megabytes would so keep
all of them, though most have left; in pieces it keeps what it has not taken, and at most one piece more.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

PIECE_BYTES: Final = 256 * 1024
LONG_BYTES: Final = 8 * 1024
"""Parts as long as this on average cost less as they are than to be copied into one: 4 us of 40 KiB."""
_ONLY_BYTES: Final = {bytes}


def write_all(transport: asyncio.WriteTransport, gathered: Sequence[bytes | memoryview], size: int) -> None:
    """Write what was gathered, `size` bytes."""
    if size > PIECE_BYTES:
        for piece in pieces_of(gathered):
            transport.write(piece)
    elif len(gathered) == 1:
        transport.write(gathered[0])
    elif size >= len(gathered) * LONG_BYTES and set(map(type, gathered)) == _ONLY_BYTES:
        transport.writelines(gathered)
    else:
        transport.write(b"".join(gathered))


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
