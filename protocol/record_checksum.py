"""The checksum over a whole record: its last property, `__CRC32#` (RocketMQ's `enabledAppendPropCRC`).

    ... properties [02] | __CRC32# 01 dddddddddd 02         20 bytes, counted in the properties' length

The digits are the CRC-32 without its top bit of everything before those 20 bytes, in decimal, least significant digit
first, padded with zeros to ten. To a reader that knows nothing of it, it is a property like others. A client's own
property of that name goes; properties that lack their final separator get it.

`with_room` makes the room while the record's size is being decided; `seal` fills it in, once everything before it is
final. Source: docs/formats.md, "Whole-record checksum".
"""

from collections.abc import Sequence
from typing import Final

from isal.isal_zlib import crc32

from skylarkmq.protocol.record import CRC_MASK, Buffer, Record

NAME: Final = b"__CRC32#"
_PREFIX: Final = NAME + b"\x01"
_ENTRY_END: Final = b"\x02"
_DIGITS: Final = 10
SIZE: Final = len(_PREFIX) + _DIGITS + 1
_ROOM: Final = _PREFIX + b"0" * _DIGITS + _ENTRY_END


def with_room(properties: bytes) -> bytes:
    """The properties that a record with a checksum is encoded from; doing it twice is doing it once."""
    if NAME in properties:
        entries = properties.split(_ENTRY_END)
        properties = _ENTRY_END.join(entry for entry in entries if not entry.startswith(_PREFIX))
    if properties and not properties.endswith(_ENTRY_END):
        properties += _ENTRY_END
    return properties + _ROOM


def seal(parts: Sequence[Buffer]) -> bytes:
    """The last of a record's parts, which ends in the room, with the checksum over all of them in it."""
    checksum = 0
    for part in parts[:-1]:
        checksum = crc32(part, checksum)
    content = bytes(parts[-1][:-SIZE])
    return content + _entry(crc32(content, checksum))


def is_sealed(record: Record) -> bool:
    """Whether the record ends in a checksum, and in the right one."""
    content_end = record.position + record.size - SIZE
    if content_end < record.properties_at:
        return False
    content = record.source[record.position : content_end]
    return bytes(record.source[content_end : content_end + SIZE]) == _entry(crc32(content))


def is_broken(record: Record) -> bool:
    """Whether the record ends in a checksum that is not its own. Records without any are not."""
    return record.properties[-SIZE:].startswith(_PREFIX) and not is_sealed(record)


def _entry(checksum: int) -> bytes:
    digits = f"{checksum & CRC_MASK:0{_DIGITS}d}"[::-1]
    return _PREFIX + digits.encode() + _ENTRY_END
