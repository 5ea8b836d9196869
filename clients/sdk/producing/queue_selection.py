"""The choice of the queue of a message."""

from collections.abc import Sequence

from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import java_hash


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue of an ordering key: |hash rem n|, as SelectMessageQueueByHash of RocketMQ's clients.

    Java's remainder has the sign of the hash, so the absolute value of both is the same number.
    """
    return queues[abs(java_hash(key)) % len(queues)]


class RoundRobin:
    """One queue after the other; skips brokers that just failed, as long as there are others."""

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def __repr__(self) -> str:
        return f"<RoundRobin next={self._next}>"

    def choose(self, queues: Sequence[MessageQueue], failed_brokers: Sequence[str] = ()) -> MessageQueue:
        """Return the next queue; `queues` must not be empty."""
        count = len(queues)
        self._next = (self._next + 1) % count
        queue = queues[self._next]
        if queue.broker_name in failed_brokers:
            for step in range(1, count):
                other = queues[(self._next + step) % count]
                if other.broker_name not in failed_brokers:
                    self._next = (self._next + step) % count
                    return other
        return queue
