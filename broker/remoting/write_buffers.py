"""Pieces: what a turn gathered for one peer, on its way into a transport, or past it into the socket.

A transport keeps the whole of a write until its last byte is taken. A deaf peer that asked for megabytes would so keep
all of them, though most have left; in pieces it keeps what it has not taken, and at most one piece more.

Views of files are not copied for a transport as long as nothing waits in it: the kernel takes them from where they are,
and the peer begins to read what stands first while the rest is on its way. What the socket does not take is copied
then. The loop of the write is a compiled leaf's where there is one (protocol/compiled/gather.py).
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from skylarkmq.broker.host import page_faults
from skylarkmq.protocol import compiled

PIECE_BYTES: Final = 256 * 1024
LONG_BYTES: Final = 8 * 1024
"""Parts as long as this on average cost less as they are than to be copied into one: 4 us of 40 KiB."""
MOST_PARTS: Final = 1024
"""Of one system call."""
_ONLY_BYTES: Final = {bytes}


def write_gathered(
    transport: asyncio.WriteTransport, fd: int, gathered: Sequence[bytes | memoryview], size: int
) -> None:
    """Write what was gathered, `size` bytes: to the socket `fd` if nothing waits in its transport, -1: by that.
    EOFError: a file lost bytes, so the connection must not go on."""
    taken = 0
    if fd >= 0 and not transport.get_write_buffer_size():
        taken = write_to_socket(fd, gathered)
    if not taken:
        write_all(transport, gathered, size)
    elif taken < size:
        write_rest(transport, gathered, taken)


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
        transport.write(copied(gathered))


def copied(parts: Sequence[bytes | memoryview]) -> bytes:
    """The parts as one. EOFError: a file lost bytes meanwhile, of which zeros have taken the place."""
    faults = page_faults.count()
    data = b"".join(parts)
    if page_faults.count() != faults:
        raise EOFError("a file lost bytes while they were copied")
    return data


def python_write(fd: int, parts: Sequence[bytes | memoryview]) -> int:
    """Write to a socket that does not wait; returns how many bytes it took, 0 if it does not take any."""
    taken = 0
    for at in range(0, len(parts), MOST_PARTS):
        some = parts[at : at + MOST_PARTS]
        try:
            count = os.writev(fd, some)
        except OSError:
            break  # a full socket; of anything else the transport finds out by itself
        taken += count
        if at + MOST_PARTS < len(parts) and count < sum(map(len, some)):
            break
    return taken


_leaf: Final = compiled.load("gather")
write_to_socket: Final[Callable[[int, Sequence[bytes | memoryview]], int]] = (
    python_write if _leaf is None else _leaf.write
)


def write_rest(transport: asyncio.WriteTransport, gathered: Sequence[bytes | memoryview], taken: int) -> None:
    """Write what was gathered behind its first `taken` bytes."""
    rest = memoryview(copied(gathered))[taken:]
    for at in range(0, len(rest), PIECE_BYTES):
        transport.write(bytes(rest[at : at + PIECE_BYTES]))


def pieces_of(gathered: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """What was gathered, in pieces of up to PIECE_BYTES; what came in one part stays in one."""
    piece: list[bytes | memoryview] = []
    left = PIECE_BYTES
    for part in gathered:
        if len(part) > left and piece:
            yield copied(piece)
            piece, left = [], PIECE_BYTES
        piece.append(part)
        left -= len(part)
    yield copied(piece)
