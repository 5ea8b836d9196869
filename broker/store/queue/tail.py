"""What a record takes from its queue, and what it leaves there: the side of a ConsumeQueue that every message touches.

    put        topic field and magic into the record; `next_offset`, which the record takes and moves
    dispatch   the record's unit of 20 bytes behind `pending`, which is what nobody has written to a file yet; `end`,
               up to which units may be seen

The compiled twin is in protocol/compiled/queue_tail.py.

Source: docs/formats.md, "ConsumeQueue".
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from skylarkmq.broker.histogram import Buckets
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from skylarkmq.protocol.record import topic_field

# One Struct for each number of units, so that a turn's units are packed by one call.
_UNITS: Final = [Struct(">" + "qiq" * count) for count in range(257)]
_MOST_FIELDS: Final = 16_384

_topic_field: Final = lru_cache(_MOST_FIELDS)(topic_field)
"""The queues of a topic share one."""


def pack_units(fields: Sequence[int]) -> bytes:
    """Units from a flat list: physical offset, size, tags code, and again."""
    count = len(fields) // 3
    packer = _UNITS[count] if count < len(_UNITS) else Struct(">" + "qiq" * count)
    return packer.pack(*fields)


class PlainQueueTail:
    """`pending`: units that are not in a file, the last of them at queue offset `pending_next` - 1. The last `turn` of
    them are of this turn, the sizes of `unnoted` before these are not in `traffic` yet.

    With many queues each message finds another one, in no cache: what it touches here is as little as may be.
    """

    __slots__ = (
        "end",
        "is_removed",
        "is_schedule",
        "magic",
        "next_offset",
        "pending",
        "pending_next",
        "queue_id",
        "topic",
        "topic_field",
        "traffic",
        "turn",
        "unnoted",
    )

    traffic: Buckets

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.magic, self.topic_field = _topic_field(topic.encode())
        self.is_schedule = topic == SystemTopic.SCHEDULE
        self.next_offset = 0
        self.pending = bytearray()
        self.pending_next = 0
        self.end = 0
        self.is_removed = False  # deleted with its topic; what is still on its way to it is dropped
        self.turn = self.unnoted = 0

    def drop_pending(self) -> None:
        """They are in a file, or not wanted any more."""
        self.pending.clear()
        self.turn = self.unnoted = 0

    def take_turn(self) -> list[int]:
        """Tags codes of the units gathered since the last call."""
        units = self.pending[len(self.pending) - UNIT_SIZE * self.turn :]
        self.turn = 0
        return [code for _, _, code in UNIT.iter_unpack(units)]


_leaf = compiled.load("queue_tail")
if TYPE_CHECKING:
    QueueTail = PlainQueueTail
else:
    QueueTail = PlainQueueTail if _leaf is None else _leaf.QueueTail
