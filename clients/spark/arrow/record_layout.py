"""Where the parts of many CommitLog records lie in one buffer, and the numbers in their heads, as NumPy arrays.

The only loop over records is `steps`, from each one's length to the next: by the compiled leaf where there is one, else
runs of equally long records, which are common, are stepped over at once. Everything else reads one field of all records
by indexing a view of the buffer that begins at every byte: big-endian integers at any position, for some 6 ns each.

`Places` looks at every length before it uses it, so that whatever bytes it is given, nothing outside a record is read:
what is no whole record is a ProtocolError that says where and why (protocol.record has the words for it).

Source: docs/formats.md, "CommitLog record".
"""

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.errors import ProtocolError
from skylarkmq.protocol.record import (
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_AT,
    QUEUE_OFFSET_AT,
    SMALLEST_RECORD,
    SYS_FLAG_AT,
    Buffer,
    Damaged,
    parse,
)

Ints: TypeAlias = NDArray[np.int64]

_SIZE: Final = Struct(">i").unpack_from
_ALIKE: Final = 4  # records of one length in a row, before more of them are expected
_MAGIC_AT: Final = 4
_QUEUE_ID_AT: Final = 12
_FLAG_AT: Final = 16
_BORN_TIMESTAMP_AT: Final = 40
_BORN_HOST_AT: Final = 48
_BODY_AT: Final = 88  # with IPv4 hosts
_V6_LONGER: Final = 12  # an IPv6 host than an IPv4 one


def walk(buffer: Buffer, at: int = 0) -> Ints:
    """Where the whole records begin that stand one behind the other from `at` on.

    It ends at the first that is no record: the buffer's end, an unfinished one, zeros, a blank, damage.
    """
    found = steps(buffer, at, len(buffer))
    is_record = _has_magic(buffer, found)
    return found if is_record.all() else found[: int(is_record.argmin())]


def python_steps(buffer: Buffer, at: int, end: int) -> Ints:
    """Where the records begin that stand one behind the other in `buffer[at:end]`, by their lengths alone."""
    starts: list[int] = []
    before = alike = 0
    while at <= end - SMALLEST_RECORD:
        size: int = _SIZE(buffer, at)[0]
        if size < SMALLEST_RECORD or size > end - at:
            break
        starts.append(at)
        at += size
        alike = alike + 1 if size == before else 0
        before = size
        if alike == _ALIKE:
            more = _run(buffer, at, end, size)
            starts.extend(more)
            at += size * len(more)
            alike = 0
    return np.array(starts, np.int64)


def _run(buffer: Buffer, at: int, end: int, size: int) -> range:
    """The records of that length that stand one behind the other from `at` on."""
    places = np.arange(at, end - size + 1, size)
    is_alike = integers(buffer, 4)[places] == size
    count = len(places) if is_alike.all() else int(is_alike.argmin())
    return range(at, at + count * size, size)


def _has_magic(buffer: Buffer, starts: Ints) -> NDArray[np.bool_]:
    magics = integers(buffer, 4)[starts + _MAGIC_AT] if len(starts) else np.empty(0, np.int32)
    is_record: NDArray[np.bool_] = (magics == MAGIC_V1) | (magics == MAGIC_V2)
    return is_record


def _leaf_steps(buffer: Buffer, at: int, end: int) -> Ints:
    return np.frombuffer(_leaf.steps(buffer, at, end), np.int64)


_leaf: Final = compiled.load("columns")
steps: Final[Callable[[Buffer, int, int], Ints]] = python_steps if _leaf is None else _leaf_steps


def integers(buffer: Buffer, width: int) -> NDArray[np.signedinteger]:
    """The big-endian integers of 4 or 8 bytes that begin at each byte of `buffer`, for positions to index."""
    return np.ndarray((max(len(buffer) - width + 1, 0),), f">i{width}", buffer, strides=(1,))


def queue_offsets(buffer: Buffer, starts: Ints) -> Ints:
    """The queue offsets of the records that begin at `starts`, as `walk` gives them."""
    return integers(buffer, 8)[starts + QUEUE_OFFSET_AT].astype(np.int64)


def ends_of(buffer: Buffer, starts: Ints) -> Ints:
    """Where the records end that begin at `starts`, as `walk` gives them."""
    return starts + integers(buffer, 4)[starts]


