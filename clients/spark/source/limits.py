"""The size of a batch: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

The maximum is shared among queues in proportion to their backlogs. If it is at least the number of queues, each queue
gets at least one offset. Fractions are rounded so that the sum is exactly the maximum. Pure logic: the time is an
argument.
"""

from collections.abc import Mapping

from skylarkmq.clients.arrow.topic.positions import Positions
from skylarkmq.protocol.bodies.message_queue import MessageQueue


def backlog_of(starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> Positions:
    """Return the number of unread offsets of each queue that has any."""
    return {queue: end - starts[queue] for queue, end in ends.items() if end > starts[queue]}


def shares_of(backlog: Mapping[MessageQueue, int], most: int) -> Positions:
    """Return the share of each queue, `most` offsets in total; the whole backlog if it is not larger."""
    total = sum(backlog.values())
    if total <= most:
        return dict(backlog)
    each = 1 if len(backlog) <= most else 0
    rest, waiting = most - each * len(backlog), total - each * len(backlog)
    shares: Positions = {}
    remainders: list[tuple[int, MessageQueue]] = []
    for queue, count in backlog.items():
        share, remainder = divmod((count - each) * rest, waiting)
        shares[queue] = each + share
        remainders.append((-remainder, queue))
    for _, queue in sorted(remainders)[: most - sum(shares.values())]:
        shares[queue] += 1
    return shares


class TriggerRule:
    """Delays a batch until enough offsets have arrived. `least` None: no delay."""

    def __init__(self, least: int | None, longest_ms: int, now_ms: int) -> None:
        self._least = least
        self._longest_ms = longest_ms
        self._last_ms = now_ms

    def __repr__(self) -> str:
        return f"<TriggerRule least={self._least} last_ms={self._last_ms}>"

    def allows(self, waiting: int, now_ms: int) -> bool:
        """Return whether a batch may begin with this many unread offsets; if so, the delay starts again."""
        if self._least is not None and waiting < self._least and now_ms - self._last_ms < self._longest_ms:
            return False
        if waiting:
            self._last_ms = now_ms
        return True
