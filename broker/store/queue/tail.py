"""The part of a ConsumeQueue that each message uses.

    put        reads the topic field and the magic for the record; the record takes `next_offset`, which advances
    dispatch   appends the record's unit (20 bytes) to `pending`, the units not yet written to a file, and moves `end`,
               the end of the visible units

The compiled counterpart is protocol/compiled/queue_tail.py.

Source: docs/reference/disk.md, "ConsumeQueue".
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.protocol import compiled
from skylarkmq.protocol.codes import SystemTopic
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE
from skylarkmq.protocol.record import topic_field

# One Struct per number of units, so that one call packs the units of an event-loop iteration.
_UNITS: Final = [Struct(">" + "qiq" * count) for count in range(257)]
_MOST_FIELDS: Final = 16_384

_topic_field: Final = lru_cache(_MOST_FIELDS)(topic_field)
"""Cached, so that the queues of a topic share one topic field."""


def pack_units(fields: Sequence[int]) -> bytes:
    """Return units packed from a flat list: physical offset, size, tags code, and so on."""
    count = len(fields) // 3
    packer = _UNITS[count] if count < len(_UNITS) else Struct(">" + "qiq" * count)
    return packer.pack(*fields)


class PythonQueueTail:
    """The pure-Python version of a queue's tail.

    `pending` contains the units that are not in a file; the last one has queue offset `pending_next` - 1. The last
    `turn` units are from this event-loop iteration. The sizes of the `uncounted` units before them are not yet in
    `traffic`.

    With many queues each message uses a different one, which is in no CPU cache, so a message touches few fields.
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
        "uncounted",
    )

    traffic: Histogram

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.magic, self.topic_field = _topic_field(topic.encode())
        self.is_schedule = topic == SystemTopic.SCHEDULE
        self.next_offset = 0
        self.pending = bytearray()
        self.pending_next = 0
        self.end = 0
        self.is_removed = False  # deleted with its topic; units that still arrive are dropped
        self.turn = self.uncounted = 0

    def drop_pending(self) -> None:
        """Forget the pending units: they are in a file, or no longer needed."""
        self.pending.clear()
        self.turn = self.uncounted = 0

    def take_new_tags_codes(self) -> list[int]:
        """Return the tags codes of the units added since the last call."""
        units = self.pending[len(self.pending) - UNIT_SIZE * self.turn :]
        self.turn = 0
        return [code for _, _, code in UNIT.iter_unpack(units)]


_compiled = compiled.load("queue_tail")
if TYPE_CHECKING:
    QueueTail = PythonQueueTail
else:
    QueueTail = PythonQueueTail if _compiled is None else _compiled.QueueTail
