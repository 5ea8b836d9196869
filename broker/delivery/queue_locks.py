"""Locks of queues: who of a group may consume a queue in order, one client at a time.

    group -> queue -> client id, and when it was last asked for

A client locks queues and asks again before the lock runs out; a lock that ran out may be taken by anyone of the
group. Only its owner gives it up. The owner is the client id and not its connection: a client that has lost its
connection may still be at work on what it has, and would be overtaken by whoever got the queue meanwhile. So the
queues of one that was killed stand still until their locks have run out, which is the price of order.

All locks live equally long, so they run out in the order in which they were last asked for: that is the order of both
tables, and neither `step` nor the question whether a group is an orderly one walks over more than it drops.

A group has at most `maxLocksPerGroup` locks. All groups together have at most MOST_LOCKS; beyond that no queue is
locked that is not locked already.
Source: docs/formats.md, "Queue locks".
"""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from skylarkmq.broker.metadata.limits import Limits
from skylarkmq.protocol.bodies.message_queue import MessageQueue

MOST_LOCKS: Final = 100_000
DROPPED_PER_STEP: Final = 500
"""About a quarter of a millisecond."""

log = logging.getLogger(__name__)


class QueueLock(msgspec.Struct, eq=False, gc=False):
    """Who has a queue. `renewed_ms`: when it was last asked for, in ms of any steady clock."""

    owner: str
    renewed_ms: int


class QueueLocksStatistics(msgspec.Struct, frozen=True):
    """Locks there are, those that ran out among them; totals since the start."""

    groups: int
    locks: int
    taken_over: int
    refused: int


class QueueLocks:
    """Locks of all groups. A lock that is not asked for again within `max_live_ms` has run out."""

    def __init__(self, max_live_ms: int, most: int = MOST_LOCKS, limits: Limits | None = None) -> None:
        self._max_live_ms = max_live_ms
        self._limit = (limits or Limits()).locks_per_group
        self._limit.used = lambda: max(map(len, self._groups.values()), default=0)
        self._most = most
        self._groups: dict[str, dict[MessageQueue, QueueLock]] = {}  # last renewed last
        self._order: dict[tuple[str, MessageQueue], QueueLock] = {}  # first renewed first
        self._taken_over = 0
        self._refused = 0

    def __repr__(self) -> str:
        return f"<QueueLocks groups={len(self._groups)} locks={len(self._order)}>"

    def statistics(self) -> QueueLocksStatistics:
        """The figures now."""
        return QueueLocksStatistics(len(self._groups), len(self._order), self._taken_over, self._refused)

    def configure(self, max_live_ms: int) -> None:
        """Let locks live so long from now on, those that there are too."""
        self._max_live_ms = max_live_ms

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock what is free, renew what is the client's already; returns the queues that it holds now.

        RequestError, and nothing changes, if the group asks for more locks than it may have.
        """
        asked = list(queues)
        locks = self._groups.get(group, {})
        wanted = len(locks) + sum(queue not in locks for queue in asked)
        if wanted > max(self._limit.most, len(locks)):
            raise self._limit.refusal(f"{wanted} locks of group {group}")
        return [queue for queue in asked if self._take(group, client_id, queue, now_ms)]

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free those of the queues that the client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.owner == client_id:
                self._drop(group, queue)

    def is_orderly(self, group: str, now_ms: int) -> bool:
        """Whether the group consumes in order: somebody holds one of its queues."""
        locks = self._groups.get(group)
        return locks is not None and self._is_live(next(reversed(locks.values())), now_ms)

    def remove_group(self, group: str) -> None:
        """Forget the locks of a deleted group."""
        for queue in list(self._groups.get(group, ())):
            self._drop(group, queue)

    def step(self, now_ms: int) -> None:
        """Drop some of what has run out."""
        for _ in range(min(DROPPED_PER_STEP, len(self._order))):
            group, queue = place = next(iter(self._order))
            if self._is_live(self._order[place], now_ms):
                return
            self._drop(group, queue)

    def _take(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> bool:
        lock = self._groups.get(group, {}).get(queue)
        if lock is None:
            return self._add(group, queue, QueueLock(client_id, now_ms))
        if lock.owner != client_id:
            if self._is_live(lock, now_ms):
                return False
            self._taken_over += 1
            log.info("queue lock taken over group=%s queue=%s from=%s to=%s", group, queue, lock.owner, client_id)
        self._drop(group, queue)
        lock.owner, lock.renewed_ms = client_id, now_ms
        return self._add(group, queue, lock)

    def _is_live(self, lock: QueueLock, now_ms: int) -> bool:
        return now_ms - lock.renewed_ms <= self._max_live_ms

    def _add(self, group: str, queue: MessageQueue, lock: QueueLock) -> bool:
        if len(self._order) >= self._most:
            if not self._refused:
                log.warning("no more queues can be locked most=%d group=%s queue=%s", self._most, group, queue)
            self._refused += 1
            return False
        self._groups.setdefault(group, {})[queue] = lock
        self._order[group, queue] = lock
        return True

    def _drop(self, group: str, queue: MessageQueue) -> None:
        locks = self._groups[group]
        del locks[queue]
        del self._order[group, queue]
        if not locks:
            del self._groups[group]
