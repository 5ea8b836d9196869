"""When units go into their files: in the turn of their dispatch, or later, many of a queue in one write.

A write per queue and turn is what most units would cost otherwise, above all where thousands of queues get one message
each. So units that were dispatched stand in memory, where readers find them (broker.store.queue.consume_queue), until
their queue has `FULL_UNITS`, until all queues together have more than `limit`, or until a round: before queues are
synced and the checkpoint speaks of them, everything that was dispatched by the round's begin is written, a slice per
step.

A crash takes what stands in memory, as a power cut takes what was written and not synced: recovery makes it again.

Whatever a queue's write raises is that queue's failure alone: the others are written, and a stop ends.

With `limit` 0 (recovery; queueUnitsInMemory=0) each turn writes, and units are seen once they are written. A queue that
cannot be written keeps its units, and is tried again by `retry`.

Source: docs/formats.md, "Dispatch".
"""

import logging
from typing import Final

from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.topic_traffic import note_units
from skylarkmq.protocol.disk import UNIT_SIZE

log = logging.getLogger(__name__)

FULL_UNITS: Final = 256
"""A page and a quarter: more units than that are not worth waiting for."""

FULL_BYTES: Final = FULL_UNITS * UNIT_SIZE
_WRITTEN_PER_STEP: Final = 64  # queues of a round, at least; a hundredth of all, if that is more


class UnitWrites:
    """`waiting`: queues whose newest units are in no file yet, in the order of the oldest of them."""

    def __init__(self) -> None:
        self.limit = 0
        self.units = 0
        self.waiting: dict[ConsumeQueue, None] = {}
        self.failed: set[ConsumeQueue] = set()
        self.failure: Exception | None = None  # of the last write that failed
        self._round: list[ConsumeQueue] = []

    def add(self, queue: ConsumeQueue, count: int) -> bool:
        """A queue has `count` new units; whether they may be seen."""
        self.units += count
        if not self.limit:
            return self.write(queue)
        queue.end = queue.pending_next
        if len(queue.pending) >= FULL_BYTES:
            self.write(queue)
        else:
            self.waiting[queue] = None
            if self.units > self.limit:
                self.write_oldest()
        return True

    def write_oldest(self) -> None:
        """Write queues until no more than `limit` units wait, or one fails."""
        while self.units > self.limit and self.write(next(iter(self.waiting))):
            pass

    def write(self, queue: ConsumeQueue) -> bool:
        """Write a queue's units; False: it failed, and has them still."""
        count = len(queue.pending) // UNIT_SIZE
        try:
            queue.write_pending()
        except Exception as problem:  # noqa: BLE001 (whatever fails in one queue, the others are written)
            if queue not in self.failed:
                log.error("queue units not written topic=%s queue_id=%d error=%s", queue.topic, queue.queue_id, problem)
            self.failed.add(queue)
            self.failure = problem
            return False
        self.units -= count
        self.waiting.pop(queue, None)
        return True

    def retry(self) -> list[ConsumeQueue]:
        """Try the failed queues again; those that are written now."""
        failed, self.failed = self.failed, set()
        return [queue for queue in failed if self.write(queue)]

    def note_units(self) -> None:
        """Have what waits counted, as what is written is."""
        for queue in self.waiting:
            if queue.unnoted:
                note_units(queue)

    # rounds

    @property
    def is_short(self) -> bool:
        """Whether a round takes no more than a step."""
        return len(self.waiting) <= _WRITTEN_PER_STEP

    def begin_round(self) -> None:
        """Everything that waits now is to be written."""
        self._round = list(self.waiting)[::-1]

    def go_on(self, *, whole: bool = False) -> bool:
        """Write a slice of the round, or all that is left of it; whether nothing is left."""
        queues = self._round
        most = len(queues) if whole else max(_WRITTEN_PER_STEP, len(self.waiting) // 100)
        for _ in range(min(most, len(queues))):
            queue = queues.pop()
            if queue in self.waiting:
                self.write(queue)
        return not queues

    def __repr__(self) -> str:
        return f"<UnitWrites waiting={len(self.waiting)} units={self.units} failed={len(self.failed)}>"
