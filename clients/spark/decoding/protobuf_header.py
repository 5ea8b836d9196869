"""The header that serializers of a schema registry (Confluent's wire format) write before a Protobuf message.

    00    id of the writer's schema (4 bytes, big-endian)    indexes of the message in that schema    message

The indexes of a message are its number in the file. The indexes of a nested message are the indexes of the outer
message, then its number in there. Like Java's serializer, they do not count the hidden messages of map entries. They
are zigzag varints after their count; `00` means the first message of the file, [0].

Readers decode Protobuf by field numbers, so the schema of the id is not needed. But a topic may have messages of
several types, and bytes of another type may parse: the indexes must be the indexes of the expected message in the
descriptor set.
"""

from collections.abc import Iterable
from typing import Any, Final

PREFIX_BYTES: Final = 5
MAX_INDEXES: Final = 64  # a message nested as deep
MAX_VARINT_BITS: Final = 35

Indexes = tuple[int, ...]


class NoHeader(Exception):
    """The body has no header, or the header of another message."""


def indexes_of(descriptor: Any) -> Indexes:
    """Return the indexes that stand for a message type."""
    outer = descriptor.containing_type
    if outer is None:
        return (_number_among(descriptor, descriptor.file.message_types_by_name.values()),)
    siblings = (one for one in outer.nested_types if not one.GetOptions().map_entry)
    return (*indexes_of(outer), _number_among(descriptor, siblings))


def message_start(body: bytes, expected: Indexes) -> int:
    """Return where the message with these indexes begins. Raises NoHeader."""
    if len(body) <= PREFIX_BYTES or body[0]:
        raise NoHeader("the body has no header of a schema registry (00, an id of 4 bytes, and message indexes)")
    count, at = _number(body, PREFIX_BYTES)
    indexes = []
    if not 0 <= count <= MAX_INDEXES:
        raise NoHeader(f"the header of the body has {count} message indexes")
    for _ in range(count):
        index, at = _number(body, at)
        indexes.append(index)
    found = tuple(indexes) or (0,)
    if found != expected:
        raise NoHeader(
            f"the header of the body names message {list(found)} of its schema, and the expected one is "
            f"{list(expected)}"
        )
    return at


def _number_among(descriptor: Any, siblings: Iterable[Any]) -> int:
    return [one.name for one in siblings].index(descriptor.name)


def _number(body: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and the position after it. Raises NoHeader."""
    value = shift = 0
    while at < len(body) and shift < MAX_VARINT_BITS:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise NoHeader("the header of the body is cut off")
