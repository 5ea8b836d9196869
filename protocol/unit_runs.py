"""Runs of queue units whose records can be sent straight from one segment, without a check of each record.

A run is computed once for many units, and serves the next pulls, too. A pull then takes its records without an object
per record. In the compiled version (protocol/compiled/gather.py) one object contains the positions of all records of a
pull; the pure-Python version has a view of each record.

Units are defined in protocol/disk.py.
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
"""Maximum number of units of one `take`."""


class Segment(Protocol):
    """The segment that contains the records: `view` contains the bytes of the log from offset `start` on."""

    start: int
    is_deleted: bool
    view: memoryview


S = TypeVar("S", bound=Segment)


class PythonRecords(msgspec.Struct, gc=False):
    """Records of one segment, `size` bytes in total; the first begins at log offset `begin`, the last at `last`. With
    `is_run` there is nothing between them. Valid only within the event-loop iteration. The connection writer
    (broker.remoting) treats them as a region without a file."""

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
        """Number of records."""
        return len(self.views)

    @property
    def view(self) -> memoryview:
        """A copy of the bytes."""
        return memoryview(b"".join(self.views))

    def parts_after(self, head: bytes) -> Sequence[bytes | memoryview]:
        """Return `head` and the bytes, copied or not."""
        return [head, *self.views]

    def hold(self, _holder: object) -> None:
        """Do nothing: records are not kept beyond the event-loop iteration."""

    def release(self, _holder: object) -> None:
        """Do nothing: `hold` has pinned nothing."""


class PythonUnitRun(Generic[S]):
    """The first `count` units of `units`, which begin at queue offset `first`. The run ends before the first unit
    whose record does not begin at or after the end of the previous one, ends after byte `limit` of the log, ends more
    than `most_span` bytes after the begin of the first record, is missing (a filler unit), or has `longest` bytes or
    more. The records lie between the log offsets `begin` and `end`."""

    def __init__(
        self, first: int, units: bytes | bytearray, segment: S, limit: int, most_span: int, longest: int
    ) -> None:
        count = len(units) // UNIT_SIZE
        find = _find_in_few if count <= MOST_UNITS else _find_in_many
        start = segment.start
        begins, ends = find(units, start, limit - start, most_span, longest)
        self.first, self.count, self.segment = first, len(begins), segment
        self._begins, self._ends = begins, ends  # positions in the segment
        self.begin, self.end = (start + begins[0], start + ends[-1]) if begins else (0, start)

    def take(self, offset: int, wanted: int, most_bytes: int) -> PythonRecords | None:
        """Return the records of up to `wanted` units from queue offset `offset` on: as many as fit into `most_bytes`,
        but at least one. Return None if the run lacks one of the units, or if the segment is deleted."""
        at = offset - self.first
        stop = at + wanted
        segment = self.segment
        if at < 0 or not 0 < wanted <= MOST_UNITS or stop > self.count or segment.is_deleted:
            return None
        start, view = segment.start, segment.view
        begins, ends = self._begins[at:stop].tolist(), self._ends[at:stop].tolist()
        size = sum(ends) - sum(begins)
        while size > most_bytes and len(begins) > 1:
            size -= ends.pop() - begins.pop()
        views = [view[begin:end] for begin, end in zip(begins, ends, strict=True)]
        return PythonRecords(views, size, start + begins[0], start + begins[-1], ends[-1] - begins[0] == size)

    def __repr__(self) -> str:
        return f"<UnitRun first={self.first} count={self.count}>"


def _find_in_few(
    units: bytes | bytearray, start: int, limit: int, most_span: int, longest: int
) -> tuple["array[int]", "array[int]"]:
    """Return the begins and ends of the records in their segment, which begins at log offset `start`; see
    PythonUnitRun."""
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
    """Return the same as `_find_in_few`, by NumPy: a thousand units cost as much as a hundred."""
    table = np.frombuffer(units, UNIT_DTYPE)
    begins, sizes = table["physical_offset"].astype(np.int64) - start, table["size"].astype(np.int64)
    ends = begins + sizes
    bad = (sizes <= 0) | (sizes >= longest) | (begins < 0) | (begins > limit - sizes)
    bad[1:] |= (begins[1:] < ends[:-1]) | (ends[1:] - begins[0] > most_span)
    count = int(bad.argmax()) if bad.any() else len(bad)
    return array("q", begins[:count].tobytes()), array("q", ends[:count].tobytes())


_compiled = compiled.load("gather")
if TYPE_CHECKING:
    Records = PythonRecords
    UnitRun = PythonUnitRun
else:
    Records, UnitRun = (PythonRecords, PythonUnitRun) if _compiled is None else (_compiled.Records, _compiled.UnitRun)
Gathered: Final[type[memoryview]] = memoryview if _compiled is None else _compiled.Records
"""Type of gathered records: it has a length and supports the buffer protocol."""
