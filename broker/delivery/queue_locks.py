"""Queue locks: one client of a group at a time may consume a queue in order.

    group -> queue -> client id, and the time of the last request for the lock

A client locks queues and renews each lock before it expires. Any client of the group may take an expired lock. Only the
owner releases a lock. The owner is the client id, not its connection: a client that has lost its connection may still
process its messages, and another client that got the queue would overtake it. So the queues of a killed client stand
still until their locks expire; ordered consumption requires that.

All locks have the same lifetime, so they expire in the order of their last requests. Both tables have that order.
Therefore `step` and `is_orderly` visit no more locks than they drop.

A group has at most `maxLocksPerGroup` locks. All groups together have at most MOST_LOCKS; beyond that only queues that
are locked already can be locked.
Source: docs/reference/wire.md, "Queue locks".
"""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from skylarkmq.broker.metadata.limits import Limits
from skylarkmq.protocol.bodies.message_queue import MessageQueue

MOST_LOCKS: Final = 100_000
DROPPED_PER_STEP: Final = 500
"""Takes about 0.25 ms."""

log = logging.getLogger(__name__)


class QueueLock(msgspec.Struct, eq=False, gc=False):
    """The lock of a queue. `renewed_ms`: the time of the last request, in ms of any steady clock."""

    owner: str
    renewed_ms: int


class QueueLocksStatistics(msgspec.Struct, frozen=True):
    """Number of locks, expired ones included; totals since the start."""

    groups: int
    locks: int
    taken_over: int
    refused: int


class QueueLocks:
    """Locks of all groups. A lock expires if it is not renewed within `max_live_ms`."""

    def __init__(self, max_live_ms: int, most: int = MOST_LOCKS, limits: Limits | None = None) -> None:
        self._max_live_ms = max_live_ms
        self._limit = (limits or Limits()).locks_per_group
        self._limit.used = lambda: max(map(len, self._groups.values()), default=0)
        self._most = most
        self._groups: dict[str, dict[MessageQueue, QueueLock]] = {}  # most recently renewed last
        self._order: dict[tuple[str, MessageQueue], QueueLock] = {}  # least recently renewed first
        self._taken_over = 0
        self._refused = 0

    def __repr__(self) -> str:
        return f"<QueueLocks groups={len(self._groups)} locks={len(self._order)}>"

    def statistics(self) -> QueueLocksStatistics:
        """Return the current figures."""
        return QueueLocksStatistics(len(self._groups), len(self._order), self._taken_over, self._refused)

    def configure(self, max_live_ms: int) -> None:
        """Set the lifetime of locks, existing ones included."""
        self._max_live_ms = max_live_ms

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int) -> list[MessageQueue]:
        """Lock the free ones of the queues and renew the client's own locks. Returns the queues that it holds now.

        Raises RequestError, and changes nothing, if the group would exceed its number of locks.
        """
        asked = list(queues)
        locks = self._groups.get(group, {})
        wanted = len(locks) + sum(queue not in locks for queue in asked)
        if wanted > max(self._limit.most, len(locks)):
            raise self._limit.refusal(f"{wanted} locks of group {group}")
        return [queue for queue in asked if self._take(group, client_id, queue, now_ms)]

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release the queues that the client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.owner == client_id:
                self._drop(group, queue)

    def is_orderly(self, group: str, now_ms: int) -> bool:
        """Return whether the group consumes in order: one of its locks has not expired."""
        locks = self._groups.get(group)
        return locks is not None and self._is_live(next(reversed(locks.values())), now_ms)

    def remove_group(self, group: str) -> None:
        """Remove the locks of a deleted group."""
        for queue in list(self._groups.get(group, ())):
            self._drop(group, queue)

    def step(self, now_ms: int) -> None:
        """Drop some expired locks."""
        for _ in range(min(DROPPED_PER_STEP, len(self._order))):
            group, queue = key = next(iter(self._order))
            if self._is_live(self._order[key], now_ms):
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
