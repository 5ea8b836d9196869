"""The layouts of timer files, and the properties of timer messages.

    timerwheel               slots of 32 bytes: time div precision int64, first and last log position int64, messages
                             int32, int32 0; the slot of a time is that number modulo SLOTS
    timerlog/<20 digits>     units of 52 bytes: 52 int32, position of the one before it in its slot int64 (-1: none),
                             magic int32, write time int64, slot time - write time int32, physical offset int64,
                             record size int32, hash of the real topic int32, int64 0
    config/timercheck        4096 bytes: seven int64, the rest zero

A file of the log that has less than a unit and LOG_BLANK_SIZE bytes left is closed by a blank: what is left int32,
int64 0, the magic of a blank int32. All numbers are big-endian and signed. Source: docs/formats.md, "Timer files".
"""

from struct import Struct
from typing import Final, Self

import msgspec

from skylarkmq.protocol.record import MAGIC_BLANK

SLOTS: Final = 604_800 * 2
LIVE_SLOTS: Final = 604_800
"""So many slots ahead can be told from each other; the others may be full of old ones."""
KEPT_BACK_SLOTS: Final = 60
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
    """One message that waits, or one that deletes another. Times in Unix ms; positions and offsets in bytes."""

    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """The time of its slot."""
        return self.write_ms + self.delay_ms

    def encode(self) -> bytes:
        """Its 52 bytes."""
        times = self.write_ms, self.delay_ms
        return UNIT.pack(
            UNIT_SIZE, self.previous, self.magic, *times, self.physical_offset, self.size, self.topic_hash, 0
        )

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview, at: int = 0) -> Self | None:
        """What stands at `at`; None if it is no unit."""
        length, *fields, reserved = UNIT.unpack_from(data, at)
        unit = cls(*fields)
        is_unit = length == UNIT_SIZE and not reserved and unit.magic and unit.magic | _MAGIC_BITS == _MAGIC_BITS
        is_sane = unit.size > 0 and unit.physical_offset >= 0 and unit.previous >= NO_POSITION
        return unit if is_unit and is_sane else None


def log_blank(room: int) -> bytes:
    """What closes a file of the timer log that has `room` bytes left, and no room for a unit."""
    return LOG_BLANK.pack(room, 0, MAGIC_BLANK)


class TimerCheck(msgspec.Struct, frozen=True):
    """How far the timers are: what is on disk of them, and agrees.

    Slots before `read_ms` are delivered, log units before `log_position` are on the wheel, and so are messages of the
    timer topic before `queue_offset`.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """The file's 4096 bytes."""
        return _CHECK.pack(*msgspec.structs.astuple(self)).ljust(CHECK_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """From the file's bytes; a shortened file counts as zeros where it ends."""
        return cls(*_CHECK.unpack_from(data.ljust(_CHECK.size, b"\0")))