class Places:
    """Arrays with a value for each record: where it begins and its parts stand, and the numbers in its head.

    `starts` has to ascend, as `walk` gives it. ProtocolError if no whole record begins at one of them.
    """

    def __init__(self, buffer: Buffer, starts: Ints) -> None:
        self.buffer = buffer
        self.starts = starts
        self._int32, self._int64 = integers(buffer, 4), integers(buffer, 8)
        self._raw = np.frombuffer(buffer, np.uint8)
        self._require((starts >= 0) & (starts <= len(buffer) - SMALLEST_RECORD))
        self.ends = starts + self._int32[starts]
        self._require((self.ends - starts >= SMALLEST_RECORD) & (self.ends <= len(buffer)))
        self._require(_has_magic(buffer, starts))
        self._require(starts[1:] >= self.ends[:-1])
        self.sys_flags = self.int32(SYS_FLAG_AT)
        self._find_body()
        self._find_topic_and_properties()

    def int32(self, at: int | Ints) -> NDArray[np.int32]:
        """The integer at that many bytes behind each start."""
        numbers: NDArray[np.int32] = self._int32[self.starts + at].astype(np.int32)
        return numbers

    def int64(self, at: int | Ints) -> Ints:
        """As `int32`, of 8 bytes."""
        numbers: Ints = self._int64[self.starts + at].astype(np.int64)
        return numbers

    def _find_body(self) -> None:
        """`born_v6` and `store_v6` say how much longer than with IPv4 the hosts are."""
        self.born_v6: Ints | int = 0
        self.store_v6: Ints | int = 0
        head: Ints | int = _BODY_AT
        if (self.sys_flags & (SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)).any():
            self.born_v6 = np.where(self.sys_flags & SysFlag.BORN_HOST_V6, _V6_LONGER, 0)
            self.store_v6 = np.where(self.sys_flags & SysFlag.STORE_HOST_V6, _V6_LONGER, 0)
            head = head + self.born_v6 + self.store_v6
        self.body_begins = self.starts + head
        self._require(self.body_begins <= self.ends - 3)
        sizes = self._int32[self.body_begins - 4].astype(np.int64)
        self.body_ends = self.body_begins + sizes
        self._require((sizes >= 0) & (self.body_ends <= self.ends - 3))

    def _find_topic_and_properties(self) -> None:
        lengths = self._raw[self.body_ends].astype(np.int64)
        width: Ints | int = 1
        is_v2 = self._int32[self.starts + _MAGIC_AT] == MAGIC_V2
        if is_v2.any():
            width = np.where(is_v2, 2, 1)
            lengths = np.where(is_v2, lengths << 8 | self._raw[self.body_ends + 1], lengths)
        self._require((lengths < np.where(is_v2, 0x8000, 0x80)) & (self.body_ends + width + lengths <= self.ends - 2))
        self.topic_begins = self.body_ends + width
        self.topic_ends = self.topic_begins + lengths
        self.property_begins = self.topic_ends + 2
        sizes = self._raw[self.topic_ends].astype(np.int64) << 8 | self._raw[self.topic_ends + 1]
        self._require((sizes < 0x8000) & (self.property_begins + sizes == self.ends))

    def _require(self, is_right: NDArray[np.bool_]) -> None:
        if not is_right.all():
            self.refuse(int(is_right.argmin()))

    def refuse(self, row: int, reason: str = "") -> None:
        """ProtocolError for the record of that number; without a reason, with what its bytes say."""
        at = int(self.starts[row])
        raise ProtocolError(f"no record at byte {at} of {len(self.buffer)}: {reason or self._damage(at, row)}")

    def _damage(self, at: int, row: int) -> str:
        found = parse(memoryview(self.buffer), at, check_body=False) if at >= 0 else None
        if isinstance(found, Damaged):
            return found.reason
        return "it reaches into the next one" if row + 1 < len(self.starts) else "nothing there"

    @property
    def queue_ids(self) -> NDArray[np.int32]:
        """The queue ids."""
        return self.int32(_QUEUE_ID_AT)

    @property
    def flags(self) -> NDArray[np.int32]:
        """The application's flags."""
        return self.int32(_FLAG_AT)

    @property
    def queue_offsets(self) -> Ints:
        """The queue offsets."""
        return self.int64(QUEUE_OFFSET_AT)

    @property
    def physical_offsets(self) -> Ints:
        """The physical offsets."""
        return self.int64(PHYSICAL_OFFSET_AT)

    @property
    def born_timestamps(self) -> Ints:
        """Born timestamps, ms."""
        return self.int64(_BORN_TIMESTAMP_AT)

    @property
    def store_timestamps(self) -> Ints:
        """Store timestamps, ms."""
        return self.int64(_BORN_HOST_AT + 8 + self.born_v6)

    @property
    def store_hosts(self) -> Ints:
        """Where the store hosts begin, as positions of the buffer; their length: `store_v6` and 8."""
        return self.starts + (_BORN_HOST_AT + 16 + self.born_v6)

    @property
    def reconsume_times(self) -> NDArray[np.int32]:
        """How often each was given back."""
        return self.int32(_BODY_AT - 16 + self.born_v6 + self.store_v6)

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return f"<Places records={len(self.starts)} bytes={len(self.buffer)}>"
