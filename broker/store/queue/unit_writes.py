"""When units are written to their files: in the event-loop iteration of their dispatch, or later in larger writes.

Otherwise most units would take one write per queue and iteration, above all with thousands of queues that get one
message each. So dispatched units stay in memory, where readers find them (broker.store.queue.consume_queue). A queue
is written when it has `FULL_UNITS` units, when all queues together have more than `limit` units, or by a write round.
Before queues are synced and the checkpoint is written, a round writes all units that were dispatched when the round
began, a slice per step.

A crash loses the units in memory, as a power cut loses unsynced writes; recovery rebuilds them.

An exception in the write of one queue affects that queue only: the others are written, and a shutdown completes.

With `limit` 0 (recovery; queueUnitsInMemory=0) each iteration writes, and units become visible once they are written. A
queue whose write fails keeps its units; `retry` writes it again.

Source: docs/reference/disk.md, "Dispatch".
"""

import logging
from typing import Final

from skylarkmq.broker.store.queue.consume_queue import ConsumeQueue
from skylarkmq.broker.store.queue.topic_traffic import note_units
from skylarkmq.protocol.disk import UNIT_SIZE

log = logging.getLogger(__name__)

FULL_UNITS: Final = 256
"""5,120 bytes, a page and a quarter; larger writes save nothing more."""

FULL_BYTES: Final = FULL_UNITS * UNIT_SIZE
_WRITTEN_PER_STEP: Final = 64  # minimum of queues per step of a round; a hundredth of all if that is more


class UnitWrites:
    """Schedules the writes. `waiting`: queues with units that are in no file, the queue with the oldest unit first."""

    def __init__(self) -> None:
        self.limit = 0
        self.units = 0
        self.waiting: dict[ConsumeQueue, None] = {}
        self.failed: set[ConsumeQueue] = set()
        self.failure: Exception | None = None  # the last write error
        self._round: list[ConsumeQueue] = []

    def add(self, queue: ConsumeQueue, count: int) -> bool:
        """Register `count` new units of a queue. Returns whether they may become visible."""
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
        """Write queues until at most `limit` units wait, or a write fails."""
        while self.units > self.limit and self.write(next(iter(self.waiting))):
            pass

    def write(self, queue: ConsumeQueue) -> bool:
        """Write the units of a queue. Returns False if the write fails; the queue keeps its units then."""
        count = len(queue.pending) // UNIT_SIZE
        try:
            queue.write_pending()
        except Exception as problem:  # noqa: BLE001 (a failure of one queue must not stop the writes of others)
            if queue not in self.failed:
                log.error("queue units not written topic=%s queue_id=%d error=%s", queue.topic, queue.queue_id, problem)
            self.failed.add(queue)
            self.failure = problem
            return False
        self.units -= count
        self.waiting.pop(queue, None)
        return True

    def retry(self) -> list[ConsumeQueue]:
        """Write the failed queues again. Returns those that are written now."""
        failed, self.failed = self.failed, set()
        return [queue for queue in failed if self.write(queue)]

    def note_units(self) -> None:
        """Add the waiting units to the traffic counters, as written units are."""
        for queue in self.waiting:
            if queue.uncounted:
                note_units(queue)

    # rounds

    @property
    def is_short(self) -> bool:
        """Return whether a round takes at most one step."""
        return len(self.waiting) <= _WRITTEN_PER_STEP

    def begin_round(self) -> None:
        """Begin a round: all queues that wait now are to be written."""
        self._round = list(self.waiting)[::-1]

    def write_slice(self, *, whole: bool = False) -> bool:
        """Write a slice of the round, or all of it with `whole`. Returns whether the round is complete."""
        queues = self._round
        most = len(queues) if whole else max(_WRITTEN_PER_STEP, len(self.waiting) // 100)
        for _ in range(min(most, len(queues))):
            queue = queues.pop()
            if queue in self.waiting:
                self.write(queue)
        return not queues

    def __repr__(self) -> str:
        return f"<UnitWrites waiting={len(self.waiting)} units={self.units} failed={len(self.failed)}>"
