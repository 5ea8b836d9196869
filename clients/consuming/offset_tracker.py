"""How far a queue is consumed, when messages finish in any order.

    commit_offset      position
       v                  v
       # . # . . # . . #          # received, not finished    . finished, or filtered out

What may be committed is the smallest offset that is not finished; everything before it is done. Offsets arrive in
ascending order and may skip, so the first key of an insertion-ordered dict is the smallest.

When a queue is given up, or read again from elsewhere, its progress is dropped: messages of it that still wait are
passed over, and what finishes late counts for nothing.
"""

from collections.abc import Callable
from typing import Final

from skylarkmq.protocol.bodies.message_queue import MessageQueue

NO_QUEUE: Final = MessageQueue()


class Progress:
    """The offsets of one queue. `position` is the next to ask the broker for; `on_finished` hears of each finish;
    `begun_s` is when work on a message last began (time.monotonic), 0: never."""

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
        return f"<Progress position={self.position} unfinished={len(self._unfinished)}{state}>"

    def received(self, offset: int, size: int) -> None:
        """A message of `size` bytes is to be worked on; offsets ascend."""
        self._unfinished[offset] = size
        self.unfinished_bytes += size

    def finish(self, offset: int) -> None:
        """Work on a message is over."""
        self.unfinished_bytes -= self._unfinished.pop(offset, 0)
        self._on_finished()

    def commit_offset(self) -> int:
        """Where whoever reads the queue next would have to begin."""
        return next(iter(self._unfinished), self.position)

    @property
    def unfinished(self) -> int:
        """How many messages are received and not finished."""
        return len(self._unfinished)

    @property
    def span(self) -> int:
        """Offsets from the first not finished one to the position."""
        return self.position - self.commit_offset()
