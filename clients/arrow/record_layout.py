"""Positions of the parts of many CommitLog records in one buffer, and the numbers in their headers, as NumPy arrays.

The only loop over records is `record_starts`, which goes from each record's length to the next one. The compiled module
runs it, if there is one. The Python version handles runs of equally long records, which are common, at once. All other
code reads one field of all records by indexing a view of the buffer that begins at every byte: big-endian integers at
any position, about 6 ns each.

`RecordLayout` checks every length before it is used, so no bytes outside a record are read, whatever the input. Bytes
that are not a whole record raise ProtocolError with position and reason (the texts come from protocol.record).

Source: docs/reference/disk.md, "CommitLog record".
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
    BODY_CRC_AT,
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
_ALIKE: Final = 4  # consecutive records of one length before a run is expected
_MAGIC_AT: Final = 4
_QUEUE_ID_AT: Final = 12
_FLAG_AT: Final = 16
_BORN_TIMESTAMP_AT: Final = 40
_BORN_HOST_AT: Final = 48
STORE_TIMESTAMP_AT: Final = 56  # with an IPv4 born host
_BODY_AT: Final = 88  # with IPv4 hosts
_HOSTS_V6: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
V6_LONGER: Final = 12  # additional bytes of an IPv6 host


def walk(buffer: Buffer, at: int = 0) -> Ints:
    """Return the positions of the consecutive whole records that begin at `at`.

    The walk stops at the first bytes that are not a record: the buffer's end, an incomplete record, zeros, a blank,
    damage.
    """
    found = record_starts(buffer, at, len(buffer))
    is_record = _has_magic(buffer, found)
    return found if is_record.all() else found[: int(is_record.argmin())]


def python_record_starts(buffer: Buffer, at: int, end: int) -> Ints:
    """Return the positions of the consecutive records in `buffer[at:end]`, found by their lengths alone."""
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
    """Return the positions of the consecutive records of that length that begin at `at`."""
    positions = np.arange(at, end - size + 1, size)
    is_alike = integers(buffer, 4)[positions] == size
    count = len(positions) if is_alike.all() else int(is_alike.argmin())
    return range(at, at + count * size, size)


def _has_magic(buffer: Buffer, starts: Ints) -> NDArray[np.bool_]:
    magics = integers(buffer, 4)[starts + _MAGIC_AT] if len(starts) else np.empty(0, np.int32)
    is_record: NDArray[np.bool_] = (magics == MAGIC_V1) | (magics == MAGIC_V2)
    return is_record


def _compiled_record_starts(buffer: Buffer, at: int, end: int) -> Ints:
    return np.frombuffer(_compiled.steps(buffer, at, end), np.int64)


_compiled: Final = compiled.load("columns")
record_starts: Final[Callable[[Buffer, int, int], Ints]] = (
    python_record_starts if _compiled is None else _compiled_record_starts
)


def integers(buffer: Buffer, width: int) -> NDArray[np.signedinteger]:
    """Return the big-endian integers of 4 or 8 bytes at each byte of `buffer`; index the result by position."""
    return np.ndarray((max(len(buffer) - width + 1, 0),), f">i{width}", buffer, strides=(1,))


def queue_offsets(buffer: Buffer, starts: Ints) -> Ints:
    """Return the queue offsets of the records at `starts`, as returned by `walk`."""
    return integers(buffer, 8)[starts + QUEUE_OFFSET_AT].astype(np.int64)


def ends_of(buffer: Buffer, starts: Ints) -> Ints:
    """Return the ends of the records at `starts`, as returned by `walk`."""
    return starts + integers(buffer, 4)[starts]


def body_slices(buffer: Buffer, starts: Ints, sys_flags: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return where the stored bodies of whole records begin, and their sizes."""
    longer: Ints | int = 0
    if (sys_flags & _HOSTS_V6).any():
        longer = np.where(sys_flags & SysFlag.BORN_HOST_V6, V6_LONGER, 0)
        longer = longer + np.where(sys_flags & SysFlag.STORE_HOST_V6, V6_LONGER, 0)
    begins = starts + (_BODY_AT + longer)
    return begins, integers(buffer, 4)[begins - 4].astype(np.int64)


class RecordLayout:
    """One value per record in each array: the positions of the record and its parts, and the numbers of its header.

    `starts` must ascend, as `walk` returns it. Raises ProtocolError if a position is not the begin of a whole record.
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
        """Return the 4-byte integer `at` bytes after each start."""
        numbers: NDArray[np.int32] = self._int32[self.starts + at].astype(np.int32)
        return numbers

    def int64(self, at: int | Ints) -> Ints:
        """Return the 8-byte integer `at` bytes after each start."""
        numbers: Ints = self._int64[self.starts + at].astype(np.int64)
        return numbers

    def _find_body(self) -> None:
        """Set the bounds of the bodies; `born_v6` and `store_v6` are the additional bytes of IPv6 hosts."""
        self.born_v6: Ints | int = 0
        self.store_v6: Ints | int = 0
        head: Ints | int = _BODY_AT
        if (self.sys_flags & _HOSTS_V6).any():
            self.born_v6 = np.where(self.sys_flags & SysFlag.BORN_HOST_V6, V6_LONGER, 0)
            self.store_v6 = np.where(self.sys_flags & SysFlag.STORE_HOST_V6, V6_LONGER, 0)
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
            self.fail(int(is_right.argmin()))

    def fail(self, row: int, reason: str = "") -> None:
        """Raise ProtocolError for the record at index `row`; the default reason is the damage found in its bytes."""
        at = int(self.starts[row])
        raise ProtocolError(f"no record at byte {at} of {len(self.buffer)}: {reason or self._damage(at, row)}")

    def _damage(self, at: int, row: int) -> str:
        found = parse(memoryview(self.buffer), at, check_body=False) if at >= 0 else None
        if isinstance(found, Damaged):
            return found.reason
        return "it overlaps the next record" if row + 1 < len(self.starts) else "nothing there"

    @property
    def queue_ids(self) -> NDArray[np.int32]:
        """The queue ids."""
        return self.int32(_QUEUE_ID_AT)

    @property
    def flags(self) -> NDArray[np.int32]:
        """The application's flags."""
        return self.int32(_FLAG_AT)

    @property
    def body_crcs(self) -> NDArray[np.int32]:
        """The checksums of the stored bodies, 31 bits."""
        return self.int32(BODY_CRC_AT)

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
        return self.int64(STORE_TIMESTAMP_AT + self.born_v6)

    @property
    def born_hosts(self) -> Ints:
        """Positions of the born hosts in the buffer; each is 8 + `born_v6` bytes long."""
        return self.starts + _BORN_HOST_AT

    @property
    def store_hosts(self) -> Ints:
        """Positions of the store hosts in the buffer; each is 8 + `store_v6` bytes long."""
        return self.starts + (_BORN_HOST_AT + 16 + self.born_v6)

    @property
    def reconsume_times(self) -> NDArray[np.int32]:
        """How often each message was redelivered."""
        return self.int32(_BODY_AT - 16 + self.born_v6 + self.store_v6)

    @property
    def prepared_transaction_offsets(self) -> Ints:
        """The positions of the half messages of committed messages."""
        return self.int64(_BODY_AT - 12 + self.born_v6 + self.store_v6)

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return f"<RecordLayout records={len(self.starts)} bytes={len(self.buffer)}>"
