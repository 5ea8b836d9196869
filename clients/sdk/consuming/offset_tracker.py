"""The offsets of one queue while messages are acknowledged in any order.

    commit_offset      position
       v                  v
       # . # . . # . . #          # received, not acknowledged    . acknowledged, or filtered out

The offset to commit is the smallest one that is not acknowledged: all messages before it are done. Offsets arrive in
ascending order, possibly with gaps, so the first key of an insertion-ordered dict is the smallest.

When a queue is revoked, or read again from another offset, its tracker is dropped. Messages that still wait are then
skipped, and late acknowledgments have no effect.
"""

from collections.abc import Callable
from typing import Final

from skylarkmq.protocol.bodies.message_queue import MessageQueue

NO_QUEUE: Final = MessageQueue()


class OffsetTracker:
    """The offsets of one queue. `position` is the next offset to pull. `on_finished` is called after each
    acknowledgment. `begun_s` is the time at which the last handler call began (time.monotonic), 0 before the first."""

    __slots__ = ("_on_finished", "_unfinished", "begun_s", "dropped", "position", "queue", "unfinished_bytes")

    def __init__(
        self, position: int, on_finished: Callable[[], None] = lambda: None, queue: MessageQueue = NO_QUEUE
    ) -> None:
        self.queue = queue
        self.position = position
        self.dropped = False
        self.unfinished_bytes = 0
        self.begun_s = 0.0
        self._unfinished: dict[int, int] = {}
        self._on_finished = on_finished

    def __repr__(self) -> str:
        state = " dropped" if self.dropped else ""
        return f"<OffsetTracker position={self.position} unfinished={len(self._unfinished)}{state}>"

    def received(self, offset: int, size: int) -> None:
        """Add a received message of `size` bytes. Offsets ascend."""
        self._unfinished[offset] = size
        self.unfinished_bytes += size

    def finish(self, offset: int) -> None:
        """Remove an acknowledged message."""
        self.unfinished_bytes -= self._unfinished.pop(offset, 0)
        self._on_finished()

    def commit_offset(self) -> int:
        """Return the offset to commit: the next owner of the queue begins there."""
        return next(iter(self._unfinished), self.position)

    @property
    def unfinished(self) -> int:
        """The number of messages that are received and not acknowledged."""
        return len(self._unfinished)

    @property
    def span(self) -> int:
        """The number of offsets from the first unacknowledged message to the position."""
        return self.position - self.commit_offset()
