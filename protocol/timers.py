"""The layouts of timer files, and the names of timer properties.

    timerwheel               slots of 32 bytes: time div precision int64, first and last log position int64, messages
                             int32, int32 0; a time belongs to the slot (time div precision) modulo SLOTS
    timerlog/<20 digits>     units of 52 bytes: 52 int32, position of the previous unit of its slot int64 (-1: none),
                             magic int32, write time int64, slot time - write time int32, physical offset int64,
                             record size int32, hash of the real topic int32, int64 0
    config/timercheck        4096 bytes: seven int64, the rest zero

If a timer log file has less than a unit and LOG_BLANK_SIZE bytes left, a blank ends it: number of bytes left int32,
int64 0, the magic of a blank int32. All numbers are big-endian and signed. Source: docs/reference/disk.md, "Timer
files".
"""

from struct import Struct
from typing import Final, Self

import msgspec

from skylarkmq.protocol.record import MAGIC_BLANK

SLOTS: Final = 604_800 * 2
LIVE_SLOTS: Final = 604_800
"""Number of future slots that can be distinguished. The other slots may still contain old units."""
RESERVED_SLOTS: Final = 60
SLOT_SIZE: Final = 32
SLOT: Final = Struct(">qqqii")

UNIT_SIZE: Final = 52
UNIT: Final = Struct(">iqiqiqiiq")
LOG_BLANK_SIZE: Final = 16
LOG_BLANK: Final = Struct(">iqi")
NO_POSITION: Final = -1
NORMAL: Final = 1
ROLL: Final = 2
DELETE: Final = 4
_MAGIC_BITS: Final = 15

CHECK_SIZE: Final = 4096
_CHECK: Final = Struct(">qqqqqqq")

WHEEL_FILE: Final = "timerwheel"
LOG_DIRECTORY: Final = "timerlog"
CHECK_FILE: Final = "timercheck"
METRICS_FILE: Final = "timermetrics"

OUT_MS: Final = "TIMER_OUT_MS"
ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
DELETES: Final = "TIMER_DEL_UNIQKEY"


class TimerUnit(msgspec.Struct, frozen=True, gc=False):
    """A waiting message, or a message that deletes another. Times in Unix ms; positions and offsets in bytes."""

    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """The time of the unit's slot, Unix ms."""
        return self.write_ms + self.delay_ms

    def encode(self) -> bytes:
        """Return the unit's 52 bytes."""
        times = self.write_ms, self.delay_ms
        return UNIT.pack(
            UNIT_SIZE, self.previous, self.magic, *times, self.physical_offset, self.size, self.topic_hash, 0
        )

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, at: int = 0) -> Self | None:
        """Return the unit at `at`; None if the bytes are not a valid unit."""
        length, *fields, reserved = UNIT.unpack_from(data, at)
        unit = cls(*fields)
        is_unit = length == UNIT_SIZE and not reserved and unit.magic and unit.magic | _MAGIC_BITS == _MAGIC_BITS
        is_sane = unit.size > 0 and unit.physical_offset >= 0 and unit.previous >= NO_POSITION
        return unit if is_unit and is_sane else None


def log_blank(remaining: int) -> bytes:
    """Return the blank that ends a timer log file with `remaining` bytes left, too few for another unit."""
    return LOG_BLANK.pack(remaining, 0, MAGIC_BLANK)


class TimerCheck(msgspec.Struct, frozen=True):
    """The progress of the timers, as far as all of their files are on disk and consistent with each other.

    Slots before `read_ms` have been delivered. The wheel contains the log units before `log_position` and the messages
    of the timer topic before `queue_offset`.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Return the file's 4096 bytes."""
        return self.encode_fields().ljust(CHECK_SIZE, b"\0")

    def encode_fields(self) -> bytes:
        """Return the 56 bytes of the fields: the response to GET_TIMER_CHECK_POINT (60)."""
        return _CHECK.pack(*msgspec.structs.astuple(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode the file's bytes. Missing bytes of a truncated file count as zeros."""
        return cls(*_CHECK.unpack_from(data.ljust(_CHECK.size, b"\0")))
