"""Read single fields of a record without parsing it.

Parsing a record costs a microsecond or more. A reader that selects by times, offsets or properties needs only those
fields. The functions check no more of a record than is needed to read within its bounds.

Source: docs/reference/disk.md, "CommitLog record".
"""

from struct import Struct
from typing import Final

from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.record import (
    BLANK,
    HOST_FLAGS,
    LAYOUT_BY_FLAGS,
    LONGEST_HEAD,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    QUEUE_OFFSET_AT,
    SMALLEST_RECORD,
    SYS_FLAG_AT,
)

_MOST_AROUND_BODY: Final = LONGEST_HEAD + 4 + 32767 + MAX_PROPERTIES_BYTES  # with the longest topic of V2
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_FLAG_AND_BODY_SIZE: Final = Struct(">i44xi")  # sysFlag, and the body's length after IPv4 hosts
_BODY_AT_V4: Final = 88
_LAST_OF_MAGIC_V1: Final = MAGIC_V1 & 0xFF


def store_timestamp_at(source: memoryview, at: int) -> int:
    """Return the store timestamp (ms) of the record at `at`. The caller must ensure that a record begins there."""
    sys_flag = _INT32.unpack_from(source, at + SYS_FLAG_AT)[0]
    timestamp: int = _INT64.unpack_from(source, at + (68 if sys_flag & SysFlag.BORN_HOST_V6 else 56))[0]
    return timestamp


def queue_offset_at(source: memoryview, at: int) -> int:
    """Return the queue offset of the record at `at`. The caller must ensure that a record begins there."""
    queue_offset: int = _INT64.unpack_from(source, at + QUEUE_OFFSET_AT)[0]
    return queue_offset


def properties_of(record: memoryview) -> memoryview | None:
    """Return the properties of the record in these bytes, without other checks; None if its lengths do not fit."""
    size = len(record)
    if size < SMALLEST_RECORD:
        return None
    sys_flag, body_size = _FLAG_AND_BODY_SIZE.unpack_from(record, SYS_FLAG_AT)
    topic_length_at = _BODY_AT_V4 + body_size
    if sys_flag & HOST_FLAGS:
        body_at = LAYOUT_BY_FLAGS[sys_flag & HOST_FLAGS].head.size
        if body_at > size:
            return None
        topic_length_at = body_at + _INT32.unpack_from(record, body_at - 4)[0]
    if not SMALLEST_RECORD - 3 <= topic_length_at <= size - 3:
        return None
    if record[7] == _LAST_OF_MAGIC_V1:
        topic_end = topic_length_at + 1 + record[topic_length_at]
    else:
        topic_end = topic_length_at + 2 + (record[topic_length_at] << 8 | record[topic_length_at + 1])
    properties_at = topic_end + 2
    if properties_at > size or (record[topic_end] << 8 | record[topic_end + 1]) != size - properties_at:
        return None
    return record[properties_at:]


def claimed_size(head: memoryview) -> int:
    """Return the size in a record's first LONGEST_HEAD bytes if it is consistent with the body's length, else -1."""
    size, magic = BLANK.unpack_from(head)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return -1
    layout = LAYOUT_BY_FLAGS[_INT32.unpack_from(head, SYS_FLAG_AT)[0] & HOST_FLAGS]
    around_body = size - _INT32.unpack_from(head, layout.head.size - 4)[0]
    return size if layout.fixed_size < around_body <= _MOST_AROUND_BODY else -1
