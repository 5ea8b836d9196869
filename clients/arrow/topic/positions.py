"""Positions in queues: offsets, and times that stand for offsets.

In positions that a user gives, -2 stands for the earliest offset and -1 for the latest.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

from skylarkmq.protocol.bodies.message_queue import MessageQueue

EARLIEST: Final = -2
LATEST: Final = -1

Positions: TypeAlias = dict[MessageQueue, int]
"""The next offset of each queue, or another number for each queue."""


class Times(msgspec.Struct, frozen=True):
    """Milliseconds by topic, and by queue for exceptions."""

    by_topic: dict[str, int]
    by_queue: Positions

    def of(self, queue: MessageQueue) -> int | None:
        """Return the queue's own time, else its topic's; None: neither is set."""
        return self.by_queue.get(queue, self.by_topic.get(queue.topic))

    def unknown_among(self, queues: Iterable[MessageQueue]) -> list[str]:
        """Return the topics and queues that are named here but do not exist."""
        known = set(queues)
        topics = {queue.topic for queue in known}
        return [*sorted(self.by_topic.keys() - topics), *map(str, sorted(self.by_queue.keys() - known))]
