"""How much of what has come a batch takes: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

The maximum is shared among queues in proportion to what waits in each. As long as there is an offset for each of them
nobody is left out, however small; beyond that fractions are rounded so that the sum is the maximum exactly. Pure: the
time comes as an argument.
"""

from collections.abc import Mapping

from skylarkmq.clients.spark.source.offsets import Positions
from skylarkmq.protocol.bodies.message_queue import MessageQueue


def backlog_of(starts: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> Positions:
    """How many offsets wait in each queue that has any."""
    return {queue: end - starts[queue] for queue, end in ends.items() if end > starts[queue]}


def shared(backlog: Mapping[MessageQueue, int], most: int) -> Positions:
    """How many offsets each queue may give, `most` in all; everything if that is not more."""
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
    """Waits for enough to read. `least` None: whatever there is, is enough."""

    def __init__(self, least: int | None, longest_ms: int, now_ms: int) -> None:
        self._least = least
        self._longest_ms = longest_ms
        self._last_ms = now_ms

    def __repr__(self) -> str:
        return f"<TriggerRule least={self._least} last_ms={self._last_ms}>"

    def lets(self, waiting: int, now_ms: int) -> bool:
        """Whether a batch may begin now, with so many offsets that wait; if so, the delay begins anew."""
        if self._least is not None and waiting < self._least and now_ms - self._last_ms < self._longest_ms:
            return False
        if waiting:
            self._last_ms = now_ms
        return True
