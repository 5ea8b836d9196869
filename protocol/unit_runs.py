"""Stretches of queue units: those whose records may go out as they stand in one segment, without a look at each.

What pulls of the next messages, and of those behind them, need to know is found once for all of them; a pull then takes
its records without an object for each. By the compiled leaf where there is one, which keeps in one object where all the
records lie, instead of a view of each.

Units are those of disk.py.
"""

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec
import numpy as np

from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from skylarkmq.protocol.unit_search import UNIT_DTYPE

MOST_UNITS: Final = 64
"""As many are taken at once at most."""


class Segment(Protocol):
    """Where records lie, from byte `start` of the log on."""

    start: int
    is_deleted: bool
    view: memoryview


S = TypeVar("S", bound=Segment)


class PlainRecords(msgspec.Struct, gc=False):
    """Records of a segment, `size` bytes from `begin` on, the last of which begins at `last`; `is_run`: with nothing
    between them. To be used within the turn. A region of no file, to whoever writes it (broker.remoting)."""

    views: Sequence[memoryview]
    size: int
    begin: int
    last: int
    is_run: bool
    position: int = 0
    fd: int = -1
    is_hot: bool = True

    @property
    def count(self) -> int:
        """How many."""
        return len(self.views)

    @property
    def view(self) -> memoryview:
        """The bytes, copied."""
        return memoryview(b"".join(self.views))

    def parts_behind(self, head: bytes) -> Sequence[bytes | memoryview]:
        """`head` and the bytes, copied or not."""
        return [head, *self.views]

    def hold(self, _holder: object) -> None:
        """Not kept beyond the turn."""

    def release(self, _holder: object) -> None:
        """Nothing was kept."""


class PlainStretch(Generic[S]):
    """The first `count` units of `units`, which begin at queue offset `first`: up to the one whose record does not lie
    behind that of the one before, ends behind byte `limit` of the log or `most_span` behind the first's begin, is none,
    or has `longest` bytes or more. Their records lie between `begin` and `end`."""

    def __init__(
        self, first: int, units: bytes | bytearray, segment: S, limit: int, most_span: int, longest: int
    ) -> None:
        count = len(units) // UNIT_SIZE
        find = _find_in_few if count <= MOST_UNITS else _find_in_many
        start = segment.start
        begins, ends = find(units, start, limit - start, most_span, longest)
        self.first, self.count, self.segment = first, len(begins), segment
        self._begins, self._ends = begins, ends  # bytes of the segment
        self.begin, self.end = (start + begins[0], start + ends[-1]) if begins else (0, start)

    def take(self, offset: int, wanted: int, most_bytes: int) -> PlainRecords | None:
        """The records of up to `wanted` units from `offset` on, as many as `most_bytes` allow, but one at least. None
        if not all of these units are here, or the segment is deleted."""
        at = offset - self.first
        behind = at + wanted
        segment = self.segment
        if at < 0 or not 0 < wanted <= MOST_UNITS or behind > self.count or segment.is_deleted:
            return None
        start, view = segment.start, segment.view
        begins, ends = self._begins[at:behind].tolist(), self._ends[at:behind].tolist()
        size = sum(ends) - sum(begins)
        while size > most_bytes and len(begins) > 1:
            size -= ends.pop() - begins.pop()
        views = [view[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return PlainRecords(views, size, start + begins[0], start + begins[-1], ends[-1] - begins[0] == size)

    def __repr__(self) -> str:
        return f"<Stretch first={self.first} count={self.count}>"


def _find_in_few(
    units: bytes | bytearray, start: int, limit: int, most_span: int, longest: int
) -> tuple["array[int]", "array[int]"]:
    """Where the records of a stretch begin and end in their segment, which begins at `start`; see PlainStretch."""
    begins, ends = array("q"), array("q")
    before = 0
    for offset, size, _ in UNIT.iter_unpack(units):
        begin = offset - start
        end = begin + size
        if not 0 < size < longest or begin < before or end > limit or (begins and end - begins[0] > most_span):
            break
        begins.append(begin)
        ends.append(end)
        before = end
    return begins, ends


def _find_in_many(
    units: bytes | bytearray, start: int, limit: int, most_span: int, longest: int
) -> tuple["array[int]", "array[int]"]:
    """The same, with the same effort for a thousand as for a hundred."""
    table = np.frombuffer(units, UNIT_DTYPE)
    begins, sizes = table["physical_offset"].astype(np.int64) - start, table["size"].astype(np.int64)
    ends = begins + sizes
    bad = (sizes <= 0) | (sizes >= longest) | (begins < 0) | (begins > limit - sizes)
    bad[1:] |= (begins[1:] < ends[:-1]) | (ends[1:] - begins[0] > most_span)
    count = int(bad.argmax()) if bad.any() else len(bad)
    return array("q", begins[:count].tobytes()), array("q", ends[:count].tobytes())


_leaf = compiled.load("gather")
if TYPE_CHECKING:
    Records = PlainRecords
    Stretch = PlainStretch
else:
    Records, Stretch = (PlainRecords, PlainStretch) if _leaf is None else (_leaf.Records, _leaf.Stretch)
Gathered: Final[type[memoryview]] = memoryview if _leaf is None else _leaf.Records
"""What records are gathered as: has a length, and gives bytes to whoever asks for a buffer."""
