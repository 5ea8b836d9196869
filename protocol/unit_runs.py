"""Runs of queue units: how far apart the records lie that they point to, and those records.

What a pull of the next messages needs to know, without an object for each of them. By the compiled leaf where there is
one, which keeps in one object where all the records lie, instead of a view of each.

Units are those of disk.py, one at least and up to MOST_UNITS, whole.
"""

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from protocol import compiled
from protocol.disk import UNIT_SIZE

MOST_UNITS: Final = 64

_SIZES: Final = [Struct(">" + "8xi8x" * count).unpack for count in range(MOST_UNITS + 1)]
_PLACES: Final = [Struct(">" + "qi8x" * count).unpack for count in range(MOST_UNITS + 1)]
_OFFSET: Final = Struct(">q").unpack_from


def plain_extent(units: bytes | bytearray) -> tuple[int, int, int, int]:
    """The first record's offset, the last one's, where that ends, and how long all together are."""
    sizes = _SIZES[len(units) // UNIT_SIZE](units)
    (begin,), (last,) = _OFFSET(units), _OFFSET(units, len(units) - UNIT_SIZE)
    return begin, last, last + sizes[-1], sum(sizes)


def plain_gather(
    units: bytes | bytearray, segment: memoryview, start: int, _size: int, head: bytes
) -> Sequence[bytes | memoryview]:
    """`head`, and the records in pieces, `_size` bytes together, out of the segment that begins at offset `start`; all
    lie in it.

    Views of the segment, or bytes: to be kept no longer than those may be.
    """
    numbers = iter(_PLACES[len(units) // UNIT_SIZE](units))
    records = [segment[(at := offset - start) : at + size] for offset, size in zip(numbers, numbers, strict=True)]
    return [head, *records]


_leaf: Final = compiled.load("gather")
extent: Final[Callable[[bytes | bytearray], tuple[int, int, int, int]]] = (
    plain_extent if _leaf is None else _leaf.extent
)
gather: Final[Callable[[bytes | bytearray, memoryview, int, int, bytes], Sequence[bytes | memoryview]]] = (
    plain_gather if _leaf is None else _leaf.gather
)
Records: Final[type[memoryview]] = memoryview if _leaf is None else _leaf.Records
"""What records are gathered as: has a length, and gives bytes to whoever asks for a buffer."""
