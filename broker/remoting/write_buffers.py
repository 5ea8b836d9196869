"""Write buffers: how the output of a read batch for one peer is passed to the transport, or directly to the socket.

A transport keeps the whole data of a write until its last byte is taken. For a peer that does not read and requested
megabytes it would keep all of them, though most have been sent. In pieces it keeps the unsent bytes and at most one
piece more.

Views of files are not copied for a transport as long as nothing waits in it: the kernel reads them in place, and the
peer begins to receive the first bytes while the rest is being sent. Bytes that the socket does not take are copied
afterwards. The write loop is in a compiled module if it is available (protocol/compiled/gather.py).
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from skylarkmq.broker.base import page_faults
from skylarkmq.protocol import compiled

PIECE_BYTES: Final = 256 * 1024
LONG_PART_BYTES: Final = 8 * 1024
"""Parts of this average length cost less when they are passed separately than when they are joined: 4 µs per 40 KiB."""
MAX_PARTS: Final = 1024
"""Maximum number of parts of one system call."""
_ONLY_BYTES: Final = {bytes}


def write_gathered(
    transport: asyncio.WriteTransport, fd: int, gathered: Sequence[bytes | memoryview], size: int
) -> None:
    """Write `gathered`, `size` bytes: directly to the socket `fd` if it is not -1 and the transport is empty, else
    through the transport. Raises EOFError if a file lost bytes: the connection must be closed."""
    taken = 0
    if fd >= 0 and not transport.get_write_buffer_size():
        taken = write_to_socket(fd, gathered)
    if not taken:
        write_all(transport, gathered, size)
    elif taken < size:
        write_rest(transport, gathered, taken)


def write_all(transport: asyncio.WriteTransport, gathered: Sequence[bytes | memoryview], size: int) -> None:
    """Write `gathered`, `size` bytes, through the transport."""
    if size > PIECE_BYTES:
        for piece in pieces_of(gathered):
            transport.write(piece)
    elif len(gathered) == 1:
        transport.write(gathered[0])
    elif size >= len(gathered) * LONG_PART_BYTES and set(map(type, gathered)) == _ONLY_BYTES:
        transport.writelines(gathered)
    else:
        transport.write(joined(gathered))


def joined(parts: Sequence[bytes | memoryview]) -> bytes:
    """Return the parts joined. Raises EOFError if a file lost bytes meanwhile, which are replaced by zeros."""
    faults = page_faults.count()
    data = b"".join(parts)
    if page_faults.count() != faults:
        raise EOFError("a file lost bytes while they were copied")
    return data


def python_write(fd: int, parts: Sequence[bytes | memoryview]) -> int:
    """Write to a nonblocking socket; return the number of bytes that it took, 0 if it takes none."""
    taken = 0
    for at in range(0, len(parts), MAX_PARTS):
        some = parts[at : at + MAX_PARTS]
        try:
            count = os.writev(fd, some)
        except OSError:
            break  # a full socket; the transport gets any other error itself
        taken += count
        if at + MAX_PARTS < len(parts) and count < sum(map(len, some)):
            break
    return taken


_compiled: Final = compiled.load("gather")
_Write: TypeAlias = Callable[[int, Sequence[bytes | memoryview]], int]
write_to_socket: Final[_Write] = python_write if _compiled is None else _compiled.write


def write_rest(transport: asyncio.WriteTransport, gathered: Sequence[bytes | memoryview], taken: int) -> None:
    """Write `gathered` without its first `taken` bytes."""
    rest = memoryview(joined(gathered))[taken:]
    for at in range(0, len(rest), PIECE_BYTES):
        transport.write(bytes(rest[at : at + PIECE_BYTES]))


def pieces_of(gathered: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    """Yield `gathered` in pieces of up to PIECE_BYTES; a part is never split."""
    piece: list[bytes | memoryview] = []
    left = PIECE_BYTES
    for part in gathered:
        if len(part) > left and piece:
            yield joined(piece)
            piece, left = [], PIECE_BYTES
        piece.append(part)
        left -= len(part)
    yield joined(piece)
