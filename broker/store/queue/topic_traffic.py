"""Messages and bytes of records that a topic received since the start, by record size.

All queues of a topic share one object. Sizes are counted when units are written, many units in one call, or when the
figures are read. Recovery counts nothing. The parts that read a message's properties also count messages of other types
than normal (fifo, delay, transaction), so that normal ones cost nothing: their figures are the difference. The figures
are dropped with the topic.
"""

from typing import TYPE_CHECKING, Final

from skylarkmq.broker.base.histogram import Histogram
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from skylarkmq.broker.store.queue.tail import QueueTail

SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
NORMAL: Final = "normal"


def python_note_units(queue: "QueueTail") -> None:
    """Count the sizes of a queue's units that are not counted yet."""
    pending = queue.pending
    uncounted = pending[len(pending) - UNIT_SIZE * queue.uncounted :]
    queue.uncounted = 0
    if uncounted:
        queue.traffic.note_all([size for _, size, _ in UNIT.iter_unpack(uncounted)])


_compiled = compiled.load("counts")
note_units = python_note_units if _compiled is None else _compiled.note_units


class TopicTraffic:
    """`sizes`: sizes of all messages. `special`: sizes of each message type except normal."""

    __slots__ = ("sizes", "special")

    def __init__(self) -> None:
        self.sizes = Histogram(SIZE_BOUNDS)
        self.special: dict[str, Histogram] = {}

    def __repr__(self) -> str:
        return f"<TopicTraffic messages={self.sizes.count} bytes={self.sizes.total}>"

    def note_message_type(self, message_type: str, size: int) -> None:
        """Count a message of this type."""
        buckets = self.special.get(message_type)
        if buckets is None:
            buckets = self.special[message_type] = Histogram(SIZE_BOUNDS)
        buckets.note(size)

    def by_message_type(self) -> dict[str, Histogram]:
        """Return the sizes of each message type. Normal is included if it has messages, or is the only type."""
        normal = self.sizes.plus(self.special.values(), -1)
        normal.counts = [max(count, 0) for count in normal.counts]  # messages in a buffer are counted when written
        kinds = dict(self.special)
        if not kinds or any(normal.counts):
            kinds[NORMAL] = normal
        return kinds
