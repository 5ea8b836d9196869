"""Stored messages as one long list: ranges of queues, one after the other, of which a caller reads a part.

The length of a range is the difference of its offsets. Offsets without a message (deleted meanwhile, or of a
transaction) leave gaps, so a part may have fewer messages than offsets.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.base.errors import InvalidArgument
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import MessageExt

MAX_PULLED: Final = 32
MAX_READ_BYTES: Final = 32 << 20
"""Bodies of one result; further messages are left out."""


class Stored(NamedTuple):
    """A message and its queue."""

    queue: MessageQueue
    message: MessageExt


class QueueRange(NamedTuple):
    """The offsets [first, end) of a queue."""

    queue: MessageQueue
    first: int
    end: int

    @property
    def length(self) -> int:
        """Return how many offsets it has."""
        return max(self.end - self.first, 0)


async def ranges_of(admin: Admin, topic: str, since_ms: int | None, until_ms: int | None) -> list[QueueRange]:
    """Return the range of each queue of a topic between two times; None: its beginning or end."""
    statistics = await admin.topic_config.statistics(topic)
    queues = sorted(statistics.offset_table.items())
    if since_ms is None and until_ms is None:
        return [QueueRange(queue, offsets.min_offset, offsets.max_offset) for queue, offsets in queues]
    return await gathered([partial(_range, admin, queue, since_ms, until_ms) for queue, _ in queues])


async def _range(admin: Admin, queue: MessageQueue, since_ms: int | None, until_ms: int | None) -> QueueRange:
    return QueueRange(queue, *await admin.messages.bounds(queue, since_ms, until_ms))


async def range_from(admin: Admin, queue: MessageQueue, offset: int) -> QueueRange:
    """Return the rest of a queue from an offset on. InvalidArgument for an offset that it does not have."""
    first, end = await admin.messages.bounds(queue)
    if not first <= offset < max(end, first + 1):
        raise InvalidArgument(f"queue {queue} has offsets from {first} to {end - 1}, not {offset}.")
    return QueueRange(queue, offset, end)


def total_of(ranges: Iterable[QueueRange]) -> int:
    """Return how many offsets the ranges have."""
    return sum(each.length for each in ranges)


def part_of(ranges: Iterable[QueueRange], first_row: int, end_row: int) -> Iterator[QueueRange]:
    """Yield the parts of the ranges that are the rows [first_row, end_row) of the list."""
    before = 0
    for queue, first, end in ranges:
        length = max(end - first, 0)
        start, stop = max(first_row - before, 0), min(end_row - before, length)
        if start < stop:
            yield QueueRange(queue, first + start, first + stop)
        before += length


async def read(admin: Admin, ranges: Iterable[QueueRange]) -> tuple[list[Stored], bool]:
    """Return the messages of ranges, and whether some are left out because of their size."""
    found: list[Stored] = []
    size = 0
    for queue, first, end in ranges:
        offset = first
        while offset < end:
            pulled = await admin.messages.pull(queue, offset, min(end - offset, MAX_PULLED))
            found += (Stored(queue, message) for message in pulled.messages if message.queue_offset < end)
            size += sum(len(message.body) for message in pulled.messages)
            if size > MAX_READ_BYTES:
                return found, True
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset
    return found, False
