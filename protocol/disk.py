"""The layouts of a store directory other than the record: queue unit, checkpoint, file names.

    consumequeue/<topic>/<queue id>/<20 digits>    units of 20 bytes: physical offset int64, record size int32,
                                                   tags code int64 (a tag's Java hash, sign-extended; or a deliver time)
    commitlog/<20 digits>                          records (protocol.record)
    checkpoint                                     4096 bytes: five int64, the rest zero

Segments are named after the offset of their first byte, in 20 decimal digits. Units of nobody (queues whose first
offset is not 0 begin with them) carry the size 7fffffff. All numbers are big-endian and signed.

Source: docs/formats.md, "Store directory", "ConsumeQueue", "Checkpoint".
"""

from struct import Struct
from typing import Final, Self

import msgspec

UNIT_SIZE: Final = 20
UNIT: Final = Struct(">qiq")
FILLER_RECORD_SIZE: Final = 0x7FFFFFFF
FILLER_UNIT: Final = UNIT.pack(0, FILLER_RECORD_SIZE, 0)

CHECKPOINT_SIZE: Final = 4096
_CHECKPOINT: Final = Struct(">qqqqq")

OFFSET_DIGITS: Final = 20

COMMIT_LOG_DIRECTORY: Final = "commitlog"
CONSUME_QUEUE_DIRECTORY: Final = "consumequeue"
BATCH_CONSUME_QUEUE_DIRECTORY: Final = "batchconsumequeue"
CONFIG_DIRECTORY: Final = "config"
CHECKPOINT_FILE: Final = "checkpoint"
ABORT_FILE: Final = "abort"
LOCK_FILE: Final = "lock"


def offset_file_name(offset: int) -> str:
    """The name of the segment that begins at `offset` (bytes)."""
    return f"{offset:020d}"


def parse_offset_file_name(name: str) -> int | None:
    """The offset that a segment's name stands for; None for any other name."""
    if len(name) == OFFSET_DIGITS and name.isascii() and name.isdigit():
        return int(name)
    return None


class Checkpoint(msgspec.Struct, frozen=True):
    """What is known to be on disk. Timestamps are store timestamps in ms, offsets physical offsets in bytes.

    `physic` belongs to a message flushed in the log, `logics` to one flushed in its queue, `index` to the end of the
    newest full index file; `confirm_offset` is the *start* of the last valid record, after a recovery or a clean stop.
    """

    physic_timestamp: int = 0
    logics_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    def encode(self) -> bytes:
        """The file's 4096 bytes."""
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
        """From the file's bytes; an empty or shortened file counts as zeros where it ends."""
        return cls(*_CHECKPOINT.unpack_from(data.ljust(_CHECKPOINT.size, b"\0")))
