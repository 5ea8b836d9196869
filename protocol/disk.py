"""The layouts of a store directory, except the record: queue unit, index, checkpoint, file names.

    consumequeue/<topic>/<queue id>/<20 digits>    units of 20 bytes: physical offset int64, record size int32,
                                                   tags code int64 (a tag's Java hash, sign-extended; or a deliver time)
    commitlog/<20 digits>                          records (protocol.record)
    index/<17 digits>                              header of 40 bytes, slots of 4, items of 20 (`IndexLayout`)
    checkpoint                                     4096 bytes: five int64, the rest zero

The name of a segment is the offset of its first byte, in 20 decimal digits. Filler units (a queue whose first offset is
not 0 begins with them) have the size 7fffffff. The name of an index file is the local time of its creation.
All numbers are big-endian and signed.

Source: docs/reference/disk.md, "Store directory", "ConsumeQueue", "IndexFile", "Checkpoint".
"""

from struct import Struct
from typing import Final, Self

import msgspec

from skylarkmq.protocol.codes import SysFlag
from skylarkmq.protocol.message import ENTRY_END, PropertyName, decode_properties, java_hash

UNIT_SIZE: Final = 20
UNIT: Final = Struct(">qiq")
FILLER_RECORD_SIZE: Final = 0x7FFFFFFF
FILLER_UNIT: Final = UNIT.pack(0, FILLER_RECORD_SIZE, 0)

CHECKPOINT_SIZE: Final = 4096
_CHECKPOINT: Final = Struct(">qqqqq")

INDEX_HEADER_SIZE: Final = 40
INDEX_SLOT_SIZE: Final = 4
INDEX_ITEM_SIZE: Final = 20
INDEX_ITEM: Final = Struct(">iqii")  # key hash, physical offset, seconds since the header's begin, previous item
_INDEX_HEADER: Final = Struct(">qqqqii")

OFFSET_DIGITS: Final = 20
INDEX_NAME_DIGITS: Final = 17

_ENTRY_END: Final = ENTRY_END.encode()
_UNIQ_KEY: Final = f"\x02{PropertyName.UNIQ_KEY}\x01".encode()
_KEYS: Final = f"\x02{PropertyName.KEYS}\x01".encode()
_FIRST_UNIQ_KEY: Final = _UNIQ_KEY[1:]
_FIRST_KEYS: Final = _KEYS[1:]
_SPACE: Final = 0x20

COMMIT_LOG_DIRECTORY: Final = "commitlog"
CONSUME_QUEUE_DIRECTORY: Final = "consumequeue"
BATCH_CONSUME_QUEUE_DIRECTORY: Final = "batchconsumequeue"
INDEX_DIRECTORY: Final = "index"
CONFIG_DIRECTORY: Final = "config"
CHECKPOINT_FILE: Final = "checkpoint"
ABORT_FILE: Final = "abort"
LOCK_FILE: Final = "lock"
HA_STATE_FILE: Final = "haState"


def offset_file_name(offset: int) -> str:
    """Return the name of the segment that begins at `offset` (bytes)."""
    return f"{offset:020d}"


def parse_offset_file_name(name: str) -> int | None:
    """Return the offset that a segment's name stands for; None for any other name."""
    if len(name) == OFFSET_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


# --- index ----------------------------------------------------------------------------------------


class IndexLayout(msgspec.Struct, frozen=True):
    """Byte positions in an index file of `slots` slots and `items` items. Item 0 is never used."""

    slots: int
    items: int

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.item_at(self.items)

    def slot_at(self, slot: int) -> int:
        """Return the position of a slot: int32, the number of the newest item of its chain, 0 if the chain is empty."""
        return INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * slot

    def item_at(self, number: int) -> int:
        """Return the position of an item."""
        return INDEX_HEADER_SIZE + INDEX_SLOT_SIZE * self.slots + INDEX_ITEM_SIZE * number


class IndexHeader(msgspec.Struct):
    """The header of an index file: store times in ms and physical offsets of its first and last message.

    `next_item` is the number of the next item to be written. The file is full when it reaches the layout's `items`.
    """

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next_item: int = 1

    def encode(self) -> bytes:
        """Return the header's 40 bytes."""
        times_and_offsets = self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset
        return _INDEX_HEADER.pack(*times_and_offsets, self.used_slots, self.next_item)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the first bytes of a file. A file without items has 0 where this struct has `next_item` 1."""
        header = cls(*_INDEX_HEADER.unpack_from(data))
        header.next_item = max(header.next_item, 1)
        return header


def parse_index_file_name(name: str) -> int | None:
    """Return the number that an index file's name stands for; None for any other name."""
    if len(name) == INDEX_NAME_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


def index_hash(key: str) -> int:
    """Return the hash of `topic#key`: the absolute value of Java's hash; 0 for -2^31, which has no positive number."""
    return abs(java_hash(key)) & 0x7FFF_FFFF


def index_keys(properties: bytes) -> list[bytes]:
    """Return the keys that the index stores for these properties: the unique key, then the words of KEYS."""
    _, is_there, rest = properties.rpartition(_UNIQ_KEY)
    unique = rest.partition(_ENTRY_END)[0] if is_there else b""
    _, is_there, rest = properties.rpartition(_KEYS)
    if not is_there and properties.startswith(_FIRST_KEYS):
        rest = is_there = properties[len(_FIRST_KEYS) :]
    keys = rest.partition(_ENTRY_END)[0] if is_there else b""
    if (not unique and properties.find(_FIRST_UNIQ_KEY) >= 0) or (not keys and properties.find(_FIRST_KEYS) >= 0):
        # an empty value, or the first entry is not where it usually is
        values = decode_properties(properties.decode("utf-8", "replace"))
        unique, keys = (values.get(name, "").encode() for name in (PropertyName.UNIQ_KEY, PropertyName.KEYS))
    found = [unique] if unique else []
    if _SPACE in keys:
        found += filter(None, keys.split(b" "))
    elif keys:
        found.append(keys)
    return found


def is_indexed(sys_flag: int) -> bool:
    """Return whether messages with this sysFlag are indexed: all except rollbacks."""
    return sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.TRANSACTION_ROLLBACK


# --- checkpoint -----------------------------------------------------------------------------------


class Checkpoint(msgspec.Struct, frozen=True):
    """How far the store is known to be on disk. Timestamps are store timestamps in ms, offsets are physical offsets in
    bytes.

    `physic` belongs to a message flushed in the log, `logics` to a message flushed in its queue, `index` to the end of
    the newest full index file. `confirm_offset` is the *start* of the last valid record, after a recovery or a clean
    stop.
    """

    physic_timestamp: int = 0
    logics_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    def encode(self) -> bytes:
        """Return the file's 4096 bytes."""
        fields = (
            self.physic_timestamp,
            self.logics_timestamp,
            self.index_timestamp,
            self.master_flushed_offset,
            self.confirm_offset,
        )
        return _CHECKPOINT.pack(*fields).ljust(CHECKPOINT_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the file's bytes. Missing bytes of an empty or truncated file count as zeros."""
        return cls(*_CHECKPOINT.unpack_from(data.ljust(_CHECKPOINT.size, b"\0")))
