"""The checksum over a whole record: its last property, `__CRC32#` (RocketMQ's `enabledAppendPropCRC`).

    ... properties [02] | __CRC32# 01 dddddddddd 02         20 bytes, counted in the properties' length

The digits are the CRC-32, without its top bit, of everything before those 20 bytes, in decimal, least significant digit
first, padded with zeros to ten digits. Readers without support for the checksum read an ordinary property. If a client
has set a property of that name, it is removed; properties without their final separator get one.

`with_checksum_space` reserves the space before the record's size is calculated. `fill_checksum` fills it once all bytes
before it are final. Source: docs/reference/disk.md, "Whole-record checksum".
"""

from collections.abc import Sequence
from typing import Final

from isal.isal_zlib import crc32

from skylarkmq.protocol.record import CRC_MASK, Buffer, Record

NAME: Final = b"__CRC32#"
PREFIX: Final = NAME + b"\x01"
_ENTRY_END: Final = b"\x02"
_DIGITS: Final = 10
SIZE: Final = len(PREFIX) + _DIGITS + 1
_ROOM: Final = PREFIX + b"0" * _DIGITS + _ENTRY_END


def with_checksum_space(properties: bytes) -> bytes:
    """Return `properties` with space for a checksum at their end. The function is idempotent."""
    if NAME in properties:
        entries = properties.split(_ENTRY_END)
        properties = _ENTRY_END.join(entry for entry in entries if not entry.startswith(PREFIX))
    if properties and not properties.endswith(_ENTRY_END):
        properties += _ENTRY_END
    return properties + _ROOM


def fill_checksum(parts: Sequence[Buffer]) -> bytes:
    """Return the last of a record's parts, which ends in the reserved space, with the checksum over all parts filled
    in."""
    checksum = 0
    for part in parts[:-1]:
        checksum = crc32(part, checksum)
    content = bytes(parts[-1][:-SIZE])
    return content + _entry(crc32(content, checksum))


def has_valid_checksum(record: Record) -> bool:
    """Return whether the record ends in a correct checksum."""
    content_end = record.position + record.size - SIZE
    if content_end < record.properties_at:
        return False
    content = record.source[record.position : content_end]
    return bytes(record.source[content_end : content_end + SIZE]) == _entry(crc32(content))


def has_wrong_checksum(record: Record) -> bool:
    """Return whether the record ends in a wrong checksum. False for a record without a checksum."""
    return record.properties[-SIZE:].startswith(PREFIX) and not has_valid_checksum(record)


def _entry(checksum: int) -> bytes:
    digits = f"{checksum & CRC_MASK:0{_DIGITS}d}"[::-1]
    return PREFIX + digits.encode() + _ENTRY_END
