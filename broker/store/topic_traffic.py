"""What came into a topic since the start: messages and bytes of records, by their sizes.

All queues of a topic share one. Sizes are noted when units are written, those of many units in one call, or when
somebody asks for the figures; recovery counts nothing. Messages of a special kind (fifo, delay, transaction) are noted
once more by whoever knows their properties, so that plain ones cost nothing: what is not special is normal. The figures
go with the topic.
"""

from typing import TYPE_CHECKING, Final

from skylarkmq.broker.histogram import Histogram
from skylarkmq.protocol import compiled
from skylarkmq.protocol.disk import UNIT, UNIT_SIZE

if TYPE_CHECKING:
    from skylarkmq.broker.store.queue.tail import QueueTail

SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
NORMAL: Final = "normal"


def plain_note_units(queue: "QueueTail") -> None:
    """Note the sizes of a queue's units of which that was not done yet."""
    pending = queue.pending
    unnoted = pending[len(pending) - UNIT_SIZE * queue.unnoted :]
    queue.unnoted = 0
    if unnoted:
        queue.traffic.note_all([size for _, size, _ in UNIT.iter_unpack(unnoted)])


_compiled = compiled.load("counts")
note_units = plain_note_units if _compiled is None else _compiled.note_units


class TopicTraffic:
    """`sizes` are those of all messages, `special` those of each kind but the normal one."""

    __slots__ = ("sizes", "special")

    def __init__(self) -> None:
        self.sizes = Histogram(SIZE_BOUNDS)
        self.special: dict[str, Histogram] = {}

    def __repr__(self) -> str:
        return f"<TopicTraffic messages={self.sizes.count} bytes={self.sizes.total}>"

    def note_special(self, kind: str, size: int) -> None:
        """One of the messages was of this kind."""
        buckets = self.special.get(kind)
        if buckets is None:
            buckets = self.special[kind] = Histogram(SIZE_BOUNDS)
        buckets.note(size)

    def by_kind(self) -> dict[str, Histogram]:
        """The sizes of each kind; normal ones are there if there are any, or no others."""
        normal = self.sizes.plus(self.special.values(), -1)
        normal.counts = [max(count, 0) for count in normal.counts]  # what stands in a buffer is counted when written
        kinds = dict(self.special)
        if not kinds or any(normal.counts):
            kinds[NORMAL] = normal
        return kinds
